import CWardLinux
import Glibc

/// A disk with a small file system: the state that programs see, the durable state, and the changes
/// in between.
///
/// A value: copies are cheap, so a copy can be taken after every call.
package struct DiskImage: Sendable {
    package static let blockBytes = 4096
    static let sectorBytes = 512
    static let rootIdentity: UInt64 = 1

    struct Block: Sendable {
        var bytes: [UInt8]
        /// Differs for every allocation, also for a block that was freed and allocated again.
        var generation: Int
        /// The number of the last change before the allocation. The block can't be on the disk
        /// unless that change is.
        var afterChange: Int
        /// The last earlier change of this file's blocks or size.
        var afterLayout: Int
    }

    struct Content: Sendable {
        var size = 0
        var blocks: [Block?] = []
    }

    struct Inode: Sendable {
        var identity: UInt64
        /// The number that `stat` shows; reused after the inode is gone.
        var number: UInt64
        var mode: mode_t
        var uid: uid_t = 0
        var gid: gid_t = 0
        var device: dev_t = 0
        var links = 0
        var times = Times()
        var attributes: [String: [UInt8]] = [:]
        /// Only for symbolic links.
        var target: [UInt8] = []
        /// Only for directories.
        var entries: [[UInt8]: UInt64] = [:]
        /// Only for directories: the directory around it.
        var parent: UInt64 = 0
        var content = Content()
        var latest = LatestChanges()
    }

    struct Times: Sendable {
        var access = timespec()
        var modification = timespec()
        var change = timespec()
    }

    /// Numbers of an inode's latest changes.
    struct LatestChanges: Sendable {
        /// The change that fsync(2) must wait for.
        var any = 0
        /// The change that fdatasync(2) must wait for.
        var data = 0
        /// The change of the blocks or the size.
        var layout = 0
    }

    struct EntryChange: Sendable {
        var directory: UInt64
        var name: [UInt8]
        var new: UInt64?
    }

    enum Change: Sendable {
        case entries([EntryChange], movesDirectory: Bool)
        case mode(mode_t)
        case owner(uid_t, gid_t)
        case times(timespec, timespec)
        case attribute(String, [UInt8]?)
    }

    /// A change of names or attributes that is not durable yet.
    struct Pending: Sendable {
        var number: Int
        /// The inode of an attribute change; 0 for changes of entries.
        var identity: UInt64
        var change: Change
    }

    struct LostBlock: Sendable {
        var onDisk: Block?
    }

    enum Layout: Sendable {
        case truncate(Int)
        case punch(Int, Int)
        case nothing
    }

    /// A change of a file's content that is not durable yet.
    enum Event: Sendable {
        /// The block after the write, and one bit of `sectors` for each sector that the write
        /// touched.
        case write(block: Int, version: Block, sectors: UInt8)
        /// A write made the file longer. The size changes on the disk once the blocks are
        /// allocated.
        case grow(from: Int, to: Int, afterChange: Int, afterLayout: Int)
        case layout(number: Int, Layout)
    }

    package let kind: DiskKind
    /// The state that programs see.
    var inodes: [UInt64: Inode] = [:]
    /// The state that survives every power cut. It has each inode from its creation on; an inode
    /// without a name is gone after a crash.
    var durable: [UInt64: Inode] = [:]
    var pending: [Pending] = []
    var events: [UInt64: [Event]] = [:]
    /// Blocks that a failed sync dropped, with the disk's version. Programs still read the written
    /// version.
    var lost: [UInt64: [Int: LostBlock]] = [:]
    /// How many blocks of each file failed syncs have dropped so far.
    var drops: [UInt64: Int] = [:]
    /// The number of the last change; below, that of the last durable one (`Order.journal`).
    var lastChange = 0
    var committed = 0
    var nextIdentity: UInt64 = 2
    var nextHiddenIdentity: UInt64 = 1 << 40
    var nextGeneration = 1
    var freeNumbers: [UInt64] = []
    var nextNumber: UInt64 = 12
    var clock = 1_000_000

    package init(kind: DiskKind) {
        self.kind = kind
        let root = Inode(identity: 1, number: 2, mode: S_IFDIR | 0o755, links: 2)
        inodes[1] = root
        durable[1] = root
    }
}
