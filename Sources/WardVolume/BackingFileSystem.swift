import CWardLinux

/// The file systems below a volume of which more is known than that they are file systems. Values
/// are their magic numbers, linux/magic.h.
enum BackingFileSystem: Int {
    /// And its predecessors.
    case ext4 = 0xEF53
    case xfs = 0x5846_5342
    case btrfs = 0x9123_683E
    case tmpfs = 0x0102_1994
    case fuse = 0x6573_5546

    /// The one that `path` is on; nil where nothing is known of it.
    init?(of path: UnsafePointer<CChar>) { self.init(rawValue: Int(ward_file_system_type(path))) }

    init?(of path: String) {
        guard let known = path.withCString({ BackingFileSystem(of: $0) }) else { return nil }
        self = known
    }

    /// ext4 and XFS journal names in order; tmpfs has none that survives. Btrfs writes what was
    /// synced to a log of its own, and what was made before it only if that was synced, too.
    var ordersChanges: Bool { self != .btrfs && self != .fuse }

    /// Offsets in directories stay what they are while names come and go; tmpfs and overlayfs count
    /// entries.
    var hasStableOffsets: Bool { self != .tmpfs && self != .fuse }

    /// On a disk of this machine, of which it tells what is in memory (preadv2(2), `RWF_NOWAIT`).
    var isLocal: Bool { self == .ext4 || self == .xfs || self == .btrfs }

    /// syncfs(2) reaches the disk. Of FUSE, virtiofs's alone does (fs/fuse/inode.c,
    /// `fuse_sync_fs`).
    var syncsWhole: Bool { self != .fuse }
}
