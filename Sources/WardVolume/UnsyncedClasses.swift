import Synchronization

/// Whether changes of class are not known to be durable: of those who change many files and sync once at the end
/// (`Volume.unsyncedClassName`). Who asks for a class that a file has already, to be durable, relies on no such change.
final class UnsyncedClasses: Sendable {
    private struct State {
        /// Under way: their headers may not be written yet.
        var begun = 0
        /// That were made; of these, those that a sync came after.
        var made: UInt64 = 0
        var synced: UInt64 = 0
    }
    private let state = Mutex(State())

    var areNone: Bool { state.withLock { $0.begun == 0 && $0.made == $0.synced } }

    /// Before the file is written.
    func begin() { state.withLock { $0.begun += 1 } }

    func end() {
        state.withLock {
            $0.begun -= 1
            $0.made += 1
        }
    }

    /// What a sync that begins now makes durable.
    var made: UInt64 { state.withLock { $0.made } }

    func noteSync(of made: UInt64) { state.withLock { $0.synced = max($0.synced, made) } }
}
