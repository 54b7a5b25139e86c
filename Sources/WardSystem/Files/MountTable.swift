import Glibc

/// The kernel's table of mounts: `/proc/self/mountinfo`, proc_pid_mountinfo(5).
///
/// Reading it touches no mount: `stat` of a mount whose daemon is stuck would wait for ever.
public struct MountTable: Sendable {
    /// One mount.
    public struct Entry: Equatable, Sendable {
        /// The minor number of `st_dev`: for FUSE the number under `/sys/fs/fuse/connections`.
        public var deviceMinor: UInt32
        public var mountPoint: String
        public var type: String
        public var source: String
        /// The mount's ID, at any moment unique in all mount namespaces: `mnt_id` of
        /// proc_pid_fdinfo(5).
        public var id: UInt32 = 0
        /// The mounted part of the file system: "/", or the directory that a bind mount shows.
        public var root = "/"
        /// The user and the group who mounted a FUSE file system (`user_id=`, `group_id=`). Only
        /// they may enter, unless it says `allow_other`.
        public var ownerID: UInt32?
        public var groupID: UInt32?

        public var isWard: Bool { type == "fuse.ward" }
    }

    /// The mounts, in the order of mounting.
    public let entries: [Entry]

    /// Reads the table as it is now. `path`: the table of another process, which may be in another
    /// mount namespace.
    public init(path: String = "/proc/self/mountinfo") throws(Errno) {
        self.init(parsing: try FileReading.bytes(of: path, limit: .max))
    }

    /// Parses a table. Lines of another form than the man page's are left out.
    public init(parsing text: [UInt8]) {
        entries = text.split(separator: UInt8(ascii: "\n")).compactMap { line in
            // ID, parent, major:minor, root, mount point, options, optional fields…, "-", type,
            // source, options
            let fields = line.split(separator: UInt8(ascii: " "))
            guard fields.count > 6,
                let dash = fields.dropFirst(6).firstIndex(of: [UInt8(ascii: "-")]),
                fields.count > dash + 2,
                let minor = fields[2].split(separator: UInt8(ascii: ":")).last,
                let minor = UInt32(String(decoding: minor, as: UTF8.self)),
                let id = UInt32(String(decoding: fields[0], as: UTF8.self))
            else { return nil }
            let options = fields.count > dash + 3 ? MountTable.unescape(fields[dash + 3]) : ""
            return Entry(
                deviceMinor: minor, mountPoint: MountTable.unescape(fields[4]),
                type: MountTable.unescape(fields[dash + 1]),
                source: MountTable.unescape(fields[dash + 2]), id: id,
                root: MountTable.unescape(fields[3]),
                ownerID: MountTable.number("user_id", in: options),
                groupID: MountTable.number("group_id", in: options))
        }
    }

    /// The mount of an open file or directory; nil where this mount namespace does not show it.
    /// Does not ask the file system.
    public func entry(holding descriptor: Int32) throws(Errno) -> Entry? {
        let text = try FileReading.text(of: "/proc/self/fdinfo/\(descriptor)", limit: 1 << 16)
        let line = text.split(separator: "\n").first { $0.hasPrefix("mnt_id:") }
        guard let id = line.flatMap({ UInt32($0.dropFirst(7).filter { $0.isNumber }) }) else {
            return nil
        }
        return entries.first { $0.id == id }
    }

    /// The top mount at the canonical path `mountPoint`.
    public func entry(at mountPoint: String) -> Entry? {
        entries.last { PathBytes.isSame($0.mountPoint, mountPoint) }
    }

    /// The mount of the absolute path `path`.
    public func covering(_ path: String) -> Entry? {
        var found: Entry?
        for entry in entries where PathBytes.isInside(path, entry.mountPoint) {
            // If two mounts have the same place, the later one is on top.
            if entry.mountPoint.utf8.count >= found?.mountPoint.utf8.count ?? 0 { found = entry }
        }
        return found
    }

    /// The number of the option `name` in a list of options with commas.
    private static func number(_ name: String, in options: String) -> UInt32? {
        options.split(separator: ",").lazy.compactMap { option in
            option.hasPrefix(name + "=") ? UInt32(option.dropFirst(name.utf8.count + 1)) : nil
        }.first
    }

    /// Undoes `\040` and similar escapes.
    private static func unescape(_ field: ArraySlice<UInt8>) -> String {
        var bytes: [UInt8] = []
        var rest = field
        while let byte = rest.popFirst() {
            let digits = rest.prefix(3)
            if byte == UInt8(ascii: "\\"), digits.count == 3,
                let value = UInt8(String(decoding: digits, as: UTF8.self), radix: 8)
            {
                bytes.append(value)
                rest = rest.dropFirst(3)
            } else {
                bytes.append(byte)
            }
        }
        return String(decoding: bytes, as: UTF8.self)
    }
}
