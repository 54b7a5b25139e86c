import Glibc
import WardSystem

/// Paths that are longer than a system call takes (PATH_MAX, 4,096 bytes; path_resolution(7)).
enum LongPath {
    /// The longest path for one call; leaves room for "/proc/self/fd/NUMBER/" before it.
    private static let mostBytes = 3072
    /// `O_PATH`, which Swift does not import.
    private static let pathOnly: Int32 = 0o10_000_000

    /// Calls `body` with a path that is short enough for a system call and leads to the same file.
    /// That is `path` itself, or a path from a descriptor of a directory on the way. Both end with
    /// a zero byte.
    static func reach<R>(
        _ path: [CChar], _ body: ([CChar]) throws(Errno) -> R
    ) throws(Errno) -> R {
        var rest = path[...]
        var directory: OwnedDescriptor?
        while rest.count > mostBytes {
            let slash = CChar(bitPattern: UInt8(ascii: "/"))
            guard let end = rest.prefix(mostBytes).lastIndex(of: slash), end > rest.startIndex
            else { throw .fileNameTooLong }
            let piece = Array(rest[..<end]) + [0]
            let here = directory?.rawValue ?? AT_FDCWD
            let next = OwnedDescriptor(
                adopting: try piece.withUnsafeBufferPointer { piece throws(Errno) in
                    try Syscall.openat(here, piece.baseAddress!, pathOnly | O_DIRECTORY)
                })
            directory = consume next
            rest = rest[end...].drop { $0 == slash }
        }
        guard let here = directory?.rawValue else { return try body(path) }
        let result = try body(Array("/proc/self/fd/\(here)/".utf8CString.dropLast()) + rest)
        directory = nil
        return result
    }
}
