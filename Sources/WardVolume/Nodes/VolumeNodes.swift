import Glibc
import Synchronization
import WardFormat
import WardSystem

/// The files and directories of a volume that are in use.
///
/// Concurrency: any thread; each part has a lock of its own.
final class VolumeNodes: Sendable {
    let table = NodeTable()
    let root: Node
    let open = OpenNodes()
    let keptDirectories = KeptDirectories()

    init(root: Node) { self.root = root }

    /// Returns the node behind the kernel's number. The kernel holds a look-up of it.
    @inline(__always)
    func node(_ id: NodeID) -> Node { id == 1 ? root : id.object(as: Node.self) }
}

/// Nodes with an open file, unlinked nodes included, and files that a check reads.
///
/// Concurrency: any thread; `lock` guards `nodes`.
final class OpenNodes: @unchecked Sendable {
    // Sendable: `lock` guards the dictionary.
    private var nodes: [ObjectIdentifier: Node] = [:]
    private let lock = Lock(.openNodes)
    /// Files that a check reads although they do not open. They belong to no node. A lock wipes
    /// their keys too.
    let examined = Mutex<[ObjectIdentifier: OpenFile]>([:])

    func insert(_ node: Node) { lock.withLock { nodes[ObjectIdentifier(node)] = node } }

    func remove(_ node: Node) { lock.withLock { nodes[ObjectIdentifier(node)] = nil } }

    var all: [ObjectIdentifier: Node] { lock.withLock { nodes } }

    /// Finds a file by its inode number, unlinked files included.
    func find(inode: UInt64) -> Node? {
        lock.withLock { nodes.values.first { $0.inode == inode } }
    }

    /// Runs `body` with each node. `body` must not wait for the backing store.
    func forEach(_ body: (Node) -> Void) {
        lock.withLock { for node in nodes.values { body(node) } }
    }

    /// Runs `body` with each open file of these classes. `body` must not wait for the backing
    /// store.
    ///
    /// A thread that closes a file takes these locks while it still holds the file. So the last
    /// reference, whose release closes the descriptor, never falls to the thread that locks.
    func forEachFile(of classes: ProtectionClassSet, _ body: (OpenFile) -> Void) {
        lock.withLock {
            for node in nodes.values {
                if let file = node.file, classes.contains(file.protectionClass) { body(file) }
            }
            examined.withLock { examined in
                for file in examined.values where classes.contains(file.protectionClass) {
                    body(file)
                }
            }
        }
    }
}

/// Directories that keep their descriptor open, oldest first.
///
/// Each descriptor belongs to one directory and closes when the kernel forgets that directory. The
/// kernel does so soon after a removal. Concurrency: any thread; `lock` guards the list.
final class KeptDirectories: @unchecked Sendable {
    // Sendable: `lock` guards the list.
    private var directories: [WeakDirectory] = []
    private let maximum: Int
    private let lock = Lock(.memory)

    init() {
        var limit = rlimit()
        getrlimit(__rlimit_resource_t(7) /* RLIMIT_NOFILE */, &limit)
        maximum = min(4096, max(16, Int(clamping: limit.rlim_cur) / 8))
    }

    /// Keeps a directory's descriptor, and closes the oldest ones where there are too many.
    func keep(_ descriptor: StoreDescriptor, _ state: DirectoryState) {
        state.setDescriptor(descriptor)
        var recycled: [WeakDirectory] = []
        lock.withLock {
            directories.append(WeakDirectory(state))
            guard directories.count > maximum else { return }
            directories.removeAll { $0.state?.openDescriptor == nil }
            // Recycle a quarter at once, so that the next directories find room without a scan of
            // the list.
            let count = directories.count - maximum * 3 / 4
            if count > 0 {
                recycled = Array(directories[0..<count])
                directories.removeFirst(count)
            }
        }
        for old in recycled { old.state?.setDescriptor(nil) }
    }

    /// Closes all of them. Returns false if there were none.
    func giveUp() -> Bool {
        let all = lock.withLock {
            let all = directories.compactMap(\.state).filter { $0.openDescriptor != nil }
            directories = []
            return all
        }
        for state in all { state.setDescriptor(nil) }
        return !all.isEmpty
    }
}
