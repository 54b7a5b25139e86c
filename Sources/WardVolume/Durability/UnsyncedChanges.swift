import Synchronization

/// Counts changes of one kind, and tells whether all of them are known to be durable.
final class UnsyncedChanges: Sendable {
    private struct State {
        /// Changes under way: their headers or records may not be written yet.
        var begun = 0
        /// The number of changes that were made, and of those that a sync followed.
        var made: UInt64 = 0
        var synced: UInt64 = 0
    }
    private let state: Mutex<State>

    /// `isKnown`: whether it is known that there are none yet.
    init(isKnown: Bool = true) { state = Mutex(State(made: isKnown ? 0 : 1)) }

    var areNone: Bool { state.withLock { $0.begun == 0 && $0.made == $0.synced } }

    /// Notes the start of a change. Called before the file or record is written.
    func begin() { state.withLock { $0.begun += 1 } }

    /// Notes the end of a change. `isDurable`: its file or record was synced by itself.
    func end(isDurable: Bool = false) {
        state.withLock {
            $0.begun -= 1
            if !isDurable { $0.made += 1 }
        }
    }

    /// The number for `noteSync` of a sync that begins now.
    var made: UInt64 { state.withLock { $0.made } }

    func noteSync(of made: UInt64) { state.withLock { $0.synced = max($0.synced, made) } }
}
