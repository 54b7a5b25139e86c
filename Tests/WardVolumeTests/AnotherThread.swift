@testable import WardVolume

/// Runs `body`, which does in the midst of a request what another thread would do then. The locks of
/// the request don't count in it.
func asAnotherThread<R>(_ body: () throws -> R) rethrows -> R {
    #if DEBUG
        let held = LockPlace.heldHere
        LockPlace.heldHere = HeldLocks()
        defer { LockPlace.heldHere = held }
    #endif
    return try body()
}
