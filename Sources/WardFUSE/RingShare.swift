import CWardLinux
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
    /// Whether workers may give way (`GivingWay`): not before there is somebody who sees them
    /// starve.
    let mayGiveWay = Atomic<Bool>(false)
    /// Not before that, nanoseconds of the monotonic clock.
    let mayGiveWayFrom = Atomic<UInt64>(0)
    /// Whether somebody looks after the workers (`RingWatch`).
    let isWatched = Atomic<Bool>(false)
    /// Changes when somebody is to.
    let watchWord = FutexWord()

    final class Queue: Sendable {
        /// The workers that wait for a request.
        let idle = Atomic<Int>(0)
        /// Requests that are being served, but for RELEASE and RELEASEDIR, which nobody waits for.
        let serving = Atomic<Int>(0)
    }

    init(device: Int32, queues: Int) {
        self.device = device
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
    /// It should be giving way to programs, as far as it knows. The kernel knows whether it does.
    let givesWay = Atomic<Bool>(false)

    init(queues: [UInt16]) { self.queues = queues }

    /// Makes it an ordinary thread, where it gives way. Of any thread.
    func stopGivingWay() {
        let number = thread.load(ordering: .relaxed)
        guard number != 0, ward_thread_gives_way(number) != 0,
            ward_make_give_way(number, 0) == 0
        else { return }
        givesWay.store(false, ordering: .sequentiallyConsistent)
    }
}
