import CWardLinux
import Glibc
import Synchronization
import WardSystem

/// Makes one worker serve all requests while it keeps up; the other workers rest in user space.
///
/// For each request the kernel wakes a worker that sleeps in read(2) on the device, though another
/// worker polls and takes it (fs/fuse/dev.c, `fuse_dev_wake_and_unlock`). That costs two context
/// switches, on the CPU of the program that waits for the answer. So a worker that answered enough
/// requests in a row quickly becomes the sole worker, the *owner*, and gets the others out of the
/// kernel. One of these keeps watch. If a request waits while the owner did not answer for a
/// millisecond, all workers go back to the device. If no more requests come they go back, too, so
/// that an idle mount does nothing.
///
/// Where that is allowed (`GivingWay`) and requests come one after the other, the watch makes the
/// owner yield to the program that asks. The watch makes it an ordinary thread again, bound to no
/// CPU, when it starves and when the watch ends for any reason. The owner does not change itself:
/// once it yields, it may never get a CPU to undo that.
final class LoneServing: Sendable {
    /// Looks without a request, after which the watch ends the turn of the owner.
    private static let idleLooks = 16
    /// The same for looks during one request that no other request waits behind.
    private static let patientLooks = 256
    /// The longest time that a running thread needs to bind itself to a CPU.
    private static let bindingNanoseconds: UInt64 = 1_000_000

    /// Odd while there is an owner. The other workers wait for it to change, futex(2).
    private let state = FutexWord()
    /// The sole worker; -1: none.
    private let owner = Atomic<Int>(-1)
    /// Goes up when a request of the owner comes and when it is answered; odd in between.
    private let beat = Atomic<UInt64>(0)
    private let hasWatch = Atomic<Bool>(false)
    /// Whether the owner may yield at all; set before there are workers.
    let mayGiveWay = Atomic<Bool>(false)
    /// Set by the owner: it wants to yield.
    let wantsToGiveWay = Atomic<Bool>(false)
    /// Goes up when an owner is made to yield and when it is made an ordinary thread again; odd in
    /// between.
    let turn = Atomic<UInt32>(0)
    /// The owner's thread, gettid(2).
    private let ownerThread = Atomic<Int32>(0)
    /// No owner yields before this time, nanoseconds of the monotonic clock.
    private let from = Atomic<UInt64>(0)
    /// The thread that was made to yield; 0: none. The owner takes the mutex to bind itself, and
    /// may get no CPU while it holds it. So every other thread uses `withGiving`.
    private let giving = Mutex<Int32>(0)
    private let looking = Mutex(Looking())
    /// The threads that sleep at the device, by worker.
    private let sleepers = Mutex<[pthread_t?]>([])
    private let use: @Sendable (Int32) -> ThreadUse?
    private let watchNanoseconds: Int
    /// The owner starves if it was made an ordinary thread within a request twice in this time.
    private let freedNanoseconds: UInt64

    /// The state of the watch.
    private struct Looking {
        var starvation = Starvation()
        /// The time of the next look for starvation, nanoseconds of the monotonic clock.
        var next: UInt64 = 0
        /// The request (a beat) that the owner served for longer than a look, and the owner's use
        /// of the CPUs by then.
        var held: (request: UInt64, time: UInt64, use: ThreadUse?)?
        /// When the owner was last made an ordinary thread within a request.
        var wasFreed: UInt64 = 0
    }

    /// `watchNanoseconds`: from one look of the watch to the next. `use`: reads a thread's use of
    /// the CPUs.
    init(
        watchNanoseconds: Int = 1_000_000, freedNanoseconds: UInt64 = 20_000_000,
        use: @escaping @Sendable (Int32) -> ThreadUse? = ThreadUse.read(ofThread:)
    ) {
        self.watchNanoseconds = watchNanoseconds
        self.freedNanoseconds = freedNanoseconds
        self.use = use
    }

    /// Whether this worker must leave the device to the sole worker.
    @inline(__always)
    func isServedByOther(than worker: Int) -> Bool {
        let owner = owner.load(ordering: .relaxed)
        return owner >= 0 && owner != worker
    }

    @inline(__always)
    func isServed(by worker: Int) -> Bool { owner.load(ordering: .relaxed) == worker }

    // MARK: Of the owner

    /// Makes this worker the sole worker. False: another one is.
    func begin(_ worker: Int) -> Bool {
        guard
            owner.compareExchange(
                expected: -1, desired: worker, ordering: .acquiringAndReleasing
            ).exchanged
        else { return false }
        wantsToGiveWay.store(false, ordering: .relaxed)
        ownerThread.store(ward_gettid(), ordering: .releasing)
        state.increment()
        sendOthersAway(worker)
        return true
    }

    @inline(__always)
    func noteBeat(isServing: Bool) {
        let now = beat.load(ordering: .relaxed)
        guard (now & 1 == 1) != isServing else { return }
        beat.store(now &+ 1, ordering: .releasing)
    }

    /// Binds the owner, which calls this, to a CPU while it yields.
    ///
    /// The thread that ends the turn undoes the binding: the owner may get no CPU there. So one
    /// mutex covers the binding and the look whether the owner still yields.
    func bindOwner(to cpu: UInt32) -> ProgramFollowing.Binding {
        let done = giving.withLockIfAvailable { thread -> ProgramFollowing.Binding in
            guard thread == ward_gettid() else { return .notNow }
            return ward_run_on_cpu(cpu) == 0 ? .done : .impossible
        }
        return done ?? .notNow
    }

    /// Called on the thread of a worker before it ends: the kernel may soon reuse its number.
    func workerEnds() {
        let thread = ward_gettid()
        let wasOwner = ownerThread.compareExchange(
            expected: thread, desired: 0, ordering: .acquiringAndReleasing
        ).exchanged
        if wasOwner { wantsToGiveWay.store(false, ordering: .relaxed) }
        withGiving { if $0 == thread { stopGivingWay(&$0) } }
        end()
    }

    /// Interrupts the other workers that still sleep in the kernel. A signal before the system call
    /// is lost, so this is called again now and then.
    func sendOthersAway(_ worker: Int) {
        sleepers.withLock { sleepers in
            for (number, thread) in sleepers.enumerated() where number != worker {
                if let thread { InterruptingSignal.send(to: thread) }
            }
        }
    }

    /// Makes all workers serve again. Any thread may call.
    func end() {
        let now = state.value
        guard now & 1 == 1, state.increment(from: now) else { return }
        owner.store(-1, ordering: .sequentiallyConsistent)
        state.wakeAll()
    }

    // MARK: Of the others

    /// Runs a system call that sleeps at the device.
    func whileAtDevice<R>(_ worker: Int, _ body: () -> R) -> R {
        let thread = pthread_self()
        sleepers.withLock { sleepers in
            while sleepers.count <= worker { sleepers.append(nil) }
            sleepers[worker] = thread
        }
        defer { sleepers.withLock { $0[worker] = nil } }
        return InterruptingSignal.whileAccepting(body)
    }

    /// Waits while there is a sole worker, and may return before. `isAnotherThere`: a request waits
    /// at the device.
    func rest(_ worker: Int, isAnotherThere: () -> Bool) {
        let now = state.value
        guard now & 1 == 1, isServedByOther(than: worker) else { return }
        if hasWatch.exchange(true, ordering: .acquiringAndReleasing) {
            state.wait(while: now)
        } else {
            watch(now, isAnotherThere)
            hasWatch.store(false, ordering: .releasing)
        }
    }

    private func watch(_ now: UInt32, _ isAnotherThere: () -> Bool) {
        var last = beat.load(ordering: .acquiring)
        var looks = 0
        defer { withGiving { stopGivingWay(&$0) } }
        while state.value == now {
            state.wait(while: now, nanoseconds: watchNanoseconds)
            let beat = beat.load(ordering: .acquiring)
            looks = beat == last ? looks + 1 : 0
            let isServing = beat & 1 == 1
            let mostLooks = isServing ? LoneServing.patientLooks : LoneServing.idleLooks
            if looks >= mostLooks || isServing && looks > 0 && isAnotherThere() { return end() }
            last = beat
            if state.value == now, mayGiveWay.load(ordering: .relaxed) {
                considerGivingWay(
                    SystemClock.nanoseconds(), heldRequest: isServing && looks > 0 ? beat : 0)
            }
        }
    }

    // MARK: Giving way

    /// Makes the owner yield, or an ordinary thread again. Called by the watch. `heldRequest`: the
    /// beat of the request that the owner has served since the last look; 0: none.
    private func considerGivingWay(_ now: UInt64, heldRequest: UInt64) {
        looking.withLock { looking in
            if !wantsToGiveWay.load(ordering: .relaxed) || now < from.load(ordering: .acquiring) {
                withGiving { stopGivingWay(&$0) }
            } else if turn.load(ordering: .relaxed) & 1 == 0 {
                let thread = ownerThread.load(ordering: .acquiring)
                // A request that takes long may hold a mutex that a lock waits for.
                guard thread != 0, heldRequest == 0 else { return }
                // The next look compares with this one.
                _ = looking.starvation.find([thread], use: use)
                looking.next = now &+ UInt64(Starvation.intervalNanoseconds)
                withGiving { startGivingWay(&$0, thread) }
            } else if heldRequest != 0, isKeptFromRunning(&looking, heldRequest, now) {
                if now &- looking.wasFreed < freedNanoseconds {
                    pause(&looking, now)
                }
                looking.wasFreed = now
                withGiving { stopGivingWay(&$0) }
            } else if now >= looking.next {
                looking.next = now &+ UInt64(Starvation.intervalNanoseconds)
                let thread = ownerThread.load(ordering: .acquiring)
                guard thread != 0, !looking.starvation.find([thread], use: use).isEmpty else {
                    return
                }
                pause(&looking, now)
                withGiving { stopGivingWay(&$0) }
            }
        }
    }

    private func pause(_ looking: inout Looking, _ now: UInt64) {
        let pause = looking.starvation.pauseNanoseconds(at: now)
        from.max(now &+ pause, ordering: .sequentiallyConsistent)
    }

    /// The owner is runnable, but got less than 1/8 of the CPU since the last look at this request.
    private func isKeptFromRunning(
        _ looking: inout Looking, _ request: UInt64, _ now: UInt64
    ) -> Bool {
        let use = use(ownerThread.load(ordering: .acquiring))
        defer { looking.held = (request, SystemClock.nanoseconds(), use) }
        guard let before = looking.held, before.request == request else { return false }
        guard let use, let last = before.use else { return true }
        // An owner that waits for the disk again and again may be about to run.
        let wantedTo = last.isRunnable && use.isRunnable && use.turns &- last.turns <= 1
        return wantedTo && use.nanoseconds &- last.nanoseconds < (now &- before.time) / 8
    }

    private func startGivingWay(_ giving: inout Int32, _ thread: Int32) {
        // A lock may have begun since.
        guard giving == 0,
            SystemClock.nanoseconds() >= from.load(ordering: .sequentiallyConsistent),
            ward_make_give_way(thread, 1) == 0
        else { return }
        giving = thread
        turn.add(1, ordering: .sequentiallyConsistent)
    }

    private func stopGivingWay(_ giving: inout Int32) {
        guard giving != 0 else { return }
        makeOrdinary(giving)
        giving = 0
        turn.add(1, ordering: .sequentiallyConsistent)
    }

    private func makeOrdinary(_ thread: Int32) {
        if ward_thread_gives_way(thread) != 0, ward_make_give_way(thread, 0) != 0 {
            // RLIMIT_NICE was lowered (prlimit(2)) since `GivingWay.isPossible` tried it.
            mayGiveWay.store(false, ordering: .relaxed)
        }
        _ = ward_make_leave_cpu(thread)
    }

    /// Runs `body` with `giving` locked.
    ///
    /// An owner that is binding itself holds the mutex. It is soon done, unless it gets no CPU.
    /// After a millisecond this makes it an ordinary thread, bound to no CPU, and ends its turn, as
    /// often as needed. False: gave up after `patience` nanoseconds.
    @discardableResult
    private func withGiving(
        patience: UInt64 = .max, _ body: (inout Int32) -> Void
    ) -> Bool {
        let start = SystemClock.nanoseconds()
        var wasForced = false
        while true {
            let done: Void? = giving.withLockIfAvailable { giving in
                if wasForced { stopGivingWay(&giving) }
                body(&giving)
            }
            guard done == nil else { return true }
            let waited = SystemClock.nanoseconds() &- start
            if waited >= patience { return false }
            let thread = ownerThread.load(ordering: .acquiring)
            if waited > LoneServing.bindingNanoseconds, thread != 0, thread != ward_gettid() {
                makeOrdinary(thread)
                wasForced = true
            }
            usleep(50)
        }
    }

    /// Whether an owner ever starved. Any thread may ask.
    var hasStarved: Bool { looking.withLock { $0.starvation.hasFound } }

    /// Keeps the owner from yielding for `nanoseconds` from now on. Any thread may call; it waits a
    /// few milliseconds at most. False: it gave up, and the watch ends the turn.
    @discardableResult
    func pauseGivingWay(nanoseconds: UInt64) -> Bool {
        from.max(SystemClock.nanoseconds() &+ nanoseconds, ordering: .sequentiallyConsistent)
        return withGiving(patience: 5_000_000) { stopGivingWay(&$0) }
    }
}

/// Judges from the pace of one worker whether it could be the sole worker.
struct ServingPace {
    /// If more requests in a row waited when the one before was answered, one worker is too few.
    static let mostWaiting = 8
    /// A quick request raises `evenness` by one; any other lowers it by this.
    private static let penalty = 16
    /// A sync lowers it by this. A program that alternates writes and syncs needs several workers.
    /// A sole worker would wait on the program's CPU, and the disk reports on another.
    private static let syncPenalty = 4
    private static let slowNanoseconds: UInt64 = 40_000
    /// A slower request needs other workers, even if this one waited for nothing.
    private static let longNanoseconds: UInt64 = 500_000
    private static let enough = 64
    private static let highest = 128
    /// Waits are counted in so many requests after a slow one. After a slow one that did wait, so
    /// many slow ones start no count.
    private static let watched = 64
    private static let unwatched = 16

    /// A slower request may have waited for a disk: other workers could have served meanwhile.
    private let quickNanoseconds: UInt64
    /// Returns how often the calling thread has waited so far.
    private let waits: @Sendable () -> Int
    private var evenness = 0
    /// When the current request came; 0: there is none.
    private var servingSince: UInt64 = 0
    private var isSync = false
    private var isLarge = false
    private var waitingInARow = 0
    /// The next requests in which waits are counted.
    private var toWatch = 0
    /// The next slow requests that start no count.
    private var toLeave = 0
    /// `waits` when the current request came; -1: not counted.
    private var waitsBefore = -1
    /// The last request may have waited for a disk.
    private(set) var wasSlow = false

    init(
        quickNanoseconds: UInt64 = 60_000,
        waits: @escaping @Sendable () -> Int = { ward_voluntary_switches() }
    ) {
        self.quickNanoseconds = quickNanoseconds
        self.waits = waits
    }

    @inline(__always)
    var isServing: Bool { servingSince > 0 }

    @inline(__always)
    var sufficesAlone: Bool { evenness >= ServingPace.enough }

    /// A sole worker should end its turn.
    @inline(__always)
    var needsOthers: Bool { evenness < ServingPace.enough / 2 }

    /// Notes that a request came at `now`, nanoseconds of the clock.
    ///
    /// `hadWaited`: the request was queued before the worker looked. The time of a sync (`isSync`)
    /// says nothing about other requests. Other workers could do a part of a large request
    /// (`isLarge`).
    @inline(__always)
    mutating func begin(
        _ now: UInt64, hadWaited: Bool, isSync: Bool = false, isLarge: Bool = false
    ) {
        servingSince = now
        self.isSync = isSync
        self.isLarge = isLarge
        waitingInARow = hadWaited ? waitingInARow &+ 1 : 0
        waitsBefore = -1
        if toWatch > 0 {
            toWatch &-= 1
            waitsBefore = waits()
        }
    }

    /// Notes that the request was answered.
    @inline(__always)
    mutating func end(_ now: UInt64) {
        let took = now &- servingSince
        servingSince = 0
        wasSlow = took >= ServingPace.slowNanoseconds
        var isQuick = took < quickNanoseconds
        if wasSlow, !isSync, !isLarge, took < ServingPace.longNanoseconds, hasNotWaited() {
            wasSlow = false
            isQuick = true
        }
        if isQuick, !isSync, waitingInARow <= ServingPace.mostWaiting {
            evenness = min(evenness &+ 1, ServingPace.highest)
        } else {
            let penalty = isSync ? ServingPace.syncPenalty : ServingPace.penalty
            evenness = max(evenness &- penalty, 0)
        }
    }

    /// Whether a slow request is known to have waited for nothing: the machine is slow.
    private mutating func hasNotWaited() -> Bool {
        guard waitsBefore >= 0 else {
            if toLeave > 0 { toLeave &-= 1 } else { toWatch = ServingPace.watched }
            return false
        }
        if waits() == waitsBefore {
            toWatch = ServingPace.watched
            return true
        }
        toWatch = 0
        toLeave = ServingPace.unwatched
        return false
    }
}
