import CWardLinux
import Glibc
import Synchronization
import WardCrypto
import WardFormat
import WardKeys
import WardSystem

/// An open volume: the front door of this module.
///
/// Has one method per request of the kernel, in extensions by topic (`Volume+Names.swift`,
/// `Volume+Files.swift`, …). Any thread may call them, with its own `WorkerContext`. They throw the
/// `Errno` for the caller. Names are bytes without a terminator.
///
/// `LockRank` is the order in which threads take the mutexes. No lock is held across a notification
/// to the kernel.
public final class Volume: @unchecked Sendable {
    // Sendable: each stored property is constant or atomic, or its comment says what guards it.

    /// The path of the backing directory.
    public let backingPath: String
    public let uuid: [UInt8]
    public let keyring: ClassKeyring
    public let isReadOnly: Bool

    let parameters: VolumeParameters
    let layout: PageLayout
    let storage: any Storage
    let keys: VolumeKeys
    let gate: ClassGate
    let table = NodeTable()
    let root: Node
    let rootDescriptor: Int32
    let rootDevice: dev_t
    /// Block size of the backing file system, bytes. A power cut hits all pages of one block
    /// together.
    let blockBytes: Int
    let observer: (any VolumeObserver)?

    /// The epoch for pages that are written now.
    let epoch: Atomic<UInt32>
    /// Epochs of which pages may be missing (zeros), or a file's end. A torn page is never excused.
    /// Always replaced as a whole; guarded by `doubtLock`.
    private var doubtfulEpochs: [ClosedRange<UInt32>]
    private let doubtLock = Lock(.memory)
    /// Counts changes that failed half-way. Guarded by `doubtLock`.
    private(set) var halfDone = 0
    /// True while `doubtfulEpochs` is not empty. Hot paths read this instead of the array.
    let hasDoubt: Atomic<Bool>
    /// True while a pass over files in doubt is due: none has run yet, or the backing store failed
    /// during the last one.
    private let isMendingDue = Atomic<Bool>(false)
    /// Names that were made before this epoch are durable.
    let namesDurableBefore = Atomic<UInt32>(1)
    /// Counts the names that were made, and those of them that a sync of the whole backing store
    /// has made durable.
    let namesMade = Atomic<UInt64>(0)
    let namesSynced = Atomic<UInt64>(0)
    /// True if something was written since the last durable point.
    let isDirty = Atomic<Bool>(false)
    /// True while a backup is made: durable points then leave the epoch as it is.
    let isEpochHeld = Atomic<Bool>(false)
    /// True if a durable point ran while the epoch was held: the state record has to follow.
    let isEpochDue = Atomic<Bool>(false)
    let durablePointLock = Lock(.durablePoint)
    /// The epoch of the state record in the backing store. Changes under `durablePointLock`.
    var recordedEpoch: UInt32 {
        get { recordedEpochValue.load(ordering: .acquiring) }
        set { recordedEpochValue.store(newValue, ordering: .releasing) }
    }
    private let recordedEpochValue: Atomic<UInt32>
    /// Counts failed syncs, of files and of the backing store.
    let syncFailures = Atomic<UInt64>(0)
    /// Classes that a program set without a sync, to sync once after many changes
    /// (`unsyncedClassName`). While there are any, a durable set of the class that the file already
    /// has needs a sync.
    let unsyncedClasses = UnsyncedChanges()
    /// Headers of files that had none before. If a power cut takes such a header, the file is empty
    /// and has its directory's class. Starts as unknown: a program may just have copied files to
    /// the backing store.
    let unsyncedHeaders = UnsyncedChanges(isKnown: false)
    /// Prefix of this mount's `classSyncMark`. No other mount has the same.
    let classSyncMarkStart =
        Volume.classSyncWord + Base64URL.encode(SystemRandom.bytes(9)) + " "
    /// True after a failed sync: the volume stays "in use", as its state record says, until the end
    /// of this mount.
    let lastDurablePointFailed = Atomic<Bool>(false)

    /// Set once before requests are served. Guarded by `registryLock`.
    private var notifier: (any KernelNotifier)?
    private var virtualSocketPath: (@Sendable () -> String)?
    /// Guarded by `registryLock`.
    private var mountAttributes: MountAttributes?
    let registryLock = Lock(.memory)
    /// Guarded by `contextsLock`, a lock of its own: `forEachContext` holds it while it waits for a
    /// context.
    private var contexts: [ObjectIdentifier: Unmanaged<WorkerContext>] = [:]
    private let contextsLock = Lock(.contexts)

    /// True if the backing store keeps changes in the order in which they were made. Otherwise a
    /// new directory's record is synced before the directory gets its name.
    let keepsOrder: Bool
    /// Prefix of the names of staging files and directories. Each mount has its own.
    let stagingPrefix: String
    let stagingCounter = Atomic<UInt64>(0)
    /// Directories that keep their descriptor open, oldest first. Guarded by `registryLock`.
    ///
    /// Each descriptor belongs to one directory and closes when the kernel forgets that directory.
    /// The kernel does so soon after a removal.
    var keptDirectories: [WeakDirectory] = []
    let maximumKeptDirectories: Int
    /// True after the report that no descriptor was left, not even one that was kept for later.
    private let hasToldOfDescriptors = Atomic(false)
    /// True if this mount has seen a directory that is marked as synchronised. Until then no
    /// request looks for marks.
    let hasMarks: Atomic<Bool>
    /// A long name has two halves. Threads that make or remove one share this lock. A check takes
    /// it exclusively, so that it never reports a half that a request is about to use as a
    /// leftover.
    ///
    /// Threads that share it may wait for class decisions, and other threads take it inside a
    /// decision. So the exclusive holder never waits for decisions.
    let longNames = ReadWriteLock(.longNames)
    /// Shared from the making of a long link's target until the link exists. A check takes it
    /// exclusively.
    let longTargets = ReadWriteLock(.longTargets)
    /// Looks through directories that were moved into a marked directory.
    let arrivals = SerialQueue("ward-sync")
    let arrivalsWaiting = Atomic<Int>(0)
    /// Files that a check reads although they do not open. They belong to no node. A lock wipes
    /// their keys too.
    let examined = Mutex<[ObjectIdentifier: OpenFile]>([:])
    /// Nodes with an open file, unlinked nodes included. Guarded by `openNodesLock`.
    var openNodes: [ObjectIdentifier: Node] = [:]
    let openNodesLock = Lock(.openNodes)
    /// Files that were closed with `SyncState.isKeyUnsynced`.
    let unsyncedKeys = UnsyncedFiles()
    /// Files that were closed with `SyncState.isCutUnsynced`, because a sync failed.
    let unsyncedCuts = UnsyncedFiles()
    /// Files that were moved from a directory of another class. After a power cut the backing store
    /// may still have them there.
    let movedFiles = UnsyncedFiles()
    let nameChanges = NameChanges()
    /// Creations of files between the new name in the backing store and the file's node.
    let creations = NameChanges()
    let movedNodes = MovedNodes()
    /// Held from a sync of the backing store until its failure is noted. The kernel reports each
    /// failure to only one of the threads that share the descriptor.
    let storeSyncLock = Lock(.storeSync)
    /// Runs work that must not run on a worker.
    let background = SerialQueue("ward-volume")
    /// Pages that were accepted at a lock and are not stored yet. `storer` stores them.
    let pending: PendingStores
    let storer = SerialQueue("ward-store")
    /// Pages that the kernel is about to drop. No class opens meanwhile.
    let drops = PageDrops()
    /// Decides when refused reads are answered.
    public let refusals = Refusals()
    /// Bytes written since the last durable point.
    let unsynced = Atomic<Int>(0)
    /// Accepted writes that could not be stored.
    let lossList = LossList()
    /// The only eviction that may still touch the gate and the keys. Read and changed under
    /// `evictionLock`, which is never held while waiting.
    var currentEviction: UInt64 = 0
    let evictionLock = Lock(.eviction)
    /// Foreign names that were reported. Guarded by `registryLock`.
    var reportedForeign: Set<[UInt8]> = []
    /// True if the daemon serves other users and has to make new files theirs.
    let servesOthers: Bool
    /// True if offsets in directories of the backing store stay valid while names come and go, and
    /// for every descriptor.
    public let keepsListings: Bool
    let streaming = Streaming()
    /// Fetches files of trees that a program walks. Listings have `readsListingsAhead`; the
    /// kernel's own read-ahead is `FUSEConnection.raiseReadAhead`.
    let ahead: TreeReadAhead
    let removedFiles: RemovedFiles
    /// True if directory offsets in the backing store are hashes of names and reading a directory
    /// may wait for a disk.
    let readsListingsAhead: Bool
    /// True if the kernel keeps a file's cached content from one open to the next.
    let kernelKeepsContent: Bool
    /// True if a sync of the whole backing store reaches the disk. Otherwise each file is synced.
    let syncsWhole: Bool

    /// Bytes of a page in the backing store: 512 or 4,096.
    public var pageBytes: Int { layout.pageBytes }

    /// Opens the volume at `backingPath`: checks the root, puts the epochs of an unclean end in
    /// doubt, begins an epoch. `mendDoubtfulFiles` mends later.
    ///
    /// The caller holds the exclusive lock (`VolumeHold`). Throws `VolumeOpenError`, which names
    /// the file and its fault.
    ///
    /// - `volumeKey`: the 32-byte key of names and metadata, from the keybag.
    /// - `isCopy`: a backup now stands in the volume's place; `acceptCopyInUse` tells how a backup
    ///   of a volume in use is taken.
    /// - `kernelKeepsContent`: the kernel keeps a file's cached content when the file is opened
    ///   again.
    public init(
        backingPath: String, parameters: VolumeParameters, volumeKey: borrowing SecretBytes,
        keyring: ClassKeyring, readOnly: Bool, isCopy: Bool = false,
        kernelKeepsContent: Bool = true,
        observer: (any VolumeObserver)?, storage: any Storage = PosixStorage()
    ) throws(VolumeOpenError) {
        self.backingPath = backingPath
        self.parameters = parameters
        self.keyring = keyring
        self.observer = observer
        self.storage = storage
        uuid = parameters.uuid
        isReadOnly = readOnly
        layout = PageLayout(pageBytes: parameters.pageBytes)
        pending = PendingStores(pageBytes: parameters.pageBytes)
        gate = ClassGate(open: keyring.available)
        servesOthers = geteuid() == 0
        let fileSystem = BackingFileSystem(of: backingPath)
        keepsListings = fileSystem?.hasStableOffsets ?? false
        self.kernelKeepsContent = kernelKeepsContent
        syncsWhole = fileSystem?.syncsWhole ?? true
        stagingPrefix = ".ward-\(Base64URL.encode(SystemRandom.bytes(6)))-"
        var limit = rlimit()
        getrlimit(__rlimit_resource_t(7) /* RLIMIT_NOFILE */, &limit)
        maximumKeptDirectories = min(4096, max(16, Int(clamping: limit.rlim_cur) / 8))

        let opened = try VolumeRoot.open(
            backingPath, volumeKey: volumeKey, storage: storage, readOnly: readOnly, isCopy: isCopy)
        keys = opened.keys
        rootDescriptor = opened.descriptor
        rootDevice = opened.status.st_dev
        blockBytes = max(4096, Int(opened.status.st_blksize))
        keepsOrder = storage.ordersChanges(opened.descriptor)
        let waitsForDisk = storage.waitsForDisk(opened.descriptor)
        ahead = TreeReadAhead(storage, isUseful: waitsForDisk)
        removedFiles = RemovedFiles(
            storage, isUseful: waitsForDisk && sysconf(Int32(_SC_NPROCESSORS_ONLN)) > 1)
        readsListingsAhead = fileSystem == .ext4 && waitsForDisk
        root = Node(inode: UInt64(opened.status.st_ino), type: S_IFDIR, generation: 1)
        let state = DirectoryState(record: opened.record)
        hasMarks = Atomic(opened.record.isSynchronised)
        state.setDescriptor(StoreDescriptor(opened.keptDescriptor, storage))
        root.directory = state
        epoch = Atomic(opened.epoch)
        recordedEpochValue = Atomic(opened.epoch)
        doubtfulEpochs = opened.doubtful
        hasDoubt = Atomic(!opened.doubtful.isEmpty)
        if opened.wasUnclean {
            observer?.volume(
                self,
                reports: .note(
                    "the volume was not unmounted cleanly: epochs \(opened.doubtful.last!) are in doubt"
                ))
        }
    }

    deinit { storage.close(rootDescriptor) }

    // MARK: Surroundings

    /// Sets the connection to the kernel. Called once before requests are served.
    public func setNotifier(_ notifier: any KernelNotifier) {
        registryLock.withLock { self.notifier = notifier }
    }

    var kernel: (any KernelNotifier)? {
        registryLock.withLock { notifier }
    }

    /// Sets the function that answers `user.ward.socket`. Called once before requests are served.
    public func setVirtualAttributes(socketPath: @escaping @Sendable () -> String) {
        registryLock.withLock { virtualSocketPath = socketPath }
    }

    /// Sets the function that answers the attributes of the mount itself (`MountAttribute`). Called
    /// once before requests are served. Workers call `answer`, so it must not wait. It throws the
    /// caller's error.
    public func answerMountAttributes(by answer: @escaping MountAttributes) {
        registryLock.withLock { mountAttributes = answer }
    }

    /// Answers an attribute of the mount. `isRoot`: the caller asked at the mount's root.
    public typealias MountAttributes =
        @Sendable (_ name: String, _ caller: Caller, _ isRoot: Bool) throws(Errno) -> [UInt8]

    private static let mountAttributePrefix = Array(MountAttribute.prefix.utf8)

    /// Returns the value of an attribute of the mount itself; nil for every other name. Throws
    /// `ENOTSUP` while no function is set.
    @inline(__always)
    public func mountAttribute(
        of id: NodeID, _ name: UnsafeRawBufferPointer, _ caller: Caller
    ) throws(Errno) -> [UInt8]? {
        guard name.count > Volume.mountAttributePrefix.count,
            name.starts(with: Volume.mountAttributePrefix)
        else { return nil }
        guard let answer = registryLock.withLock({ mountAttributes }) else { throw .notSupported }
        return try answer(String(decoding: name, as: UTF8.self), caller, node(id) === root)
    }

    var socketPath: String {
        let path = registryLock.withLock { virtualSocketPath }
        return path?() ?? ""
    }

    func register(_ context: WorkerContext) {
        contextsLock.withLock {
            contexts[ObjectIdentifier(context)] = Unmanaged.passUnretained(context)
        }
    }

    func unregister(_ context: WorkerContext) {
        contextsLock.withLock { contexts[ObjectIdentifier(context)] = nil }
    }

    /// Calls `body` with the context of each thread. None is freed meanwhile.
    func forEachContext(_ body: (WorkerContext) -> Void) {
        contextsLock.withLock {
            for context in contexts.values { context._withUnsafeGuaranteedRef(body) }
        }
    }

    func report(_ event: VolumeEvent) {
        if case .lost(let path, let reason) = event, !lossList.add(path, reason) { return }
        observer?.volume(self, reports: event)
    }

    /// Accepted writes that could not be stored since the volume was opened, oldest first. Only the
    /// latest are kept (`LossList.capacity`).
    public var losses: [Loss] { lossList.all }

    // MARK: Doubt

    var doubtful: [ClosedRange<UInt32>] {
        get {
            doubtLock.withLock { doubtfulEpochs }
        }
        set { changeDoubt { $0 = newValue } }
    }

    /// Changes the doubtful epochs in one step, because another thread may add an interval
    /// meanwhile.
    func changeDoubt<R>(_ body: (inout [ClosedRange<UInt32>]) -> R) -> R {
        doubtLock.withLock {
            defer { hasDoubt.store(!doubtfulEpochs.isEmpty, ordering: .releasing) }
            return body(&doubtfulEpochs)
        }
    }

    /// How many changes failed half-way so far. A walk over all files compares the count before and
    /// after, to notice failures behind it.
    var halfDoneChanges: Int {
        doubtLock.withLock { halfDone }
    }

    /// Whether a pass over files in doubt is worth starting: a file may have become readable since
    /// the last pass.
    public var needsMending: Bool { isInDoubt && isMendingDue.load(ordering: .acquiring) }

    func noteMendingDue(_ isDue: Bool) { isMendingDue.store(isDue, ordering: .releasing) }

    /// True until the last unclean end is mended: findings may be excused.
    package var isInDoubt: Bool { hasDoubt.load(ordering: .acquiring) }

    /// Whether a page of this epoch excuses a finding beside it.
    func isDoubtful(_ epoch: UInt32) -> Bool {
        hasDoubt.load(ordering: .acquiring) && doubtful.contains { $0.contains(epoch) }
    }

    /// Notes that a change of this file's size failed half-way and could not be undone.
    ///
    /// After its close, the file may look as after a power cut. From now on such findings are
    /// excused and mended, as after one. The next state record stores this doubt. Until then the
    /// state record says "in use", which has the same effect.
    func noteHalfDone(
        _ file: OpenFile, _ what: String = "a change could neither be finished nor undone"
    ) {
        let now = epoch.load(ordering: .sequentiallyConsistent)
        let isNew = doubt(through: now)
        file.notes.isBeyondDoubt.value = false
        isDirty.store(true, ordering: .relaxed)
        if isNew {
            report(.note("\(path(of: file.node)): \(what)"))
        }
    }

    /// Puts the epochs from the one before the current through `last` in doubt. Requests that still
    /// run may have begun in the one before. Returns false if they were in doubt already.
    @discardableResult
    func doubt(through last: UInt32) -> Bool {
        let now = epoch.load(ordering: .sequentiallyConsistent)
        let interval = max(1, now) - 1...max(now, last)
        defer { noteMendingDue(true) }
        return doubtLock.withLock {
            halfDone += 1
            hasDoubt.store(true, ordering: .releasing)
            guard !doubtfulEpochs.contains(interval) else { return false }
            doubtfulEpochs.append(interval)
            return true
        }
    }

    // MARK: Nodes

    @inline(__always)
    func node(_ id: NodeID) -> Node {
        id == 1 ? root : id.object(as: Node.self)
    }

    /// Returns the path of a node inside the volume, for messages.
    func path(of node: Node) -> String {
        var parts: [String] = []
        var current = node
        while current !== root, parts.count < 512 {
            guard let link = current.link, let directory = link.parent.directory else {
                return "?/" + parts.reversed().joined(separator: "/")
            }
            parts.append(plainName(of: link, in: directory) ?? "?")
            current = link.parent
        }
        return "/" + parts.reversed().joined(separator: "/")
    }

    /// Returns the path of a node by one of its names.
    func path(of link: NodeLink) -> String {
        let parent = path(of: link.parent)
        let name = link.parent.directory.flatMap { plainName(of: link, in: $0) } ?? "?"
        return (parent == "/" ? "" : parent) + "/" + name
    }

    private func plainName(of link: NodeLink, in directory: DirectoryState) -> String? {
        plainNameBytes(of: link, in: directory).map { String(decoding: $0, as: UTF8.self) }
    }

    func plainNameBytes(of link: NodeLink, in directory: DirectoryState) -> [UInt8]? {
        if link.name.first == CChar(bitPattern: Volume.longNamePrefix) {
            guard let descriptor = directory.openDescriptor,
                let target = try? readLongName(descriptor.rawValue, link.name)
            else { return nil }
            return target.withUnsafeBytes { decryptName($0, in: directory.id) }
        }
        return link.name.withUnsafeBytes {
            decryptName(UnsafeRawBufferPointer(rebasing: $0.dropLast()), in: directory.id)
        }
    }

    /// The number of files open now, by class.
    public func openFileCounts() -> [ProtectionClass: Int] {
        var counts: [ProtectionClass: Int] = [:]
        openNodesLock.withLock {
            for node in openNodes.values {
                if let file = node.file { counts[file.protectionClass, default: 0] += 1 }
            }
        }
        return counts
    }

    /// Runs `body`, and once more if it failed with `ENOSPC` or the like while just removed files
    /// still held space. A lock does not wait for the second run.
    @inline(__always)
    public func withSpace(
        _ context: WorkerContext, _ body: () throws(Errno) -> Void
    ) throws(Errno) {
        try removedFiles.withSpace(willWait: { context.finishRequest() }, body)
    }

    /// Runs `body`, and once more after `EMFILE` if descriptors that were kept for later could be
    /// closed. Reports once that none are left, until a retry succeeds.
    @inline(__always)
    public func withDescriptors(
        _ context: WorkerContext, _ body: () throws(Errno) -> Void
    ) throws(Errno) {
        do throws(Errno) {
            try body()
        } catch {
            guard error == .tooManyOpenFiles else { throw error }
            context.finishRequest()
            try retryWithKeptDescriptors(body)
        }
    }

    private func retryWithKeptDescriptors(_ body: () throws(Errno) -> Void) throws(Errno) {
        do throws(Errno) {
            guard giveUpKeptDirectories() else { throw .tooManyOpenFiles }
            try body()
            hasToldOfDescriptors.store(false, ordering: .relaxed)
        } catch {
            if error == .tooManyOpenFiles,
                !hasToldOfDescriptors.exchange(true, ordering: .relaxed)
            {
                report(
                    .note(
                        "programs hold so many files of this volume open that no more can be opened: "
                            + "the daemon's limit of open files is used up (RLIMIT_NOFILE)"))
            }
            throw error
        }
    }

    /// Returns the numbers of the backing file system (statvfs(3)), after removed files are gone.
    /// Names have up to 255 bytes.
    public func fileSystemStatus() throws(Errno) -> FileSystemStatus {
        removedFiles.finish()
        var status = try storage.fstatvfs(rootDescriptor)
        status.f_namemax = 255
        return status
    }
}
