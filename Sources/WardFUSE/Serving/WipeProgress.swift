import Glibc
import Synchronization
import WardSystem

/// The last demand to wipe that a worker has met; the demanding thread reads it.
final class WipeProgress: Sendable {
    /// `UInt64.max` while the worker sleeps: it wiped its buffers before that.
    let met = Atomic<UInt64>(0)
    /// The worker's thread, while it may have to be interrupted.
    private let thread = Mutex<pthread_t?>(nil)

    /// Called by the worker, on its thread: from now on it may be interrupted while it waits.
    func begin() {
        let own = pthread_self()
        thread.withLock { $0 = own }
    }

    /// Called by the worker: there is nothing to wipe any more.
    func end() {
        thread.withLock { $0 = nil }
        met.store(.max, ordering: .sequentiallyConsistent)
    }

    func interrupt() {
        thread.withLock { if let thread = $0 { InterruptingSignal.send(to: thread) } }
    }

    /// Waits until all of `workers` have met `demand`. False where one has not by `deadline`,
    /// monotonic.
    static func await(_ workers: [WipeProgress], _ demand: UInt64, until deadline: Duration) -> Bool
    {
        for worker in workers where worker.met.load(ordering: .sequentiallyConsistent) < demand {
            worker.interrupt()
        }
        for worker in workers {
            while worker.met.load(ordering: .sequentiallyConsistent) < demand {
                guard SystemClock.monotonic() < deadline else { return false }
                usleep(200)
            }
        }
        return true
    }
}
