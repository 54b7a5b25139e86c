import CWardLinux
import Glibc
import WardSystem

/// One ward mount as the kernel shows it. Finding it asks no daemon, so a daemon that hangs delays
/// no caller.
public struct VolumeMount: Equatable, Sendable {
    public var mountPoint: String
    /// Minor number of `st_dev`; mounts of two copies of a volume have different ones.
    public var deviceMinor: UInt32
    /// The backing directory, as the daemon told the kernel.
    public var volume: String
    /// The user and the group that mounted it.
    public var owner: UInt32
    public var group: UInt32

    /// The longest value of an attribute, bytes: XATTR_SIZE_MAX, xattr(7).
    private static let maximumBytes = 65536

    public init(
        mountPoint: String, deviceMinor: UInt32, volume: String, owner: UInt32, group: UInt32
    ) {
        self.mountPoint = mountPoint
        self.deviceMinor = deviceMinor
        self.volume = volume
        self.owner = owner
        self.group = group
    }

    /// Nil for a mount that is not ward's.
    init?(_ entry: MountTable.Entry) {
        guard entry.isWard, let owner = entry.ownerID, let group = entry.groupID else { return nil }
        self.init(
            mountPoint: entry.mountPoint, deviceMinor: entry.deviceMinor, volume: entry.source,
            owner: owner, group: group)
    }

    // MARK: Finding

    /// The ward mounts of this mount namespace, each once, sorted by mount point; with `owner`,
    /// only those of that user.
    public static func all(ownedBy owner: UInt32? = nil) -> [VolumeMount] {
        guard let table = try? MountTable() else { return [] }
        var found: [UInt32: MountTable.Entry] = [:]
        for entry in table.entries where entry.isWard {
            // Prefer the whole mount to a bind mount of a part.
            if found[entry.deviceMinor].map({ $0.root != "/" && entry.root == "/" }) ?? true {
                found[entry.deviceMinor] = entry
            }
        }
        return found.values.compactMap(VolumeMount.init).filter { $0.owner == owner ?? $0.owner }
            .sorted { $0.mountPoint < $1.mountPoint }
    }

    /// The mount that holds `path`, whether its daemon lives or not; nil outside of ward volumes.
    public static func covering(_ path: String) -> VolumeMount? {
        guard let table = try? MountTable() else { return nil }
        do throws(Errno) {
            let file = try OwnedDescriptor(opening: path, ControlSocket.namingOnly)
            return try table.entry(holding: file.rawValue).flatMap(VolumeMount.init)
        } catch {
            // A dead mount can't be entered, nor can another user's mount: then the path alone
            // decides.
            guard [ENOTCONN, ECONNABORTED, EACCES, EPERM].contains(error.rawValue) else {
                return nil
            }
            return canonical(path).flatMap(table.covering).flatMap(VolumeMount.init)
        }
    }

    /// The absolute path, with links resolved as far as the path can be followed.
    private static func canonical(_ path: String) -> String? {
        var rest: [String] = []
        var head = path
        while true {
            if let real = RuntimeDirectory.resolve(head) {
                let tail = rest.reversed().joined(separator: "/")
                return tail.isEmpty ? real : (real == "/" ? "" : real) + "/" + tail
            }
            let name = PathBytes.lastComponent(head)
            if name.isEmpty || name == "." || name == ".." { return nil }
            rest.append(name)
            while head.utf8.last == UInt8(ascii: "/") { head.removeLast() }
            head = PathBytes.parent(head)
        }
    }

    /// The state of a mount's daemon, as seen from outside.
    public enum Standing: Sendable {
        /// The daemon answers; another user's mount counts as one that answers.
        case served
        /// The daemon died: the mount answers with errors until it is unmounted.
        case dead
        /// The daemon did not answer within `standingPatience`.
        case silent
    }

    /// The longest wait for an answer of the daemon.
    private static let standingPatience = Duration.seconds(3)

    /// Asks the daemon; waits at most `standingPatience`.
    public var standing: Standing {
        // The kernel may answer stat(2) from its cache, so this is statfs(2).
        let limit = Int32(VolumeMount.standingPatience / .milliseconds(1))
        if ward_statfs_within(mountPoint, limit) == 0 { return .served }
        return switch ward_errno() {
        case ENOTCONN, ECONNABORTED: .dead
        case ETIMEDOUT: .silent
        default: .served
        }
    }

    /// False where the mount's daemon died.
    public var isServed: Bool { standing != .dead }

    // MARK: Asking

    /// The longest wait for an attribute, for callers with a limit.
    private static let patience = Duration.seconds(10)

    /// The value of an attribute of the mount's root (`MountAttribute`), from this mount's daemon
    /// and no other. A nil `patience` waits for ever; then only the answer or the end of the mount
    /// ends the wait, and no signal does. Errors:
    ///
    /// - ESTALE: another file system is mounted over the mount
    /// - ENOTCONN, ECONNABORTED: its daemon died
    /// - EACCES: only its owner may ask
    /// - ETIMEDOUT: no answer within `patience`
    func attribute(_ name: String, patience: Duration?) throws(Errno) -> [UInt8] {
        let root = try OwnedDescriptor(opening: mountPoint, ControlSocket.namingOnly)
        let entry = try MountTable().entry(holding: root.rawValue)
        guard let entry, entry.deviceMinor == deviceMinor, entry.isWard else {
            throw Errno(rawValue: ESTALE)
        }
        var value = [UInt8](repeating: 0, count: VolumeMount.maximumBytes)
        let count =
            if let patience {
                ward_getxattr_within(
                    root.rawValue, name, &value, value.count, Int32(patience / .milliseconds(1)))
            } else {
                ward_getxattr("/proc/self/fd/\(root.rawValue)", name, &value, value.count)
            }
        guard count >= 0 else { throw Errno(rawValue: ward_errno()) }
        return Array(value[0..<count])
    }

    /// The sockets of this mount's daemon. Throws `refused` where it died, `mountOfAnother`.
    public func endpoints() throws(ControlError) -> ControlEndpoints {
        let json = try answer(MountAttribute.control)
        guard let endpoints = ControlEndpoints(json: json) else {
            throw ControlError(
                .protocolViolation, path: mountPoint, "the mount does not say where its daemon is")
        }
        return endpoints
    }

    /// The status, asked through the mount, without paths and hosts.
    public func status() throws(ControlError) -> VolumeStatus {
        guard let status = VolumeStatus(json: try answer(MountAttribute.status)) else {
            throw ControlError(.protocolViolation, path: mountPoint, "no status in the answer")
        }
        return status
    }

    private func answer(_ name: String) throws(ControlError) -> JSONValue {
        let bytes: [UInt8]
        do throws(Errno) {
            bytes = try attribute(name, patience: VolumeMount.patience)
        } catch {
            throw failure(error)
        }
        do throws(JSONError) {
            return try JSONParser.parse(bytes)
        } catch {
            throw ControlError(.protocolViolation, path: mountPoint, "not JSON: \(error)")
        }
    }

    /// The control error for a failure of `attribute`.
    public func failure(_ error: Errno) -> ControlError {
        switch error.rawValue {
        case ENOTCONN, ECONNABORTED:
            ControlError(.refused, path: mountPoint, "its daemon died")
        case EACCES, EPERM:
            ControlError(
                .mountOfAnother, path: mountPoint,
                "it was mounted by another user, who alone may enter")
        case ESTALE:
            ControlError(.replaced, path: mountPoint, "something else is mounted over it")
        case EOPNOTSUPP, ENODATA:
            ControlError(
                .protocolViolation, path: mountPoint,
                "its daemon is of an older version of ward")
        case ETIMEDOUT:
            ControlError(.timedOut, path: mountPoint, "its daemon does not answer")
        case ENOLCK:
            ControlError(
                .varlink(
                    name: StandardInterface.qualified("MethodNotImplemented"),
                    parameters: .object([])), path: mountPoint,
                "only a part of the mount is there, which tells the state alone")
        default: ControlError(.system(error), path: mountPoint, "\(error)")
        }
    }

    // MARK: Locking

    /// Locks through the mount, without a socket. Returns the state's name, when this mount's
    /// daemon says that the lock has ended or its grace period has begun. The daemon has begun the
    /// lock when `asked` is called. The wait for each single answer has no limit. The wait for the
    /// lock's end ends at `deadline` (`SystemClock.monotonic`): throws ETIMEDOUT then. Throws the
    /// errors of `attribute`, too.
    public func lock(
        now: Bool, endingHosts: Bool, asked: () -> Void = {}, until deadline: Duration
    ) throws(Errno) -> String {
        let name = MountAttribute.lock(now: now, endingHosts: endingHosts)
        var answer: [UInt8]?
        while answer == nil {
            do throws(Errno) {
                answer = try attribute(name, patience: nil)
            } catch {
                guard error.rawValue == EAGAIN else { throw error }
                if SystemClock.monotonic() > deadline { throw Errno(rawValue: ETIMEDOUT) }
                usleep(1000)
            }
        }
        guard let answer, let number = UInt64(String(decoding: answer, as: UTF8.self)) else {
            throw Errno(rawValue: EPROTO)
        }
        asked()
        var pause: UInt32 = 1000
        while true {
            let words = String(
                decoding: try attribute(MountAttribute.locked, patience: nil), as: UTF8.self
            ).split(separator: " ")
            guard words.count == 2, let last = UInt64(words[0]) else {
                throw Errno(rawValue: EPROTO)
            }
            if last >= number { return String(words[1]) }
            if SystemClock.monotonic() > deadline { throw Errno(rawValue: ETIMEDOUT) }
            usleep(pause)
            pause = min(pause * 2, 50_000)
        }
    }
}

/// Decides whether a daemon belongs to a mount.
enum DaemonOwner {
    /// Whether a process of the user `peer` can be the daemon of a mount that `owner` made. The
    /// mount table has numbers of the user namespace that mounted. In a user namespace of its own,
    /// a program sees its user by another number.
    static func isRight(peer: UInt32, of owner: UInt32) -> Bool {
        peer == owner || (peer == geteuid() && !isInInitialNamespace)
    }

    /// In the initial namespace the map of user_namespaces(7) maps every number to itself.
    private static let isInInitialNamespace: Bool = {
        guard let map = try? FileReading.text(of: "/proc/self/uid_map", limit: 4096) else {
            return true
        }
        return map.split(whereSeparator: \.isWhitespace) == ["0", "0", "4294967295"]
    }()
}
