import CWardLinux
import Synchronization
import WardSystem

/// The state that the workers of one connection share, over FUSE over io_uring.
final class RingShare: Sendable {
    let device: Int32
    /// Goes up with each demand to wipe buffers.
    let wipeDemand = Atomic<UInt64>(0)
    let recentQueues = RecentQueues()
    let rules: ServingRules
    let machine = ServingMachine.read()
    /// The rings are not used after all: the workers end.
    let isDeclined = Atomic<Bool>(false)
    let queues: [Queue]
    /// Whether workers may yield (`Yielding`): only while the watch runs, which sees them starve.
    let mayYield = Atomic<Bool>(false)
    /// No worker yields before this time, nanoseconds of the monotonic clock.
    let notBefore = Atomic<UInt64>(0)
    /// Whether the watch looks after the workers (`RingWatch`).
    let isWatched = Atomic<Bool>(false)
    /// Changes when the watch is to begin or end.
    let watchWord = FutexWord()

    final class Queue: Sendable {
        /// The workers that wait for a request.
        let idle = Atomic<Int>(0)
        /// Requests that are being served, without RELEASE and RELEASEDIR, which no program waits
        /// for.
        let serving = Atomic<Int>(0)
    }

    init(device: Int32, queues: Int, rules: ServingRules = .all) {
        self.device = device
        self.rules = rules
        self.queues = (0..<queues).map { _ in Queue() }
    }

    func wakeWatch() {
        guard !isWatched.exchange(true, ordering: .sequentiallyConsistent) else { return }
        watchWord.increment()
        watchWord.wakeAll()
    }
}

/// The state of a worker that other threads see.
final class RingWorker: Sendable {
    let queues: [UInt16]
    let wipeProgress = WipeProgress()
    /// Goes up when a request comes and when it was answered; odd in between.
    let beat = Atomic<UInt64>(0)
    /// The worker holds no content of requests.
    let isClean = Atomic<Bool>(true)
    /// Set by the watch when no request came for a while: the worker must wipe its buffers.
    let mustRest = Atomic<Bool>(false)
    /// The worker's thread, gettid(2); 0 before it has begun.
    let thread = Atomic<Int32>(0)
    /// The worker thinks that it yields to programs. The kernel knows whether it does.
    let yields = Atomic<Bool>(false)

    init(queues: [UInt16]) { self.queues = queues }

    /// Makes the worker an ordinary thread if it yields. Any thread may call.
    func stopYielding() {
        let number = thread.load(ordering: .relaxed)
        guard number != 0, ward_thread_gives_way(number) != 0,
            ward_make_give_way(number, 0) == 0
        else { return }
        yields.store(false, ordering: .sequentiallyConsistent)
    }
}
