import CWardLinux
import Glibc
import Synchronization
import WardCrypto
import WardFormat
import WardSystem

/// A regular file while it has handles. All its handles share one backing descriptor, one key and
/// one size.
///
/// Guarded by `lock`, unless a field says otherwise: shared for reading content, exclusive for
/// every change.
final class OpenFile: @unchecked Sendable {
    unowned let node: Node
    let lock = ReadWriteLock(.file)
    private let storage: any Storage
    let descriptor: Int32
    /// False where the backing file could only be opened for reading.
    let isWritable: Bool

    /// The class that the file has or will have. It changes under `lock` and the content lock. The
    /// lock thread reads it with neither, and once more after it has had every content lock.
    var protectionClass: ProtectionClass {
        get { ProtectionClass(rawValue: classValue.load(ordering: .acquiring))! }
        set { classValue.store(newValue.rawValue, ordering: .releasing) }
    }
    private let classValue: Atomic<UInt8>
    /// The header as stored; nil where the file has none yet.
    var header: FileHeader?
    /// The header's 256 bytes as stored; empty where there is none.
    var headerBytes: [UInt8] = []
    /// Other headers with the same key that page 0 may have on the disk. They were replaced without
    /// a sync since, or are about to be written.
    private var earlierHeaders: [[UInt8]] = []
    /// The first bytes of page 0's record when the file was opened, with a nonce that no other
    /// record has. Zero once the file has a new key.
    private var openedRecord = SIMD4<UInt64>()
    private static let mostEarlierHeaders = 16
    /// The ID of the directory in which it was created.
    var directoryID: [UInt8]

    /// The file key while it is in memory. Guarded by `keyLock`.
    private var key: SecretBytes?
    private let serial = Atomic<UInt64>(0)
    private let keyLock = Lock(.key)
    private static let serials = Atomic<UInt64>(0)

    /// Logical size, bytes. Attributes are answered without the lock.
    var sizeBytes: Int {
        get { sizeBytesValue.load(ordering: .acquiring) }
        set { sizeBytesValue.store(newValue, ordering: .releasing) }
    }
    private let sizeBytesValue = Atomic<Int>(0)
    /// The last page was authenticated since the file was opened, or this mount made the file. An
    /// open reads this before it takes the lock.
    var isEndVerified: Bool {
        get { isEndVerifiedValue.load(ordering: .acquiring) }
        set { isEndVerifiedValue.store(newValue, ordering: .releasing) }
    }
    private let isEndVerifiedValue = Atomic<Bool>(false)
    /// The last page differs from the format (after a power cut, accepted): the next write starts
    /// with it.
    var needsMending = false

    /// No finding in the file may be excused by a doubtful epoch any more: it was made, emptied or
    /// mended since.
    var isBeyondDoubt: Bool {
        get { isBeyondDoubtValue.load(ordering: .acquiring) }
        set { isBeyondDoubtValue.store(newValue, ordering: .releasing) }
    }
    private let isBeyondDoubtValue = Atomic<Bool>(false)

    /// The backing file does not end with the last page. It has the size hint, or pages that a
    /// failed call or a power cut left behind. They are cut off before the size changes.
    var hasHint = false
    /// Pages that the file's next key does not open were cut off, or are about to be. A power cut
    /// may bring them back: the cut is made durable before the file gets a key.
    var hasUnsyncedCut = false
    /// Page 0 was emptied in place. On the disk it may still be the old page, with another key,
    /// which opens no later page. It is made durable before pages are written behind it.
    var hasUnsyncedKey = false
    /// The file's present last page may not be durable: no page behind it is cut off before a sync
    /// succeeds.
    var isEndUnsynced = false
    /// Pages from before a cut are still behind the last page. By themselves they look like an
    /// interrupted growth.
    var hasUncutPages: Bool {
        get { uncutPages.load(ordering: .acquiring) }
        set { uncutPages.store(newValue, ordering: .releasing) }
    }
    private let uncutPages = Atomic<Bool>(false)
    /// The volume's `syncFailures` when the file's first and last page were last written again.
    var mendedSyncFailures: UInt64 {
        get { mendedSyncFailuresValue.load(ordering: .acquiring) }
        set { mendedSyncFailuresValue.store(newValue, ordering: .releasing) }
    }
    private let mendedSyncFailuresValue = Atomic<UInt64>(0)
    /// A cut may not be durable yet. This matters once the file is emptied and gets another key.
    var mayHaveUncommittedCut = false
    /// The end of the file is durable, and so is the header's flag that the file is sparse. A hole
    /// punched now is never taken for a wiped page.
    var mayPunch = false
    /// The size hint is missing or wrong. A `stat` reads this before it takes the lock.
    var needsHint: Bool {
        get { needsHintValue.load(ordering: .acquiring) }
        set { needsHintValue.store(newValue, ordering: .releasing) }
    }
    private let needsHintValue = Atomic<Bool>(false)
    /// The hint was already put back once for a `stat`; the next time is at the last close.
    var hintWasShown: Bool {
        get { hintWasShownValue.load(ordering: .acquiring) }
        set { hintWasShownValue.store(newValue, ordering: .releasing) }
    }
    private let hintWasShownValue = Atomic<Bool>(false)
    /// When content last changed, nanoseconds of the backing store's coarse clock.
    var lastChange: UInt64 = 0
    /// A `stat` was answered since content last changed: the times must not move any more.
    var timesWereShown: Bool {
        get { timesWereShownValue.load(ordering: .acquiring) }
        set { timesWereShownValue.store(newValue, ordering: .releasing) }
    }
    private let timesWereShownValue = Atomic<Bool>(false)

    /// The file was seen to be an SQLite database. Never becomes false again. Needs no lock.
    var isKnownDatabase: Bool {
        get { isKnownDatabaseValue.load(ordering: .relaxed) }
        set { isKnownDatabaseValue.store(newValue, ordering: .relaxed) }
    }
    private let isKnownDatabaseValue = Atomic<Bool>(false)
    /// Set-user-ID and set-group-ID bits that the kernel may know of. Needs no lock.
    var setIDBits: mode_t {
        get { setIDBitsValue.load(ordering: .relaxed) }
        set { setIDBitsValue.store(newValue & (S_ISUID | S_ISGID), ordering: .relaxed) }
    }

    /// Takes the bits from a backing file's `st_mode`. A marked mode does not show them: both are
    /// presumed until `dropPrivileges` reads the true mode.
    func presumeSetIDBits(backing mode: mode_t) {
        setIDBits = BackingMode.isMarked(mode) ? S_ISUID | S_ISGID : mode
    }
    private let setIDBitsValue = Atomic<mode_t>(S_ISUID | S_ISGID)
    /// Reads that were refused while the file's class is closed.
    let refusedReads = Refusals.Count()
    /// How much of the growth by large writes the backing store has begun to write.
    var growth = StreamedGrowth()
    /// Held from telling the backing store to write until its answer is noted (`Streaming`).
    let storeIsTold = Lock(.storeIsTold)
    /// Content was written since the last `fsync`.
    var isUnsynced = false
    /// Every sync of the descriptor goes through this.
    let syncs = SyncGroup()
    /// Counts failed syncs of the backing file. Handles compare it with the failures that they
    /// reported. Needs no lock.
    var syncFailures: UInt64 { syncFailureCount.load(ordering: .acquiring) }
    private let syncFailureCount = Atomic<UInt64>(0)
    var lastSyncFailure: Errno { Errno(rawValue: lastSyncError.load(ordering: .acquiring)) }
    private let lastSyncError = Atomic<Int32>(EIO)

    func noteSyncFailure(_ error: Errno) {
        lastSyncError.store(error.rawValue, ordering: .releasing)
        syncFailureCount.add(1, ordering: .releasing)
    }

    /// Pages that were accepted at a lock and are not stored yet: readers look in `PendingStores`
    /// first.
    let pendingPages = Atomic<Int>(0)
    /// The `errno` with which some of these pages could not be stored, until a sync reports it; 0:
    /// none.
    let storeFailure = Atomic<Int32>(0)
    /// Handles through which the kernel may write mapped pages back.
    let mappableHandles = Atomic<Int>(0)
    /// Handles that the kernel holds or is about to get: what "open" means to a lock. The daemon's
    /// own uses don't count, because a program can make them follow each other without end.
    let kernelHandles = Atomic<Int>(0)

    /// The number of uses, by handles and by the daemon. Guarded by the node's `openLock`.
    var handleCount = 0

    init(
        node: Node, storage: any Storage, descriptor: Int32, isWritable: Bool,
        protectionClass: ProtectionClass, header: FileHeader?, directoryID: [UInt8]
    ) {
        self.node = node
        self.storage = storage
        self.descriptor = descriptor
        self.isWritable = isWritable
        classValue = Atomic(protectionClass.rawValue)
        self.header = header
        self.directoryID = directoryID
    }

    deinit { storage.close(descriptor) }

    // MARK: Header

    /// Whether the header of a page 0 that was read is one that this file wrote with its present
    /// key.
    func hasOwnHeader(_ page: UnsafeRawPointer) -> Bool {
        func begins(_ header: [UInt8]) -> Bool {
            !header.isEmpty && memcmp(page, header, FileHeader.bytes) == 0
        }
        return begins(headerBytes) || earlierHeaders.contains(where: begins)
    }

    /// Whether the file's key opens the record of a page 0 that was read. A failed sync may have
    /// brought back an older page with another key. Uses no key.
    func hasOwnRecord(_ page: UnsafeRawPointer) -> Bool {
        hasOwnHeader(page)
            || openedRecord != SIMD4() && openedRecord == OpenFile.beginning(ofRecordIn: page)
    }

    /// Notes the page 0 with which the file was opened.
    func noteOpened(_ page: UnsafeRawPointer) {
        openedRecord = OpenFile.beginning(ofRecordIn: page)
    }

    private static func beginning(ofRecordIn page: UnsafeRawPointer) -> SIMD4<UInt64> {
        (page + FileHeader.bytes).loadUnaligned(as: SIMD4<UInt64>.self)
    }

    /// Notes that page 0 is about to get another header with the same key.
    func willReplaceHeader(_ bytes: [UInt8]) {
        if earlierHeaders.count >= OpenFile.mostEarlierHeaders { earlierHeaders.removeFirst() }
        earlierHeaders.append(bytes)
    }

    /// Notes that page 0 has another header with the same key.
    func replaceHeader(_ new: FileHeader, _ bytes: [UInt8]) {
        willReplaceHeader(headerBytes)
        header = new
        headerBytes = bytes
    }

    /// Forgets earlier headers after a sync, or because page 0 gets a new key.
    func forgetEarlierHeaders(hasNewKey: Bool) {
        if !earlierHeaders.isEmpty { earlierHeaders = [] }
        if hasNewKey { openedRecord = SIMD4() }
    }

    // MARK: Key

    /// Names the key in the contexts' caches. No two keys have the same number; 0 is no key.
    var keySerial: UInt64 { serial.load(ordering: .acquiring) }

    /// Takes over a key. The content lock is held.
    func setKey(_ newKey: consuming SecretBytes) {
        var taken: SecretBytes? = consume newKey
        keyLock.withLock {
            key = taken.take()
            serial.store(OpenFile.nextSerial(), ordering: .releasing)
        }
    }

    /// Wipes the key. Called by the last close, or after the gate closed and all contexts were
    /// drained.
    func forgetKey() {
        keyLock.withLock {
            serial.store(0, ordering: .releasing)
            key = nil
        }
    }

    var hasKey: Bool { keySerial != 0 }

    /// Lends the key. Calls `load` where it is not in memory. The content lock is held.
    func withKey<R>(
        load: () throws(Errno) -> SecretBytes, _ body: (borrowing SecretBytes) throws(Errno) -> R
    ) throws(Errno) -> R {
        try keyLock.withLock { () throws(Errno) in
            if key == nil {
                key = try load()
                serial.store(OpenFile.nextSerial(), ordering: .releasing)
            }
            return try body(key!)
        }
    }

    private static func nextSerial() -> UInt64 {
        serials.wrappingAdd(1, ordering: .relaxed).newValue
    }
}

/// A handle that the kernel holds on a regular file.
final class FileHandle: Sendable {
    let node: Node
    let file: OpenFile
    let flags: Int32
    /// The failures of the file's `syncFailures` that this handle has reported.
    let reportedSyncFailures: Atomic<UInt64>
    private let hasEnded = Atomic<Bool>(false)

    init(node: Node, file: OpenFile, flags: Int32) {
        self.node = node
        self.file = file
        self.flags = flags
        reportedSyncFailures = Atomic(file.syncFailures)
        file.kernelHandles.add(1, ordering: .sequentiallyConsistent)
        // A shared mapping that is stored to needs a descriptor for reading and writing, mmap(2).
        if flags & O_ACCMODE == O_RDWR { file.mappableHandles.add(1, ordering: .relaxed) }
    }

    deinit { end() }

    /// Ends the handle's part in the counts. True where it was the file's last handle.
    @discardableResult
    func end() -> Bool {
        guard !hasEnded.exchange(true, ordering: .acquiringAndReleasing) else { return false }
        if flags & O_ACCMODE == O_RDWR { file.mappableHandles.subtract(1, ordering: .relaxed) }
        return file.kernelHandles.subtract(1, ordering: .sequentiallyConsistent).newValue == 0
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
