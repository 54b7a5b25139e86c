import CWardLinux
import Glibc
import Synchronization
import WardCrypto
import WardFormat
import WardSystem

/// The backing directory of a volume, and the traits of its file system. Knows no keys.
///
/// Concurrency: any thread. All properties are constant; each part has locks of its own.
package final class BackingStore: Sendable {
    let path: String
    let storage: any Storage
    let isReadOnly: Bool
    /// Descriptor of the backing directory, `O_PATH`. Open as long as this object lives.
    package let root: Int32
    /// The device of the backing directory, `st_dev`.
    package let device: dev_t
    let traits: StoreTraits
    /// True if the daemon serves other users and has to make new files theirs.
    let servesOthers = geteuid() == 0
    let staging = StagingNames()
    let streaming = Streaming()
    /// Fetches files of trees that a program walks. Listings have `readsListingsAhead`; the
    /// kernel's own read-ahead is `FUSEConnection.raiseReadAhead`.
    let ahead: TreeReadAhead
    let removedFiles: RemovedFiles

    /// Takes over the descriptor `root`, with its `status`.
    init(
        path: String, _ storage: any Storage, root: Int32, _ status: FileStatus, isReadOnly: Bool
    ) {
        self.path = path
        self.storage = storage
        self.isReadOnly = isReadOnly
        self.root = root
        device = status.st_dev
        traits = StoreTraits(path: path, storage, root: root, status)
        ahead = TreeReadAhead(storage, isUseful: traits.waitsForDisk)
        removedFiles = RemovedFiles(
            storage, isUseful: traits.waitsForDisk && sysconf(Int32(_SC_NPROCESSORS_ONLN)) > 1)
    }

    deinit { storage.close(root) }

    /// Runs `body` with a descriptor of a directory of ward's own in the root. `makes`: creates the
    /// directory if it is missing. Throws `ENOENT` where it is missing otherwise.
    func withOwnDirectory<R>(
        _ name: String, makes: Bool, _ body: (Int32) throws(Errno) -> R
    ) throws(Errno) -> R {
        let flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW
        let directory: Int32
        do throws(Errno) {
            directory = try storage.openat(root, name, flags, mode: 0)
        } catch .noSuchFileOrDirectory where makes {
            do throws(Errno) {
                try storage.mkdirat(root, name, 0o700)
            } catch .fileExists {
                // Another thread was first.
            }
            try storage.fsync(root)
            directory = try storage.openat(root, name, flags, mode: 0)
        }
        defer { storage.close(directory) }
        return try body(directory)
    }

    /// Runs `body`, which creates a file, so that the file belongs to the caller from the start
    /// (set-group-ID directories, quotas and default ACLs included).
    ///
    /// fsuid and fsgid belong to the calling thread, setfsuid(2). A change of fsuid drops
    /// capabilities. They are raised again, because the kernel has checked the caller's permissions
    /// before.
    func asCaller<R>(_ caller: Caller, _ body: () throws(Errno) -> R) throws(Errno) -> R {
        guard servesOthers, caller.uid != 0 || caller.gid != 0 else { return try body() }
        _ = ward_set_thread_fsgid(caller.gid)
        _ = ward_set_thread_fsuid(caller.uid)
        _ = ward_raise_thread_capabilities()
        defer {
            _ = ward_set_thread_fsuid(0)
            _ = ward_set_thread_fsgid(0)
            _ = ward_raise_thread_capabilities()
        }
        return try body()
    }

    /// Whether an error says that a name is gone, or is another file's by now. A faulty backing
    /// store may say the same of an existing file: where it matters, `isGone(_:_:_:)` looks again.
    package static func isGone(_ error: Errno) -> Bool {
        error == .noSuchFileOrDirectory || error == .staleNFSFileHandle
    }

    /// Whether a file that gave an error is really gone. The backing store is asked again: it must
    /// have no such name, or another inode under it. `inode` is nil if it was never known. Any
    /// other error may be transient and proves nothing.
    package func isGone(
        _ inode: UInt64?, _ directory: Int32, _ stored: UnsafePointer<CChar>
    ) -> Bool {
        do throws(Errno) {
            let now = UInt64(try storage.fstatat(directory, stored).st_ino)
            return inode.map { now != $0 } ?? false
        } catch {
            return error == .noSuchFileOrDirectory
        }
    }
}

/// The abilities of a backing file system that a volume makes use of.
struct StoreTraits: Sendable {
    /// Block size, bytes. A power cut hits all pages of one block together.
    let blockBytes: Int
    /// True if changes are kept in the order in which they were made. Otherwise a new directory's
    /// record is synced before the directory gets its name.
    let keepsOrder: Bool
    /// True if offsets in directories stay valid while names come and go, and for every descriptor.
    let keepsListings: Bool
    /// True if a sync of the whole backing store reaches the disk. Otherwise each file is synced.
    let syncsWhole: Bool
    /// True if reading may wait for a disk.
    let waitsForDisk: Bool
    /// True if directory offsets are hashes of names and reading a directory may wait for a disk.
    let readsListingsAhead: Bool

    init(path: String, _ storage: any Storage, root: Int32, _ status: FileStatus) {
        let fileSystem = BackingFileSystem(of: path)
        blockBytes = max(4096, Int(status.st_blksize))
        keepsOrder = storage.ordersChanges(root)
        keepsListings = fileSystem?.hasStableOffsets ?? false
        syncsWhole = fileSystem?.syncsWhole ?? true
        waitsForDisk = storage.waitsForDisk(root)
        readsListingsAhead = fileSystem == .ext4 && waitsForDisk
    }
}

/// Names of unfinished files and directories. No program's file has such a name. Each mount has its
/// own prefix, by which it recognises its own.
final class StagingNames: Sendable {
    let prefix = ".ward-\(Base64URL.encode(SystemRandom.bytes(6)))-"
    private let counter = Atomic<UInt64>(0)

    /// Returns a name that this mount has not used before.
    func next() -> String {
        prefix + String(counter.wrappingAdd(1, ordering: .relaxed).newValue)
    }
}
