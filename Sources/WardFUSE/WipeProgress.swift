import Glibc
import Synchronization
import WardSystem

/// Which demands to wipe a worker's buffers are met; read by the thread that demands.
final class WipeProgress: Sendable {
    /// `UInt64.max` while the worker sleeps: it wiped its buffers before.
    let met = Atomic<UInt64>(0)
    /// The worker's thread, where it may have to be interrupted.
    private let thread = Mutex<pthread_t?>(nil)

    /// By the worker, on its thread: from now on it may be interrupted where it waits.
    func begin() {
        let own = pthread_self()
        thread.withLock { $0 = own }
    }

    /// By the worker: there is nothing to wipe any more.
    func end() {
        thread.withLock { $0 = nil }
        met.store(.max, ordering: .sequentiallyConsistent)
    }

    func interrupt() {
        thread.withLock { if let thread = $0 { InterruptingSignal.send(to: thread) } }
    }

    /// Waits until all of `workers` have met `demand`; false where one has not at `deadline`,
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
