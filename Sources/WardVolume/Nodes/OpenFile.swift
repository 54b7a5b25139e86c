import CWardLinux
import Glibc
import Synchronization
import WardFormat
import WardSystem

/// A regular file while it has handles. All its handles share one backing descriptor, one key and
/// one size.
///
/// Guarded by `lock`, unless a field says otherwise: shared for reading content, exclusive for
/// every change. Only a `FileWriteAccess` changes what the lock guards.
package final class OpenFile: @unchecked Sendable {
    // Sendable: `lock` guards the values that change, and the other fields guard themselves.
    /// The node of the file, which outlives this object.
    package unowned let node: Node
    private let lock = ReadWriteLock(.file)
    private let backing: BackingFile
    private let classValue: AtomicValue<ProtectionClass>
    fileprivate(set) var headers: FileHeaderState
    /// The file key while it is in memory. Has its own lock.
    let key = FileKey()
    fileprivate(set) var extent: FileExtent { didSet { published.publish(extent) } }
    /// The present `extent`, for threads without the lock.
    let published = PublishedExtent()
    fileprivate(set) var syncState: SyncState
    let syncs = FileSyncs()
    let times = FileTimes()
    let streamed = StreamedWrites()
    let pendingPages = PendingPages()
    let notes: FileNotes
    let uses = FileUses()

    /// Takes over the descriptor.
    init(
        node: Node, backing: consuming BackingFile, protectionClass: ProtectionClass,
        _ beginning: FileBeginning
    ) {
        self.node = node
        self.backing = backing
        classValue = AtomicValue(protectionClass)
        headers = beginning.headers
        extent = beginning.extent
        syncState = beginning.syncState
        notes = FileNotes(isBeyondDoubt: beginning.isBeyondDoubt, beginning.seal, beginning.origin)
        published.publish(extent)
    }

    /// The backing descriptor, open as long as this object lives.
    package var descriptor: Int32 { backing.descriptor }
    /// Whether the descriptor is open for writing.
    package var isWritable: Bool { backing.isWritable }

    /// The class that the file has or will have. It changes under `lock` and the content lock. The
    /// lock thread reads it with neither, and once more after it has had every content lock.
    package fileprivate(set) var protectionClass: ProtectionClass {
        get { classValue.value }
        set { classValue.value = newValue }
    }

    /// The header as stored; nil where the file has none yet.
    package var header: FileHeader? { headers.stored?.header }
    /// The header's 256 bytes as stored; empty where there is none.
    var headerBytes: [UInt8] { headers.stored?.bytes ?? [] }

    /// Whether the file key is in memory. Needs no lock.
    var hasKey: Bool { key.isInMemory }

    /// Logical size, bytes. Needs no lock.
    var sizeBytes: Int { @inline(__always) get { published.sizeBytes } }

    // MARK: The lock

    /// Runs `body` while no other thread reads or changes the file.
    @inline(__always)
    func withWriteAccess<R, E: Error>(
        outOfOrder exception: LockOrderException? = nil,
        _ body: (borrowing FileWriteAccess) throws(E) -> R
    ) throws(E) -> R {
        try lock.withWriteLock(outOfOrder: exception) { () throws(E) in
            try body(FileWriteAccess(self))
        }
    }

    /// Runs `body` while no other thread changes the file.
    @inline(__always)
    package func withReadLock<R, E: Error>(_ body: () throws(E) -> R) throws(E) -> R {
        try lock.withReadLock(body)
    }

    /// Runs `body` as `withReadLock` does. False where another thread changes the file now. For an
    /// eviction.
    func tryWithReadLock(_ body: () -> Void) -> Bool {
        guard lock.tryBeginReading(outOfOrder: .eviction) else { return false }
        defer { lock.endReading() }
        body()
        return true
    }
}

/// The exclusive access of one thread to an open file. It lasts for the scope that
/// `OpenFile.withWriteAccess` runs, and functions that need it take it.
struct FileWriteAccess: ~Copyable {
    /// Unowned: the scope holds the file.
    unowned(unsafe) let file: OpenFile

    fileprivate init(_ file: OpenFile) { self.file = file }

    var headers: FileHeaderState {
        get { file.headers }
        nonmutating _modify { yield &file.headers }
    }
    var extent: FileExtent {
        get { file.extent }
        nonmutating set { file.extent = newValue }
    }
    var syncState: SyncState {
        get { file.syncState }
        nonmutating set { file.syncState = newValue }
    }
    /// The content lock is held for a change.
    var protectionClass: ProtectionClass {
        get { file.protectionClass }
        nonmutating set { file.protectionClass = newValue }
    }
}

/// The state of a file when it is opened or made.
struct FileBeginning {
    var headers: FileHeaderState
    var extent = FileExtent()
    var syncState = SyncState()
    var isBeyondDoubt = false
    /// Right for a file that is made now.
    var seal = ClassSeals.Judgement.right
    /// The reason why the class of a file without a header counts.
    var origin = Vouch.nothing
}

/// The backing file of an open file: its descriptor, closed at the end.
struct BackingFile: ~Copyable, Sendable {
    private let storage: any Storage
    let descriptor: Int32
    /// False where the backing file could only be opened for reading.
    let isWritable: Bool

    /// Takes over the descriptor.
    init(_ storage: any Storage, _ descriptor: Int32, isWritable: Bool) {
        self.storage = storage
        self.descriptor = descriptor
        self.isWritable = isWritable
    }

    deinit { storage.close(descriptor) }
}

/// A handle that the kernel holds on a regular file.
final class FileHandle: Sendable {
    let node: Node
    let file: OpenFile
    let flags: Int32
    /// The failures of the file's syncs that this handle has reported.
    let reportedSyncFailures: Atomic<UInt64>
    private let hasEnded = Atomic<Bool>(false)

    init(node: Node, file: OpenFile, flags: Int32) {
        self.node = node
        self.file = file
        self.flags = flags
        reportedSyncFailures = Atomic(file.syncs.failures)
        file.uses.kernelHandles.add(1, ordering: .sequentiallyConsistent)
        // A shared mapping that is stored to needs a descriptor for reading and writing, mmap(2).
        if flags & O_ACCMODE == O_RDWR { file.uses.mappableHandles.add(1, ordering: .relaxed) }
    }

    deinit { end() }

    /// Ends the handle's part in the counts. True where it was the file's last handle.
    @discardableResult
    func end() -> Bool {
        guard !hasEnded.exchange(true, ordering: .acquiringAndReleasing) else { return false }
        if flags & O_ACCMODE == O_RDWR { file.uses.mappableHandles.subtract(1, ordering: .relaxed) }
        return file.uses.kernelHandles.subtract(1, ordering: .sequentiallyConsistent).newValue == 0
    }
}

/// A handle that the kernel holds on a directory.
///
/// It reads a few names at a time. Offsets are those of the backing store. Where these are stable,
/// an offset stays valid when names come or go, and for every other handle: the kernel may keep
/// listings.
final class DirectoryHandle: @unchecked Sendable {
    // Sendable: all that changes is guarded by `lock`.
    struct Name {
        var plain: [UInt8]
        /// Empty for "." and "..".
        var stored: [UInt8]
        var inode: UInt64
        var type: UInt8
        /// The offset of the next name.
        var next: UInt64
    }

    let node: Node
    private let storage: any Storage
    let lock = Lock(.directoryHandle)
    /// The handle's own descriptor, for its position; -1 until something is read.
    private var descriptor: Int32 = -1
    /// Names that were read from the backing store, and the index of the first one that the kernel
    /// has not got.
    private var names: [Name] = []
    private var index = 0
    /// The offset behind the last name that the kernel got.
    private var position: UInt64 = 0
    /// The offset in the backing store behind `names`, and whether the directory ends there.
    private var end: UInt64 = 0
    private var hasEnded = false
    /// Why a name before `end` was left out. Thrown at the end of the listing: programs take a
    /// listing without an error for a whole one, and missing names for removed files.
    private var skipped: Errno?
    /// Fetches later parts of a long directory; nil where that is of no use.
    private let ahead: TreeReadAhead?
    private var listingAhead: ListingAhead?

    init(node: Node, storage: any Storage, ahead: TreeReadAhead?) {
        self.node = node
        self.storage = storage
        self.ahead = ahead
    }

    deinit { if descriptor >= 0 { storage.close(descriptor) } }

    /// Goes to an offset that this or another handle gave with a name; 0 begins anew.
    func seek(to offset: UInt64) {
        if offset != 0, offset == position { return }
        position = offset
        if offset != 0, let found = names.firstIndex(where: { $0.next == offset }) {
            index = found + 1
            return
        }
        names = []
        index = 0
        end = offset
        hasEnded = false
        if offset == 0 { skipped = nil }
    }

    /// Returns the name at the position; nil at the end. `open` opens the directory anew.
    ///
    /// `convert` turns stored names into plain ones; `skipped` says why it left one out.
    func name(
        open: () throws(Errno) -> Int32,
        convert: ([(entry: DirectoryEntry, next: UInt64)], _ skipped: inout Errno?) throws(Errno)
            -> [Name]
    ) throws(Errno) -> Name? {
        while index == names.count {
            if hasEnded {
                if let skipped { throw skipped }
                return nil
            }
            if descriptor < 0 { descriptor = try open() }
            let entries = try read()
            names = try convert(entries, &skipped)
            index = 0
            hasEnded = entries.isEmpty
            if let last = entries.last { end = last.next }
        }
        return names[index]
    }

    /// Reads the entries from `end` on, and starts fetching the parts behind them.
    private func read() throws(Errno) -> [(entry: DirectoryEntry, next: UInt64)] {
        guard let ahead else { return try storage.entries(descriptor, from: end) }
        let begin = storage.nanoseconds()
        let entries = try storage.entries(descriptor, from: end)
        if end == 0, storage.nanoseconds() &- begin >= ListingAhead.coldNanoseconds {
            listingAhead = ListingAhead(bytes: storedBytes)
        }
        if let last = entries.last, let parts = listingAhead?.reach(last.next) {
            ahead.fetch(parts, ofListing: descriptor)
        }
        return entries
    }

    /// The size of the backing directory itself, bytes. Called after a name was read.
    var storedBytes: Int { Int((try? storage.fstat(descriptor))?.st_size ?? 0) }

    /// Notes that the kernel got the name at the position.
    func advance() {
        position = names[index].next
        index += 1
    }
}

extension UInt64 {
    /// The object that a handle or node number stands for. The kernel passes only numbers that it
    /// got and has not released.
    @inline(__always)
    func object<T: AnyObject>(as type: T.Type) -> T {
        Unmanaged<T>.fromOpaque(UnsafeRawPointer(bitPattern: UInt(self))!).takeUnretainedValue()
    }

    /// Hands an object to the kernel, retained.
    static func handle<T: AnyObject>(_ object: T) -> UInt64 {
        UInt64(UInt(bitPattern: Unmanaged.passRetained(object).toOpaque()))
    }

    /// Takes the object back from the kernel.
    func releaseObject<T: AnyObject>(as type: T.Type) {
        Unmanaged<T>.fromOpaque(UnsafeRawPointer(bitPattern: UInt(self))!).release()
    }
}
