import CWardLinux
import Glibc

/// An entry of a directory, readdir(3).
public struct DirectoryEntry: Sendable {
    /// The name as stored, without a slash or a zero byte. Empty where a damaged backing store has
    /// a name that begins with a zero byte: such an entry can't be opened.
    public var name: [UInt8]
    public var inode: UInt64
    /// `DT_*`; `DT_UNKNOWN` where the file system does not say.
    public var type: UInt8

    public init(name: [UInt8], inode: UInt64, type: UInt8) {
        self.name = name
        self.inode = inode
        self.type = type
    }
}

/// The entries of a directory.
public enum DirectoryReading {
    /// Calls `body` with each entry except ".", ".." and those without a name, in the file system's
    /// order. The descriptor `directory` is open for reading, and its read position does not
    /// change.
    public static func entries(
        of directory: Int32, _ body: (DirectoryEntry) -> Void
    ) throws(Errno) {
        // Two descriptors of one open file share its read position, so this opens the directory
        // anew.
        let descriptor = try Syscall.openat(directory, ".", O_RDONLY | O_DIRECTORY)
        guard let stream = fdopendir(descriptor) else {
            let reason = Errno(rawValue: errno)
            Syscall.close(descriptor)
            throw reason
        }
        defer { closedir(stream) }
        while true {
            errno = 0
            guard let entry = readdir(stream) else {
                if errno != 0 { throw Errno(rawValue: errno) }
                return
            }
            let name = UnsafeRawPointer(entry) + MemoryLayout<dirent>.offset(of: \.d_name)!
            let count = strlen(name.assumingMemoryBound(to: CChar.self))
            let bytes = UnsafeRawBufferPointer(start: name, count: count)
            if bytes.isEmpty || bytes.elementsEqual(".".utf8) || bytes.elementsEqual("..".utf8) {
                continue
            }
            body(
                DirectoryEntry(
                    name: [UInt8](bytes), inode: UInt64(entry.pointee.d_ino),
                    type: entry.pointee.d_type))
        }
    }

    /// Bytes asked for at once: as many as the C library asks for.
    private static let chunkBytes = 32 << 10

    /// Returns the next entries from `offset` on (0: the first), with "." and "..", getdents64(2).
    /// Each comes with the offset behind it, which means the same to every descriptor of the
    /// directory. Empty at the end.
    public static func entries(
        of directory: Int32, from offset: UInt64
    ) throws(Errno) -> [(entry: DirectoryEntry, next: UInt64)] {
        var entries: [(entry: DirectoryEntry, next: UInt64)] = []
        try records(of: directory, from: offset) { record, next in
            let name = record.baseAddress! + nameOffset
            let count = strlen(name.assumingMemoryBound(to: CChar.self))
            entries.append(
                (
                    DirectoryEntry(
                        name: [UInt8](UnsafeRawBufferPointer(start: name, count: count)),
                        inode: record.loadUnaligned(as: UInt64.self), type: record[18]),
                    next
                ))
        }
        return entries
    }

    /// Reads as many entries as `entries` and returns only the offset of the next ones; nil at the
    /// end.
    public static func pass(of directory: Int32, from offset: UInt64) throws(Errno) -> UInt64? {
        var last: UInt64?
        try records(of: directory, from: offset) { _, next in last = next }
        return last
    }

    /// The offset of the name in struct linux_dirent64: inode 8, offset behind it 8, length of the
    /// record 2, type 1. A zero byte ends the name.
    private static let nameOffset = 19

    private static func records(
        of directory: Int32, from offset: UInt64,
        _ body: (_ record: UnsafeRawBufferPointer, _ next: UInt64) -> Void
    ) throws(Errno) {
        let start = Int(Int64(bitPattern: offset))
        if try Syscall.lseek(directory, 0, SEEK_CUR) != start {
            _ = try Syscall.lseek(directory, start, SEEK_SET)
        }
        try withUnsafeTemporaryAllocation(byteCount: chunkBytes, alignment: 8) {
            buffer throws(Errno) in
            let count = try Syscall.check {
                ward_getdents64(directory, buffer.baseAddress!, buffer.count)
            }
            var at = 0
            while at + nameOffset < count {
                let record = UnsafeRawBufferPointer(rebasing: buffer[at..<count])
                body(record, record.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
                at += Int(record.loadUnaligned(fromByteOffset: 16, as: UInt16.self))
            }
        }
    }

    /// Returns the names, sorted by their bytes.
    public static func names(in directory: Int32) throws(Errno) -> [[UInt8]] {
        var names: [[UInt8]] = []
        try entries(of: directory) { names.append($0.name) }
        return names.sorted { $0.lexicographicallyPrecedes($1) }
    }
}

/// A name or path as the kernel gave it, which need not be UTF-8.
public struct NodeName: Sendable {
    public let bytes: [UInt8]

    public init(bytes: some Sequence<UInt8>) { self.bytes = Array(bytes) }

    /// Lends the name with a zero byte at its end.
    public func withCString<R>(
        _ body: (UnsafePointer<CChar>) throws(Errno) -> R
    ) throws(Errno) -> R {
        let terminated = bytes.zeroTerminated
        return try terminated.withUnsafeBufferPointer { buffer throws(Errno) in
            try body(buffer.baseAddress!)
        }
    }
}

extension [UInt8] {
    /// The name with a zero byte at its end, as system calls take it.
    package var zeroTerminated: [CChar] {
        [CChar](unsafeUninitializedCapacity: count + 1) { terminated, initialized in
            withUnsafeBytes { UnsafeMutableRawBufferPointer(terminated).copyMemory(from: $0) }
            terminated[count] = 0
            initialized = count + 1
        }
    }
}
