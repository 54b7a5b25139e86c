import CWardLinux
import Synchronization

/// Counts the requests of each kind since the mount. Any thread may call; the numbers are for
/// people and tests.
final class RequestCounts: @unchecked Sendable {
    // Sendable: the counters never move, and they are atomic.
    private static let kinds = 64
    private let counters: UnsafeMutablePointer<Atomic<Int>>

    init() {
        counters = .allocate(capacity: RequestCounts.kinds)
        for kind in 0..<RequestCounts.kinds { (counters + kind).initialize(to: Atomic(0)) }
    }

    deinit {
        counters.deinitialize(count: RequestCounts.kinds)
        counters.deallocate()
    }

    @inline(__always)
    func note(_ opcode: UInt32) {
        // A kind that is newer than this table counts as 0, which no request has.
        let kind = opcode < UInt32(RequestCounts.kinds) ? Int(opcode) : 0
        counters[kind].wrappingAdd(1, ordering: .relaxed)
    }

    /// The requests that came, in the order of their numbers, by the names of linux/fuse.h.
    var all: [(name: String, count: Int)] {
        (0..<RequestCounts.kinds).compactMap { kind in
            let count = counters[kind].load(ordering: .relaxed)
            return count > 0 ? (RequestCounts.name(of: UInt32(kind)), count) : nil
        }
    }

    static func name(of opcode: UInt32) -> String {
        names.first { $0.0.rawValue == opcode }?.1 ?? "OPCODE_\(opcode)"
    }

    private static let names: [(fuse_opcode, String)] = [
        (FUSE_LOOKUP, "LOOKUP"), (FUSE_FORGET, "FORGET"), (FUSE_GETATTR, "GETATTR"),
        (FUSE_SETATTR, "SETATTR"), (FUSE_READLINK, "READLINK"), (FUSE_SYMLINK, "SYMLINK"),
        (FUSE_MKNOD, "MKNOD"), (FUSE_MKDIR, "MKDIR"), (FUSE_UNLINK, "UNLINK"),
        (FUSE_RMDIR, "RMDIR"), (FUSE_RENAME, "RENAME"), (FUSE_LINK, "LINK"),
        (FUSE_OPEN, "OPEN"), (FUSE_READ, "READ"), (FUSE_WRITE, "WRITE"),
        (FUSE_STATFS, "STATFS"), (FUSE_RELEASE, "RELEASE"), (FUSE_FSYNC, "FSYNC"),
        (FUSE_SETXATTR, "SETXATTR"), (FUSE_GETXATTR, "GETXATTR"),
        (FUSE_LISTXATTR, "LISTXATTR"), (FUSE_REMOVEXATTR, "REMOVEXATTR"),
        (FUSE_FLUSH, "FLUSH"), (FUSE_OPENDIR, "OPENDIR"), (FUSE_READDIR, "READDIR"),
        (FUSE_RELEASEDIR, "RELEASEDIR"), (FUSE_FSYNCDIR, "FSYNCDIR"),
        (FUSE_CREATE, "CREATE"), (FUSE_INTERRUPT, "INTERRUPT"), (FUSE_IOCTL, "IOCTL"),
        (FUSE_BATCH_FORGET, "BATCH_FORGET"), (FUSE_FALLOCATE, "FALLOCATE"),
        (FUSE_READDIRPLUS, "READDIRPLUS"), (FUSE_RENAME2, "RENAME2"), (FUSE_LSEEK, "LSEEK"),
        (FUSE_COPY_FILE_RANGE, "COPY_FILE_RANGE"), (FUSE_SYNCFS, "SYNCFS"),
        (FUSE_TMPFILE, "TMPFILE"), (FUSE_STATX, "STATX"), (FUSE_DESTROY, "DESTROY"),
    ]
}
