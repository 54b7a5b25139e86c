import CWardLinux
import Glibc
import Synchronization
import WardSystem

/// Keeps the files by which clients find a daemon: runtime directory, socket and record. They are
/// watched with inotify(7), and made again when they are gone. The state socket has a presence of
/// its own.
///
/// Concurrency: `state` has a mutex, which is not held during file system calls. The methods
/// `begin`, `look` and `end` may wait for the file system for ever; one thread at a time may call
/// them (`PresenceKeeper`). Any thread may use the rest.
public final class ControlPresence: Sendable {
    /// A change of the presence.
    public enum Change: Sendable, Equatable {
        /// The files were gone, and are there again, in this directory.
        case restored(directory: String)
        /// Another file had taken the socket's name; `isRestored` says that the socket has it
        /// again.
        case replaced(isRestored: Bool)
        /// The files are gone and can't be made again.
        case lost(reason: String)
    }

    private struct State: ~Copyable {
        var directory: RuntimeDirectory
        var endpoint: ControlEndpoint?
        var watch: OwnedDescriptor?
        var isLost = false
    }

    /// The daemon's socket that this presence keeps.
    public enum Kind: Sendable {
        /// The control socket, and the record that names it.
        case control
        /// The socket that tells the lock state alone (`StateInterface`), without a record.
        case state
    }

    private let kind: Kind
    private let preferred: RuntimeDirectory
    private let record: MountedVolume
    private let changed: @Sendable (Change) -> Void
    private let state: Mutex<State>

    /// `record` is the record's content; the socket's path in it is filled in here. `changed` is
    /// called on any thread and must not wait.
    public init(
        _ kind: Kind = .control, in directory: RuntimeDirectory, record: MountedVolume,
        changed: @escaping @Sendable (Change) -> Void
    ) {
        self.kind = kind
        preferred = directory
        self.record = record
        self.changed = changed
        state = Mutex(State(directory: directory))
    }

    /// The socket where the daemon listens now; nil where it does not listen.
    public var endpoint: ControlEndpoint? { state.withLock { $0.endpoint } }

    public var socketPath: String { socketPath(in: state.withLock { $0.directory }) }

    private func socketPath(in directory: RuntimeDirectory) -> String {
        let control = directory.socketPath(record.name)
        return kind == .control ? control : StateInterface.socketPath(besides: control)
    }

    /// The inotify(7) descriptor; -1 where there is none. Without it only the next regular look
    /// finds changes.
    var watchDescriptor: Int32 { state.withLock { $0.watch?.rawValue ?? -1 } }

    // MARK: What may wait

    /// Listens, and writes the record.
    func begin() throws(ControlError) -> OwnedDescriptor {
        try listen(in: preferred)
    }

    /// Checks directory, socket and record; makes them again where they are gone, and reports the
    /// change. `isThere`: whether all of it is there in the end. Returns the new listener, where
    /// there is one.
    func look(_ isThere: inout Bool) -> OwnedDescriptor? {
        let (directory, expected) = state.withLock { ($0.directory, $0.endpoint) }
        let standing = ControlPresence.standing(of: expected)
        if standing == .intact {
            find()
            isThere = true
            // A failure to read the record, as without free descriptors, is no reason to write it.
            if let isRight = hasRecord(directory), !isRight { try? writeRecord(directory) }
            return nil
        }
        do throws(ControlError) {
            let listener = try listen(
                in: try RuntimeDirectory.make(at: preferred.path, elsewhere: true))
            find()
            isThere = true
            let path = state.withLock { $0.directory.path }
            changed(
                standing == .replaced
                    ? .replaced(isRestored: true) : .restored(directory: path))
            return listener
        } catch {
            lose(
                standing == .replaced
                    ? .replaced(isRestored: false) : .lost(reason: error.description))
            return nil
        }
    }

    /// Ends a loss: the next one is reported again.
    func find() { state.withLock { $0.isLost = false } }

    /// Reports a loss, once. Does not wait.
    func lose(_ change: Change) {
        let wasLost = state.withLock { state in
            defer { state.isLost = true }
            return state.isLost
        }
        if !wasLost { changed(change) }
    }

    /// Whether another file has the socket's name.
    var isReplaced: Bool { ControlPresence.standing(of: endpoint) == .replaced }

    /// Removes socket and record.
    func end() {
        let (directory, endpoint) = state.withLock { state in
            state.watch = nil
            defer { state.endpoint = nil }
            return (state.directory, state.endpoint)
        }
        if ControlPresence.standing(of: endpoint) == .intact {
            unlink(socketPath(in: directory))
        }
        if kind == .control { unlink(directory.recordPath(record.name)) }
        if directory.isMakeshift { rmdir(directory.path) }
    }

    private func listen(in directory: RuntimeDirectory) throws(ControlError) -> OwnedDescriptor {
        let path = socketPath(in: directory)
        let listener = try ControlSocket.listen(at: path)
        let endpoint = try ControlSocket.ownEndpoint(at: path)
        try writeRecord(directory)
        let watch: Int32? =
            if let made = ControlPresence.watch(directory.path) { made.release() } else { nil }
        state.withLock { state in
            state.directory = directory
            state.endpoint = endpoint
            state.watch = watch.map { OwnedDescriptor(adopting: $0) }
        }
        return listener
    }

    private func written(in directory: RuntimeDirectory) -> MountedVolume {
        var record = record
        record.socket = directory.socketPath(record.name)
        return record
    }

    private func writeRecord(_ directory: RuntimeDirectory) throws(ControlError) {
        guard kind == .control else { return }
        try directory.record(written(in: directory))
    }

    /// Whether the right record is there; nil where it can't be read now.
    private func hasRecord(_ directory: RuntimeDirectory) -> Bool? {
        guard kind == .control else { return true }
        do throws(Errno) {
            _ = try OwnedDescriptor(
                opening: directory.recordPath(record.name), O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
        } catch {
            return error == .noSuchFileOrDirectory ? false : nil
        }
        return directory.recorded(record.name) == written(in: directory)
    }

    private enum Standing { case intact, gone, replaced }

    private static func standing(of endpoint: ControlEndpoint?) -> Standing {
        guard let endpoint else { return .gone }
        var status = FileStatus()
        guard lstat(endpoint.socketPath, &status) == 0 else { return .gone }
        return UInt64(status.st_dev) == endpoint.device
            && UInt64(status.st_ino) == endpoint.inode ? .intact : .replaced
    }

    private static func watch(_ path: String) -> OwnedDescriptor? {
        let number = inotify_init1(Int32(IN_NONBLOCK) | Int32(IN_CLOEXEC))
        guard number >= 0 else { return nil }
        let descriptor = OwnedDescriptor(adopting: number)
        let events =
            IN_DELETE | IN_CREATE | IN_MOVED_FROM | IN_MOVED_TO | IN_CLOSE_WRITE | IN_DELETE_SELF
            | IN_MOVE_SELF | IN_ONLYDIR
        guard inotify_add_watch(number, path, UInt32(events)) >= 0 else { return nil }
        return descriptor
    }

    /// Discards the notices of inotify(7): each look checks everything.
    func forgetChanges() {
        state.withLock { state in
            guard let watch = state.watch?.rawValue else { return }
            var buffer = [UInt8](repeating: 0, count: 4096)
            while read(watch, &buffer, buffer.count) > 0 {}
        }
    }
}
