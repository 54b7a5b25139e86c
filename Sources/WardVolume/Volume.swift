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
public final class Volume: Sendable {
    let parameters: VolumeParameters
    let layout: PageLayout
    package let keys: VolumeKeys
    /// The backing directory.
    package let store: BackingStore
    /// The system calls on the backing store: the same as the store's. Each request uses it, and a
    /// property of the volume itself takes no count of references.
    package let storage: any Storage
    let gate: ContentGate
    let nodes: VolumeNodes
    /// The tree of names.
    package let names: NameTree
    /// The backing files of nodes.
    package let backing: BackingAccess
    let rules: ClassRules
    let durability: Durability
    /// Pages that were accepted at a lock and are not stored yet.
    let pending: PendingStores
    let reporter: Reporter
    let mount: MountSide
    /// Runs work that must not run on a worker.
    let background = SerialQueue("ward-volume")

    public var isReadOnly: Bool { store.isReadOnly }
    /// The path of the backing directory.
    public var backingPath: String { store.path }
    /// The volume's 16-byte identifier (docs/format.md).
    public var uuid: [UInt8] { parameters.uuid }
    public var keyring: ClassKeyring { gate.keyring }
    /// The seals of classes.
    package var seals: ClassSeals { gate.seals }
    /// Decides when refused reads are answered.
    public var refusals: Refusals { gate.refusals }
    /// True if offsets in directories of the backing store stay valid while names come and go, and
    /// for every descriptor.
    public var keepsListings: Bool { store.traits.keepsListings }
    /// Bytes of a page in the backing store: 512 or 4,096.
    public var pageBytes: Int { layout.pageBytes }
    /// The node of the root.
    package var root: Node { nodes.root }

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
        self.parameters = parameters
        mount = MountSide(keepsContent: kernelKeepsContent)
        layout = PageLayout(pageBytes: parameters.pageBytes)
        pending = PendingStores(pageBytes: parameters.pageBytes)
        reporter = Reporter(observer)

        let opened = try VolumeRoot.open(
            backingPath, volumeKey: volumeKey, storage: storage, readOnly: readOnly, isCopy: isCopy,
            leastFormat: parameters.leastFormat)
        keys = opened.keys
        store = BackingStore(
            path: backingPath, storage, root: opened.descriptor, opened.status,
            isReadOnly: readOnly)
        let seals = ClassSeals(keyring, keys.format)
        gate = ContentGate(
            keyring, try Capsules.forFormat2(store, keys, keyring, reporter), seals)
        self.storage = storage
        let root = Node(inode: UInt64(opened.status.st_ino), type: S_IFDIR, generation: 1)
        let state = DirectoryState(record: opened.record, seals)
        state.setDescriptor(StoreDescriptor(opened.keptDescriptor, storage))
        root.directory = state
        nodes = VolumeNodes(root: root)
        names = NameTree(store, keys, root: root)
        rules = ClassRules(root: root, hasMarks: opened.record.isSynchronised)
        backing = BackingAccess(
            store, nodes, names, keys, rules, seals, reporter)
        durability = Durability(
            store, keys, reporter, epoch: opened.epoch, doubtful: opened.doubtful)
        if !readOnly { gate.capsules?.begin() }
        if opened.wasUnclean {
            report(
                .note(
                    "the volume was not unmounted cleanly: epochs \(opened.doubtful.last!) are in doubt"
                ))
        }
    }

    // MARK: Surroundings

    /// Sets the connection to the kernel. Called once before requests are served.
    public func setNotifier(_ notifier: any KernelNotifier) { mount.notifier = notifier }

    /// The connection to the kernel; nil before it is set. No lock is held during its calls.
    package var kernel: (any KernelNotifier)? { mount.notifier }

    /// Sets the function that answers `user.ward.socket`. Called once before requests are served.
    public func setVirtualAttributes(socketPath: @escaping @Sendable () -> String) {
        mount.socketPath = socketPath
    }

    /// Sets the function that answers the attributes of the mount itself (`MountAttribute`). Called
    /// once before requests are served. Workers call `answer`, so it must not wait. It throws the
    /// caller's error.
    public func answerMountAttributes(by answer: @escaping MountAttributes) {
        mount.attributes = answer
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
        guard let answer = mount.attributes else { throw .notSupported }
        return try answer(String(decoding: name, as: UTF8.self), caller, node(id) === root)
    }

    var socketPath: String { mount.socketPath?() ?? "" }

    func report(_ event: VolumeEvent) { reporter.report(event) }

    /// Accepted writes that could not be stored since the volume was opened, oldest first. Only the
    /// latest are kept (`LossList.capacity`).
    public var losses: [Loss] { reporter.losses.all }

    // MARK: Doubt

    /// Whether a pass over files in doubt is worth starting: a file may have become readable since
    /// the last pass.
    public var needsMending: Bool { durability.doubt.needsMending }

    /// True until the last unclean end is mended: findings may be excused.
    package var isInDoubt: Bool { durability.doubt.isOpen }

    /// Notes that a change of this file's size failed half-way and could not be undone.
    ///
    /// After its close, the file may look as after a power cut. From now on such findings are
    /// excused and mended, as after one. The next state record stores this doubt. Until then the
    /// state record says "in use", which has the same effect.
    func noteHalfDone(
        _ file: OpenFile, _ what: String = "a change could neither be finished nor undone"
    ) {
        let isNew = durability.doubt()
        file.notes.isBeyondDoubt.value = false
        durability.dirt.noteChange()
        if isNew {
            report(.note("\(path(of: file.node)): \(what)"))
        }
    }

    // MARK: Nodes

    @inline(__always)
    func node(_ id: NodeID) -> Node {
        nodes.node(id)
    }

    /// Returns the path of a node inside the volume, for messages.
    package func path(of node: Node) -> String { names.path(of: node) }

    /// The number of files open now, by class.
    public func openFileCounts() -> [ProtectionClass: Int] {
        var counts: [ProtectionClass: Int] = [:]
        nodes.open.forEach { node in
            if let file = node.file { counts[file.protectionClass, default: 0] += 1 }
        }
        return counts
    }

    /// Runs `body`, and once more if it failed with `ENOSPC` or the like while just removed files
    /// still held space. A lock does not wait for the second run.
    @inline(__always)
    public func withSpace(
        _ context: WorkerContext, _ body: () throws(Errno) -> Void
    ) throws(Errno) {
        try store.removedFiles.withSpace(willWait: { context.finishRequest() }, body)
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
            guard nodes.keptDirectories.giveUp() else { throw .tooManyOpenFiles }
            try body()
            reporter.noteDescriptors()
        } catch {
            if error == .tooManyOpenFiles { reporter.reportNoDescriptors() }
            throw error
        }
    }

    /// Returns the numbers of the backing file system (statvfs(3)), after removed files are gone.
    /// Names have up to 255 bytes.
    public func fileSystemStatus() throws(Errno) -> FileSystemStatus {
        store.removedFiles.finish()
        var status = try storage.fstatvfs(store.root)
        status.f_namemax = 255
        return status
    }
}
