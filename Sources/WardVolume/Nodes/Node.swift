import CWardLinux
import Glibc
import Synchronization
import WardFormat
import WardSystem

/// A file, directory or other inode that the kernel or an open handle knows.
///
/// The node table keeps it alive while the kernel has look-ups on it. Its handles keep it alive
/// too, and so do its children, which hold their parent. The kernel knows a node by its address.
package final class Node: @unchecked Sendable {
    /// The inode number of the backing file.
    package let inode: UInt64
    /// `S_IFMT` part of the mode.
    let type: mode_t
    let generation: UInt64

    /// Look-ups that the kernel holds. Guarded by the table's shard.
    var lookups: UInt64 = 0
    /// Guards `links` and the references to `directory`, `file` and `kept`.
    private let guardLock = Lock(.memory)
    private var links = NodeLinks()
    private var directoryState: DirectoryState?
    let classes = NodeClasses()
    let cachedPages = CachedPages()
    let nameSyncs = NameSyncs()
    let notes = NodeNotes()

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

    /// Whether the node is a directory.
    package var isDirectory: Bool { type == S_IFDIR }
    /// Whether the node is a regular file.
    package var isRegular: Bool { type == S_IFREG }

    /// The kernel's number of the node, an address. The root is also known as 1.
    package var id: NodeID {
        UInt64(UInt(bitPattern: Unmanaged.passUnretained(self).toOpaque()))
    }

    // MARK: Names

    /// A name by which the node can be reached now; nil where all names were removed.
    package var link: NodeLink? { guardLock.withLock { links.first } }

    var allLinks: [NodeLink] { guardLock.withLock { links.all } }

    func addLink(_ parent: Node, _ name: UnsafePointer<CChar>) {
        guardLock.withLock { links.add(parent, name, isOnlyOne: isDirectory) }
    }

    /// Adds a name unless the node has one.
    func addFirstLink(_ parent: Node, _ name: UnsafePointer<CChar>) {
        guardLock.withLock { links.addFirst(parent, name) }
    }

    /// Forgets a name that proved to be wrong, if the node has another one. True if it did.
    func forgetLink(_ link: NodeLink) -> Bool { guardLock.withLock { links.forget(link) } }

    /// Notes a forgotten name, which the kernel still knows.
    func noteForgotten(_ link: NodeLink) {
        guardLock.withLock { links.forgotten.append(link) }
        notes.hasForgottenNames.value = true
    }

    /// Returns the names of `noteForgotten`, and none of them again.
    func takeForgottenLinks() -> [NodeLink] {
        notes.hasForgottenNames.value = false
        return guardLock.withLock {
            defer { links.forgotten = [] }
            return links.forgotten
        }
    }

    /// Forgets a name at which the node does not belong.
    func dropLink(_ link: NodeLink) { removeLink(link.parent, link.name) }

    /// Forgets a name. True where no name is left.
    @discardableResult
    func removeLink(_ parent: Node, _ name: UnsafePointer<CChar>) -> Bool {
        guardLock.withLock {
            links.remove(parent, name)
            return links.first == nil
        }
    }

    /// Another node has this inode number. This node's file is gone, or a walk through the backing
    /// store met the file's name while a program was making it. This node knows nothing of later
    /// changes to the file, and must change nothing in it.
    var isSuperseded: Bool { notes.isSuperseded.value }
    func supersede() { notes.isSuperseded.value = true }

    // MARK: Class and directory state

    /// The class as last read from or written to the backing store; nil for unknown. Needs no lock.
    var protectionClass: ProtectionClass? {
        get { classes.known.value }
        set { classes.known.value = newValue }
    }

    /// The state of a directory; nil for other nodes, and until the record was read.
    package var directory: DirectoryState? {
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
package final class DirectoryState: Sendable {
    /// The directory's ID, 16 bytes.
    package let id: [UInt8]
    private let classValue: AtomicValue<ProtectionClass>
    private let descriptor = Mutex<StoreDescriptor?>(nil)

    init(record: DirectoryRecord, _ seals: ClassSeals) {
        judgement = AtomicValue(seals.unjudged)
        id = record.directoryID
        classValue = AtomicValue(record.protectionClass)
        mark = Atomic(record.isSynchronised)
    }

    /// The standing of the class: open, right, or weak. It leaves `open` once.
    let judgement: AtomicValue<ClassSeals.Judgement>
    private let judging = Mutex(())
    /// Whether the class that counts may be another one than the record's, without a seal.
    package var isClassRefused: Bool { judgement.value == .weak }

    /// Takes a judgement, the class and the mark that count, unless there is a judgement already.
    /// Returns whether it was taken.
    func judged(
        _ new: ClassSeals.Judgement, _ protectionClass: ProtectionClass, isMarked: Bool
    ) -> Bool {
        judging.withLock { _ in
            guard judgement.value == .open else { return false }
            self.protectionClass = protectionClass
            self.isMarked = isMarked
            judgement.value = new
            return true
        }
    }
    /// Held while the record, with the class and the mark, is written anew.
    let recordLock = Lock(.record)
    /// The record was written anew and may not be durable. Guarded by `recordLock`.
    let isRecordUnsynced = AtomicValue(false)
    private let mark: Atomic<Bool>
    /// The directory itself is marked as synchronised. Sequentially consistent:
    /// `WorkerContext.beginClassDecision` says why.
    package var isMarked: Bool {
        get { mark.load(ordering: .sequentiallyConsistent) }
        set { mark.store(newValue, ordering: .sequentiallyConsistent) }
    }

    /// The class of new files according to the record. `Volume.classOfNewFiles` is the class that
    /// they get.
    package var protectionClass: ProtectionClass {
        get { classValue.value }
        set { classValue.value = newValue }
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

    /// The permissions that new files inherit; nil until they were asked for.
    let inheritedPermissions = AtomicValue<InheritedPermissions?>(nil)

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
struct InheritedPermissions: Equatable, NonzeroAtomicWord {
    /// Never 0, which stands for "not known" where the value is stored.
    let rawValue: UInt16
    private static let isKnown: UInt16 = 0x8000
    private static let isInherited: UInt16 = 0x4000

    init?(rawValue: UInt16) {
        guard rawValue & InheritedPermissions.isKnown != 0 else { return nil }
        self.rawValue = rawValue
    }

    init(word: UInt64) { rawValue = UInt16(truncatingIfNeeded: word) }
    var word: UInt64 { UInt64(rawValue) }

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
