import Synchronization

/// Which changes of class are not known to be durable: of those who change many files and sync once at the end
/// (`Volume.unsyncedClassName`).
final class UnsyncedClasses: Sendable {
    private struct State {
        /// Under way: their headers may not be written yet.
        var begun = 0
        /// That were made; of these, those that a sync came after.
        var made: UInt64 = 0
        var synced: UInt64 = 0
        /// Of the volume's `syncFailures`, before the first of those that are not synced.
        var failures: UInt64 = 0
        var areNone: Bool { begun == 0 && made == synced }
    }
    private let state = Mutex(State())

    var areNone: Bool { state.withLock { $0.areNone } }

    /// Before the file is written. `failures`: of the volume's `syncFailures`, now.
    func begin(_ failures: UInt64) {
        state.withLock {
            if $0.areNone { $0.failures = failures }
            $0.begun += 1
        }
    }

    func end() {
        state.withLock {
            $0.begun -= 1
            $0.made += 1
        }
    }

    /// What a sync that begins now makes durable, and since when none may have failed: nil where nothing waits for it.
    var next: (made: UInt64, failures: UInt64?) {
        state.withLock { ($0.made, $0.areNone ? nil : $0.failures) }
    }

    /// Done; or failed, and then each file is synced by itself where its class is set again.
    func noteSync(of made: UInt64) { state.withLock { $0.synced = max($0.synced, made) } }
}
