import CWardLinux
import Glibc
import WardSystem
import WardVolume

/// How long the kernel may remember answers, seconds.
struct CachePolicy: Sendable, Equatable {
    /// Names, and attributes of files whose class is fully open.
    let seconds: UInt64
    /// How long the kernel may remember that a name does not exist; 0: not at all.
    let absenceSeconds: UInt64
    /// Pages and directory listings survive from one open to the next.
    let keepsContent: Bool

    /// For a volume that only ward writes: a day, and changes are invalidated.
    static let exclusive = CachePolicy(seconds: 86400, absenceSeconds: 86400, keepsContent: true)
    /// For a backing directory that others may change at any time.
    static let shared = CachePolicy(seconds: 1, absenceSeconds: 0, keepsContent: false)

    @inline(__always)
    func attributeSeconds(_ attributes: Attributes) -> UInt64 {
        attributes.mayBeCached ? seconds : 0
    }
}

extension fuse_attr {
    @inline(__always)
    init(_ attributes: Attributes) {
        self.init(
            ino: attributes.inode, size: attributes.sizeBytes, blocks: attributes.blocks,
            atime: UInt64(bitPattern: Int64(attributes.access.tv_sec)),
            mtime: UInt64(bitPattern: Int64(attributes.modification.tv_sec)),
            ctime: UInt64(bitPattern: Int64(attributes.change.tv_sec)),
            atimensec: UInt32(truncatingIfNeeded: attributes.access.tv_nsec),
            mtimensec: UInt32(truncatingIfNeeded: attributes.modification.tv_nsec),
            ctimensec: UInt32(truncatingIfNeeded: attributes.change.tv_nsec),
            mode: attributes.mode, nlink: attributes.linkCount, uid: attributes.uid,
            gid: attributes.gid,
            rdev: Wire.device(attributes.deviceMajor, attributes.deviceMinor),
            blksize: attributes.blockBytes, flags: 0)
    }
}

extension fuse_attr_out {
    @inline(__always)
    init(_ attributes: Attributes, _ policy: CachePolicy) {
        self.init(
            attr_valid: policy.attributeSeconds(attributes), attr_valid_nsec: 0, dummy: 0,
            attr: fuse_attr(attributes))
    }
}

extension fuse_entry_out {
    @inline(__always)
    init(_ entry: Entry, _ policy: CachePolicy) {
        self.init(
            nodeid: entry.node, generation: entry.generation, entry_valid: policy.seconds,
            attr_valid: policy.attributeSeconds(entry.attributes), entry_valid_nsec: 0,
            attr_valid_nsec: 0, attr: fuse_attr(entry.attributes))
    }

    /// The answer that a name does not exist, for the kernel to remember.
    @inline(__always)
    static func absence(_ policy: CachePolicy) -> fuse_entry_out {
        var out = fuse_entry_out()
        out.entry_valid = policy.absenceSeconds
        return out
    }
}

extension AttributeChange {
    /// Takes the change from a SETATTR request. Its handle is not part of it.
    init(_ request: fuse_setattr_in) {
        self.init()
        let valid = request.valid
        if valid & FATTR_MODE != 0 { mode = request.mode & 0o7777 }
        if valid & FATTR_UID != 0 { uid = request.uid }
        if valid & FATTR_GID != 0 { gid = request.gid }
        if valid & FATTR_SIZE != 0 { sizeBytes = request.size }
        if valid & FATTR_ATIME_NOW != 0 {
            access = .now
        } else if valid & FATTR_ATIME != 0 {
            access = .at(Wire.time(request.atime, request.atimensec))
        }
        if valid & FATTR_MTIME_NOW != 0 {
            modification = .now
        } else if valid & FATTR_MTIME != 0 {
            modification = .at(Wire.time(request.mtime, request.mtimensec))
        }
        dropPrivilegeBits = valid & FATTR_KILL_SUIDGID != 0
    }
}

extension fuse_kstatfs {
    init(_ status: FileSystemStatus) {
        self.init()
        blocks = UInt64(status.f_blocks)
        bfree = UInt64(status.f_bfree)
        bavail = UInt64(status.f_bavail)
        files = UInt64(status.f_files)
        ffree = UInt64(status.f_ffree)
        bsize = UInt32(truncatingIfNeeded: status.f_bsize)
        frsize = UInt32(truncatingIfNeeded: status.f_frsize)
        namelen = UInt32(truncatingIfNeeded: status.f_namemax)
    }
}

/// Small conversions between the protocol and Swift.
enum Wire {
    /// The kernel's 32-bit device number: minor 0-7, major 8-19, minor 20-31 (`new_encode_dev`).
    @inline(__always)
    static func device(_ major: UInt32, _ minor: UInt32) -> UInt32 {
        (minor & 0xff) | (major << 8) | ((minor & ~0xff) << 12)
    }

    @inline(__always)
    static func time(_ seconds: UInt64, _ nanoseconds: UInt32) -> timespec {
        timespec(tv_sec: Int(Int64(bitPattern: seconds)), tv_nsec: Int(nanoseconds))
    }

    /// The number for `fuse_out_header.error`: the one place where an error becomes the kernel's.
    ///
    /// The kernel hangs a request whose error is not between -511 and 0. By `ENOSYS` it learns
    /// never to send that opcode again, and to pretend: an `fsync` would succeed from then on. So
    /// an ENOSYS of the backing store must not get through. For the daemon's limit, `EMFILE`, the
    /// program gets ENFILE: to it the system's file table is full.
    @inline(__always)
    static func errorNumber(_ error: Errno) -> Int32 {
        switch error.rawValue {
        case ENOSYS: return -EOPNOTSUPP
        case EMFILE: return -ENFILE
        case 1...511: return 0 &- error.rawValue
        default: return -EIO
        }
    }
}
