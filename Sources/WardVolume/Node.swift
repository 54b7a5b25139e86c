import CWardLinux
import Glibc
import Synchronization
import WardFormat
import WardSystem

/// One name of a node: the stored name in a directory.
struct NodeLink {
    var parent: Node
    /// Stored (encrypted) name, zero-terminated.
    var name: [CChar]
}

extension NodeLink {
    init(parent: Node, _ name: UnsafePointer<CChar>) {
        self.init(
            parent: parent, name: [CChar](UnsafeBufferPointer(start: name, count: strlen(name) + 1))
        )
    }
}

/// A file, directory or anything else that the kernel or an open handle knows.
///
/// Kept alive by the node table while the kernel has look-ups on it, by its handles, and by its
/// children (which hold their parent). The node's address is its identity towards the kernel.
final class Node: @unchecked Sendable {
    let inode: UInt64
    /// `S_IFMT` part of the mode.
    let type: mode_t
    let generation: UInt64

    /// Look-ups the kernel holds. Guarded by the table's shard.
    var lookups: UInt64 = 0
    /// Guards `firstLink`, `moreLinks`, `directory` and the reference in `file`.
    private let guardLock = TryableLock()
    private var firstLink: NodeLink?
    private var moreLinks: [NodeLink] = []
    private var directoryState: DirectoryState?
    /// The class as last read from or written to disk; 0 for unknown.
    private let classCache = Atomic<UInt8>(0)
    /// Content may be in the kernel's page cache since the last eviction.
    let hasCachedPages = Atomic<Bool>(false)
    private let refusedClassValue = Atomic<UInt8>(0)
    /// A stronger class than the file has, which was asked for when it had content, and refused.
    /// Needs no lock.
    var refusedClass: ProtectionClass? {
        get { ProtectionClass(rawValue: refusedClassValue.load(ordering: .relaxed)) }
        set { refusedClassValue.store(newValue?.rawValue ?? 0, ordering: .relaxed) }
    }
    /// Pages of refused writes are about to be dropped (`Volume.dropRefused`).
    let isDroppingRefused = Atomic<Bool>(false)
    /// Counts names made, and how far their directories were synced. Not a flag: who finds it
    /// cleared by a sync that is under way would promise what is not on disk yet.
    private let namesMade = Atomic<UInt32>(0)
    private let namesSynced = Atomic<UInt32>(0)
    private let unreadableName = Atomic<Bool>(false)
    /// Of a directory: a listing had to leave a name out. What the kernel keeps of one, and
    /// completes with another, would be without it and without an error. Stays until the kernel
    /// forgets the directory. Needs no lock.
    var hasUnreadableName: Bool {
        get { unreadableName.load(ordering: .acquiring) }
        set { unreadableName.store(newValue, ordering: .releasing) }
    }
    private let freshness = Atomic<Bool>(false)
    /// Made by us, without an ACL to inherit, and given neither ACL nor capabilities since: the
    /// kernel asks for both at the first write and the first chmod. Needs no lock.
    var isFresh: Bool {
        get { freshness.load(ordering: .relaxed) }
        set { freshness.store(newValue, ordering: .relaxed) }
    }
    private let forgottenEpochValue = Atomic<UInt32>(0)
    private let severalNames = Atomic<Bool>(false)
    private let superseded = Atomic<Bool>(false)

    /// Held while a file is being opened or closed for the last time: `file` changes only under it.
    let openLock = TryableLock()
    /// It does not open, and a check looks for what of it can be read. Guarded by `openLock`.
    var isSalvaged = false
    private var openFile: OpenFile?
    private var keptDescriptor: KeptDescriptor?
    /// The descriptor of a file whose last name was replaced while the kernel may be about to open
    /// it, or of a directory that was removed or replaced, which programs may have open or be in.
    /// It is closed when the kernel forgets the node.
    var kept: KeptDescriptor? {
        get {
            guardLock.lockNow()
            defer { guardLock.unlock() }
            return keptDescriptor
        }
        set {
            guardLock.lockNow()
            let old = keptDescriptor
            keptDescriptor = newValue
            guardLock.unlock()
            withExtendedLifetime(old) {}
        }
    }
    /// Set while a handle is open. May be read by anybody: `stat` by name meets the last close all
    /// the time, and the guard sees to it that what is read is still there to be retained.
    var file: OpenFile? {
        get {
            guardLock.lockNow()
            defer { guardLock.unlock() }
            return openFile
        }
        set {
            guardLock.lockNow()
            let old = openFile
            openFile = newValue
            guardLock.unlock()
            withExtendedLifetime(old) {}
        }
    }

    /// Whether a program has the file open.
    var isHeldByKernel: Bool {
        (file?.kernelHandles.load(ordering: .sequentiallyConsistent) ?? 0) > 0
    }

    init(inode: UInt64, type: mode_t, generation: UInt64) {
        self.inode = inode
        self.type = type
        self.generation = generation
    }

    var isDirectory: Bool { type == S_IFDIR }
    var isRegular: Bool { type == S_IFREG }

    var id: NodeID {
        UInt64(UInt(bitPattern: Unmanaged.passUnretained(self).toOpaque()))
    }

    // MARK: Names

    /// A name by which the node can be reached now; nil where it was unlinked.
    var link: NodeLink? {
        guardLock.lockNow()
        defer { guardLock.unlock() }
        return firstLink
    }

    var allLinks: [NodeLink] {
        guardLock.lockNow()
        defer { guardLock.unlock() }
        return (firstLink.map { [$0] } ?? []) + moreLinks
    }

    func addLink(_ parent: Node, _ name: UnsafePointer<CChar>) {
        guardLock.lockNow()
        defer { guardLock.unlock() }
        if let first = firstLink {
            if first.parent === parent, Node.same(first.name, name) { return }
            if isDirectory {
                // A directory has one name: it was moved behind our back.
                firstLink = NodeLink(parent: parent, name)
                return
            }
            for other in moreLinks where other.parent === parent && Node.same(other.name, name) {
                return
            }
            moreLinks.append(NodeLink(parent: parent, name))
        } else {
            firstLink = NodeLink(parent: parent, name)
        }
    }

    /// For a node that may be known by a name already, which stays the only one then.
    func addFirstLink(_ parent: Node, _ name: UnsafePointer<CChar>) {
        guardLock.lockNow()
        defer { guardLock.unlock() }
        if firstLink == nil { firstLink = NodeLink(parent: parent, name) }
    }

    /// Forgets a name that proved to be nobody's, where there is another one.
    func forgetLink(_ link: NodeLink) {
        guardLock.lockNow()
        defer { guardLock.unlock() }
        guard !moreLinks.isEmpty, let first = firstLink, first.parent === link.parent,
            first.name == link.name
        else { return }
        firstLink = moreLinks.removeFirst()
    }

    /// Forgets a name. True where none is left.
    @discardableResult
    func removeLink(_ parent: Node, _ name: UnsafePointer<CChar>) -> Bool {
        guardLock.lockNow()
        defer { guardLock.unlock() }
        if let first = firstLink, first.parent === parent, Node.same(first.name, name) {
            firstLink = moreLinks.popLast()
        } else {
            moreLinks.removeAll { $0.parent === parent && Node.same($0.name, name) }
        }
        return firstLink == nil
    }

    private static func same(_ stored: [CChar], _ name: UnsafePointer<CChar>) -> Bool {
        stored.withUnsafeBufferPointer { strcmp($0.baseAddress!, name) == 0 }
    }

    func noteUnsyncedName() { namesMade.wrappingAdd(1, ordering: .releasing) }

    /// What to give to `noteNamesSynced` afterwards; nil where there is nothing to sync.
    var unsyncedNames: UInt32? {
        let made = namesMade.load(ordering: .acquiring)
        return made == namesSynced.load(ordering: .acquiring) ? nil : made
    }

    func noteNamesSynced(_ made: UInt32) { namesSynced.store(made, ordering: .releasing) }

    /// Of a directory: the epoch in which the kernel last forgot a node below it whose names were
    /// not synced. Who comes back to that name knows nothing of it.
    var forgottenEpoch: UInt32 {
        get { forgottenEpochValue.load(ordering: .acquiring) }
        set { forgottenEpochValue.store(newValue, ordering: .releasing) }
    }

    /// Its inode has another node: this one is of a file that is gone, or was made by who walked
    /// through the store and met the name of a file that a program was making. It knows nothing of
    /// what is done to the file, and must change nothing of it.
    var isSuperseded: Bool { superseded.load(ordering: .acquiring) }
    func supersede() { superseded.store(true, ordering: .releasing) }

    /// It was seen with several names: some may be such that nobody looked up.
    var hasSeveralNames: Bool { severalNames.load(ordering: .relaxed) }

    func noteSeveralNames() {
        if !hasSeveralNames { severalNames.store(true, ordering: .relaxed) }
    }

    // MARK: Class and directory state

    var protectionClass: ProtectionClass? {
        get { ProtectionClass(rawValue: classCache.load(ordering: .relaxed)) }
        set { classCache.store(newValue?.rawValue ?? 0, ordering: .relaxed) }
    }

    var directory: DirectoryState? {
        get {
            guardLock.lockNow()
            defer { guardLock.unlock() }
            return directoryState
        }
        set {
            guardLock.lockNow()
            let old = directoryState
            directoryState = newValue
            guardLock.unlock()
            withExtendedLifetime(old) {}
        }
    }
}

extension Node {
    /// The state that others see too: of two threads that read the record at once, the first one's
    /// counts.
    func adopt(_ state: DirectoryState) -> DirectoryState {
        guardLock.lockNow()
        defer { guardLock.unlock() }
        if let known = directoryState { return known }
        directoryState = state
        return state
    }
}

/// What is known of a directory: its record, and a descriptor of the backing directory while there
/// is room for one.
final class DirectoryState: Sendable {
    let id: [UInt8]
    private let classValue: Atomic<UInt8>
    private let descriptor = Mutex<StoreDescriptor?>(nil)

    init(record: DirectoryRecord) {
        id = record.directoryID
        classValue = Atomic(record.protectionClass.rawValue)
        mark = Atomic(record.isSynchronised)
    }

    /// Held while the record is written anew: it carries the class and the mark.
    let recordLock = TryableLock()
    private let recordUnsynced = Atomic(false)
    /// The record was written anew, and may not be durable. Guarded by `recordLock`.
    var isRecordUnsynced: Bool {
        get { recordUnsynced.load(ordering: .relaxed) }
        set { recordUnsynced.store(newValue, ordering: .relaxed) }
    }
    private let mark: Atomic<Bool>
    /// Marked as synchronised by itself. Sequentially consistent:
    /// `WorkerContext.beginClassDecision` says why.
    var isMarked: Bool {
        get { mark.load(ordering: .sequentiallyConsistent) }
        set { mark.store(newValue, ordering: .sequentiallyConsistent) }
    }

    /// What the record says that new files in it get; `Volume.classOfNewFiles` is what they get.
    var protectionClass: ProtectionClass {
        get { ProtectionClass(rawValue: classValue.load(ordering: .relaxed))! }
        set { classValue.store(newValue.rawValue, ordering: .relaxed) }
    }

    private let nextClassValue = Atomic<UInt8>(0)
    /// What the record is about to say; nil while nobody changes it. Who makes a file here, or
    /// moves one here, looks at it after `WorkerContext.beginClassDecision`.
    var nextClass: ProtectionClass? {
        get { ProtectionClass(rawValue: nextClassValue.load(ordering: .sequentiallyConsistent)) }
        set { nextClassValue.store(newValue?.rawValue ?? 0, ordering: .sequentiallyConsistent) }
    }

    /// Whether an empty file of this class can do without a header here: it has the directory's,
    /// now and after the change that may be under way.
    func gives(_ protectionClass: ProtectionClass) -> Bool {
        let next = nextClass
        return self.protectionClass == protectionClass && (next == nil || next == protectionClass)
    }

    private let defaultACL = Atomic<UInt16>(0)
    /// The permissions that new files inherit; nil while that was not asked.
    var inheritedPermissions: InheritedPermissions? {
        get { InheritedPermissions(rawValue: defaultACL.load(ordering: .relaxed)) }
        set { defaultACL.store(newValue?.rawValue ?? 0, ordering: .relaxed) }
    }

    var openDescriptor: StoreDescriptor? { descriptor.withLock { $0 } }

    func setDescriptor(_ new: StoreDescriptor?) {
        // The old one leaves the lock before it is freed: closing is a system call.
        let old = descriptor.withLock { current -> StoreDescriptor? in
            let old = current
            current = new
            return old
        }
        withExtendedLifetime(old) {}
    }
}

/// The permissions that files made in a directory inherit of its default ACL, acl(5).
struct InheritedPermissions: Equatable {
    /// 0 is none of them.
    let rawValue: UInt16
    private static let isKnown: UInt16 = 0x8000
    private static let isInherited: UInt16 = 0x4000

    init?(rawValue: UInt16) {
        guard rawValue & InheritedPermissions.isKnown != 0 else { return nil }
        self.rawValue = rawValue
    }

    /// There is no default ACL.
    static let none = InheritedPermissions(rawValue: isKnown)!

    /// The most that a new file gets: the owner's entry, the mask's or else the group's, the
    /// others'; 0777.
    init(most: mode_t) {
        rawValue =
            InheritedPermissions.isKnown | InheritedPermissions.isInherited | UInt16(most & 0o777)
    }

    /// Nil where nothing is inherited, and the umask counts.
    var most: mode_t? {
        rawValue & InheritedPermissions.isInherited == 0 ? nil : mode_t(rawValue & 0o777)
    }
}

struct WeakDirectory: @unchecked Sendable {
    // Sendable: a weak reference that is only ever read.
    private(set) weak var state: DirectoryState?
    init(_ state: DirectoryState) { self.state = state }
}

/// All nodes by backing inode number, in shards with a lock each.
final class NodeTable: Sendable {
    private struct Shard {
        var nodes: [UInt64: Node] = [:]
    }

    private static let shardCount = 16
    private let shards: [ShardBox]
    private let generations = Atomic<UInt64>(1)

    private final class ShardBox: Sendable {
        let lock = Mutex(Shard())
    }

    init() {
        shards = (0..<NodeTable.shardCount).map { _ in ShardBox() }
    }

    @inline(__always)
    private func box(_ inode: UInt64) -> ShardBox {
        shards[Int(truncatingIfNeeded: inode & UInt64(NodeTable.shardCount - 1))]
    }

    var nextGeneration: UInt64 { generations.wrappingAdd(1, ordering: .relaxed).newValue }

    /// The node of an inode, made where there is none (or one of another type: the number was
    /// reused), with one look-up more.
    func retain(inode: UInt64, type: mode_t) -> Node {
        box(inode).lock.withLock { shard in
            if let node = shard.nodes[inode], node.type == type {
                node.lookups += 1
                return node
            }
            let node = Node(inode: inode, type: type, generation: nextGeneration)
            node.lookups = 1
            shard.nodes[inode] = node
            // The kernel holds it by its address: a node outlives its place in the table as long as
            // look-ups remain.
            _ = Unmanaged.passRetained(node)
            return node
        }
    }

    /// One look-up more of a node that is known; puts it back where it had lost its last name.
    func retain(_ node: Node) {
        box(node.inode).lock.withLock { shard in
            if node.lookups == 0 { _ = Unmanaged.passRetained(node) }
            node.lookups += 1
            if shard.nodes[node.inode] == nil { shard.nodes[node.inode] = node }
        }
    }

    /// The node of an inode, without another look-up.
    func find(inode: UInt64) -> Node? {
        box(inode).lock.withLock { $0.nodes[inode] }
    }

    /// Takes `count` look-ups back; with the last one the node leaves the table.
    func release(_ node: Node, lookups count: UInt64) {
        let isGone = box(node.inode).lock.withLock { shard in
            precondition(node.lookups >= count, "the kernel forgets what it looked up")
            node.lookups -= count
            guard node.lookups == 0 else { return false }
            if shard.nodes[node.inode] === node { shard.nodes[node.inode] = nil }
            return true
        }
        if isGone { Unmanaged.passUnretained(node).release() }
    }

    /// The node of a file that was just made, with one look-up and its open lock held: whoever
    /// meets it in the table waits until it has its open file. Another one of that inode is
    /// superseded.
    func replace(inode: UInt64, type: mode_t) -> Node {
        let node = Node(inode: inode, type: type, generation: nextGeneration)
        node.lookups = 1
        node.openLock.lockNow()
        _ = Unmanaged.passRetained(node)
        box(inode).lock.withLock { $0.nodes.updateValue(node, forKey: inode)?.supersede() }
        return node
    }

    /// Something new has this inode: a node of it is of something that is gone.
    func supersede(inode: UInt64) {
        box(inode).lock.withLock { $0.nodes.removeValue(forKey: inode)?.supersede() }
    }

    /// The inode was freed: its number may come back as another file. The node lives on by its
    /// address.
    func detach(_ node: Node) {
        box(node.inode).lock.withLock { shard in
            if shard.nodes[node.inode] === node { shard.nodes[node.inode] = nil }
        }
    }

    /// All nodes, at some moment, for which `isMeant` says so; it must not ask the table.
    func all(where isMeant: @Sendable (Node) -> Bool) -> [Node] {
        shards.flatMap { box in box.lock.withLock { $0.nodes.values.filter(isMeant) } }
    }
}
