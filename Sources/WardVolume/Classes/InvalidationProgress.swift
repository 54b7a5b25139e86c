import Synchronization
import WardSystem

/// Assigns nodes to threads, and knows which nodes are done.
///
/// Concurrency: any thread; the mutex of `state` guards everything.
final class InvalidationProgress: Sendable {
    private struct State {
        var next = 0
        var doing: Set<Int> = []
        var isCancelled = false
    }

    private let count: Int
    private let state = Mutex(State())
    /// Signalled when the last node is done.
    private let changes = FutexWord()

    init(count: Int) { self.count = count }

    func next() -> Int? {
        state.withLock { state in
            guard state.next < count, !state.isCancelled else { return nil }
            defer { state.next += 1 }
            state.doing.insert(state.next)
            return state.next
        }
    }

    func finish(_ index: Int) {
        let isLast = state.withLock { state in
            state.doing.remove(index)
            return isDone(state)
        }
        if isLast { changes.signalAll() }
    }

    /// Waits until all nodes are done; false where `end` (monotonic) came first.
    func wait(until end: Duration) -> Bool {
        changes.wait(deadline: end) { state.withLock { isDone($0) } }
    }

    private func isDone(_ state: State) -> Bool {
        state.next == count && state.doing.isEmpty
    }

    /// Stops the threads from taking more nodes. Returns the indices of the nodes that are not
    /// done.
    func cancel() -> [Int] {
        state.withLock { state in
            state.isCancelled = true
            return state.doing.sorted() + Array(state.next..<count)
        }
    }
}
