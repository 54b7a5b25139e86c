import WardFormat

/// The expected content of a volume, the part that must survive a power cut, and the other states
/// that a cut may leave.
///
/// A value: a copy is taken at every crash point. Nodes are keyed by the identity of their inode on
/// the simulated disk.
struct CrashModel: Sendable {
    struct Key: Hashable, Sendable {
        var directory: UInt64
        var name: String
    }

    enum Kind: Equatable, Sendable {
        case file, directory
        case link(String)
    }

    struct Node: Sendable {
        var kind: Kind
        /// Contents since the last sync, the synced one first. Each page of the file comes from one
        /// of them.
        var versions: [[UInt8]] = [[]]
        /// Sizes in bytes before earlier power cuts. A power cut that undid a truncation can leave
        /// the end mark inside the file, with zeros behind it. Until that is mended, another cut
        /// may end the file there.
        var formerSizes: Set<Int> = []
        var classes: [ProtectionClass]
        var modes: [UInt32]
        var attributes: [String: [[UInt8]?]] = [:]
        /// The node, or the directory around it, was synced since it was made. Before that, POSIX
        /// alone promises neither its attributes nor a directory's record.
        var isRecordSynced = false
        /// A sync failed and dropped pages that were not written again. Later syncs then make
        /// neither the content nor the class durable: the class is in the first page.
        var hasLostPages = false
        /// A call that changed the node failed. Until the node is synced, another error may bring
        /// the earlier state back.
        var isHalfChanged = false

        var content: [UInt8] { versions.last! }
    }

    static let root: UInt64 = DiskImage.rootIdentity

    var nodes: [UInt64: Node]
    /// The names that programs see.
    var names: [Key: UInt64] = [:]
    /// The other names that a power cut may leave.
    private var history = NameHistory()

    init(rootClass: ProtectionClass) {
        nodes = [
            CrashModel.root: Node(
                kind: .directory, classes: [rootClass], modes: [0o755], isRecordSynced: true)
        ]
    }

    // MARK: Looking

    func children(of directory: UInt64) -> [(name: String, identity: UInt64)] {
        names.filter { $0.key.directory == directory }.map { ($0.key.name, $0.value) }
            .sorted { $0.0 < $1.0 }
    }

    func keys(of identity: UInt64) -> [Key] {
        names.filter { $0.value == identity }.keys.sorted {
            ($0.directory, $0.name) < ($1.directory, $1.name)
        }
    }

    func all(_ isMeant: (Node) -> Bool) -> [UInt64] {
        let named = Set(names.values)
        return nodes.filter { (named.contains($0.key)) && isMeant($0.value) }.keys.sorted()
    }

    var directories: [UInt64] { [CrashModel.root] + all { $0.kind == .directory } }

    func isInside(_ inner: UInt64, _ outer: UInt64) -> Bool {
        var current = inner
        while true {
            if current == outer { return true }
            guard let key = keys(of: current).first else { return false }
            current = key.directory
        }
    }

    func path(_ key: Key) -> String {
        let parent = keys(of: key.directory).first.map { path($0) } ?? ""
        return parent + "/" + (key.name.count > 20 ? String(key.name.prefix(4)) + "…" : key.name)
    }

    func path(of identity: UInt64) -> String { keys(of: identity).first.map { path($0) } ?? "/" }

    // MARK: Changing

    mutating func step(_ changes: [(Key, UInt64?)]) {
        history.add(changes, to: names)
        for (key, new) in changes { names[key] = new }
    }

    mutating func write(_ identity: UInt64, _ content: [UInt8]) {
        nodes[identity]!.versions.append(content)
    }

    // MARK: After an error

    /// The model with only its present state allowed.
    var settled: CrashModel {
        var result = self
        result.syncAll()
        return result
    }

    /// The states that a failed operation may leave: anything between the model before it and the
    /// model after it.
    func between(_ before: CrashModel) -> CrashModel {
        var result = self
        let known = Set(before.names.values).union([CrashModel.root])
        for (identity, old) in before.nodes where known.contains(identity) {
            guard var node = nodes[identity] else { continue }
            node.versions.removeFirst(old.versions.count - 1)
            node.classes.removeFirst(Swift.max(0, old.classes.count - 1))
            node.modes.removeFirst(Swift.max(0, old.modes.count - 1))
            for (name, history) in node.attributes {
                let before = old.attributes[name]?.count ?? 1
                node.attributes[name] = Array(history.dropFirst(before - 1))
            }
            result.nodes[identity] = node
        }
        result.history.begin(with: before.names, after: before.history)
        return result
    }

    /// Also allows, for nodes that lost pages, every state since their last sync. A failed sync of
    /// the whole store drops pages of other files too. A program that opens such a file reads the
    /// state on the disk (decision 0054).
    func orUnsynced(_ model: CrashModel, where hasLost: (UInt64) -> Bool) -> CrashModel {
        var result = self
        for (identity, node) in model.nodes
        where result.nodes[identity] != nil && (hasLost(identity) || node.isHalfChanged) {
            result.nodes[identity]!.versions = node.versions
            result.nodes[identity]!.classes = node.classes
            // An attribute is lost with the header that it is bound to.
            if hasLost(identity) { result.nodes[identity]!.attributes = node.attributes }
        }
        return result
    }

    /// Remembers the sizes that files had before the power cut that left this state.
    mutating func noteSizes(before model: CrashModel) {
        for (identity, old) in model.nodes where nodes[identity] != nil {
            nodes[identity]!.formerSizes = old.formerSizes.union(old.versions.map(\.count))
        }
    }

    /// Takes over the state that was found. The failed operation may still be on the disk.
    mutating func adopt(_ found: CrashModel, after before: CrashModel) {
        for (identity, state) in found.nodes {
            guard nodes[identity] != nil else { continue }
            let old = before.nodes[identity]?.versions.count ?? 1
            if nodes[identity]!.versions.count > old { nodes[identity]!.isHalfChanged = true }
            if state.kind == .file, nodes[identity]!.content != state.content {
                nodes[identity]!.versions.append(state.content)
            }
            if let now = state.classes.last, nodes[identity]!.classes.last != now {
                nodes[identity]!.classes.append(now)
            }
            if let now = state.modes.last, nodes[identity]!.modes.last != now {
                nodes[identity]!.modes.append(now)
            }
            for (name, history) in nodes[identity]!.attributes {
                let now = state.attributes[name]?.last ?? nil
                if history.last! != now { nodes[identity]!.attributes[name]!.append(now) }
            }
        }
        let keys = Set(names.keys).union(found.names.keys).filter { names[$0] != found.names[$0] }
        guard !keys.isEmpty else { return }
        step(keys.map { ($0, found.names[$0]) })
        history.doubtSteps(after: before.history)
    }

    // MARK: Syncing

    /// Makes everything durable. `isOnDisk`: as a real sync, which leaves out the pages that a
    /// failed sync dropped. Otherwise the state that programs see becomes the durable one.
    mutating func syncAll(isOnDisk: Bool = false) {
        history = NameHistory(durable: names)
        for identity in nodes.keys {
            if !isOnDisk || !nodes[identity]!.hasLostPages { syncContent(identity) }
            syncAttributes(identity)
            nodes[identity]!.isRecordSynced = true
        }
    }

    mutating func syncClasses() {
        for identity in nodes.keys where !nodes[identity]!.hasLostPages { syncClass(identity) }
    }

    private mutating func syncContent(_ identity: UInt64) {
        nodes[identity]!.versions = [nodes[identity]!.content]
        nodes[identity]!.isHalfChanged = false
        syncClass(identity)
    }

    private mutating func syncAttributes(_ identity: UInt64) {
        nodes[identity]!.modes.keepLast()
        // An attribute is lost with the header that it is bound to.
        if nodes[identity]!.hasLostPages { return }
        for (name, history) in nodes[identity]!.attributes {
            nodes[identity]!.attributes[name] = [history.last!]
        }
    }

    mutating func sync(_ identity: UInt64, dataOnly: Bool) {
        if !nodes[identity]!.hasLostPages { syncContent(identity) }
        if !dataOnly {
            syncAttributes(identity)
            nodes[identity]!.isRecordSynced = true
        }
        syncNames(of: identity)
    }

    mutating func syncDirectory(_ identity: UInt64) {
        syncClass(identity)
        syncAttributes(identity)
        history.sync(path(upFrom: identity).union(history.changedKeys(in: identity)))
        nodes[identity]!.isRecordSynced = true
    }

    /// Makes the class of a file or directory durable.
    mutating func syncClass(_ identity: UInt64) {
        nodes[identity]!.classes.keepLast()
    }

    private mutating func syncNames(of identity: UInt64) {
        history.sync(path(upFrom: identity))
    }

    /// All names of a node and of the directories above it.
    private mutating func path(upFrom identity: UInt64) -> Set<Key> {
        var found: Set<Key> = []
        var waiting = [identity]
        while let next = waiting.popLast() {
            if nodes[next]?.kind == .directory { nodes[next]!.isRecordSynced = true }
            for key in keys(of: next) where found.insert(key).inserted {
                waiting.append(key.directory)
            }
        }
        return found
    }

    // MARK: Judging

    /// Returns a problem where names can't be as they were found.
    func problem(withNames found: [Key: UInt64], order: DiskKind.Order) -> String? {
        switch order {
        case .journal: history.problemWithSteps(found, path: path)
        case .posix: history.problemWithEntries(found, names: names, path: path)
        }
    }
}

extension Array {
    fileprivate mutating func keepLast() { removeFirst(Swift.max(0, count - 1)) }
}
