import CWardLinux
import Glibc
import Synchronization
import WardSystem

/// Lets one worker serve all requests while it keeps up, and the others rest in user space.
///
/// For each request the kernel wakes one of the threads that sleep in read(2) on the device, though
/// another one polls and takes it (fs/fuse/dev.c, `fuse_dev_wake_and_unlock`): two context switches
/// for nothing, on the CPU of the program that waits for the answer. So a worker that has answered
/// enough requests in a row quickly takes over, and gets the others out of the kernel. One of these
/// stays on watch: a millisecond without an answer while another request waits, and all are back at
/// the device. When nothing comes any more they go back, too, so that an idle mount does nothing at
/// all.
///
/// Where that is allowed (`GivingWay`), and requests come one after the other, whoever is on watch
/// makes the worker that serves give way to the program that asks, and an ordinary thread again,
/// bound to no CPU, when the watch ends, whyever, or it starves. Nobody else does: a worker that
/// gave way by itself could be kept from undoing it.
final class LoneServing: Sendable {
    /// Of the watch's looks, without a request.
    private static let idleLooks = 16
    /// While one request is served that nobody waits behind.
    private static let patientLooks = 256
    /// How long it takes a thread at most to bind itself to a CPU, unless it is kept from running.
    private static let bindingNanoseconds: UInt64 = 1_000_000

    /// Odd while one serves alone: what the others wait for, futex(2).
    private let state = FutexWord()
    /// The worker that serves alone; -1: none.
    private let owner = Atomic<Int>(-1)
    /// Of the owner: goes up when a request comes and when it is answered; odd in between.
    private let beat = Atomic<UInt64>(0)
    private let hasWatch = Atomic<Bool>(false)
    /// Whether that is possible at all; set before there are workers.
    let mayGiveWay = Atomic<Bool>(false)
    /// Of the owner: it wants to give way.
    let wantsToGiveWay = Atomic<Bool>(false)
    /// Goes up when an owner is made to give way and when it is made an ordinary thread again; odd
    /// in between.
    let turn = Atomic<UInt32>(0)
    /// The owner's thread, gettid(2).
    private let ownerThread = Atomic<Int32>(0)
    /// Nobody gives way before that, nanoseconds of the monotonic clock.
    private let from = Atomic<UInt64>(0)
    /// The thread that was made to give way; 0: none. The owner takes it to bind itself, and may be
    /// kept from running then: whoever else does uses `withGiving`.
    private let giving = Mutex<Int32>(0)
    private let looking = Mutex(Looking())
    /// Those that sleep at the device, by worker.
    private let sleepers = Mutex<[pthread_t?]>([])
    private let use: @Sendable (Int32) -> ThreadUse?
    private let watchNanoseconds: Int
    /// The owner made an ordinary thread within a request twice within that is starvation.
    private let freedNanoseconds: UInt64

    /// Of whoever is on watch.
    private struct Looking {
        var starvation = Starvation()
        /// Nanoseconds of the monotonic clock.
        var next: UInt64 = 0
        /// The request, a beat, that the owner was at for longer than a look, and what it had had
        /// by then.
        var held: (request: UInt64, time: UInt64, use: ThreadUse?)?
        /// When the owner was made an ordinary thread within a request, the last time.
        var wasFreed: UInt64 = 0
    }

    /// `watchNanoseconds`: from one look of the watch's to the next. `use`: what a thread of this
    /// process has had of the CPUs.
    init(
        watchNanoseconds: Int = 1_000_000, freedNanoseconds: UInt64 = 20_000_000,
        use: @escaping @Sendable (Int32) -> ThreadUse? = ThreadUse.read(ofThread:)
    ) {
        self.watchNanoseconds = watchNanoseconds
        self.freedNanoseconds = freedNanoseconds
        self.use = use
    }

    /// Whether this worker is to leave the device alone.
    @inline(__always)
    func isServedByOther(than worker: Int) -> Bool {
        let owner = owner.load(ordering: .relaxed)
        return owner >= 0 && owner != worker
    }

    @inline(__always)
    func isServed(by worker: Int) -> Bool { owner.load(ordering: .relaxed) == worker }

    // MARK: Of the owner

    /// From now on this worker serves alone. False: another one does.
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

    /// Binds the owner, which calls, to a CPU while it gives way. To be undone by who ends that,
    /// not by the owner: that may be kept from running there. So binding and the look whether it
    /// still gives way are one step.
    func bindOwner(to cpu: UInt32) -> ProgramFollowing.Binding {
        let done = giving.withLockIfAvailable { thread -> ProgramFollowing.Binding in
            guard thread == ward_gettid() else { return .notNow }
            return ward_run_on_cpu(cpu) == 0 ? .done : .impossible
        }
        return done ?? .notNow
    }

    /// Before the thread of a worker ends, which calls: its number is soon another one's.
    func workerEnds() {
        let thread = ward_gettid()
        let wasOwner = ownerThread.compareExchange(
            expected: thread, desired: 0, ordering: .acquiringAndReleasing
        ).exchanged
        if wasOwner { wantsToGiveWay.store(false, ordering: .relaxed) }
        withGiving { if $0 == thread { stopGivingWay(&$0) } }
        end()
    }

    /// Gets those out of the kernel that still sleep there. A signal that comes before the system
    /// call is lost: to be called again now and then.
    func sendOthersAway(_ worker: Int) {
        sleepers.withLock { sleepers in
            for (number, thread) in sleepers.enumerated() where number != worker {
                if let thread { InterruptingSignal.send(to: thread) }
            }
        }
    }

    /// Everybody serves again. Of whatever thread.
    func end() {
        let now = state.value
        guard now & 1 == 1, state.increment(from: now) else { return }
        owner.store(-1, ordering: .sequentiallyConsistent)
        state.wakeAll()
    }

    // MARK: Of the others

    /// Around a system call that sleeps at the device.
    func whileAtDevice<R>(_ worker: Int, _ body: () -> R) -> R {
        let thread = pthread_self()
        sleepers.withLock { sleepers in
            while sleepers.count <= worker { sleepers.append(nil) }
            sleepers[worker] = thread
        }
        defer { sleepers.withLock { $0[worker] = nil } }
        return InterruptingSignal.whileAccepting(body)
    }

    /// Waits while another one serves alone, or less. `isAnotherThere`: a request waits at the
    /// device.
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

    /// Makes the owner give way, or not any more. By whoever is on watch. `heldRequest`: the one, a
    /// beat, that it has been at since the last look; 0: there is none.
    private func considerGivingWay(_ now: UInt64, heldRequest: UInt64) {
        looking.withLock { looking in
            if !wantsToGiveWay.load(ordering: .relaxed) || now < from.load(ordering: .acquiring) {
                withGiving { stopGivingWay(&$0) }
            } else if turn.load(ordering: .relaxed) & 1 == 0 {
                let thread = ownerThread.load(ordering: .acquiring)
                // A request that takes long may hold what a lock waits for.
                guard thread != 0, heldRequest == 0 else { return }
                // What is seen next is compared with this.
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

    /// The owner has hardly run since the last look that found it at this request, though it would
    /// if it were let.
    private func isKeptFromRunning(
        _ looking: inout Looking, _ request: UInt64, _ now: UInt64
    ) -> Bool {
        let use = use(ownerThread.load(ordering: .acquiring))
        defer { looking.held = (request, SystemClock.nanoseconds(), use) }
        guard let before = looking.held, before.request == request else { return false }
        guard let use, let last = before.use else { return true }
        // One that waits for the disk, again and again, may be about to run.
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
            // Somebody has lowered RLIMIT_NICE (prlimit(2)) since that was tried.
            mayGiveWay.store(false, ordering: .relaxed)
        }
        _ = ward_make_leave_cpu(thread)
    }

    /// Where the owner binds itself meanwhile it is soon through, or kept from running: after a
    /// millisecond it is made an ordinary thread, bound to nothing, as often as needed, and its
    /// turn is over. False: given up after `patience` nanoseconds.
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

    /// Of any thread.
    var hasStarved: Bool { looking.withLock { $0.starvation.hasFound } }

    /// Nobody gives way for so long from now on. Of any thread; it waits some milliseconds at most.
    /// False: then it gave up, and whoever is on watch sees to it.
    @discardableResult
    func pauseGivingWay(nanoseconds: UInt64) -> Bool {
        from.max(SystemClock.nanoseconds() &+ nanoseconds, ordering: .sequentiallyConsistent)
        return withGiving(patience: 5_000_000) { stopGivingWay(&$0) }
    }
}

/// How one worker gets on with what comes: whether it could serve alone.
struct ServingPace {
    /// More requests in a row that waited already when the one before was answered are more than
    /// one worker's.
    static let mostWaiting = 8
    /// `evenness` goes up by one for a request served quickly, and down by this for another.
    private static let penalty = 16
    /// And by this for a sync. What is no more than a write and a sync in turns is not one
    /// worker's: it would wait on the program's CPU, away from where the disk reports.
    private static let syncPenalty = 4
    private static let slowNanoseconds: UInt64 = 40_000
    /// What takes longer is not one worker's, even where it waited for nothing.
    private static let longNanoseconds: UInt64 = 500_000
    private static let enough = 64
    private static let highest = 128
    /// After a slow one it is seen of so many whether they wait, and after one that did of none of
    /// so many slow ones.
    private static let watched = 64
    private static let unwatched = 16

    /// What takes longer may have waited for a disk: others could have served meanwhile.
    private let quickNanoseconds: UInt64
    /// How often the calling thread has waited so far.
    private let waits: @Sendable () -> Int
    private var evenness = 0
    /// When the request came that is served; 0: none is.
    private var servingSince: UInt64 = 0
    private var isSync = false
    private var isLarge = false
    private var waitingInARow = 0
    /// Of those that come, it is seen whether they wait.
    private var toWatch = 0
    /// Of the slow ones that come, it is not.
    private var toLeave = 0
    /// `waits` when the request came that is served; -1: it is not seen whether it waits.
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

    /// One that serves alone had better not, any more.
    @inline(__always)
    var needsOthers: Bool { evenness < ServingPace.enough / 2 }

    /// A request came, nanoseconds of the clock; `hadWaited`: it was there before it was asked for;
    /// `isSync`: how long it takes says nothing of the others; `isLarge`: others could do some of
    /// it.
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

    /// It was answered.
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

    /// Whether a slow one is known to have waited for nothing: the machine is slow.
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
