import Synchronization
import WardSystem

@testable import WardVolume

/// The real store, with a clock that only the test moves on.
class ManualStorage: PosixStorage, @unchecked Sendable {
    // Sendable: what it adds is an atomic, and a lock.
    private let time = Atomic<UInt64>(1_000_000_000_000)
    /// While somebody holds it, the store does not answer what `waitWhileHanging` is asked before.
    let hanging = TryableLock()

    override func nanoseconds() -> UInt64 { time.load(ordering: .relaxed) }
    func advance(_ nanoseconds: UInt64) { time.wrappingAdd(nanoseconds, ordering: .relaxed) }

    func waitWhileHanging() {
        hanging.lockNow()
        hanging.unlock()
    }
}
