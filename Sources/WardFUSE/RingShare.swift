import Synchronization
import WardSystem

/// What the workers of one connection share that serve it by FUSE over io_uring.
final class RingShare: Sendable {
    let device: Int32
    /// Goes up with each demand to wipe buffers.
    let wipeDemand = Atomic<UInt64>(0)
    let settling = Settling()
    /// The rings are not to be used after all: workers end.
    let isDeclined = Atomic<Bool>(false)
    let queues: [Queue]
    /// Whether workers may give way (`GivingWay`); decided before there are any.
    let mayGiveWay: Bool
    /// Whether somebody looks after the workers (`RingWatch`).
    let isWatched = Atomic<Bool>(false)
    /// Changes when somebody is to.
    let watchWord = FutexWord()

    final class Queue: Sendable {
        /// The workers that wait for a request.
        let idle = Atomic<Int>(0)
        /// Requests that are being served and that somebody waits for.
        let serving = Atomic<Int>(0)
    }

    init(device: Int32, queues: Int, mayGiveWay: Bool) {
        self.device = device
        self.mayGiveWay = mayGiveWay
        self.queues = (0..<queues).map { _ in Queue() }
    }

    func wakeWatch() {
        guard !isWatched.exchange(true, ordering: .sequentiallyConsistent) else { return }
        watchWord.increment()
        watchWord.wakeAll()
    }
}

/// What others see of a worker.
final class RingWorker: Sendable {
    let queues: [UInt16]
    let wipeProgress = WipeProgress()
    /// Goes up when a request comes and when it was answered; odd in between.
    let beat = Atomic<UInt64>(0)
    /// Nothing of what was served is left.
    let isClean = Atomic<Bool>(true)
    /// Nothing came for a while: be clean.
    let mustRest = Atomic<Bool>(false)
    /// Its thread, gettid(2); 0 before it has begun.
    let thread = Atomic<Int32>(0)
    /// Its thread gives way to programs.
    let givesWay = Atomic<Bool>(false)
    /// Not before that, nanoseconds of the monotonic clock.
    let mayGiveWayFrom = Atomic<UInt64>(0)

    init(queues: [UInt16]) { self.queues = queues }
}
