import CWardLinux
import Glibc
import Synchronization
import WardSystem

/// Makes one worker serve all requests while it keeps up; the other workers rest in user space.
/// `ServingPolicy` says when; this is the protocol between the threads.
///
/// For each request the kernel wakes a worker that sleeps in read(2) on the device, though another
/// worker polls and takes it (fs/fuse/dev.c, `fuse_dev_wake_and_unlock`). That costs two context
/// switches, on the CPU of the program that waits for the answer. So a worker that answered enough
/// requests in a row quickly becomes the sole worker, the *owner*, and gets the others out of the
/// kernel. One of these keeps watch. If a request waits while the owner did not answer for a
/// millisecond, all workers go back to the device. If no more requests come they go back, too, so
/// that an idle mount does nothing.
///
/// Where that is allowed (`Yielding`) and requests come one after the other, the watch makes the
/// owner yield to the program that asks. The watch makes it an ordinary thread again, bound to no
/// CPU, when it starves and when the watch ends for any reason. The owner does not change itself:
/// once it yields, it may never get a CPU to undo that.
final class SoleWorker: Sendable {
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
    let mayYield = Atomic<Bool>(false)
    /// Set by the owner: it wants to yield.
    let wishesToYield = Atomic<Bool>(false)
    /// Goes up when an owner is made to yield and when it is made an ordinary thread again; odd in
    /// between.
    let turn = Atomic<UInt32>(0)
    /// The owner's thread, gettid(2).
    private let ownerThread = Atomic<Int32>(0)
    /// No owner yields before this time, nanoseconds of the monotonic clock.
    private let notBefore = Atomic<UInt64>(0)
    /// The thread that was made to yield; 0: none. The owner takes the mutex to bind itself, and
    /// may get no CPU while it holds it. So every other thread uses `withYielding`.
    private let yielding = Mutex<Int32>(0)
    /// The rules of the watch, for the thread that keeps it.
    private let watchPolicy: Mutex<ServingPolicy>
    /// The threads that sleep at the device, by worker.
    private let sleepers = Mutex<[pthread_t?]>([])
    private let use: @Sendable (Int32) -> ThreadUse?
    private let watchNanoseconds: Int

    /// `watchNanoseconds`: from one look of the watch to the next. `freedNanoseconds`: as in
    /// `ServingLimits`. `use`: reads a thread's use of the CPUs.
    init(
        watchNanoseconds: Int = ServingLimits.watchNanoseconds,
        freedNanoseconds: UInt64 = ServingLimits.freedNanoseconds,
        use: @escaping @Sendable (Int32) -> ThreadUse? = ThreadUse.read(ofThread:)
    ) {
        self.watchNanoseconds = watchNanoseconds
        self.use = use
        watchPolicy = Mutex(
            ServingPolicy(machine: .read(), freedNanoseconds: freedNanoseconds))
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
        wishesToYield.store(false, ordering: .relaxed)
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
    func bindOwner(to cpu: UInt32) -> ServingEvent.Binding {
        let done = yielding.withLockIfAvailable { thread -> ServingEvent.Binding in
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
        if wasOwner { wishesToYield.store(false, ordering: .relaxed) }
        withYielding { if $0 == thread { stopYielding(&$0) } }
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
        tellPolicy(.watchBegins(beat: beat.load(ordering: .acquiring)))
        defer { withYielding { stopYielding(&$0) } }
        while state.value == now {
            state.wait(while: now, nanoseconds: watchNanoseconds)
            var decision = tellPolicy(.watchTick(beat: beat.load(ordering: .acquiring)))
            if decision == .lookAtQueue {
                decision = tellPolicy(.watchSawQueue(isAnotherThere: isAnotherThere()))
            }
            if decision == .endTurn { return end() }
            if state.value == now, mayYield.load(ordering: .relaxed) { considerYielding() }
        }
    }

    @discardableResult
    private func tellPolicy(_ event: ServingEvent) -> ServingDecision {
        watchPolicy.withLock { $0.decide(event) }
    }

    // MARK: Yielding

    /// Makes the owner yield, or an ordinary thread again. Called by the watch.
    private func considerYielding() {
        watchPolicy.withLock { policy in
            let now = SystemClock.nanoseconds()
            let thread = ownerThread.load(ordering: .acquiring)
            let seen = SoleThread(
                wishes: wishesToYield.load(ordering: .relaxed),
                isBarred: now < notBefore.load(ordering: .acquiring),
                yields: turn.load(ordering: .relaxed) & 1 == 1, isKnown: thread != 0)
            var decision = policy.decide(.yieldTick(seen, at: now))
            while decision == .measureOwner {
                let sample = ThreadSample(thread: thread, use: use(thread))
                decision = policy.decide(.ownerMeasured(sample, at: SystemClock.nanoseconds()))
            }
            switch decision {
            case .startYielding: withYielding { startYielding(&$0, thread) }
            case .stopYielding(let barredUntil):
                if barredUntil > 0 {
                    notBefore.max(barredUntil, ordering: .sequentiallyConsistent)
                }
                withYielding { stopYielding(&$0) }
            default: break
            }
        }
    }

    private func startYielding(_ yielding: inout Int32, _ thread: Int32) {
        // A lock may have begun since.
        guard yielding == 0,
            SystemClock.nanoseconds() >= notBefore.load(ordering: .sequentiallyConsistent),
            ward_make_give_way(thread, 1) == 0
        else { return }
        yielding = thread
        turn.add(1, ordering: .sequentiallyConsistent)
    }

    private func stopYielding(_ yielding: inout Int32) {
        guard yielding != 0 else { return }
        makeOrdinary(yielding)
        yielding = 0
        turn.add(1, ordering: .sequentiallyConsistent)
    }

    private func makeOrdinary(_ thread: Int32) {
        if ward_thread_gives_way(thread) != 0, ward_make_give_way(thread, 0) != 0 {
            // RLIMIT_NICE was lowered (prlimit(2)) since `Yielding.isPossible` tried it.
            mayYield.store(false, ordering: .relaxed)
        }
        _ = ward_make_leave_cpu(thread)
    }

    /// Runs `body` with `yielding` locked.
    ///
    /// An owner that is binding itself holds the mutex. It is soon done, unless it gets no CPU.
    /// After a millisecond this makes it an ordinary thread, bound to no CPU, and ends its turn, as
    /// often as needed. False: gave up after `patience` nanoseconds.
    @discardableResult
    private func withYielding(
        patience: UInt64 = .max, _ body: (inout Int32) -> Void
    ) -> Bool {
        let start = SystemClock.nanoseconds()
        var wasForced = false
        while true {
            let done: Void? = yielding.withLockIfAvailable { yielding in
                if wasForced { stopYielding(&yielding) }
                body(&yielding)
            }
            guard done == nil else { return true }
            let waited = SystemClock.nanoseconds() &- start
            if waited >= patience { return false }
            let thread = ownerThread.load(ordering: .acquiring)
            if waited > SoleWorker.bindingNanoseconds, thread != 0, thread != ward_gettid() {
                makeOrdinary(thread)
                wasForced = true
            }
            usleep(50)
        }
    }

    /// Whether an owner ever starved. Any thread may ask.
    var hasStarved: Bool { watchPolicy.withLock { $0.hasStarved } }

    /// Keeps the owner from yielding for `nanoseconds` from now on. Any thread may call; it waits a
    /// few milliseconds at most. False: it gave up, and the watch ends the turn.
    @discardableResult
    func pauseYielding(nanoseconds: UInt64) -> Bool {
        notBefore.max(SystemClock.nanoseconds() &+ nanoseconds, ordering: .sequentiallyConsistent)
        return withYielding(patience: 5_000_000) { stopYielding(&$0) }
    }
}
