import CWardLinux
import Glibc
import Synchronization
import WardCrypto
import WardFormat
import WardSystem

/// A regular file while it has handles: one backing descriptor, one key, one truth about its size,
/// however many handles.
///
/// Guarded by `lock` (shared for reading content, exclusive for everything that changes it) unless
/// a field says otherwise.
final class OpenFile: @unchecked Sendable {
    unowned let node: Node
    let lock = ReadWriteLock()
    private let storage: any Storage
    let descriptor: Int32
    /// False where the backing file could only be opened for reading.
    let isWritable: Bool

    /// What the file is or will be: changes under `lock` and the content lock, and is looked at by
    /// the lock thread, which holds neither and looks again once it has had every content lock.
    var protectionClass: ProtectionClass {
        get { ProtectionClass(rawValue: classValue.load(ordering: .acquiring))! }
        set { classValue.store(newValue.rawValue, ordering: .releasing) }
    }
    private let classValue: Atomic<UInt8>
    /// As on disk; nil where the file has no header yet.
    var header: FileHeader?
    /// The header's 256 bytes as on disk; empty where there is none.
    var headerBytes: [UInt8] = []
    /// Headers with the same key that page 0 may have on the disk: replaced and not synced since,
    /// or about to be written.
    private var earlierHeaders: [[UInt8]] = []
    /// How page 0's record began when the file was opened, while the key is that one: its nonce,
    /// which no other has.
    private var openedRecord = SIMD4<UInt64>()
    private static let mostEarlierHeaders = 16
    /// The directory it was created in.
    var directoryID: [UInt8]

    /// The file key while it is in memory. Guarded by `keyLock`.
    private var key: SecretBytes?
    private let serial = Atomic<UInt64>(0)
    private let keyLock = TryableLock()
    private static let serials = Atomic<UInt64>(0)

    /// Logical size, bytes. Attributes are answered without the lock.
    var sizeBytes: Int {
        get { sizeBytesValue.load(ordering: .acquiring) }
        set { sizeBytesValue.store(newValue, ordering: .releasing) }
    }
    private let sizeBytesValue = Atomic<Int>(0)
    /// The last page was authenticated since the file was opened, or the file was made by us. An
    /// open looks before it takes the lock.
    var isEndVerified: Bool {
        get { isEndVerifiedValue.load(ordering: .acquiring) }
        set { isEndVerifiedValue.store(newValue, ordering: .releasing) }
    }
    private let isEndVerifiedValue = Atomic<Bool>(false)
    /// The last page is not as the format wants it (power cut, accepted): what to write first.
    var needsMending = false

    /// No finding in it is left to be excused by a doubtful epoch: it was made, emptied or mended
    /// since.
    var isBeyondDoubt: Bool {
        get { isBeyondDoubtValue.load(ordering: .acquiring) }
        set { isBeyondDoubtValue.store(newValue, ordering: .releasing) }
    }
    private let isBeyondDoubtValue = Atomic<Bool>(false)

    /// The backing file does not end with the last page: the size hint is there, or pages that a
    /// failed call or a power cut left behind. It is cut before the size changes.
    var hasHint = false
    /// Pages that the file's next key does not open were cut off, or are about to be, and a power
    /// cut may bring them back: the cut is made durable before the file gets a key.
    var hasUnsyncedCut = false
    /// Page 0 was emptied in place, and on the disk may still be the one of before, with another
    /// key: it is made durable before there are pages behind it, which nobody could read with that
    /// one.
    var hasUnsyncedKey = false
    /// The page that the file ends with now may not be durable, because a sync failed: nothing
    /// behind it is cut before one succeeds.
    var isEndUnsynced = false
    /// Pages of before a cut are still behind the last one: by themselves they look like a growth
    /// that was interrupted.
    var hasUncutPages: Bool {
        get { uncutPages.load(ordering: .acquiring) }
        set { uncutPages.store(newValue, ordering: .releasing) }
    }
    private let uncutPages = Atomic<Bool>(false)
    /// Of the volume's `syncFailures`, those after which the pages that say what the file is were
    /// written again.
    var mendedSyncFailures: UInt64 {
        get { mendedSyncFailuresValue.load(ordering: .acquiring) }
        set { mendedSyncFailuresValue.store(newValue, ordering: .releasing) }
    }
    private let mendedSyncFailuresValue = Atomic<UInt64>(0)
    /// A cut may not be durable yet, which matters once the file is emptied and gets another key.
    var mayHaveUncommittedCut = false
    /// The end of the file and the header's word that it is sparse are durable: a hole punched now
    /// is never taken for a wiped page.
    var mayPunch = false
    /// Content changed since the hint was right. A `stat` looks before it takes the lock.
    var needsHint: Bool {
        get { needsHintValue.load(ordering: .acquiring) }
        set { needsHintValue.store(newValue, ordering: .releasing) }
    }
    private let needsHintValue = Atomic<Bool>(false)
    /// The hint was put back once already for a `stat`; the next one waits for the last close.
    var hintWasShown: Bool {
        get { hintWasShownValue.load(ordering: .acquiring) }
        set { hintWasShownValue.store(newValue, ordering: .releasing) }
    }
    private let hintWasShownValue = Atomic<Bool>(false)
    /// When content last changed, nanoseconds of the store's coarse clock.
    var lastChange: UInt64 = 0
    /// A `stat` was answered since content last changed: nothing may move the times any more.
    var timesWereShown: Bool {
        get { timesWereShownValue.load(ordering: .acquiring) }
        set { timesWereShownValue.store(newValue, ordering: .releasing) }
    }
    private let timesWereShownValue = Atomic<Bool>(false)

    /// It was seen to be an SQLite database. Once true it stays. Needs no lock.
    var isKnownDatabase: Bool {
        get { isKnownDatabaseValue.load(ordering: .relaxed) }
        set { isKnownDatabaseValue.store(newValue, ordering: .relaxed) }
    }
    private let isKnownDatabaseValue = Atomic<Bool>(false)
    /// Set-user-ID and set-group-ID bits that the kernel may have been told of. Needs no lock.
    var setIDBits: mode_t {
        get { setIDBitsValue.load(ordering: .relaxed) }
        set { setIDBitsValue.store(newValue & (S_ISUID | S_ISGID), ordering: .relaxed) }
    }

    /// Takes the bits of a backing file's `st_mode`. One that is marked does not tell them: both
    /// are presumed until somebody looks (`dropPrivileges`).
    func presumeSetIDBits(backing mode: mode_t) {
        setIDBits = BackingMode.isMarked(mode) ? S_ISUID | S_ISGID : mode
    }
    private let setIDBitsValue = Atomic<mode_t>(S_ISUID | S_ISGID)
    /// Reads that were refused while its class is closed.
    let refusedReads = Refusals.Count()
    /// Growth by large writes that the store was told of.
    var growth = StreamedGrowth()
    /// Held while the store is told to write, until what it answers is noted (`Streaming`).
    let storeIsTold = TryableLock()
    /// Written since the last `fsync`.
    var isUnsynced = false
    /// Every sync of the descriptor goes through it.
    let syncs = SyncGroup()
    /// Counts failed syncs of the backing store; handles compare it with what they reported. Needs
    /// no lock.
    var syncFailures: UInt64 { syncFailureCount.load(ordering: .acquiring) }
    private let syncFailureCount = Atomic<UInt64>(0)
    var lastSyncFailure: Errno { Errno(rawValue: lastSyncError.load(ordering: .acquiring)) }
    private let lastSyncError = Atomic<Int32>(EIO)

    func noteSyncFailure(_ error: Errno) {
        lastSyncError.store(error.rawValue, ordering: .releasing)
        syncFailureCount.add(1, ordering: .releasing)
    }

    /// Pages accepted at a lock that the store does not have yet: whoever reads looks there first.
    let pendingPages = Atomic<Int>(0)
    /// Why some of them could not be stored, until a sync tells; 0: nothing.
    let storeFailure = Atomic<Int32>(0)
    /// Handles through which the kernel may write mapped pages back.
    let mappableHandles = Atomic<Int>(0)
    /// Handles that the kernel holds, or that are about to be its: what "open" means to a lock. The
    /// daemon's own uses, which a program can make follow each other without end, don't count.
    let kernelHandles = Atomic<Int>(0)

    /// Handles. Guarded by the node's `openLock`.
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

    /// Whether a page 0 that was read has a header that this file gave it, with the key that it has
    /// now.
    func hasOwnHeader(_ page: UnsafeRawPointer) -> Bool {
        func begins(_ header: [UInt8]) -> Bool {
            !header.isEmpty && memcmp(page, header, FileHeader.bytes) == 0
        }
        return begins(headerBytes) || earlierHeaders.contains(where: begins)
    }

    /// Whether the file's key opens the record of a page 0 that was read: a failed sync may have
    /// brought back one of before, with another. Looks at no key.
    func hasOwnRecord(_ page: UnsafeRawPointer) -> Bool {
        hasOwnHeader(page)
            || openedRecord != SIMD4() && openedRecord == OpenFile.beginning(ofRecordIn: page)
    }

    /// The file was opened with this page 0.
    func noteOpened(_ page: UnsafeRawPointer) {
        openedRecord = OpenFile.beginning(ofRecordIn: page)
    }

    private static func beginning(ofRecordIn page: UnsafeRawPointer) -> SIMD4<UInt64> {
        (page + FileHeader.bytes).loadUnaligned(as: SIMD4<UInt64>.self)
    }

    /// Page 0 is about to get another header, with the same key.
    func willReplaceHeader(_ bytes: [UInt8]) {
        if earlierHeaders.count >= OpenFile.mostEarlierHeaders { earlierHeaders.removeFirst() }
        earlierHeaders.append(bytes)
    }

    /// It has.
    func replaceHeader(_ new: FileHeader, _ bytes: [UInt8]) {
        willReplaceHeader(headerBytes)
        header = new
        headerBytes = bytes
    }

    /// It is synced, or goes with a new key.
    func forgetEarlierHeaders(hasNewKey: Bool) {
        if !earlierHeaders.isEmpty { earlierHeaders = [] }
        if hasNewKey { openedRecord = SIMD4() }
    }

    // MARK: Key

    /// Names the key in the contexts' caches; never the same for two keys, 0 for none.
    var keySerial: UInt64 { serial.load(ordering: .acquiring) }

    /// Takes a key over. Content lock held.
    func setKey(_ newKey: consuming SecretBytes) {
        keyLock.lockNow()
        key = consume newKey
        serial.store(OpenFile.nextSerial(), ordering: .releasing)
        keyLock.unlock()
    }

    /// Wipes the key. After the gate closed and all contexts were drained, or by the last close.
    func forgetKey() {
        keyLock.lockNow()
        serial.store(0, ordering: .releasing)
        key = nil
        keyLock.unlock()
    }

    var hasKey: Bool { keySerial != 0 }

    /// Lends the key, after `load` brought it where it was missing. Content lock held.
    func withKey<R>(
        load: () throws(Errno) -> SecretBytes, _ body: (borrowing SecretBytes) throws(Errno) -> R
    ) throws(Errno) -> R {
        keyLock.lockNow()
        defer { keyLock.unlock() }
        if key == nil {
            key = try load()
            serial.store(OpenFile.nextSerial(), ordering: .releasing)
        }
        return try body(key!)
    }

    private static func nextSerial() -> UInt64 {
        serials.wrappingAdd(1, ordering: .relaxed).newValue
    }
}

/// A handle the kernel holds on a regular file.
final class FileHandle: Sendable {
    let node: Node
    let file: OpenFile
    let flags: Int32
    /// Of the file's `syncFailures`.
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

    /// It counts no more. True where it was the last of the file's.
    @discardableResult
    func end() -> Bool {
        guard !hasEnded.exchange(true, ordering: .acquiringAndReleasing) else { return false }
        if flags & O_ACCMODE == O_RDWR { file.mappableHandles.subtract(1, ordering: .relaxed) }
        return file.kernelHandles.subtract(1, ordering: .sequentiallyConsistent).newValue == 0
    }
}

/// A handle the kernel holds on a directory.
///
/// What is read of it are a few names at a time, and where each begins is the store's offset: it
/// means the same whatever was made or removed since, and to every other handle, so that the kernel
/// may keep listings.
final class DirectoryHandle: @unchecked Sendable {
    // Sendable: what changes is guarded by `lock`.
    struct Name {
        var plain: [UInt8]
        /// Empty for "." and "..".
        var stored: [UInt8]
        var inode: UInt64
        var type: UInt8
        /// Where the next one begins.
        var next: UInt64
    }

    let node: Node
    private let storage: any Storage
    let lock = TryableLock()
    /// A descriptor of its own, for its position; -1 until something is read.
    private var descriptor: Int32 = -1
    /// Names that were read from the store, and the place of the first that was not given to the
    /// kernel.
    private var names: [Name] = []
    private var index = 0
    /// The offset behind the last name that was given.
    private var position: UInt64 = 0
    /// Where the store goes on after `names`, and whether nothing is there.
    private var end: UInt64 = 0
    private var hasEnded = false
    /// Why a name before `end` was left out: said where the listing ends, because programs take a
    /// listing without an error for a whole one, and what is not in it for removed.
    private var skipped: Errno?
    /// Fetches what comes next of a long directory; nil where that is of no use.
    private let ahead: TreeReadAhead?
    private var listingAhead: ListingAhead?

    init(node: Node, storage: any Storage, ahead: TreeReadAhead?) {
        self.node = node
        self.storage = storage
        self.ahead = ahead
    }

    deinit { if descriptor >= 0 { storage.close(descriptor) } }

    /// Goes to an offset that was given with a name before, by this handle or another; 0 begins
    /// anew.
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

    /// The name at the position; nil at the end. `open` opens the directory anew; `convert` makes
    /// names of what is stored, and says why it left one out that could not be read.
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

    /// What the store has from `end` on, while what comes after that is fetched.
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

    /// What the store's directory takes itself. After a name was read.
    var storedBytes: Int { Int((try? storage.fstat(descriptor))?.st_size ?? 0) }

    /// The name at the position was given.
    func advance() {
        position = names[index].next
        index += 1
    }
}

extension UInt64 {
    /// The object a handle or node number stands for; the kernel only passes numbers it was given
    /// and has not released.
    @inline(__always)
    func object<T: AnyObject>(as type: T.Type) -> T {
        Unmanaged<T>.fromOpaque(UnsafeRawPointer(bitPattern: UInt(self))!).takeUnretainedValue()
    }

    /// Hands an object to the kernel.
    static func handle<T: AnyObject>(_ object: T) -> UInt64 {
        UInt64(UInt(bitPattern: Unmanaged.passRetained(object).toOpaque()))
    }

    /// Takes it back.
    func releaseObject<T: AnyObject>(as type: T.Type) {
        Unmanaged<T>.fromOpaque(UnsafeRawPointer(bitPattern: UInt(self))!).release()
    }
}
