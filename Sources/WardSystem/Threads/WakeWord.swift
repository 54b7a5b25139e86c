import Synchronization

/// Wakes a thread that waits only for this. It takes no descriptor, so it can be made when none is
/// left: a program of the same user can bring that about (prlimit(2)).
///
/// Any thread may call.
public final class WakeWord: Sendable {
    /// Counts the signals.
    private let word = FutexWord()
    /// The count up to which signals are forgotten.
    private let forgotten = Atomic<UInt32>(0)

    public init() {}

    /// Wakes the thread, or its next wait.
    public func signal() { word.signalAll() }

    /// Forgets all signals so far.
    public func clear() { forgotten.store(word.value, ordering: .sequentiallyConsistent) }

    /// Waits for a signal, and forgets it. False if `timeout` was over first.
    @discardableResult
    public func wait(timeout: Duration? = nil) -> Bool {
        let deadline = timeout.map { SystemClock.monotonic() + $0 }
        while true {
            let seen = forgotten.load(ordering: .sequentiallyConsistent)
            let count = word.value
            if count != seen {
                forgotten.store(count, ordering: .sequentiallyConsistent)
                return true
            }
            guard let deadline else {
                word.wait(while: count)
                continue
            }
            let left = (deadline - SystemClock.monotonic()) / .milliseconds(1)
            guard left > 0 else { return false }
            word.wait(while: count, nanoseconds: Int(min(left, 3_600_000) * 1_000_000))
        }
    }
}
