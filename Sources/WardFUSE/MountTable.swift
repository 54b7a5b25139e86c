import Glibc
import WardSystem

/// A line of `/proc/self/mountinfo`, proc_pid_mountinfo(5).
struct MountEntry: Equatable {
    var deviceMinor: UInt32
    var mountPoint: String
    var type: String
    var source: String
}

/// What is mounted, read without touching any of it: `stat` of a mount whose daemon is stuck would wait for ever.
enum MountTable {
    static func read() throws(Errno) -> [MountEntry] {
        let file = try OwnedDescriptor(opening: "/proc/self/mountinfo", O_RDONLY)
        var text: [UInt8] = []
        let chunk = UnsafeMutableRawBufferPointer.allocate(byteCount: 1 << 16, alignment: 16)
        defer { chunk.deallocate() }
        while true {
            let count = try Syscall.read(file.rawValue, chunk.baseAddress!, chunk.count)
            if count == 0 { break }
            text.append(contentsOf: chunk.prefix(count))
        }
        return parse(text)
    }

    /// What is mounted on top at the canonical path `mountPoint`.
    static func entry(at mountPoint: String) throws(Errno) -> MountEntry? {
        try read().last { $0.mountPoint == mountPoint }
    }

    static func parse(_ text: [UInt8]) -> [MountEntry] {
        text.split(separator: UInt8(ascii: "\n")).compactMap { line in
            // ID, parent, major:minor, root, mount point, options, optional fields…, "-", type, source, options
            let fields = line.split(separator: UInt8(ascii: " "))
            guard fields.count > 6,
                let dash = fields.dropFirst(6).firstIndex(of: [UInt8(ascii: "-")]),
                fields.count > dash + 2,
                let minor = fields[2].split(separator: UInt8(ascii: ":")).last,
                let minor = UInt32(String(decoding: minor, as: UTF8.self))
            else { return nil }
            return MountEntry(
                deviceMinor: minor, mountPoint: unescape(fields[4]),
                type: unescape(fields[dash + 1]), source: unescape(fields[dash + 2]))
        }
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
