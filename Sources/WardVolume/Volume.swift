import Glibc
import WardFormat
import WardKeys
import WardSystem

/// An open volume: the front door of this module.
///
/// One method per request of the kernel. All are called from any thread, with that thread's `WorkerContext`; all throw
/// the `Errno` the caller is to get. Names are bytes without a terminator.
public final class Volume: @unchecked Sendable {
    /// Where the backing directory is.
    public let backingPath: String
    public let uuid: [UInt8]
    public let pageBytes: Int
    public let keyring: ClassKeyring
    public let isReadOnly: Bool

    /// Opens the volume at `backingPath`: checks the root, recovers after an unclean end, begins an epoch.
    ///
    /// `volumeKey` is the 32-byte key of names and metadata (from the keybag). The caller holds the exclusive lock.
    /// Throws `VolumeOpenError` with what is wrong with which file.
    public init(
        backingPath: String, parameters: VolumeParameters, volumeKey: borrowing SecretBytes,
        keyring: ClassKeyring, readOnly: Bool, observer: (any VolumeObserver)?
    ) throws(VolumeOpenError) {
        fatalError("stub")
    }

    /// Makes the root of a new volume in the existing directory `backingPath`: directory record with `defaultClass`,
    /// state record, README. The keybag is the caller's.
    public static func create(
        backingPath: String, parameters: VolumeParameters, volumeKey: borrowing SecretBytes,
        defaultClass: ProtectionClass
    ) throws(VolumeOpenError) {
        fatalError("stub")
    }

    // MARK: Life

    /// Set once before requests are served.
    public func setNotifier(_ notifier: any KernelNotifier) { fatalError("stub") }
    /// Makes everything written so far durable and moves the epoch on. Called every few minutes of activity, at a lock
    /// and at shutdown, from a thread that serves no requests.
    public func durablePoint() throws(Errno) { fatalError("stub") }
    /// After the last request: writes hints, makes a durable point and marks the volume clean.
    public func close() throws(Errno) { fatalError("stub") }
    /// Whether anything was written since the last durable point.
    public var hasUnsyncedChanges: Bool { fatalError("stub") }
    /// After an unlock, on a background thread: mends files of doubtful intervals; returns when there is nothing left
    /// that can be read now, or when `shouldStop` says so.
    public func mendDoubtfulFiles(shouldStop: () -> Bool) { fatalError("stub") }

    // MARK: Lock

    /// The lock recipe (design §7) for these classes: gate to closing, headers written, kernel pages written back and
    /// dropped, gate closed, requests drained, file keys and buffers wiped. The class keys themselves are evicted from
    /// the keyring by this call, between the two. Runs on a thread of its own. For B, `keepOpenFiles` keeps the keys of files that
    /// are open until their last close. Returns within `deadline` (monotonic time from now) come what may.
    public func evict(
        _ classes: ProtectionClassSet, keepOpenFiles: ProtectionClassSet, deadline: Duration
    ) -> EvictionReport { fatalError("stub") }
    /// Opens the gate for classes whose keys are now in the keyring. No work per file.
    public func admit(_ classes: ProtectionClassSet) { fatalError("stub") }
    /// The number of files open now, by class.
    public func openFileCounts() -> [ProtectionClass: Int] { fatalError("stub") }

    // MARK: Names

    public func lookup(
        _ parent: NodeID, _ name: UnsafeRawBufferPointer, _ context: WorkerContext
    ) throws(Errno) -> Entry { fatalError("stub") }
    public func forget(_ node: NodeID, lookups: UInt64) { fatalError("stub") }
    public func readLink(
        _ node: NodeID, _ context: WorkerContext
    ) throws(Errno) -> [UInt8] { fatalError("stub") }
    public func makeSymbolicLink(
        _ parent: NodeID, _ name: UnsafeRawBufferPointer, target: UnsafeRawBufferPointer,
        caller: Caller, _ context: WorkerContext
    ) throws(Errno) -> Entry { fatalError("stub") }
    public func makeNode(
        _ parent: NodeID, _ name: UnsafeRawBufferPointer, mode: UInt32, device: UInt32,
        umask: UInt32, caller: Caller, _ context: WorkerContext
    ) throws(Errno) -> Entry { fatalError("stub") }
    public func makeDirectory(
        _ parent: NodeID, _ name: UnsafeRawBufferPointer, mode: UInt32, umask: UInt32,
        caller: Caller, _ context: WorkerContext
    ) throws(Errno) -> Entry { fatalError("stub") }
    public func unlink(
        _ parent: NodeID, _ name: UnsafeRawBufferPointer, _ context: WorkerContext
    ) throws(Errno) { fatalError("stub") }
    public func removeDirectory(
        _ parent: NodeID, _ name: UnsafeRawBufferPointer, _ context: WorkerContext
    ) throws(Errno) { fatalError("stub") }
    /// `flags`: 0, `RENAME_NOREPLACE`, `RENAME_EXCHANGE`.
    public func rename(
        _ oldParent: NodeID, _ oldName: UnsafeRawBufferPointer, _ newParent: NodeID,
        _ newName: UnsafeRawBufferPointer, flags: UInt32, _ context: WorkerContext
    ) throws(Errno) { fatalError("stub") }
    public func link(
        _ node: NodeID, _ newParent: NodeID, _ newName: UnsafeRawBufferPointer, caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) -> Entry { fatalError("stub") }

    // MARK: Attributes

    /// `handle` is given where the kernel asks on behalf of a descriptor (`FUSE_GETATTR_FH`: `lseek` and `read` do,
    /// `fstat` does not): then the class decides (row O4).
    public func attributes(
        of node: NodeID, handle: HandleID?, caller: Caller, _ context: WorkerContext
    ) throws(Errno) -> Attributes { fatalError("stub") }
    public func setAttributes(
        of node: NodeID, handle: HandleID?, _ change: AttributeChange, caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) -> Attributes { fatalError("stub") }
    /// Value bytes; `user.ward.*` are answered here.
    public func extendedAttribute(
        of node: NodeID, _ name: UnsafeRawBufferPointer, _ context: WorkerContext
    ) throws(Errno) -> [UInt8] { fatalError("stub") }
    /// Names, each followed by a zero byte.
    public func extendedAttributeNames(
        of node: NodeID, _ context: WorkerContext
    ) throws(Errno) -> [UInt8] { fatalError("stub") }
    /// `flags`: `XATTR_CREATE`, `XATTR_REPLACE` or 0. `dropSetGroupID`: `FUSE_SETXATTR_ACL_KILL_SGID`.
    public func setExtendedAttribute(
        of node: NodeID, _ name: UnsafeRawBufferPointer, value: UnsafeRawBufferPointer,
        flags: Int32, dropSetGroupID: Bool, caller: Caller, _ context: WorkerContext
    ) throws(Errno) { fatalError("stub") }
    public func removeExtendedAttribute(
        of node: NodeID, _ name: UnsafeRawBufferPointer, caller: Caller, _ context: WorkerContext
    ) throws(Errno) { fatalError("stub") }
    public func fileSystemStatus() throws(Errno) -> FileSystemStatus { fatalError("stub") }

    // MARK: Files

    /// `flags` as open(2)'s, `O_TRUNC` included (`FUSE_ATOMIC_O_TRUNC`); `dropPrivilegeBits` with a truncation.
    public func open(
        _ node: NodeID, flags: Int32, dropPrivilegeBits: Bool, caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) -> OpenedFile { fatalError("stub") }
    public func create(
        _ parent: NodeID, _ name: UnsafeRawBufferPointer, mode: UInt32, umask: UInt32,
        flags: Int32, caller: Caller, _ context: WorkerContext
    ) throws(Errno) -> (entry: Entry, file: OpenedFile) { fatalError("stub") }
    /// `O_TMPFILE`: a file without a name, in the class of `parent` until one is set.
    public func createUnnamed(
        _ parent: NodeID, mode: UInt32, umask: UInt32, flags: Int32, caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) -> (entry: Entry, file: OpenedFile) { fatalError("stub") }
    /// Up to `count` bytes at `offsetBytes`, in a buffer of `context` that is valid until its next request.
    public func read(
        _ handle: HandleID, offsetBytes: UInt64, count: Int, caller: Caller, _ context: WorkerContext
    ) throws(Errno) -> UnsafeRawBufferPointer { fatalError("stub") }
    /// All of `data`, or an error.
    public func write(
        _ handle: HandleID, offsetBytes: UInt64, _ data: UnsafeRawBufferPointer, flags: WriteFlags,
        caller: Caller, _ context: WorkerContext
    ) throws(Errno) { fatalError("stub") }
    public func flush(_ handle: HandleID, _ context: WorkerContext) throws(Errno) { fatalError("stub") }
    public func fsync(
        _ handle: HandleID, dataOnly: Bool, _ context: WorkerContext
    ) throws(Errno) { fatalError("stub") }
    public func release(_ handle: HandleID, _ context: WorkerContext) { fatalError("stub") }
    /// `mode` as fallocate(2)'s.
    public func allocate(
        _ handle: HandleID, mode: Int32, offsetBytes: UInt64, lengthBytes: UInt64, caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) { fatalError("stub") }
    /// `whence`: `SEEK_DATA` or `SEEK_HOLE`.
    public func seek(
        _ handle: HandleID, offsetBytes: UInt64, whence: Int32, caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) -> UInt64 { fatalError("stub") }

    // MARK: Directories

    public func openDirectory(
        _ node: NodeID, _ context: WorkerContext
    ) throws(Errno) -> HandleID { fatalError("stub") }
    /// Entries from `offset` on (0: the beginning) until `sink` is full. `lookup`: `readdirplus`.
    public func readDirectory<Sink: DirectorySink>(
        _ handle: HandleID, offset: UInt64, lookup: Bool, into sink: inout Sink,
        _ context: WorkerContext
    ) throws(Errno) { fatalError("stub") }
    public func releaseDirectory(_ handle: HandleID, _ context: WorkerContext) { fatalError("stub") }
    public func fsyncDirectory(
        _ handle: HandleID, dataOnly: Bool, _ context: WorkerContext
    ) throws(Errno) { fatalError("stub") }
}
