import Synchronization

/// Reports that a program works against the lock. Guards of this process and its helpers raise it;
/// the part that can lock answers. An alarm raised before that part is connected is kept.
///
/// Concurrency: any thread. `answer` is called on the thread that raises, and must not wait.
final class Alarm: Sendable {
    private struct State {
        var waiting: [String] = []
        var answer: (@Sendable (String) -> Void)?
    }

    private let state = Mutex(State())

    /// `why` is the observation, for the log and the events.
    func raise(_ why: String) {
        let answer = state.withLock { state in
            if state.answer == nil { state.waiting.append(why) }
            return state.answer
        }
        answer?(why)
    }

    func connect(_ answer: @escaping @Sendable (String) -> Void) {
        let waiting = state.withLock { state in
            state.answer = answer
            defer { state.waiting = [] }
            return state.waiting
        }
        for why in waiting { answer(why) }
    }
}
