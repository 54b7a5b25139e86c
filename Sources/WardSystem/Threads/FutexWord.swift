import CWardLinux
import Glibc

/// A number that threads wait on in the kernel, futex(2), without a mutex. A thread that reads it
/// and then waits misses no change.
public final class FutexWord: @unchecked Sendable {
    // Sendable: only atomic operations touch the word.
    private let word: UnsafeMutablePointer<UInt32>

    public init() {
        word = .allocate(capacity: 1)
        word.initialize(to: 0)
    }

    deinit { word.deallocate() }

    /// The number, read with acquire order: all writes before its last change are visible.
    public var value: UInt32 { ward_atomic_load(word) }

    /// Adds one if the number is still `known`; returns whether it was.
    public func increment(from known: UInt32) -> Bool {
        ward_atomic_compare_exchange(word, known, known &+ 1) != 0
    }

    public func increment() { while !increment(from: value) {} }

    /// Waits while the number is `known`, until `wakeAll` or for `nanoseconds`. May return before.
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

    /// Adds one and wakes all waiting threads. For a change that `wait(until:)` waits for, after
    /// the change.
    public func signalAll() {
        increment()
        wakeAll()
    }

    /// Waits until `condition` holds, and asks it again after each `signalAll`. False where
    /// `deadline`, monotonic, came first.
    ///
    /// `pause`: asks again after so long without a signal, for conditions that also change without
    /// one.
    @discardableResult
    public func wait(
        deadline: Duration? = nil, lookingEvery pause: Duration? = nil, until condition: () -> Bool
    ) -> Bool {
        while true {
            let known = value
            if condition() { return true }
            var longest = pause
            if let deadline {
                let left = deadline - SystemClock.monotonic()
                guard left > .zero else { return false }
                longest = min(left, pause ?? left)
            }
            wait(while: known, nanoseconds: longest.map { FutexWord.nanoseconds(of: $0) })
        }
    }

    /// An hour at most, so that no number overflows.
    private static func nanoseconds(of time: Duration) -> Int {
        Int(min(time, .seconds(3600)) / .nanoseconds(1))
    }
}
