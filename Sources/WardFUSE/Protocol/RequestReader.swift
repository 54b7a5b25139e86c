import CWardLinux
import Glibc
import WardSystem

/// Takes a request apart in place, front to back. Each part it returns is valid as long as the
/// request's buffer.
///
/// The kernel is trusted to speak its protocol; the checks turn a misunderstanding into `EINVAL`
/// instead of a read past the end.
struct RequestReader {
    private(set) var rest: UnsafeRawBufferPointer

    init(_ bytes: UnsafeRawBufferPointer) {
        rest = bytes
    }

    /// The next structure of the protocol.
    @inline(__always)
    mutating func take<T: BitwiseCopyable>(_ type: T.Type) throws(Errno) -> T {
        let size = MemoryLayout<T>.size
        guard rest.count >= size else { throw .invalidArgument }
        let value = rest.loadUnaligned(as: type)
        rest = UnsafeRawBufferPointer(rebasing: rest.dropFirst(size))
        return value
    }

    /// The next name, without its zero byte. A name may be empty (only TMPFILE's may).
    @inline(__always)
    mutating func takeName() throws(Errno) -> UnsafeRawBufferPointer {
        guard let base = rest.baseAddress, let end = memchr(base, 0, rest.count) else {
            throw .invalidArgument
        }
        let count = UnsafeRawPointer(end) - base
        let name = UnsafeRawBufferPointer(start: base, count: count)
        rest = UnsafeRawBufferPointer(rebasing: rest.dropFirst(count &+ 1))
        return name
    }

    /// The next `count` bytes.
    @inline(__always)
    mutating func takeBytes(_ count: UInt32) throws(Errno) -> UnsafeRawBufferPointer {
        let count = Int(count)
        guard rest.count >= count else { throw .invalidArgument }
        let bytes = UnsafeRawBufferPointer(rebasing: rest.prefix(count))
        rest = UnsafeRawBufferPointer(rebasing: rest.dropFirst(count))
        return bytes
    }
}

/// A request as it came: its header and what follows.
struct Request {
    let header: fuse_in_header
    let body: RequestReader

    /// Nil where `bytes` is not one whole request.
    @inline(__always)
    init?(_ bytes: UnsafeRawBufferPointer) {
        let headerBytes = MemoryLayout<fuse_in_header>.size
        guard bytes.count >= headerBytes else { return nil }
        header = bytes.loadUnaligned(as: fuse_in_header.self)
        guard Int(header.len) == bytes.count else { return nil }
        body = RequestReader(UnsafeRawBufferPointer(rebasing: bytes.dropFirst(headerBytes)))
    }

    /// A request without an answer, which no program waits for.
    var isForget: Bool {
        header.opcode == FUSE_FORGET.rawValue || header.opcode == FUSE_BATCH_FORGET.rawValue
    }

    /// May fail because space is short; safe to do once more. WRITE is left out: it retries itself,
    /// because a failure that the volume was told of must not be forgotten.
    var takesSpace: Bool {
        switch fuse_opcode(rawValue: header.opcode) {
        case FUSE_CREATE, FUSE_TMPFILE, FUSE_MKNOD, FUSE_MKDIR, FUSE_SYMLINK, FUSE_LINK,
            FUSE_RENAME, FUSE_RENAME2, FUSE_SETXATTR, FUSE_FALLOCATE:
            true
        default: false
        }
    }

    /// Bytes of a read or write that are worth another CPU.
    static let largeBytes = 64 << 10

    /// Reads or writes so much that other workers could do a part of it.
    var isLarge: Bool {
        switch fuse_opcode(rawValue: header.opcode) {
        case FUSE_WRITE: return Int(header.len) >= Request.largeBytes
        case FUSE_READ:
            var body = body
            return (try? body.take(fuse_read_in.self)).map { Int($0.size) >= Request.largeBytes }
                ?? false
        default: return false
        }
    }

    /// A program waits for the answer.
    @inline(__always)
    var isAwaited: Bool {
        switch fuse_opcode(rawValue: header.opcode) {
        case FUSE_RELEASE, FUSE_RELEASEDIR, FUSE_FORGET, FUSE_BATCH_FORGET, FUSE_INTERRUPT: false
        default: true
        }
    }

    /// May take as long as a disk does (`SyncPool`).
    var isSync: Bool {
        switch fuse_opcode(rawValue: header.opcode) {
        case FUSE_FSYNC, FUSE_FSYNCDIR, FUSE_SYNCFS: true
        default: false
        }
    }
}
