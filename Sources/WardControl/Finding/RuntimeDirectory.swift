import CWardLinux
import Glibc
import WardSystem

/// A mounted volume as its record in the runtime directory (`<name>.json`) describes it.
public struct MountedVolume: Equatable, Sendable {
    public var uuid: String
    /// The backing directory, absolute.
    public var volume: String
    public var mountpoint: String
    /// The process number of the daemon.
    public var pid: Int
    /// Minor number of the mount's `st_dev`.
    public var device: UInt32
    /// The control socket.
    public var socket: String

    public init(
        uuid: String, volume: String, mountpoint: String, pid: Int, device: UInt32, socket: String
    ) {
        self.uuid = uuid
        self.volume = volume
        self.mountpoint = mountpoint
        self.pid = pid
        self.device = device
        self.socket = socket
    }

    /// The name of the daemon's files in the runtime directory. No other daemon has it, not even
    /// that of a copy of the volume.
    public var name: String { MountedVolume.name(uuid: uuid, device: device, pid: pid) }

    /// The name of a daemon's files, without an ending.
    public static func name(uuid: String, device: UInt32, pid: Int) -> String {
        // A socket's path has 107 bytes, unix(7), and the directory takes some. So only a part of
        // the UUID.
        "\(uuid.prefix(8))-\(device)-\(pid)"
    }

    /// The record's mount, where this mount namespace shows it.
    public var mount: VolumeMount? {
        VolumeMount.all(ownedBy: geteuid()).first {
            $0.deviceMinor == device && PathBytes.isSame($0.volume, volume)
        }
    }

    public var json: JSONValue {
        .object([
            ("uuid", .string(uuid)), ("volume", .string(volume)),
            ("mountpoint", .string(mountpoint)), ("pid", .int(Int64(pid))),
            ("device", .int(Int64(device))), ("socket", .string(socket)),
        ])
    }

    /// Nil where a member is missing, or no process can have that number.
    public init?(json: JSONValue) {
        guard let uuid = json["uuid"]?.stringValue, let volume = json["volume"]?.stringValue,
            let mountpoint = json["mountpoint"]?.stringValue, let pid = json["pid"]?.intValue,
            (1...Int(Int32.max)).contains(pid),
            let device = json["device"]?.intValue.flatMap({ UInt32(exactly: $0) }),
            let socket = json["socket"]?.stringValue
        else { return nil }
        self.init(
            uuid: uuid, volume: volume, mountpoint: mountpoint, pid: pid, device: device,
            socket: socket)
    }
}

/// The directory of sockets and records: `$XDG_RUNTIME_DIR/ward`, where that is set. Else
/// `/run/ward` for root, `/run/user/UID/ward` for a user with such a directory, and `/tmp/ward-UID`
/// for others. Where another user has taken the last name, a directory in `/tmp` with a longer
/// name.
public struct RuntimeDirectory: Sendable {
    public let path: String

    public init(path: String = RuntimeDirectory.defaultPath()) {
        self.path = path
    }

    /// The path of this user's runtime directory, which may be missing.
    public static func defaultPath() -> String {
        if let base = namedBase { return base + "/ward" }
        if geteuid() == 0 { return "/run/ward" }
        let session = "/run/user/\(geteuid())"
        var status = FileStatus()
        if lstat(session, &status) == 0, status.st_mode & S_IFMT == S_IFDIR,
            status.st_uid == geteuid()
        {
            return session + "/ward"
        }
        return temporaryPath
    }

    private static var namedBase: String? {
        guard let base = getenv("XDG_RUNTIME_DIR"), base[0] == CChar(UInt8(ascii: "/")) else {
            return nil
        }
        return String(cString: base)
    }

    /// Whether the usual directory was not to be had: such a one goes when its last daemon ends.
    var isMakeshift: Bool { path.hasPrefix(RuntimeDirectory.temporaryPath) }

    private static var temporaryPath: String { "/tmp/ward-\(geteuid())" }

    public func socketPath(_ name: String) -> String { path + "/" + name + ".socket" }
    public func recordPath(_ name: String) -> String { path + "/" + name + ".json" }

    // MARK: Making

    /// Makes the directory at `path` where it is missing. With `elsewhere`, a directory in `/tmp`
    /// takes its place where it can't be made; clients find that through the mount. Without
    /// `elsewhere` this is done only where `path` is the default and `XDG_RUNTIME_DIR` is unset.
    public static func make(
        at path: String = RuntimeDirectory.defaultPath(), elsewhere: Bool = false
    ) throws(ControlError) -> RuntimeDirectory {
        let wanted = RuntimeDirectory(path: path)
        do throws(ControlError) {
            try wanted.create()
            return wanted
        } catch {
            guard elsewhere || (namedBase == nil && path == defaultPath()) else { throw error }
            let usual = RuntimeDirectory(path: temporaryPath)
            if (try? usual.create()) != nil { return usual }
            var template = Array("\(temporaryPath)-XXXXXX".utf8CString)
            guard mkdtemp(&template) != nil else { throw error }
            return RuntimeDirectory(
                path: template.withUnsafeBufferPointer { String(cString: $0.baseAddress!) })
        }
    }

    /// Makes the directory (mode 0700) where it is missing. Refuses one that another user owns, may
    /// write to, or could replace.
    public func create() throws(ControlError) {
        try checkParent()
        if mkdir(path, 0o700) != 0, errno != EEXIST {
            let reason = Errno(rawValue: errno)
            throw ControlError(.system(reason), path: path, "can't be created: \(reason)")
        }
        try checkOwner()
    }

    /// A user who owns the parent directory, or may write to it, can put another directory in its
    /// place.
    private func checkParent() throws(ControlError) {
        let parent = PathBytes.parent(path)
        var status = FileStatus()
        guard stat(parent, &status) == 0 else {
            let reason = Errno(rawValue: errno)
            throw ControlError(.system(reason), path: parent, "\(reason)")
        }
        guard status.st_uid == 0 || status.st_uid == geteuid() else {
            throw ControlError(.permission, path: parent, "belongs to uid \(status.st_uid)")
        }
        guard status.st_mode & S_IWOTH == 0 || status.st_mode & S_ISVTX != 0 else {
            throw ControlError(.permission, path: parent, "everybody may write to it")
        }
    }

    /// Another user may have made this directory in /tmp.
    private func checkOwner() throws(ControlError) {
        var status = FileStatus()
        guard lstat(path, &status) == 0 else {
            let reason = Errno(rawValue: errno)
            throw ControlError(.system(reason), path: path, "\(reason)")
        }
        guard status.st_mode & S_IFMT == S_IFDIR else {
            throw ControlError(.permission, path: path, "not a directory")
        }
        guard status.st_uid == geteuid() else {
            throw ControlError(.permission, path: path, "belongs to uid \(status.st_uid)")
        }
        if status.st_mode & 0o077 != 0, chmod(path, 0o700) != 0 {
            throw ControlError(.permission, path: path, "others may enter it")
        }
    }

    // MARK: Records

    /// Writes `<name>.json`, atomically.
    public func record(_ mounted: MountedVolume) throws(ControlError) {
        let final = recordPath(mounted.name)
        let temporary = final + ".new"
        do throws(Errno) {
            // Another program of this user may have put anything there, even a FIFO, where opening
            // would wait.
            unlink(temporary)
            let file = try OwnedDescriptor(
                opening: temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode: 0o600)
            let bytes = Array((mounted.json.text(pretty: true) + "\n").utf8)
            try bytes.withUnsafeBufferPointer { (bytes) throws(Errno) in
                try Syscall.writeAll(file.rawValue, bytes.baseAddress!, bytes.count)
            }
            try Syscall.renameat(AT_FDCWD, temporary, AT_FDCWD, final)
        } catch {
            unlink(temporary)
            throw ControlError(.system(error), path: final, "can't be written: \(error)")
        }
    }

    /// Removes the record and the sockets of one daemon.
    public func forget(_ mounted: MountedVolume) {
        unlink(recordPath(mounted.name))
        unlink(socketPath(mounted.name))
        unlink(StateInterface.socketPath(besides: socketPath(mounted.name)))
    }

    /// Reads a record, whether its daemon lives or not. Nil where the file is no record, or belongs
    /// under another name.
    public func recorded(_ name: String) -> MountedVolume? {
        guard let bytes = readSmallFile(recordPath(name)),
            let json = try? JSONParser.parse(bytes), let mounted = MountedVolume(json: json),
            mounted.name == name
        else { return nil }
        return mounted
    }

    /// The volumes with a live daemon, by their records, sorted by mount point. Removes the files
    /// of dead daemons. Also reads the records in `/tmp`, where a daemon that lost the usual
    /// directory keeps its own.
    public func mounted() -> [MountedVolume] {
        let temporary = RuntimeDirectory.temporaryPath
        let elsewhere =
            path == RuntimeDirectory.defaultPath() && path != temporary
            ? RuntimeDirectory(path: temporary).records() : []
        return (records() + elsewhere)
            .sorted { ($0.mountpoint, $0.device) < ($1.mountpoint, $1.device) }
    }

    /// Removes the files of dead daemons.
    public func sweep() { _ = records() }

    private func records() -> [MountedVolume] {
        guard (try? checkOwner()) != nil, let directory = opendir(path) else { return [] }
        defer { closedir(directory) }
        var found: [MountedVolume] = []
        while let entry = readdir(directory) {
            let name = withUnsafeBytes(of: &entry.pointee.d_name) {
                String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self)
            }
            guard name.hasSuffix(".json"),
                let mounted = recorded(String(name.dropLast(".json".utf8.count)))
            else { continue }
            switch standing(of: mounted) {
            case .alive: found.append(mounted)
            case .dead: forget(mounted)
            case .unknown: break
            }
        }
        return found
    }

    private func isGone(_ mounted: MountedVolume) -> Bool {
        kill(pid_t(mounted.pid), 0) != 0 && errno == ESRCH
    }

    private enum Standing { case alive, dead, unknown }

    /// The state of a record's daemon. Alive: a process listens at its socket. Dead: no process
    /// listens any more, or socket, process and mount are all gone. A process number alone proves
    /// nothing: it may be of another PID namespace, and numbers are used again.
    private func standing(of mounted: MountedVolume) -> Standing {
        do throws(ControlError) {
            // A full queue also means that the daemon lives.
            _ = try ControlSocket.connect(to: mounted.socket, waits: false)
            return .alive
        } catch {
            switch error.code {
            case .refused: return .dead
            case .noSocket:
                return isGone(mounted) && mounted.mount == nil ? .dead : .unknown
            default: return .alive
            }
        }
    }

    // MARK: Finding

    /// This user's mounted volumes, sorted by mount point. They are the mounts in the mount table,
    /// dead or alive, and those that only a record shows (in another mount namespace, or detached).
    public func volumes() -> [FoundVolume] {
        let mounts = VolumeMount.all(ownedBy: geteuid())
        let records = mounted()
        let shown = mounts.map { mount in
            FoundVolume(mount: mount, record: records.first { $0.isOf(mount) })
        }
        let others = records.filter { record in !mounts.contains { record.isOf($0) } }
        return (shown + others.map { FoundVolume(mount: nil, record: $0) })
            .sorted { $0.mountPoint < $1.mountPoint }
    }

    /// Finds the volume of `path`: a mount point, a path inside one, a backing directory or a UUID.
    /// Without a path, finds the only volume. Throws `notInMount`, `noneMounted`, `severalMounted`.
    public func find(_ path: String?) throws(ControlError) -> FoundVolume {
        guard let path else {
            return try only(
                volumes(),
                otherwise: ControlError(.noneMounted, path: self.path, "no volume is mounted"))
        }
        // Goes without the records: another program of this user may have written anything there.
        if let mount = VolumeMount.covering(path) { return FoundVolume(mount: mount, record: nil) }
        if let record = detached(path) { return FoundVolume(mount: nil, record: record) }
        let resolved = RuntimeDirectory.resolve(path)
        let reason = Errno(rawValue: errno)
        var matches = volumes().filter {
            $0.mountPoint == resolved || $0.volume == resolved || $0.record?.uuid == path
        }
        // A dead daemon's mount does not count as the mount of its backing directory.
        matches.removeAll { $0.mountPoint != resolved && $0.mount?.isServed == false }
        if matches.isEmpty, geteuid() == 0, let resolved {
            matches = VolumeMount.all().filter { PathBytes.isSame($0.volume, resolved) }
                .map { FoundVolume(mount: $0, record: nil) }
        }
        return try only(
            matches,
            otherwise: resolved == nil
                ? ControlError(.system(reason), path: path, "\(reason)")
                : ControlError(.notInMount, path: path, "not inside a mounted ward volume"))
    }

    /// This user's mount whose backing directory is exactly `directory`, absolute and without
    /// links. Nil where no daemon serves it.
    public func serving(_ directory: String) -> FoundVolume? {
        volumes().first {
            PathBytes.isSame($0.volume, directory) && $0.mount?.isServed != false
        }
    }

    private func only(
        _ found: [FoundVolume], otherwise none: ControlError
    ) throws(ControlError) -> FoundVolume {
        guard let first = found.first else { throw none }
        if found.count == 1 { return first }
        throw ControlError(.severalMounted(found), path: path, "\(found.count) volumes are mounted")
    }

    /// The record of a mount that was detached from the mount table and is still in use, found by
    /// its device number.
    private func detached(_ path: String) -> MountedVolume? {
        guard let file = try? OwnedDescriptor(opening: path, ControlSocket.namingOnly),
            let table = try? MountTable(), (try? table.entry(holding: file.rawValue)) == nil,
            let status = try? Syscall.fstat(file.rawValue)
        else { return nil }
        let minor = UInt32(ward_makedev_minor(status.st_dev))
        return mounted().first { $0.device == minor }
    }

    /// Calls realpath(3); nil with `errno` where the path can't be followed.
    static func resolve(_ path: String) -> String? {
        guard let resolved = realpath(path, nil) else { return nil }
        defer { free(resolved) }
        return String(cString: resolved)
    }

    private func readSmallFile(_ path: String) -> [UInt8]? {
        guard let file = try? OwnedDescriptor(opening: path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
        else {
            return nil
        }
        var bytes = [UInt8](repeating: 0, count: 16384)
        let count = bytes.withUnsafeMutableBytes {
            try? Syscall.pread(file.rawValue, $0.baseAddress!, $0.count, at: 0)
        }
        guard let count else { return nil }
        return Array(bytes[0..<count])
    }
}

extension MountedVolume {
    /// Whether this is the record of the mount's daemon.
    public func isOf(_ mount: VolumeMount) -> Bool {
        device == mount.deviceMinor && PathBytes.isSame(volume, mount.volume)
    }
}

/// A mounted volume: its mount, its record or both.
public struct FoundVolume: Equatable, Sendable {
    /// Nil where this mount namespace does not show the mount.
    public var mount: VolumeMount?
    /// Nil where the daemon keeps its record elsewhere, or died.
    public var record: MountedVolume?

    public init(mount: VolumeMount?, record: MountedVolume?) {
        self.mount = mount
        self.record = record
    }

    public var mountPoint: String { mount?.mountPoint ?? record?.mountpoint ?? "" }
    public var volume: String { mount?.volume ?? record?.volume ?? "" }

    /// Connects to the volume's daemon, and to no other program.
    public func connect(timeout: Duration? = .seconds(120)) throws(ControlError) -> ControlClient {
        if let mount { return try ControlClient(mount: mount, timeout: timeout) }
        guard let record else {
            throw ControlError(.notInMount, path: mountPoint, "not a mounted ward volume")
        }
        return try ControlClient(record: record, timeout: timeout)
    }
}
