import CWardLinux

/// The agreement of ward and the kernel in the INIT exchange.
struct Negotiation: Equatable {
    /// The features that the kernel offers and ward wants, by FUSE_* bit.
    let features: UInt64
    let minorVersion: UInt32

    /// The largest WRITE and READ, bytes.
    static let maximumTransferBytes = 1 << 20
    /// Linux 5.4. Older kernels lack FUSE_EXPLICIT_INVAL_DATA and FUSE_MAX_PAGES.
    static let oldestMinorVersion: UInt32 = 31
    /// Linux 6.16: a page stays under write-back until its WRITE is answered.
    static let minorVersionOfWriteBackInPlace: UInt32 = 44
    /// Seconds after which the kernel aborts a connection that does not answer (Linux 6.15). So a
    /// stuck daemon can't leave processes that can't be killed.
    static let requestTimeoutSeconds: UInt16 = 300

    /// All features that ward asks for, where the kernel offers them. Left out on purpose:
    /// - WRITEBACK_CACHE: with it a lock can acknowledge a write that is never stored;
    /// - POSIX_LOCKS, FLOCK_LOCKS: the kernel keeps these locks itself, which costs no request;
    /// - AUTO_INVAL_DATA: ward is the only writer, so the kernel drops pages only when ward says
    ///   so;
    /// - EXPORT_SUPPORT: node IDs are addresses (NO_EXPORT_SUPPORT refuses to make file handles of
    ///   them);
    /// - OVER_IO_URING: only where it is asked for (`usesRing`);
    /// - ASYNC_DIO: pages that a buffered read fills during an asynchronous O_DIRECT write would
    ///   stay stale. The kernel drops pages only after a write that it waits for
    ///   (`generic_file_direct_write`, mm/filemap.c). Without ASYNC_DIO it makes such a write
    ///   synchronously (`fuse_direct_IO`, fs/fuse/file.c);
    /// - SPLICE_*: splicing costs an encrypting daemon more than it saves.
    static func wanted(sharedStorage: Bool) -> UInt64 {
        let always =
            FUSE_ASYNC_READ | FUSE_ATOMIC_O_TRUNC | FUSE_BIG_WRITES | FUSE_DONT_MASK
            | FUSE_DO_READDIRPLUS | FUSE_READDIRPLUS_AUTO | FUSE_PARALLEL_DIROPS
            | FUSE_POSIX_ACL | FUSE_MAX_PAGES | FUSE_CACHE_SYMLINKS | FUSE_HANDLE_KILLPRIV_V2
            | FUSE_SETXATTR_EXT | FUSE_INIT_EXT | FUSE_NO_EXPORT_SUPPORT | FUSE_REQUEST_TIMEOUT
        return always | (sharedStorage ? FUSE_AUTO_INVAL_DATA : FUSE_EXPLICIT_INVAL_DATA)
    }

    /// The agreement on the offer in `request`; nil where the kernel is too old.
    ///
    /// `usesRing`: with FUSE over io_uring, where the kernel offers it. The kernel then sends next
    /// to nothing to the device.
    init?(answering request: fuse_init_in, sharedStorage: Bool, usesRing: Bool = false) {
        guard request.major == UInt32(FUSE_KERNEL_VERSION),
            request.minor >= Negotiation.oldestMinorVersion
        else { return nil }
        var wanted = Negotiation.wanted(sharedStorage: sharedStorage)
        // With both features Linux 6.18 takes a request that waits in a ring for one that is never
        // answered.
        if usesRing, Negotiation.offersRing(request) {
            wanted = wanted & ~FUSE_REQUEST_TIMEOUT | FUSE_OVER_IO_URING
        }
        features = Negotiation.offered(request) & wanted
        minorVersion = min(request.minor, UInt32(FUSE_KERNEL_MINOR_VERSION))
    }

    private static func offered(_ request: fuse_init_in) -> UInt64 {
        let extended = UInt64(request.flags) & FUSE_INIT_EXT != 0
        return UInt64(request.flags) | (extended ? UInt64(request.flags2) << 32 : 0)
    }

    static func offersRing(_ request: fuse_init_in) -> Bool {
        offered(request) & FUSE_OVER_IO_URING != 0
    }

    /// Whether requests come by FUSE over io_uring.
    var usesRing: Bool { features & FUSE_OVER_IO_URING != 0 }

    /// Whether SETXATTR requests carry the longer structure.
    var hasExtendedSetxattr: Bool { features & FUSE_SETXATTR_EXT != 0 }

    var reply: fuse_init_out {
        var out = fuse_init_out()
        out.major = UInt32(FUSE_KERNEL_VERSION)
        out.minor = minorVersion
        out.max_readahead = UInt32(Negotiation.maximumTransferBytes)
        out.flags = UInt32(truncatingIfNeeded: features)
        out.flags2 = UInt32(truncatingIfNeeded: features >> 32)
        // The read-ahead and asynchronous I/O in flight. The kernel's defaults (12 and 9) are from
        // times when requests were one page.
        out.max_background = 64
        out.congestion_threshold = 48
        out.max_write = UInt32(Negotiation.maximumTransferBytes)
        out.time_gran = 1
        out.max_pages = UInt16(Negotiation.maximumTransferBytes / 4096)
        if features & FUSE_REQUEST_TIMEOUT != 0 {
            out.request_timeout = Negotiation.requestTimeoutSeconds
        }
        return out
    }
}
