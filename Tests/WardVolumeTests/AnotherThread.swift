@testable import WardVolume

/// Runs `body` inside a request as if another thread ran it. The check of the lock order ignores
/// the locks of the request.
func asAnotherThread<R>(_ body: () throws -> R) rethrows -> R {
    #if DEBUG || CHECKED
        let held = LockPlace.heldHere
        LockPlace.heldHere = HeldLocks()
        defer { LockPlace.heldHere = held }
    #endif
    return try body()
}
