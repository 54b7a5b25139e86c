import Glibc
import Synchronization

/// The mount that serves a volume: the connection to the kernel, and the attributes that the daemon
/// answers. Each is set once, before requests are served.
///
/// Concurrency: any thread; the mutex of `state` guards everything.
final class MountSide: Sendable {
    private struct State: Sendable {
        var notifier: (any KernelNotifier)?
        var socketPath: (@Sendable () -> String)?
        var attributes: Volume.MountAttributes?
    }

    /// True if the kernel keeps a file's cached content from one open to the next.
    let keepsContent: Bool
    private let state = Mutex(State())

    init(keepsContent: Bool) { self.keepsContent = keepsContent }

    var notifier: (any KernelNotifier)? {
        get { state.withLock { $0.notifier } }
        set { state.withLock { $0.notifier = newValue } }
    }

    /// Answers `user.ward.socket`.
    var socketPath: (@Sendable () -> String)? {
        get { state.withLock { $0.socketPath } }
        set { state.withLock { $0.socketPath = newValue } }
    }

    /// Answers the attributes of the mount itself (`MountAttribute`).
    var attributes: Volume.MountAttributes? {
        get { state.withLock { $0.attributes } }
        set { state.withLock { $0.attributes = newValue } }
    }
}
