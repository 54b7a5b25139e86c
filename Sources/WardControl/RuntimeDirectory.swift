import CWardLinux
import Glibc
import WardSystem

/// A mounted volume as its record in the runtime directory (`<uuid>.json`) tells it.
public struct MountedVolume: Equatable, Sendable {
    public var uuid: String
    /// The backing directory, absolute.
    public var volume: String
    public var mountpoint: String
    /// The daemon's.
    public var pid: Int
    /// The control socket.
    public var socket: String

    public init(uuid: String, volume: String, mountpoint: String, pid: Int, socket: String) {
        self.uuid = uuid
        self.volume = volume
        self.mountpoint = mountpoint
        self.pid = pid
        self.socket = socket
    }

    public var json: JSONValue {
        .object([
            ("uuid", .string(uuid)), ("volume", .string(volume)),
            ("mountpoint", .string(mountpoint)), ("pid", .int(Int64(pid))),
            ("socket", .string(socket)),
        ])
    }

    /// Nil where a member is missing, or no process can have that number.
    public init?(json: JSONValue) {
        guard let uuid = json["uuid"]?.stringValue, let volume = json["volume"]?.stringValue,
            let mountpoint = json["mountpoint"]?.stringValue, let pid = json["pid"]?.intValue,
            (1...Int(Int32.max)).contains(pid), let socket = json["socket"]?.stringValue
        else { return nil }
        self.init(uuid: uuid, volume: volume, mountpoint: mountpoint, pid: pid, socket: socket)
    }
}

/// Where sockets and records of mounted volumes are: `$XDG_RUNTIME_DIR/ward`, or `/tmp/ward-<euid>` where that is unset.
public struct RuntimeDirectory: Sendable {
    public let path: String

    public init(path: String = RuntimeDirectory.defaultPath()) {
        self.path = path
    }

    public static func defaultPath() -> String {
        if let base = getenv("XDG_RUNTIME_DIR"), base[0] == CChar(UInt8(ascii: "/")) {
            return String(cString: base) + "/ward"
        }
        return "/tmp/ward-\(geteuid())"
    }

    public func socketPath(uuid: String) -> String { path + "/" + uuid + ".socket" }
    public func recordPath(uuid: String) -> String { path + "/" + uuid + ".json" }

    /// Makes the directory (mode 0700) if it is not there; refuses one that others can write to or own.
    public func create() throws(ControlError) {
        if mkdir(path, 0o700) != 0, errno != EEXIST {
            let reason = Errno(rawValue: errno)
            throw ControlError(.system(reason), path: path, "can't be created: \(reason)")
        }
        try checkOwner()
    }

    /// A directory in /tmp may have been put there by somebody else.
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

    /// Writes `<uuid>.json`, atomically.
    public func record(_ mounted: MountedVolume) throws(ControlError) {
        let final = recordPath(uuid: mounted.uuid)
        let temporary = final + ".new"
        do throws(Errno) {
            let file = try OwnedDescriptor(
                opening: temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, mode: 0o600)
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

    /// Removes record and socket of a volume.
    public func forget(uuid: String) {
        unlink(recordPath(uuid: uuid))
        unlink(socketPath(uuid: uuid))
        unlink(StateInterface.socketPath(besides: socketPath(uuid: uuid)))
    }

    /// The record of one volume, whether its daemon lives or not.
    public func recorded(uuid: String) -> MountedVolume? {
        guard let bytes = readSmallFile(recordPath(uuid: uuid)),
            let json = try? JSONParser.parse(bytes)
        else { return nil }
        return MountedVolume(json: json)
    }

    /// The volumes mounted now, by mount point. Removes what dead daemons left behind.
    public func mounted() -> [MountedVolume] {
        guard (try? checkOwner()) != nil, let directory = opendir(path) else { return [] }
        defer { closedir(directory) }
        var found: [MountedVolume] = []
        while let entry = readdir(directory) {
            let name = withUnsafeBytes(of: &entry.pointee.d_name) {
                String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self)
            }
            guard name.hasSuffix(".json"),
                let mounted = recorded(uuid: String(name.dropLast(".json".utf8.count)))
            else { continue }
            if isAlive(mounted) {
                found.append(mounted)
            } else if isLeftOver(mounted) {
                forget(uuid: mounted.uuid)
            }
        }
        return found.sorted { $0.mountpoint < $1.mountpoint }
    }

    /// Dead: the process is gone, or (its number given to another) nobody listens.
    private func isAlive(_ mounted: MountedVolume) -> Bool {
        if kill(pid_t(mounted.pid), 0) != 0, errno == ESRCH { return false }
        do throws(ControlError) {
            _ = try ControlSocket.connect(to: mounted.socket)
            return true
        } catch {
            switch error.code {
            case .noSocket, .refused: return false
            default: return true
            }
        }
    }

    /// Whether a dead daemon's files are still its own: the next one of the volume, which may just be starting, listens
    /// first and writes its record then.
    private func isLeftOver(_ dead: MountedVolume) -> Bool {
        do throws(ControlError) {
            _ = try ControlSocket.connect(to: socketPath(uuid: dead.uuid))
            return false
        } catch {
            switch error.code {
            case .noSocket, .refused: return recorded(uuid: dead.uuid) == dead
            default: return false
            }
        }
    }

    /// The control socket for `path` (a mount point, any path inside one, a backing directory or a UUID); without a path
    /// that of the only mounted volume. Throws `notInMount`, `noneMounted`, `severalMounted`, `noSocket`.
    public func socket(for path: String?) throws(ControlError) -> String {
        guard let path else {
            let all = mounted()
            if all.count == 1 { return all[0].socket }
            if all.isEmpty {
                throw ControlError(.noneMounted, path: self.path, "no volume is mounted")
            }
            throw ControlError(
                .severalMounted(all), path: self.path, "\(all.count) volumes are mounted")
        }
        if let socket = RuntimeDirectory.attribute("user.ward.socket", of: path) { return socket }
        let resolved = RuntimeDirectory.resolve(path)
        // A mount point that does not answer (dead daemon) is still known by its record.
        if let match = mounted().first(where: {
            $0.mountpoint == resolved || $0.volume == resolved || $0.uuid == path
        }) {
            return match.socket
        }
        if resolved == nil {
            let reason = Errno(rawValue: errno)
            throw ControlError(.system(reason), path: path, "\(reason)")
        }
        throw ControlError(.notInMount, path: path, "not inside a mounted ward volume")
    }

    /// realpath(3); nil with `errno` where the path can't be followed.
    static func resolve(_ path: String) -> String? {
        guard let resolved = realpath(path, nil) else { return nil }
        defer { free(resolved) }
        return String(cString: resolved)
    }

    /// A virtual attribute of a path in a mount; nil anywhere else. Only a FUSE file system is believed: on any other,
    /// whoever may write a file can put an attribute of that name on it.
    static func attribute(_ name: String, of path: String) -> String? {
        guard ward_file_system_type(path) == FUSE_SUPER_MAGIC else { return nil }
        var value = [UInt8](repeating: 0, count: 4096)
        let count = getxattr(path, name, &value, value.count)
        guard count > 0 else { return nil }
        return String(decoding: value[0..<count], as: UTF8.self)
    }

    private func readSmallFile(_ path: String) -> [UInt8]? {
        guard let file = try? OwnedDescriptor(opening: path, O_RDONLY | O_NOFOLLOW) else {
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
