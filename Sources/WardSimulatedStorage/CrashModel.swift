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

    private struct Step: Sendable {
        var changes: [(Key, UInt64?)]
        /// False for a step that failed, and for the step that takes it back. It may be on the
        /// disk, but a sync of its names need not commit it.
        var isCertain = true
    }

    static let root: UInt64 = DiskImage.rootIdentity

    var nodes: [UInt64: Node]
    /// The names that programs see.
    var names: [Key: UInt64] = [:]
    /// The names that survive every power cut, and each step since. On a disk with a journal, the
    /// names after a cut are those after one of these steps.
    private var base: [Key: UInt64] = [:]
    private var steps: [Step] = []
    /// The values of each entry since its directory was synced; for disks without a journal.
    private var histories: [Key: [UInt64?]] = [:]

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
        for (key, new) in changes {
            histories[key, default: [names[key]]].append(new)
            names[key] = new
        }
        steps.append(Step(changes: changes))
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
        result.base = before.names
        result.steps = Array(steps.dropFirst(before.steps.count))
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
        for index in steps.indices.dropFirst(before.steps.count) { steps[index].isCertain = false }
    }

    // MARK: Syncing

    /// Makes everything durable. `isOnDisk`: as a real sync, which leaves out the pages that a
    /// failed sync dropped. Otherwise the state that programs see becomes the durable one.
    mutating func syncAll(isOnDisk: Bool = false) {
        base = names
        steps = []
        histories = [:]
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
        var keys = path(upFrom: identity)
        for key in histories.keys where key.directory == identity { keys.insert(key) }
        sync(keys)
        nodes[identity]!.isRecordSynced = true
    }

    /// Makes the class of a file or directory durable.
    mutating func syncClass(_ identity: UInt64) {
        nodes[identity]!.classes.keepLast()
    }

    private mutating func syncNames(of identity: UInt64) { sync(path(upFrom: identity)) }

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

    private mutating func sync(_ keys: Set<Key>) {
        for key in keys { histories[key] = nil }
        guard
            let last = steps.lastIndex(where: { step in
                step.isCertain && step.changes.contains { keys.contains($0.0) }
            })
        else { return }
        for step in steps[...last] { for (key, new) in step.changes { base[key] = new } }
        steps.removeFirst(last + 1)
    }

    // MARK: Judging

    /// Returns a problem where names can't be as they were found.
    func problem(withNames found: [Key: UInt64], order: DiskKind.Order) -> String? {
        switch order {
        case .journal:
            var wrong = Set(base.keys).union(found.keys).filter { base[$0] != found[$0] }
            if wrong.isEmpty { return nil }
            var fewest = wrong
            var now = base
            for step in steps {
                for (key, new) in step.changes {
                    now[key] = new
                    if now[key] == found[key] { wrong.remove(key) } else { wrong.insert(key) }
                }
                if wrong.isEmpty { return nil }
                if wrong.count <= fewest.count { fewest = wrong }
            }
            return "names are as they never were: "
                + fewest.map { key in
                    let name = path(key)
                    return "\(name) is \(found[key].map { "\($0)" } ?? "not there")"
                }.sorted().joined(separator: ", ")
        case .posix:
            for key in Set(names.keys).union(found.keys).union(histories.keys).sorted(by: {
                ($0.directory, $0.name) < ($1.directory, $1.name)
            }) {
                let allowed = histories[key] ?? [names[key]]
                if allowed.contains(found[key]) { continue }
                // Entries of a directory that is gone are gone too.
                let isGone =
                    key.directory != CrashModel.root && !found.values.contains(key.directory)
                if isGone, found[key] == nil { continue }
                return
                    "\(path(key)) is \(found[key].map { "\($0)" } ?? "not there"), and was \(allowed)"
            }
            return nil
        }
    }

    /// Returns a problem where a file can't have the content that was found.
    func problem(withContent found: [UInt8], of identity: UInt64, layout: PageLayout) -> String? {
        let node = nodes[identity]!
        let versions = node.versions
        if versions.last! == found || versions.contains(found) { return nil }
        let smallest = versions.map(\.count).min()!
        guard found.count >= smallest else {
            return "\(found.count) bytes, and never fewer than \(smallest)"
        }
        let pages = layout.pageCount(forSize: found.count)
        for page in 0..<pages {
            let start = layout.start(ofPage: page)
            let length = min(layout.capacity(ofPage: page), found.count - start)
            let isKnown = versions.contains { version in
                let known = max(0, min(layout.capacity(ofPage: page), version.count - start))
                if page == pages - 1, known != length {
                    guard known > length, node.formerSizes.contains(found.count),
                        version[found.count..<(start + known)].allSatisfy({ $0 == 0 })
                    else { return false }
                }
                // A page that was written while the file was shorter, or that was never written,
                // ends in zeros.
                let same = min(known, length)
                return found.withUnsafeBufferPointer { found in
                    version.withUnsafeBufferPointer { version in
                        for index in 0..<same
                        where found[start + index] != version[start + index] {
                            return false
                        }
                        for index in same..<max(same, length) where found[start + index] != 0 {
                            return false
                        }
                        return true
                    }
                }
            }
            guard isKnown else {
                let bytes = found[start..<(start + length)]
                let what = bytes.allSatisfy { $0 == 0 } ? "zeros" : "nothing that was written"
                return "page \(page) of \(pages) (\(length) bytes) is \(what); sizes were "
                    + "\(versions.map(\.count)), found \(found.count)"
            }
        }
        return nil
    }

    /// Whether a file or directory may have this class. Without a journal, a new file's name may
    /// survive while the class that a failed call gave to its directory does not.
    func mayBe(
        _ found: ProtectionClass, _ identity: UInt64, in directory: UInt64, order: DiskKind.Order
    ) -> Bool {
        if nodes[identity]!.classes.contains(found) { return true }
        guard order == .posix, let above = nodes[directory]?.classes else { return false }
        return nodes[identity]!.kind == .file && above.count > 1 && above.contains(found)
    }

    /// Whether this is a directory that a disk without a journal may have damaged. Its removal
    /// changes the record and the name in two directories.
    func mayBeDamaged(_ identity: UInt64, order: DiskKind.Order) -> Bool {
        order == .posix && identity != CrashModel.root && keys(of: identity).isEmpty
    }
}

extension Array {
    fileprivate mutating func keepLast() { removeFirst(Swift.max(0, count - 1)) }
}
