import Foundation
import Synchronization
import WardSystem

@testable import WardVolume

/// The real backing store, with a clock that only the test moves.
class ManualStorage: PosixStorage, @unchecked Sendable {
    // Sendable: the added state is an atomic and a mutex.
    private let time = Atomic<UInt64>(1_000_000_000_000)
    /// While a test holds this, calls that pass `waitWhileHanging` do not return.
    let hanging = NSLock()

    override func nanoseconds() -> UInt64 { time.load(ordering: .relaxed) }
    func advance(_ nanoseconds: UInt64) { time.wrappingAdd(nanoseconds, ordering: .relaxed) }

    func waitWhileHanging() {
        hanging.withLock {}
    }
}
