import CWardLinux

/// The backing file systems with properties that ward knows. Raw values are their magic numbers,
/// linux/magic.h.
enum BackingFileSystem: Int {
    /// ext2 and ext3, too: they have the same number.
    case ext4 = 0xEF53
    case xfs = 0x5846_5342
    case btrfs = 0x9123_683E
    case tmpfs = 0x0102_1994
    case fuse = 0x6573_5546

    /// The file system that `path` is on; nil where it is not one of these.
    init?(of path: UnsafePointer<CChar>) { self.init(rawValue: Int(ward_file_system_type(path))) }

    init?(of path: String) {
        guard let known = path.withCString({ BackingFileSystem(of: $0) }) else { return nil }
        self = known
    }

    /// A power cut leaves a beginning of the changes of names. ext4 and XFS journal names in order;
    /// tmpfs has none that survives. Btrfs writes synced names to a log of its own, without older
    /// names that were not synced.
    var ordersChanges: Bool { self != .btrfs && self != .fuse }

    /// Offsets in a directory stay valid while names come and go. tmpfs and overlayfs count entries
    /// instead.
    var hasStableOffsets: Bool { self != .tmpfs && self != .fuse }

    /// The file system is on a disk of this machine and tells which pages are in memory
    /// (preadv2(2), `RWF_NOWAIT`).
    var isLocal: Bool { self == .ext4 || self == .xfs || self == .btrfs }

    /// syncfs(2) reaches the disk. With FUSE it does so for virtiofs alone (fs/fuse/inode.c,
    /// `fuse_sync_fs`).
    var syncsWhole: Bool { self != .fuse }
}
