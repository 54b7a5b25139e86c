import Glibc
import Synchronization
import WardFormat
import WardSystem

/// Who asks. `pid` is the thread that made the system call, 0 where the kernel does not say.
public struct Caller: Sendable {
    public var uid: UInt32
    public var gid: UInt32
    public var pid: UInt32

    public init(uid: UInt32, gid: UInt32, pid: UInt32) {
        self.uid = uid
        self.gid = gid
        self.pid = pid
    }
}

/// A node as the kernel knows it: 1 is the root, everything else an address. Never reused with the
/// same generation.
public typealias NodeID = UInt64
/// An open file or directory as the kernel knows it.
public typealias HandleID = UInt64

/// What `stat` shows, logical sizes and true modes.
public struct Attributes: Sendable {
    public var inode: UInt64 = 0
    public var sizeBytes: UInt64 = 0
    /// Blocks of 512 bytes, of the backing file.
    public var blocks: UInt64 = 0
    public var access = timespec()
    public var modification = timespec()
    public var change = timespec()
    public var mode: UInt32 = 0
    public var linkCount: UInt32 = 0
    public var uid: UInt32 = 0
    public var gid: UInt32 = 0
    public var deviceMajor: UInt32 = 0
    public var deviceMinor: UInt32 = 0
    public var blockBytes: UInt32 = 4096
    /// False while the file's class is not fully open: the kernel must ask again each time
    /// (time-out 0).
    public var mayBeCached = true

    public init() {}
}

/// A name found: what the kernel remembers under it. Each one returned counts as one look-up to
/// `forget`.
public struct Entry: Sendable {
    public var node: NodeID
    public var generation: UInt64
    public var attributes: Attributes

    public init(node: NodeID, generation: UInt64, attributes: Attributes) {
        self.node = node
        self.generation = generation
        self.attributes = attributes
    }
}

/// Which attributes to set, setattr of the kernel's VFS.
public struct AttributeChange: Sendable {
    public enum Time: Sendable {
        case now
        case at(timespec)
    }

    public var mode: UInt32?
    public var uid: UInt32?
    public var gid: UInt32?
    public var sizeBytes: UInt64?
    public var access: Time?
    public var modification: Time?
    /// Set-user-ID and set-group-ID bits are to be dropped (`FUSE_HANDLE_KILLPRIV_V2`).
    public var dropPrivilegeBits = false

    public init() {}
}

/// What an open gave.
public struct OpenedFile: Sendable {
    public var handle: HandleID
    /// Whether pages the kernel has from earlier opens are still right (`FOPEN_KEEP_CACHE`).
    public var keepCache: Bool
    /// Whether close(2) may have something to tell: `flush` is to be called for it.
    public var tellsAtClose: Bool

    public init(handle: HandleID, keepCache: Bool, tellsAtClose: Bool = false) {
        self.handle = handle
        self.keepCache = keepCache
        self.tellsAtClose = tellsAtClose
    }
}

/// How a write came to be.
public struct WriteFlags: OptionSet, Sendable {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }
    /// The kernel wrote a mapped page back (`FUSE_WRITE_CACHE`): served while a class is closing.
    public static let fromPageCache = WriteFlags(rawValue: 1)
    /// Set-user-ID and set-group-ID bits are to be dropped.
    public static let dropPrivilegeBits = WriteFlags(rawValue: 2)
}

/// Receives directory entries; says no when its buffer is full.
public protocol DirectorySink {
    /// `nextOffset` is what a later call passes to continue after this entry. For `readdirplus`,
    /// `entry` holds the look-up (nil: not looked up); where false is returned the look-up was not
    /// counted.
    mutating func add(
        name: UnsafeRawBufferPointer, inode: UInt64, type: UInt32, nextOffset: UInt64, entry: Entry?
    ) -> Bool
}

/// Tells the kernel to forget; implemented by the FUSE connection. No volume lock is held during a
/// call, and calls never come from a thread that serves requests of the same file.
public protocol KernelNotifier: AnyObject, Sendable {
    /// Writes dirty mapped pages back, unmaps, drops all pages and attributes of a node. Returns
    /// when that is done.
    func invalidateContent(of node: NodeID)
    /// Drops cached attributes only.
    func invalidateAttributes(of node: NodeID)
    /// Drops one name of a directory from the kernel's cache, and the directory's listing.
    func invalidateName(_ name: [UInt8], in parent: NodeID)
    /// Returns when write-backs that `invalidateContent` did not wait for have been served, or at
    /// `end` (monotonic).
    func awaitWriteBacks(until end: Duration)
}

extension KernelNotifier {
    public func awaitWriteBacks(until end: Duration) {}
}

/// Something the volume has to report. Paths are plaintext paths inside the volume, "?" where
/// unknown.
public enum VolumeEvent: Sendable {
    /// A content operation was refused because of the file's class.
    case denied(path: String, protectionClass: ProtectionClass, operation: String, caller: Caller)
    /// A file with content lost its last name, or had it taken by another file, while its class
    /// could not be read.
    case removedUnread(
        path: String, protectionClass: ProtectionClass, operation: String, caller: Caller)
    /// A class above C was to be set or created inside a directory that is marked as synchronised:
    /// `marked`.
    case refusedInSynchronised(
        path: String, protectionClass: ProtectionClass, marked: String, operation: String,
        caller: Caller)
    /// A file of such a class was moved or linked into one and keeps it, or `files` of them with a
    /// directory (`path`).
    case arrivedInSynchronised(
        path: String, protectionClass: ProtectionClass, marked: String, operation: String,
        files: Int?, caller: Caller)
    /// A file with content is in a weaker class, `now`, than was asked for it (`operation`
    /// "setClass") and could not be had, or than the file had whose name it took ("rename").
    case weakened(
        path: String, protectionClass: ProtectionClass, now: ProtectionClass, operation: String,
        caller: Caller)
    /// Ciphertext that does not authenticate or is not where it should be.
    case integrityFailure(path: String, reason: String)
    /// A finding accepted because it lies in a doubtful interval after an unclean end.
    case healed(path: String, finding: String)
    /// An accepted write that could not be stored.
    case lost(path: String, reason: String)
    /// A file in the backing directory that is not ours; told once per name and mount.
    case foreignFile(backingPath: String)
    /// Anything else worth a line in the log.
    case note(String)
}

/// Where events go. Called from request threads: must not block.
public protocol VolumeObserver: AnyObject, Sendable {
    func volume(_ volume: Volume, reports event: VolumeEvent)
}

/// What the eviction of classes came to.
public struct EvictionReport: Sendable {
    /// Files whose cached pages were dropped.
    public var invalidatedFiles = 0
    /// Whether the deadline passed and the connection has to be aborted.
    public var deadlinePassed = false
    /// What was accepted and is still on its way to the store, bytes.
    public var pendingStoreBytes = 0
    public init() {}
}

/// Something that was accepted and could not be stored.
public struct Loss: Equatable, Sendable {
    /// Plaintext path inside the volume, "?" where unknown.
    public var path: String
    public var reason: String
    /// How often it happened.
    public var count: Int
}

/// The last losses, the same one counted. Concurrency: any thread; guarded by its mutex.
final class LossList: Sendable {
    static let capacity = 64
    /// The same loss within this time is one event.
    static let mergeInterval = Duration.seconds(10)

    private struct Entry {
        var loss: Loss
        /// When it was last told, monotonic.
        var told: Duration
    }

    private let entries = Mutex<[Entry]>([])

    var all: [Loss] { entries.withLock { $0.map(\.loss) } }

    /// True where it is to be told: a store that fails for a large file must not push everything
    /// else out of the log.
    func add(_ path: String, _ reason: String) -> Bool {
        let now = SystemClock.monotonic()
        return entries.withLock { entries in
            if let index = entries.lastIndex(where: {
                $0.loss.path == path && $0.loss.reason == reason
            }) {
                entries[index].loss.count += 1
                guard now - entries[index].told >= LossList.mergeInterval else { return false }
                entries[index].told = now
                return true
            }
            if entries.count == LossList.capacity { entries.removeFirst() }
            entries.append(Entry(loss: Loss(path: path, reason: reason, count: 1), told: now))
            return true
        }
    }
}
