import Synchronization

/// Whether changes of one kind are not known to be durable.
final class UnsyncedChanges: Sendable {
    private struct State {
        /// Under way: their headers or records may not be written yet.
        var begun = 0
        /// That were made; of these, those that a sync came after.
        var made: UInt64 = 0
        var synced: UInt64 = 0
    }
    private let state: Mutex<State>

    /// `isKnown`: that there are none yet.
    init(isKnown: Bool = true) { state = Mutex(State(made: isKnown ? 0 : 1)) }

    var areNone: Bool { state.withLock { $0.begun == 0 && $0.made == $0.synced } }

    /// Before the file or record is written.
    func begin() { state.withLock { $0.begun += 1 } }

    /// `isDurable`: it was synced by itself.
    func end(isDurable: Bool = false) {
        state.withLock {
            $0.begun -= 1
            if !isDurable { $0.made += 1 }
        }
    }

    /// What a sync that begins now makes durable.
    var made: UInt64 { state.withLock { $0.made } }

    func noteSync(of made: UInt64) { state.withLock { $0.synced = max($0.synced, made) } }
}
