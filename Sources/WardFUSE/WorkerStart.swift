import Synchronization
import WardSystem

/// Whether a thread that was started came so far that requests can be its.
final class WorkerStart: Sendable {
    private let word = FutexWord()
    private let isReady = Atomic<Bool>(false)

    /// By the thread, once.
    func report(_ ready: Bool) {
        isReady.store(ready, ordering: .sequentiallyConsistent)
        word.increment()
        word.wakeAll()
    }

    func wait() -> Bool {
        while word.value == 0 { word.wait(while: 0) }
        return isReady.load(ordering: .sequentiallyConsistent)
    }
}
