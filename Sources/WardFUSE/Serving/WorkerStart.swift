import Synchronization
import WardSystem

/// Tells whether a started thread came so far that it can serve requests.
final class WorkerStart: Sendable {
    private let word = FutexWord()
    private let isReady = Atomic<Bool>(false)

    /// Called once, by the thread.
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
