import Synchronization

/// The locks requested through the mount. They have numbers and end in that order.
///
/// Concurrency: any thread; guarded by its mutex.
final class MountLocks: Sendable {
    /// The most locks of one kind under way at once, so that a program that asks for endless locks
    /// fills no queue. Locks without a grace period are counted apart: no other locks can keep them
    /// out.
    private static let maximumUnderWay = 64

    private struct State {
        var asked: UInt64 = 0
        var ended: UInt64 = 0
        /// The locks under way: with a grace period, and without.
        var underWay = (0, 0)
        /// The state's name when the last lock ended.
        var state = ""
    }

    private let state = Mutex(State())

    /// Returns the next lock's number; `post` begins the lock, in the order of numbers. Nil where
    /// too many are under way.
    func begin(now: Bool, _ post: (UInt64) -> Void) -> UInt64? {
        state.withLock { state in
            let count = now ? state.underWay.1 : state.underWay.0
            if count >= MountLocks.maximumUnderWay { return nil }
            if now { state.underWay.1 += 1 } else { state.underWay.0 += 1 }
            state.asked += 1
            post(state.asked)
            return state.asked
        }
    }

    func end(_ number: UInt64, now: Bool, _ name: String) {
        state.withLock { state in
            if now { state.underWay.1 -= 1 } else { state.underWay.0 -= 1 }
            guard number > state.ended else { return }
            state.ended = number
            state.state = name
        }
    }

    /// The number of the last lock that ended, and the state then.
    func last(else name: String) -> String {
        state.withLock { "\($0.ended) \($0.state.isEmpty ? name : $0.state)" }
    }
}
