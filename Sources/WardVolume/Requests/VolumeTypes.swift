import Glibc
import Synchronization
import WardFormat
import WardSystem

/// The caller of a request. `pid`: the thread that made the system call, 0 where the kernel does
/// not say.
public struct Caller: Sendable {
    public var uid: UInt32
    public var gid: UInt32
    public var pid: UInt32

    public init(uid: UInt32, gid: UInt32, pid: UInt32) {
        self.uid = uid
        self.gid = gid
        self.pid = pid
    }

    /// The caller of work that the volume does for itself.
    static let volume = Caller(uid: 0, gid: 0, pid: 0)
}

/// The kernel's number of a node: 1 is the root, every other number an address. Never reused with
/// the same generation.
public typealias NodeID = UInt64
/// The kernel's number of an open file or directory.
public typealias HandleID = UInt64

/// The attributes that `stat` shows: logical sizes and true modes.
public struct Attributes: Sendable {
    public var inode: UInt64 = 0
    public var sizeBytes: UInt64 = 0
    /// Blocks of 512 bytes of the backing file.
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

/// The result of a look-up, which the kernel remembers under the name. Each one returned counts as
/// one look-up for `forget`.
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

/// The attributes to set, setattr of the kernel's VFS.
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

/// The result of an open.
public struct OpenedFile: Sendable {
    public var handle: HandleID
    /// Whether pages that the kernel has from earlier opens are still right (`FOPEN_KEEP_CACHE`).
    public var keepCache: Bool
    /// Whether close(2) may have an error to report: the kernel then sends `flush`.
    public var tellsAtClose: Bool

    public init(handle: HandleID, keepCache: Bool, tellsAtClose: Bool = false) {
        self.handle = handle
        self.keepCache = keepCache
        self.tellsAtClose = tellsAtClose
    }
}

/// How a write came about.
public struct WriteFlags: OptionSet, Sendable {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }
    /// The kernel wrote a mapped page back (`FUSE_WRITE_CACHE`): served while a class is closing.
    public static let fromPageCache = WriteFlags(rawValue: 1)
    /// Set-user-ID and set-group-ID bits are to be dropped.
    public static let dropPrivilegeBits = WriteFlags(rawValue: 2)
}

/// Receives directory entries; returns false when its buffer is full.
public protocol DirectorySink {
    /// `nextOffset`: the offset at which a later call continues after this entry. `entry`: the
    /// look-up, for `readdirplus`; nil without one. Where this returns false the look-up was not
    /// counted.
    mutating func add(
        name: UnsafeRawBufferPointer, inode: UInt64, type: UInt32, nextOffset: UInt64, entry: Entry?
    ) -> Bool
}

/// Has the kernel forget cached data; the FUSE connection implements it. The caller holds no lock
/// of the volume, and is no thread that serves requests of the same file.
public protocol KernelNotifier: AnyObject, Sendable {
    /// Writes dirty mapped pages back, unmaps, and drops all pages and attributes of a node.
    /// Returns when that is done.
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

/// An event of the volume. Paths are plaintext paths inside the volume, "?" where unknown.
public enum VolumeEvent: Sendable {
    /// A content operation was refused because of the file's class.
    case denied(path: String, protectionClass: ProtectionClass, operation: String, caller: Caller)
    /// A file with content lost its last name, by removal or to another file, while its class could
    /// not be read.
    case removedUnread(
        path: String, protectionClass: ProtectionClass, operation: String, caller: Caller)
    /// A class above C was refused inside a directory that is marked as synchronised (`marked`).
    case refusedInSynchronised(
        path: String, protectionClass: ProtectionClass, marked: String, operation: String,
        caller: Caller)
    /// A file of a class above C was moved or linked into such a directory and keeps its class.
    /// With `files`: a directory (`path`) with so many of these files was moved.
    case arrivedInSynchronised(
        path: String, protectionClass: ProtectionClass, marked: String, operation: String,
        files: Int?, caller: Caller)
    /// A file with content is in a weaker class, `now`. Either a stronger one was asked for and
    /// refused (`operation` "setClass"), or the file took the name of a file with a stronger one
    /// ("rename").
    case weakened(
        path: String, protectionClass: ProtectionClass, now: ProtectionClass, operation: String,
        caller: Caller)
    /// Ciphertext does not authenticate or is in the wrong place.
    case integrityFailure(path: String, reason: String)
    /// A finding was accepted because it lies in a doubtful interval after an unclean end. The page
    /// on disk is unchanged until it is mended.
    case healed(path: String, finding: String)
    /// An accepted write could not be stored.
    case lost(path: String, reason: String)
    /// A file in the backing directory is not ward's. Reported once per name and mount.
    case foreignFile(backingPath: String)
    /// Another fact for the log.
    case note(String)
}

/// Receives events. Called from workers: must not block.
public protocol VolumeObserver: AnyObject, Sendable {
    func volumeReports(_ event: VolumeEvent)
}

/// The result of the eviction of classes.
public struct EvictionReport: Sendable {
    /// Files whose cached pages were dropped.
    public var invalidatedFiles = 0
    /// Whether the deadline passed and the connection has to be aborted.
    public var deadlinePassed = false
    /// Bytes that were accepted and are not stored yet.
    public var pendingStoreBytes = 0
    public init() {}
}

/// An accepted write that could not be stored.
public struct Loss: Equatable, Sendable {
    /// Plaintext path inside the volume, "?" where unknown.
    public var path: String
    public var reason: String
    /// How often it happened.
    public var count: Int
}

/// The last losses; equal ones are counted. Concurrency: any thread; guarded by its mutex.
final class LossList: Sendable {
    static let capacity = 64
    /// The same loss within this time is one event.
    static let mergeInterval = Duration.seconds(10)

    private struct Entry {
        var loss: Loss
        /// When it was last reported, monotonic.
        var told: Duration
    }

    private let entries = Mutex<[Entry]>([])

    var all: [Loss] { entries.withLock { $0.map(\.loss) } }

    /// Adds a loss. True where it is to be reported: a backing store that fails for a large file
    /// must not push other events out of the log.
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
