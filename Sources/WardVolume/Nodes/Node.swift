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

/// A file, directory or other inode that the kernel or an open handle knows.
///
/// The node table keeps it alive while the kernel has look-ups on it. Its handles keep it alive
/// too, and so do its children, which hold their parent. The kernel knows a node by its address.
final class Node: @unchecked Sendable {
    let inode: UInt64
    /// `S_IFMT` part of the mode.
    let type: mode_t
    let generation: UInt64

    /// Look-ups that the kernel holds. Guarded by the table's shard.
    var lookups: UInt64 = 0
    /// Guards `firstLink`, `moreLinks`, `directory` and the reference in `file`.
    private let guardLock = Lock(.memory)
    private var firstLink: NodeLink?
    private var moreLinks: [NodeLink] = []
    private var directoryState: DirectoryState?
    /// The class as last read from or written to the backing store; 0 for unknown.
    private let classCache = Atomic<UInt8>(0)
    /// Content may have entered the kernel's page cache since the last eviction.
    let hasCachedPages = Atomic<Bool>(false)
    private let refusedClassValue = Atomic<UInt8>(0)
    /// The stronger class that a program asked for while the file had content, and did not get.
    /// Needs no lock.
    var refusedClass: ProtectionClass? {
        get { ProtectionClass(rawValue: refusedClassValue.load(ordering: .relaxed)) }
        set { refusedClassValue.store(newValue?.rawValue ?? 0, ordering: .relaxed) }
    }
    /// Pages of refused writes are about to be dropped (`Volume.dropRefused`).
    let isDroppingRefused = Atomic<Bool>(false)
    /// The number of names made, and the number of these whose directories were synced. A flag
    /// would not do: a sync that is under way would clear it for a name that it does not cover.
    private let namesMade = Atomic<UInt32>(0)
    private let namesSynced = Atomic<UInt32>(0)
    private let unreadableName = Atomic<Bool>(false)
    /// Directories: a listing had to leave a name out. The kernel must keep no part of it:
    /// completed with a part of another listing, it would lack that name without an error. Stays
    /// until the kernel forgets the directory. Needs no lock.
    var hasUnreadableName: Bool {
        get { unreadableName.load(ordering: .acquiring) }
        set { unreadableName.store(newValue, ordering: .releasing) }
    }
    private let freshness = Atomic<Bool>(false)
    /// This mount made the file without an ACL to inherit, and it has got neither ACL nor
    /// capabilities since. The kernel asks for both at the first write and the first chmod. Needs
    /// no lock.
    var isFresh: Bool {
        get { freshness.load(ordering: .relaxed) }
        set { freshness.store(newValue, ordering: .relaxed) }
    }
    private let forgottenEpochValue = Atomic<UInt32>(0)
    private let severalNames = Atomic<Bool>(false)
    private let superseded = Atomic<Bool>(false)

    /// Held while a file is opened, or closed for the last time: `file` changes only under it.
    let openLock = Lock(.open)
    /// The file does not open, and a check salvages what it can of it. Guarded by `openLock`.
    var isSalvaged = false
    private var openFile: OpenFile?
    private var keptDescriptor: KeptDescriptor?
    /// The descriptor of a file or directory without a name, closed when the kernel forgets the
    /// node. Such a file's last name was replaced while the kernel may be about to open it. Such a
    /// directory was removed or replaced; programs may have it open or be in it.
    var kept: KeptDescriptor? {
        get {
            guardLock.withLock { keptDescriptor }
        }
        set {
            var other = newValue
            guardLock.withLock { swap(&keptDescriptor, &other) }
            withExtendedLifetime(other) {}
        }
    }
    /// The open file, while it has handles. Any thread may read this: `guardLock` keeps the object
    /// alive until the reader has retained it. A `stat` by name often meets the last close.
    var file: OpenFile? {
        get {
            guardLock.withLock { openFile }
        }
        set {
            var other = newValue
            guardLock.withLock { swap(&openFile, &other) }
            withExtendedLifetime(other) {}
        }
    }

    /// Whether a program has the file open.
    var isHeldByKernel: Bool {
        (file?.uses.kernelHandles.load(ordering: .sequentiallyConsistent) ?? 0) > 0
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

    /// A name by which the node can be reached now; nil where all names were removed.
    var link: NodeLink? {
        guardLock.withLock { firstLink }
    }

    var allLinks: [NodeLink] {
        guardLock.withLock { (firstLink.map { [$0] } ?? []) + moreLinks }
    }

    func addLink(_ parent: Node, _ name: UnsafePointer<CChar>) {
        guardLock.withLock {
            if let first = firstLink {
                if first.parent === parent, Node.same(first.name, name) { return }
                if isDirectory {
                    // A directory has one name: another program moved it in the backing store.
                    firstLink = NodeLink(parent: parent, name)
                    return
                }
                for other in moreLinks
                where other.parent === parent && Node.same(other.name, name) { return }
                moreLinks.append(NodeLink(parent: parent, name))
            } else {
                firstLink = NodeLink(parent: parent, name)
            }
        }
    }

    /// Adds a name unless the node has one.
    func addFirstLink(_ parent: Node, _ name: UnsafePointer<CChar>) {
        guardLock.withLock { if firstLink == nil { firstLink = NodeLink(parent: parent, name) } }
    }

    /// Forgets a name that proved to be wrong, if the node has another one.
    func forgetLink(_ link: NodeLink) {
        guardLock.withLock {
            guard !moreLinks.isEmpty, let first = firstLink, first.parent === link.parent,
                first.name == link.name
            else { return }
            firstLink = moreLinks.removeFirst()
        }
    }

    /// Forgets a name. True where no name is left.
    @discardableResult
    func removeLink(_ parent: Node, _ name: UnsafePointer<CChar>) -> Bool {
        guardLock.withLock {
            if let first = firstLink, first.parent === parent, Node.same(first.name, name) {
                firstLink = moreLinks.popLast()
            } else {
                moreLinks.removeAll { $0.parent === parent && Node.same($0.name, name) }
            }
            return firstLink == nil
        }
    }

    private static func same(_ stored: [CChar], _ name: UnsafePointer<CChar>) -> Bool {
        stored.withUnsafeBufferPointer { strcmp($0.baseAddress!, name) == 0 }
    }

    func noteUnsyncedName() { namesMade.wrappingAdd(1, ordering: .releasing) }

    /// The value for `noteNamesSynced` after a sync; nil where all names are synced.
    var unsyncedNames: UInt32? {
        let made = namesMade.load(ordering: .acquiring)
        return made == namesSynced.load(ordering: .acquiring) ? nil : made
    }

    func noteNamesSynced(_ made: UInt32) { namesSynced.store(made, ordering: .releasing) }

    /// Directories: the epoch in which the kernel last forgot a node below with unsynced names. A
    /// node that is found again by such a name does not know that the name is unsynced.
    var forgottenEpoch: UInt32 {
        get { forgottenEpochValue.load(ordering: .acquiring) }
        set { forgottenEpochValue.store(newValue, ordering: .releasing) }
    }

    /// Another node has this inode number. This node's file is gone, or a walk through the backing
    /// store met the file's name while a program was making it. This node knows nothing of later
    /// changes to the file, and must change nothing in it.
    var isSuperseded: Bool { superseded.load(ordering: .acquiring) }
    func supersede() { superseded.store(true, ordering: .releasing) }

    /// The file was seen with several names; some of them may never have been looked up.
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
            guardLock.withLock { directoryState }
        }
        set {
            var other = newValue
            guardLock.withLock { swap(&directoryState, &other) }
            withExtendedLifetime(other) {}
        }
    }
}

extension Node {
    /// Takes the state unless there is one, and returns the one that counts: of two threads that
    /// read the record, the first wins.
    func adopt(_ state: DirectoryState) -> DirectoryState {
        guardLock.withLock {
            if let known = directoryState { return known }
            directoryState = state
            return state
        }
    }
}

/// The record of a directory, and a descriptor of the backing directory while there is room for it.
final class DirectoryState: Sendable {
    let id: [UInt8]
    private let classValue: Atomic<UInt8>
    private let descriptor = Mutex<StoreDescriptor?>(nil)

    init(record: DirectoryRecord) {
        id = record.directoryID
        classValue = Atomic(record.protectionClass.rawValue)
        mark = Atomic(record.isSynchronised)
    }

    /// Held while the record, with the class and the mark, is written anew.
    let recordLock = Lock(.record)
    private let recordUnsynced = Atomic(false)
    /// The record was written anew and may not be durable. Guarded by `recordLock`.
    var isRecordUnsynced: Bool {
        get { recordUnsynced.load(ordering: .relaxed) }
        set { recordUnsynced.store(newValue, ordering: .relaxed) }
    }
    private let mark: Atomic<Bool>
    /// The directory itself is marked as synchronised. Sequentially consistent:
    /// `WorkerContext.beginClassDecision` says why.
    var isMarked: Bool {
        get { mark.load(ordering: .sequentiallyConsistent) }
        set { mark.store(newValue, ordering: .sequentiallyConsistent) }
    }

    /// The class of new files according to the record. `Volume.classOfNewFiles` is the class that
    /// they get.
    var protectionClass: ProtectionClass {
        get { ProtectionClass(rawValue: classValue.load(ordering: .relaxed))! }
        set { classValue.store(newValue.rawValue, ordering: .relaxed) }
    }

    private let nextClassValue = Atomic<UInt8>(0)
    /// The class that the record is about to name; nil while no thread changes it. A thread that
    /// makes a file here, or moves one here, reads it after `WorkerContext.beginClassDecision`.
    var nextClass: ProtectionClass? {
        get { ProtectionClass(rawValue: nextClassValue.load(ordering: .sequentiallyConsistent)) }
        set { nextClassValue.store(newValue?.rawValue ?? 0, ordering: .sequentiallyConsistent) }
    }

    /// Whether an empty file of this class needs no header here. The directory has that class, now
    /// and after a change that may be under way.
    func gives(_ protectionClass: ProtectionClass) -> Bool {
        let next = nextClass
        return self.protectionClass == protectionClass && (next == nil || next == protectionClass)
    }

    private let defaultACL = Atomic<UInt16>(0)
    /// The permissions that new files inherit; nil until they were asked for.
    var inheritedPermissions: InheritedPermissions? {
        get { InheritedPermissions(rawValue: defaultACL.load(ordering: .relaxed)) }
        set { defaultACL.store(newValue?.rawValue ?? 0, ordering: .relaxed) }
    }

    var openDescriptor: StoreDescriptor? { descriptor.withLock { $0 } }

    func setDescriptor(_ new: StoreDescriptor?) {
        // The old descriptor is freed outside of the lock: closing is a system call.
        let old = descriptor.withLock { current -> StoreDescriptor? in
            let old = current
            current = new
            return old
        }
        withExtendedLifetime(old) {}
    }
}

/// The permissions that new files inherit from a directory's default ACL, acl(5).
struct InheritedPermissions: Equatable {
    /// Never 0, which stands for "not known" where the value is stored.
    let rawValue: UInt16
    private static let isKnown: UInt16 = 0x8000
    private static let isInherited: UInt16 = 0x4000

    init?(rawValue: UInt16) {
        guard rawValue & InheritedPermissions.isKnown != 0 else { return nil }
        self.rawValue = rawValue
    }

    /// There is no default ACL.
    static let none = InheritedPermissions(rawValue: isKnown)!

    /// The most permissions that a new file gets: the owner's entry, the mask's or else the
    /// group's, the others'; 0777.
    init(most: mode_t) {
        rawValue =
            InheritedPermissions.isKnown | InheritedPermissions.isInherited | UInt16(most & 0o777)
    }

    /// Nil where nothing is inherited, and the umask applies.
    var most: mode_t? {
        rawValue & InheritedPermissions.isInherited == 0 ? nil : mode_t(rawValue & 0o777)
    }
}

struct WeakDirectory: @unchecked Sendable {
    // Sendable: the weak reference is only read.
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

    /// Returns the node of an inode, with one look-up more. Makes it where there is none, or one of
    /// another type: the inode number was reused.
    func retain(inode: UInt64, type: mode_t) -> Node {
        box(inode).lock.withLock { shard in
            if let node = shard.nodes[inode], node.type == type {
                node.lookups += 1
                return node
            }
            let node = Node(inode: inode, type: type, generation: nextGeneration)
            node.lookups = 1
            shard.nodes[inode] = node
            // The kernel holds the node by its address: while look-ups remain, the node stays alive
            // without its place in the table.
            _ = Unmanaged.passRetained(node)
            return node
        }
    }

    /// Adds a look-up to a known node. Puts the node back where it had lost its last name.
    func retain(_ node: Node) {
        box(node.inode).lock.withLock { shard in
            if node.lookups == 0 { _ = Unmanaged.passRetained(node) }
            node.lookups += 1
            if shard.nodes[node.inode] == nil { shard.nodes[node.inode] = node }
        }
    }

    /// Returns the node of an inode, without another look-up.
    func find(inode: UInt64) -> Node? {
        box(inode).lock.withLock { $0.nodes[inode] }
    }

    /// Takes `count` look-ups back. With the last one the node leaves the table.
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

    /// Makes the node of a new file, with one look-up, and runs `body` with its open lock held. A
    /// thread that meets the node in the table waits until it has its open file. Supersedes another
    /// node of the inode.
    func replace<R>(inode: UInt64, type: mode_t, _ body: (Node) -> R) -> R {
        let node = Node(inode: inode, type: type, generation: nextGeneration)
        node.lookups = 1
        return node.openLock.withLock {
            _ = Unmanaged.passRetained(node)
            box(inode).lock.withLock { $0.nodes.updateValue(node, forKey: inode)?.supersede() }
            return body(node)
        }
    }

    /// Supersedes the node of an inode number that belongs to a new file now.
    func supersede(inode: UInt64) {
        box(inode).lock.withLock { $0.nodes.removeValue(forKey: inode)?.supersede() }
    }

    /// Takes the node of a freed inode out of the table: the number may come back as another file.
    /// The node lives on by its address.
    func detach(_ node: Node) {
        box(node.inode).lock.withLock { shard in
            if shard.nodes[node.inode] === node { shard.nodes[node.inode] = nil }
        }
    }

    /// Returns the nodes for which `isMeant` is true, at some moment. `isMeant` must not call the
    /// table.
    func all(where isMeant: @Sendable (Node) -> Bool) -> [Node] {
        shards.flatMap { box in box.lock.withLock { $0.nodes.values.filter(isMeant) } }
    }
}
