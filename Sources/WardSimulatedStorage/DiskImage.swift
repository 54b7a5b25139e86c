import CWardLinux
import Glibc

/// A disk with a small file system on it: what programs see, what is durable, and what is under way
/// in between.
///
/// A value: copies are cheap, so a picture can be taken after every call.
package struct DiskImage: Sendable {
    package static let blockBytes = 4096
    static let sectorBytes = 512
    static let rootIdentity: UInt64 = 1

    struct Block: Sendable {
        var bytes: [UInt8]
        /// Differs for every allocation: a block that was freed and allocated again is another one.
        var generation: Int
        /// Changes that were made before it was allocated: where they are not on the disk, it can't
        /// be.
        var afterChange: Int
        /// The last of those that changed this file's blocks or size.
        var afterLayout: Int
    }

    struct Content: Sendable {
        var size = 0
        var blocks: [Block?] = []
    }

    struct Inode: Sendable {
        var identity: UInt64
        /// What `stat` calls it: used again after the inode is gone.
        var number: UInt64
        var mode: mode_t
        var uid: uid_t = 0
        var gid: gid_t = 0
        var device: dev_t = 0
        var links = 0
        var access = timespec()
        var modification = timespec()
        var change = timespec()
        var attributes: [String: [UInt8]] = [:]
        /// Of a symbolic link.
        var target: [UInt8] = []
        /// Of a directory.
        var entries: [[UInt8]: UInt64] = [:]
        /// Of a directory: where it is.
        var parent: UInt64 = 0
        var content = Content()
        /// The last change that fsync(2) has to wait for, and fdatasync(2).
        var lastChange = 0
        var lastDataChange = 0
        var lastLayout = 0
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

    /// A change of names or attributes that is not durable.
    struct Pending: Sendable {
        var number: Int
        /// Of an attribute.
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

    /// What happened to a file's content and is not durable.
    enum Event: Sendable {
        /// The block as it was after the write; one bit of `sectors` for each sector that the write
        /// touched.
        case write(block: Int, version: Block, sectors: UInt8)
        /// A write made the file longer: the size follows when the blocks are allocated.
        case grow(from: Int, to: Int, afterChange: Int, afterLayout: Int)
        case layout(number: Int, Layout)
    }

    package let kind: DiskKind
    /// What programs see.
    var inodes: [UInt64: Inode] = [:]
    /// What no power cut takes. Inodes are here from their creation on: without a name they are
    /// gone after a crash.
    var durable: [UInt64: Inode] = [:]
    var pending: [Pending] = []
    var events: [UInt64: [Event]] = [:]
    /// Blocks that a failed sync has dropped, and what the disk has of them: programs read them as
    /// they were written.
    var lost: [UInt64: [Int: LostBlock]] = [:]
    /// The number of the last change, and of the last one that is durable (`Order.journal`).
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
