import Glibc

/// What the kernel says is mounted: `/proc/self/mountinfo`, proc_pid_mountinfo(5).
///
/// Reading it touches no mount: `stat` of one whose daemon is stuck would wait for ever.
public struct MountTable: Sendable {
    public struct Entry: Equatable, Sendable {
        /// Minor number of `st_dev`: for FUSE the number under `/sys/fs/fuse/connections`.
        public var deviceMinor: UInt32
        public var mountPoint: String
        public var type: String
        public var source: String
        /// Unlike any other mount's at the moment, in all mount namespaces: `mnt_id` of proc_pid_fdinfo(5).
        public var id: UInt32 = 0
        /// What of the file system is mounted: "/", or the directory that a bind mount shows.
        public var root = "/"

        public var isWard: Bool { type == "fuse.ward" }
    }

    /// In the order of mounting.
    public let entries: [Entry]

    /// Reads the table as it is now; `path`: another process's, which may be in another mount namespace.
    public init(path: String = "/proc/self/mountinfo") throws(Errno) {
        self.init(parsing: try FileReading.bytes(of: path, limit: .max))
    }

    /// Lines that are not as the man page says are left out.
    public init(parsing text: [UInt8]) {
        entries = text.split(separator: UInt8(ascii: "\n")).compactMap { line in
            // ID, parent, major:minor, root, mount point, options, optional fields…, "-", type, source, options
            let fields = line.split(separator: UInt8(ascii: " "))
            guard fields.count > 6,
                let dash = fields.dropFirst(6).firstIndex(of: [UInt8(ascii: "-")]),
                fields.count > dash + 2,
                let minor = fields[2].split(separator: UInt8(ascii: ":")).last,
                let minor = UInt32(String(decoding: minor, as: UTF8.self)),
                let id = UInt32(String(decoding: fields[0], as: UTF8.self))
            else { return nil }
            return Entry(
                deviceMinor: minor, mountPoint: MountTable.unescape(fields[4]),
                type: MountTable.unescape(fields[dash + 1]),
                source: MountTable.unescape(fields[dash + 2]), id: id,
                root: MountTable.unescape(fields[3]))
        }
    }

    /// What is mounted on top at the canonical path `mountPoint`.
    public func entry(at mountPoint: String) -> Entry? {
        entries.last { PathBytes.isSame($0.mountPoint, mountPoint) }
    }

    /// The mount that the absolute path `path` lies in.
    public func covering(_ path: String) -> Entry? {
        var found: Entry?
        for entry in entries where PathBytes.isInside(path, entry.mountPoint) {
            // Of two at the same place the later one is on top.
            if entry.mountPoint.utf8.count >= found?.mountPoint.utf8.count ?? 0 { found = entry }
        }
        return found
    }

    /// Undoes `\040` and its like.
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
