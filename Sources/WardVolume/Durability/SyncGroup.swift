import Synchronization
import WardSystem

/// Shares syncs of one descriptor between threads. Threads that come during a sync share the next
/// one.
///
/// The kernel reports each failure to one of the threads that share a descriptor, errseq_t in
/// include/linux/errseq.h. Here no thread returns success before a failure that its own sync could
/// not see is noted.
final class SyncGroup: Sendable {
    private struct State {
        /// The number of syncs that began, and that ended: at most one is under way.
        var begun: UInt64 = 0
        var ended: UInt64 = 0
        /// A thread that waits for the next sync wants attributes, too.
        var isNextFull = false
        /// The waiting threads sleep on this.
        var word: FutexWord?
    }

    private enum Turn {
        case lead(isFull: Bool)
        case wait(FutexWord, UInt32)
        case over
    }

    private let state = Mutex(State())

    /// Returns after a sync that began after the call. `body` syncs and notes a failure. Only the
    /// thread that ran `body` gets the error: the others have to look at what was noted.
    func sync(isFull: Bool, _ body: (_ isFull: Bool) throws(Errno) -> Void) throws(Errno) {
        var wanted: UInt64 = 0
        while true {
            let turn = state.withLock { state -> Turn in
                if wanted == 0 {
                    wanted = state.begun + 1
                    if isFull { state.isNextFull = true }
                }
                if state.ended >= wanted { return .over }
                if state.begun == state.ended {
                    state.begun += 1
                    defer { state.isNextFull = false }
                    return .lead(isFull: state.isNextFull)
                }
                let word = state.word ?? FutexWord()
                state.word = word
                return .wait(word, word.value)
            }
            switch turn {
            case .over: return
            case .wait(let word, let known): word.wait(while: known)
            case .lead(let isFull):
                defer { end() }
                return try body(isFull)
            }
        }
    }

    private func end() {
        let word = state.withLock { state in
            state.ended = state.begun
            defer { state.word = nil }
            return state.word
        }
        guard let word else { return }
        word.increment()
        word.wakeAll()
    }
}
