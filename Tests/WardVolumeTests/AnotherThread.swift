@testable import WardVolume

/// Runs `body` in the middle of a request as if another thread ran it: the check of the lock order
/// ignores the locks of the request.
func asAnotherThread<R>(_ body: () throws -> R) rethrows -> R {
    #if DEBUG
        let held = LockPlace.heldHere
        LockPlace.heldHere = HeldLocks()
        defer { LockPlace.heldHere = held }
    #endif
    return try body()
}
