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
    /// For each queue the workers that wait for a request.
    let idle: [Idle]
    /// Whether somebody looks after the workers (`RingWatch`).
    let isWatched = Atomic<Bool>(false)
    /// Changes when somebody is to.
    let watchWord = FutexWord()

    final class Idle: Sendable {
        let count = Atomic<Int>(0)
    }

    init(device: Int32, queues: Int) {
        self.device = device
        idle = (0..<queues).map { _ in Idle() }
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

    init(queues: [UInt16]) { self.queues = queues }
}
