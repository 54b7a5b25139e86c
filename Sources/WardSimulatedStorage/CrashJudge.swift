import Glibc
import WardFormat
import WardSystem
import WardVolume

/// Looks at the whole content of a recovered volume and compares it with the model.
struct CrashJudge {
    let model: CrashModel
    let order: DiskKind.Order
    private(set) var problems: [String] = []
    /// The state that was found: a program goes on from it.
    private(set) var found: CrashModel
    private let layout: PageLayout
    private var names: [CrashModel.Key: UInt64] = [:]
    /// A directory or a name was damaged in a way that this kind of disk may cause.
    private(set) var isDamageAllowed = false

    init(_ model: CrashModel, order: DiskKind.Order, layout: PageLayout) {
        self.model = model
        self.order = order
        self.layout = layout
        found = CrashModel(rootClass: model.nodes[CrashModel.root]!.classes.last!)
    }

    /// Judges names, contents, attributes and the events of the volume. Results are in `problems`
    /// and `found`.
    mutating func judge(_ volume: CrashVolume) {
        directory(CrashModel.root, 1, "", volume)
        if let problem = model.problem(withNames: names, order: order) { problems.append(problem) }
        for event in volume.events.problems {
            if isDamageAllowed, event.contains("directory") { continue }
            // A long name whose link did not survive. Only POSIX order allows this, for names that
            // were not synced.
            if order == .posix, event.hasPrefix("foreign: ") {
                isDamageAllowed = true
                continue
            }
            problems.append(event)
        }
        found.step(names.map { ($0.key, $0.value) })
        found.syncAll()
    }

    private mutating func directory(
        _ identity: UInt64, _ node: NodeID, _ path: String, _ volume: CrashVolume
    ) {
        let children: [String]
        do {
            children = try volume.names(in: node)
        } catch {
            if model.mayBeDamaged(identity, order: order) {
                isDamageAllowed = true
            } else {
                problems.append("\(path)/: \(error)")
            }
            return
        }
        common(identity, node, in: identity, path + "/", volume)
        for name in children {
            let path = path + "/" + (name.count > 20 ? String(name.prefix(4)) + "…" : name)
            do {
                let entry = try volume.lookup(name, in: node)
                defer { volume.forget(entry.node) }
                child(name, of: identity, entry, path, volume)
            } catch {
                problems.append("\(path): \(error)")
            }
        }
    }

    private mutating func child(
        _ name: String, of directory: UInt64, _ entry: Entry, _ path: String, _ volume: CrashVolume
    ) {
        guard let identity = volume.disk.identity(ofInode: entry.attributes.inode) else {
            problems.append("\(path): no such inode")
            return
        }
        guard let known = model.nodes[identity] else {
            problems.append("\(path): nobody made it")
            return
        }
        names[CrashModel.Key(directory: directory, name: name)] = identity
        let isNew = found.nodes[identity] == nil
        if isNew {
            found.nodes[identity] = CrashModel.Node(kind: known.kind, classes: [], modes: [])
        }
        let type = mode_t(entry.attributes.mode) & S_IFMT
        switch known.kind {
        case .directory:
            guard type == S_IFDIR else { return problems.append("\(path): not a directory") }
            guard isNew else { return problems.append("\(path): a directory with two names") }
            self.directory(identity, entry.node, path, volume)
        case .link(let target):
            guard type == S_IFLNK else { return problems.append("\(path): not a link") }
            do {
                let bytes = try volume.volume.readLink(entry.node, volume.context)
                if bytes != Array(target.utf8) { problems.append("\(path): another target") }
            } catch {
                problems.append("\(path): \(error)")
            }
        case .file:
            guard type == S_IFREG else { return problems.append("\(path): not a file") }
            guard isNew else { return }
            file(identity, entry, in: directory, path, volume)
        }
    }

    private mutating func file(
        _ identity: UInt64, _ entry: Entry, in directory: UInt64, _ path: String,
        _ volume: CrashVolume
    ) {
        common(identity, entry.node, in: directory, path, volume)
        do {
            let handle = try volume.open(entry.node)
            defer { volume.release(handle) }
            let content = try volume.read(handle)
            found.nodes[identity]!.versions = [content]
            if let problem = model.problem(withContent: content, of: identity, layout: layout) {
                problems.append("\(path): \(problem)")
            }
            if Int(entry.attributes.sizeBytes) != content.count {
                problems.append(
                    "\(path): stat says \(entry.attributes.sizeBytes), read \(content.count)")
            }
        } catch {
            problems.append("\(path): reading: \(error)")
        }
    }

    /// Compares class, mode and attributes of a file or directory.
    private mutating func common(
        _ identity: UInt64, _ node: NodeID, in directory: UInt64, _ path: String,
        _ volume: CrashVolume
    ) {
        guard let known = model.nodes[identity] else { return }
        do {
            let protectionClass = try volume.classOf(node)
            found.nodes[identity]!.classes = [protectionClass]
            if !model.mayBe(protectionClass, identity, in: directory, order: order) {
                problems.append("\(path): of class \(protectionClass), and was \(known.classes)")
            }
            let mode = try volume.attributes(node).mode & 0o7777
            found.nodes[identity]!.modes = [mode]
            if !known.modes.contains(mode), order == .journal || known.isRecordSynced {
                problems.append("\(path): mode \(String(mode, radix: 8))")
            }
            let list = try volume.volume.extendedAttributeNames(of: node, volume.context)
            let names = list.split(separator: 0).map { String(decoding: $0, as: UTF8.self) }
                .filter { $0 != "user.ward.class" }
            for name in Set(names).union(known.attributes.keys).sorted() {
                let value = try volume.attribute(node, name)
                if let value { found.nodes[identity]!.attributes[name] = [value] }
                let allowed = known.attributes[name] ?? [nil]
                if !allowed.contains(value) {
                    problems.append(
                        "\(path): attribute \(name) is \(value.map { "\($0)" } ?? "not there")")
                }
            }
        } catch {
            problems.append("\(path): attributes: \(error)")
        }
    }
}
