import CWardLinux
import Glibc
import Synchronization
import WardCrypto
import WardFormat
import WardKeys
import WardSystem

/// An open volume: the front door of this module.
///
/// One method per request of the kernel, in extensions by topic (`Volume+Names.swift`,
/// `Volume+Files.swift`, …). All are called from any thread, with that thread's `WorkerContext`;
/// all throw the `Errno` the caller is to get. Names are bytes without a terminator.
///
/// Locks, in the order they are taken: a directory's `recordLock`, a node's `openLock`, an open
/// file's `lock`, a context's content lock, a node's guard. None is held across a notification to
/// the kernel.
public final class Volume: @unchecked Sendable {
    // Sendable: stored properties are constants, atomics, or say what guards them.

    /// Where the backing directory is.
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
    /// Block size of the backing file system: pages inside one block share its fate at a power cut.
    let blockBytes: Int
    let observer: (any VolumeObserver)?

    /// The epoch that pages written now carry.
    let epoch: Atomic<UInt32>
    /// Epochs whose pages may be half-written. Replaced whole; guarded by `doubtLock`.
    private var doubtfulEpochs: [ClosedRange<UInt32>]
    private let doubtLock = TryableLock()
    /// Counts changes left half-done. Guarded by `doubtLock`.
    private(set) var halfDone = 0
    /// Whether there are any: read on every hot path that cares.
    let hasDoubt: Atomic<Bool>
    /// There is something in doubt that nobody has looked for yet, or could not for want of the
    /// store.
    private let isMendingDue = Atomic<Bool>(false)
    /// Names made in earlier epochs are durable.
    let namesDurableBefore = Atomic<UInt32>(1)
    /// Counts names made, and those that a sync of the whole store has made durable.
    let namesMade = Atomic<UInt64>(0)
    let namesSynced = Atomic<UInt64>(0)
    /// Something was written since the last durable point.
    let isDirty = Atomic<Bool>(false)
    /// A backup is being made: durable points leave the epoch as it is.
    let isEpochHeld = Atomic<Bool>(false)
    /// Something was made durable under an epoch that was held.
    let isEpochDue = Atomic<Bool>(false)
    let durablePointLock = TryableLock()
    /// The epoch of the state record on disk. Changes under `durablePointLock`.
    var recordedEpoch: UInt32 {
        get { recordedEpochValue.load(ordering: .acquiring) }
        set { recordedEpochValue.store(newValue, ordering: .releasing) }
    }
    private let recordedEpochValue: Atomic<UInt32>
    /// Counts syncs that failed, of files and of the store.
    let syncFailures = Atomic<UInt64>(0)
    /// Classes set by who changes many and syncs once at the end (`unsyncedClassName`). Who asks
    /// for a class that a file or directory has already, to be durable, relies on no such change.
    let unsyncedClasses = UnsyncedChanges()
    /// Headers of files that had none: what a power cut takes of these leaves an empty file of its
    /// directory's class. Files may have been copied to the store just now.
    let unsyncedHeaders = UnsyncedChanges(isKnown: false)
    /// No other mount's.
    let classSyncMarkStart =
        Volume.classSyncWord + Base64URL.encode(SystemRandom.bytes(9)) + " "
    /// A sync failed: the volume stays "in use", as the record on disk says, whatever comes.
    let lastDurablePointFailed = Atomic<Bool>(false)

    /// Set once before requests are served. Guarded by `registryLock`.
    private var notifier: (any KernelNotifier)?
    private var virtualSocketPath: (@Sendable () -> String)?
    /// Guarded by `registryLock`.
    private var mountAttributes: MountAttributes?
    let registryLock = TryableLock()
    /// Guarded by `contextsLock`, which is a lock of its own: it is held while a context is waited
    /// for.
    private var contexts: [ObjectIdentifier: Unmanaged<WorkerContext>] = [:]
    private let contextsLock = TryableLock()

    /// The store keeps changes in the order in which they were made. Where it does not, a new
    /// directory's record is synced before the directory has a name.
    let keepsOrder: Bool
    /// Names of staging files and directories begin with this, different for every mount.
    let stagingPrefix: String
    let stagingCounter = Atomic<UInt64>(0)
    /// Directories that keep their descriptor open, oldest first. Guarded by `registryLock`. Each
    /// descriptor is its directory's alone: it is closed when the kernel forgets that one, which it
    /// does soon after a removal.
    var keptDirectories: [WeakDirectory] = []
    let maximumKeptDirectories: Int
    /// There was no descriptor left, not even one that was kept for later, and that was told.
    private let hasToldOfDescriptors = Atomic(false)
    /// A directory that is marked as synchronised was seen since the mount. While there is none,
    /// nothing looks for one.
    let hasMarks: Atomic<Bool>
    /// Shared by whoever makes or removes a long name, which has two halves; taken alone by a
    /// check, which must not take a half that is about to be used for a leftover. Shared holders
    /// may wait for class decisions, in which others take it: who takes it alone waits for none.
    let longNames = ReadWriteLock()
    /// Held while a target is made that is kept elsewhere, until there is a link to it.
    let longTargets = ReadWriteLock()
    /// Looks through directories that were moved into a marked one.
    let arrivals = BackgroundQueue(name: "ward-sync")
    let arrivalsWaiting = Atomic<Int>(0)
    /// Files that a check reads although they don't open: no node's, and a lock wipes their keys
    /// all the same.
    let examined = Mutex<[ObjectIdentifier: OpenFile]>([:])
    /// Nodes with an open file, unlinked ones included. Guarded by `openNodesLock`.
    var openNodes: [ObjectIdentifier: Node] = [:]
    let openNodesLock = TryableLock()
    /// Files that were closed with `hasUnsyncedKey`.
    let unsyncedKeys = UnsyncedFiles()
    /// Files that were closed with `hasUnsyncedCut`, because a sync failed.
    let unsyncedCuts = UnsyncedFiles()
    /// Files that came from a directory of another class, on a store that may keep them there.
    let movedFiles = UnsyncedFiles()
    let nameChanges = NameChanges()
    /// Between the store's new name and its node.
    let creations = NameChanges()
    let movedNodes = MovedNodes()
    /// Held over a sync of the store until its failure is noted: each is told to one of those who
    /// share the descriptor.
    let storeSyncLock = TryableLock()
    /// Runs what must not run on a thread that serves requests.
    let background = BackgroundQueue(name: "ward-volume")
    /// Accepted at a lock and not stored yet; `storer` stores it.
    let pending: PendingStores
    let storer = BackgroundQueue(name: "ward-store")
    /// Pages that the kernel is being told to drop: no class is opened meanwhile.
    let drops = PageDrops()
    /// When refused reads are answered.
    public let refusals = Refusals()
    /// Bytes written since the last durable point.
    let unsynced = Atomic<Int>(0)
    /// What could not be stored, for whoever asks later.
    let lossList = LossList()
    /// Which eviction may still touch the gate and the keys. Changed and read under `evictionLock`,
    /// held for steps that wait for nothing.
    var currentEviction: UInt64 = 0
    let evictionLock = TryableLock()
    /// Foreign names that were reported. Guarded by `registryLock`.
    var reportedForeign: Set<[UInt8]> = []
    /// The daemon acts for others and has to make files theirs.
    let servesOthers: Bool
    /// The store's offsets in directories stay what they are while names come and go, and for every
    /// descriptor.
    public let keepsListings: Bool
    let streaming = Streaming()
    let ahead: TreeReadAhead
    let removedFiles: RemovedFiles
    /// Offsets in the store's directories are hashes of names, and reading them may wait for a
    /// disk.
    let readsListingsAhead: Bool
    /// The kernel keeps what it has read and written of a file when it is opened again.
    let kernelKeepsContent: Bool
    /// Whether a sync of the whole store reaches the disk: else each file is synced.
    let syncsWhole: Bool

    /// Bytes of a page on disk: 512 or 4,096.
    public var pageBytes: Int { layout.pageBytes }

    /// Opens the volume at `backingPath`: checks the root, recovers after an unclean end, begins an
    /// epoch.
    ///
    /// `volumeKey` is the 32-byte key of names and metadata (from the keybag). The caller holds the
    /// exclusive lock. `isCopy`: a backup was put in the volume's place; one that was made in use
    /// is taken as `acceptCopyInUse` says. `kernelKeepsContent`: what the kernel has read and
    /// written of a file stays in its cache when the file is opened again. Throws `VolumeOpenError`
    /// with what is wrong with which file.
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

    /// Set once before requests are served.
    public func setNotifier(_ notifier: any KernelNotifier) {
        registryLock.lockNow()
        self.notifier = notifier
        registryLock.unlock()
    }

    var kernel: (any KernelNotifier)? {
        registryLock.lockNow()
        defer { registryLock.unlock() }
        return notifier
    }

    /// The answer of `user.ward.socket`. Set once before requests are served.
    public func setVirtualAttributes(socketPath: @escaping @Sendable () -> String) {
        registryLock.lockNow()
        virtualSocketPath = socketPath
        registryLock.unlock()
    }

    /// The function that answers the attributes of the mount itself (`MountAttribute`), by name and
    /// caller. Set once before requests are served; called on threads that serve requests, so it
    /// waits for nothing. It throws what the caller is to get.
    public func answerMountAttributes(by answer: @escaping MountAttributes) {
        registryLock.lockNow()
        mountAttributes = answer
        registryLock.unlock()
    }

    /// `isRoot`: whether it was asked of the mount's root.
    public typealias MountAttributes =
        @Sendable (_ name: String, _ caller: Caller, _ isRoot: Bool) throws(Errno) -> [UInt8]

    private static let mountAttributePrefix = Array(MountAttribute.prefix.utf8)

    /// The value of an attribute of the mount itself; nil for every other name.
    @inline(__always)
    public func mountAttribute(
        of id: NodeID, _ name: UnsafeRawBufferPointer, _ caller: Caller
    ) throws(Errno) -> [UInt8]? {
        guard name.count > Volume.mountAttributePrefix.count,
            name.starts(with: Volume.mountAttributePrefix)
        else { return nil }
        registryLock.lockNow()
        let answer = mountAttributes
        registryLock.unlock()
        guard let answer else { throw .notSupported }
        return try answer(String(decoding: name, as: UTF8.self), caller, node(id) === root)
    }

    var socketPath: String {
        registryLock.lockNow()
        let path = virtualSocketPath
        registryLock.unlock()
        return path?() ?? ""
    }

    func register(_ context: WorkerContext) {
        contextsLock.lockNow()
        contexts[ObjectIdentifier(context)] = Unmanaged.passUnretained(context)
        contextsLock.unlock()
    }

    func unregister(_ context: WorkerContext) {
        contextsLock.lockNow()
        contexts[ObjectIdentifier(context)] = nil
        contextsLock.unlock()
    }

    /// Visits every thread's context; none can be freed meanwhile.
    func forEachContext(_ body: (WorkerContext) -> Void) {
        contextsLock.lockNow()
        defer { contextsLock.unlock() }
        for context in contexts.values { context._withUnsafeGuaranteedRef(body) }
    }

    func report(_ event: VolumeEvent) {
        if case .lost(let path, let reason) = event, !lossList.add(path, reason) { return }
        observer?.volume(self, reports: event)
    }

    /// What was accepted and could not be stored since the volume was opened, oldest first; the
    /// last of them where there are many.
    public var losses: [Loss] { lossList.all }

    // MARK: Doubt

    var doubtful: [ClosedRange<UInt32>] {
        get {
            doubtLock.lockNow()
            defer { doubtLock.unlock() }
            return doubtfulEpochs
        }
        set { changeDoubt { $0 = newValue } }
    }

    /// In one step: another thread may be adding an interval.
    func changeDoubt<R>(_ body: (inout [ClosedRange<UInt32>]) -> R) -> R {
        doubtLock.lockNow()
        defer { doubtLock.unlock() }
        defer { hasDoubt.store(!doubtfulEpochs.isEmpty, ordering: .releasing) }
        return body(&doubtfulEpochs)
    }

    /// Changes left half-done so far: who looked through all files knows by it whether one was made
    /// half-done behind it.
    var halfDoneChanges: Int {
        doubtLock.lockNow()
        defer { doubtLock.unlock() }
        return halfDone
    }

    /// Whether a pass over files in doubt may find what the last one could not: once the store is
    /// well again.
    public var needsMending: Bool { isInDoubt && isMendingDue.load(ordering: .acquiring) }

    func noteMendingDue(_ isDue: Bool) { isMendingDue.store(isDue, ordering: .releasing) }

    /// Whether findings are excused: the last unclean end is not mended yet.
    package var isInDoubt: Bool { hasDoubt.load(ordering: .acquiring) }

    /// Whether a page of this epoch excuses a finding beside it.
    func isDoubtful(_ epoch: UInt32) -> Bool {
        hasDoubt.load(ordering: .acquiring) && doubtful.contains { $0.contains(epoch) }
    }

    /// A change of this file's size failed half-way and could not be undone, so that the file may
    /// look as after a power cut once it is closed: what such a change can leave is excused from
    /// now on, and mended, as after one. On disk with the next state record; until then the record
    /// says that the volume is in use, which comes to the same.
    func noteHalfDone(
        _ file: OpenFile, _ what: String = "a change could neither be finished nor undone"
    ) {
        let now = epoch.load(ordering: .sequentiallyConsistent)
        let isNew = doubt(through: now)
        file.isBeyondDoubt = false
        isDirty.store(true, ordering: .relaxed)
        if isNew {
            report(.note("\(path(of: file.node)): \(what)"))
        }
    }

    /// From the epoch before this one, in which requests that still run may have begun. False where
    /// that was so already.
    @discardableResult
    func doubt(through last: UInt32) -> Bool {
        let now = epoch.load(ordering: .sequentiallyConsistent)
        let interval = max(1, now) - 1...max(now, last)
        defer { noteMendingDue(true) }
        doubtLock.lockNow()
        defer { doubtLock.unlock() }
        halfDone += 1
        hasDoubt.store(true, ordering: .releasing)
        guard !doubtfulEpochs.contains(interval) else { return false }
        doubtfulEpochs.append(interval)
        return true
    }

    // MARK: Nodes

    @inline(__always)
    func node(_ id: NodeID) -> Node {
        id == 1 ? root : id.object(as: Node.self)
    }

    /// The path of a node inside the volume, for messages.
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

    /// The path of a node by one of its names.
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
        openNodesLock.lockNow()
        defer { openNodesLock.unlock() }
        for node in openNodes.values {
            if let file = node.file { counts[file.protectionClass, default: 0] += 1 }
        }
        return counts
    }

    /// Runs `body`, and once more where it failed for want of space that files which were just
    /// removed may still have had. A lock need not wait for those.
    @inline(__always)
    public func withSpace(
        _ context: WorkerContext, _ body: () throws(Errno) -> Void
    ) throws(Errno) {
        try removedFiles.withSpace(willWait: { context.finishRequest() }, body)
    }

    /// Runs `body`, and once more where it failed for want of descriptors (`EMFILE`) and some were
    /// kept open for later. That none are left is told once, until there are some again.
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

    /// Numbers of the backing file system, without files that were removed; names up to 255 bytes.
    public func fileSystemStatus() throws(Errno) -> FileSystemStatus {
        removedFiles.finish()
        var status = try storage.fstatvfs(rootDescriptor)
        status.f_namemax = 255
        return status
    }
}
