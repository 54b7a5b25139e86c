import CWardLinux
import Glibc

/// A number that threads wait on in the kernel, futex(2), without a lock: who reads it and then
/// waits misses no change.
public final class FutexWord: @unchecked Sendable {
    // Sendable: touched by atomic operations alone.
    private let word: UnsafeMutablePointer<UInt32>

    public init() {
        word = .allocate(capacity: 1)
        word.initialize(to: 0)
    }

    deinit { word.deallocate() }

    /// With everything that was written before the change that made it so.
    public var value: UInt32 { ward_atomic_load(word) }

    /// One more, if it is `known` still; says whether it was.
    public func increment(from known: UInt32) -> Bool {
        ward_atomic_compare_exchange(word, known, known &+ 1) != 0
    }

    public func increment() { while !increment(from: value) {} }

    /// Waits while it is `known` until `wakeAll`, or `nanoseconds` pass, or less.
    public func wait(while known: UInt32, nanoseconds: Int? = nil) {
        guard let nanoseconds else {
            _ = ward_futex_wait(word, known, nil)
            return
        }
        var time = timespec(
            tv_sec: nanoseconds / 1_000_000_000, tv_nsec: nanoseconds % 1_000_000_000)
        _ = ward_futex_wait(word, known, &time)
    }

    public func wakeAll() { ward_futex_wake_all(word) }
}
