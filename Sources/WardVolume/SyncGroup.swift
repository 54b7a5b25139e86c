import Synchronization
import WardSystem

/// Syncs of one descriptor that several threads share: who comes while one is under way shares the
/// next with all others that wait.
///
/// The kernel tells each failure to one of those who share a descriptor, errseq_t in
/// include/linux/errseq.h. Here none is told of success before a failure that its own sync could
/// not see is noted.
final class SyncGroup: Sendable {
    private struct State {
        /// Syncs that began, and that ended: at most one is under way.
        var begun: UInt64 = 0
        var ended: UInt64 = 0
        /// Somebody who waits for the next one wants attributes, too.
        var isNextFull = false
        /// Of those who wait.
        var word: FutexWord?
    }

    private enum Turn {
        case lead(isFull: Bool)
        case wait(FutexWord, UInt32)
        case over
    }

    private let state = Mutex(State())

    /// Returns after a sync that began after the call. `body` is one, with all that is to be noted
    /// of its failure; an error is only thrown to the one who ran it: the others have to look at
    /// what was noted.
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
