import Synchronization

/// Somebody is at work against the lock: raised by those who look after this process and its
/// helpers, and answered by whoever can lock. An alarm that is raised before there is anybody to
/// answer is kept.
///
/// Concurrency: any thread; `answer` is called on the thread that raises, and must not wait.
final class Alarm: Sendable {
    private struct State {
        var waiting: [String] = []
        var answer: (@Sendable (String) -> Void)?
    }

    private let state = Mutex(State())

    /// `why`: what was seen, for the log and the events.
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
