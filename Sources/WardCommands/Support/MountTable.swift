import Glibc
import WardSystem

/// What the kernel says is mounted, proc_pid_mountinfo(5). Reading it touches no mount, so a dead one can't hang it.
struct MountTable {
    struct Entry {
        var mountPoint: String
        var type: String
        var source: String
        /// Minor number of `st_dev`: for FUSE the number under `/sys/fs/fuse/connections`.
        var minor: Int

        var isWard: Bool { type == "fuse.ward" }
    }

    let entries: [Entry]

    init() {
        let text = (try? FileReading.text(of: "/proc/self/mountinfo", limit: 1 << 24)) ?? ""
        entries = text.split(separator: "\n").compactMap { line in
            // 36 35 98:0 /root /mount/point options optional... - type source super-options
            let fields = line.split(separator: " ")
            guard let dash = fields.firstIndex(of: "-"), dash >= 6, fields.count > dash + 2 else {
                return nil
            }
            let minor = fields[2].split(separator: ":").last.flatMap { Int($0) } ?? 0
            return Entry(
                mountPoint: MountTable.unescape(fields[4]), type: String(fields[dash + 1]),
                source: MountTable.unescape(fields[dash + 2]), minor: minor)
        }
    }

    /// The mount that covers this absolute path: the longest match, the last one mounted there.
    func covering(_ path: String) -> Entry? {
        var best: Entry?
        for entry in entries where Path.isInside(path, entry.mountPoint) {
            if entry.mountPoint.utf8.count >= (best?.mountPoint.utf8.count ?? 0) { best = entry }
        }
        return best
    }

    /// The latest mount below this mount point, which keeps it from being unmounted.
    func inside(_ mountPoint: String) -> Entry? {
        entries.last {
            $0.mountPoint != mountPoint && Path.isInside($0.mountPoint, mountPoint)
        }
    }

    func isMounted(_ mountPoint: String) -> Bool {
        entries.contains { $0.mountPoint == mountPoint && $0.isWard }
    }

    /// Spaces, tabs, newlines and backslashes are three octal digits.
    private static func unescape(_ text: Substring) -> String {
        guard text.utf8.contains(UInt8(ascii: "\\")) else { return String(text) }
        var bytes: [UInt8] = []
        let source = Array(text.utf8)
        var index = 0
        while index < source.count {
            if source[index] == UInt8(ascii: "\\"), index + 3 < source.count,
                let value = UInt8(
                    String(decoding: source[(index + 1)...(index + 3)], as: UTF8.self), radix: 8)
            {
                bytes.append(value)
                index += 4
            } else {
                bytes.append(source[index])
                index += 1
            }
        }
        return String(decoding: bytes, as: UTF8.self)
    }
}
