import WardFormat
import WardKeys
import WardSystem
import WardVolume

// The kernel's knowledge of the volume (nodes, handles), and the choice of operands.
extension CrashRun {
    func node(_ identity: UInt64) throws -> NodeID {
        if identity == CrashModel.root { return 1 }
        let keys = model.keys(of: identity)
        // For a file with several names the kernel looks up the name that the request uses.
        if let found = kernel.nodes[identity], keys.isEmpty || keys.contains(found.key) {
            return found.node
        }
        let key = keys[0]
        let entry = try volume.lookup(key.name, in: try node(key.directory))
        remember(identity, entry, key)
        return entry.node
    }

    func remember(_ identity: UInt64, _ entry: Entry, _ key: CrashModel.Key) {
        if let old = kernel.nodes[identity] {
            if old.node == entry.node {
                kernel.nodes[identity]!.lookups += 1
                kernel.nodes[identity]!.key = key
                return
            }
            volume.forget(old.node, old.lookups)
        }
        kernel.nodes[identity] = (entry.node, 1, key)
    }

    func identity(_ entry: Entry) throws -> UInt64 {
        guard let found = volume.disk.identity(ofInode: entry.attributes.inode) else {
            throw Errno.staleNFSFileHandle
        }
        return found
    }

    func name(in directory: UInt64, _ kind: String) -> String {
        let number = random.below(4)
        if kind == "f", random.chance(1, in: 6) {
            return String(repeating: "long", count: 50) + "\(number)"
        }
        return "\(kind)\(number)"
    }

    func vacantName(_ kind: String) -> CrashModel.Key? {
        let directory = random.pick(model.directories)
        let name = name(in: directory, kind)
        let key = CrashModel.Key(directory: directory, name: name)
        return model.names[key] == nil ? key : nil
    }

    func isOpenClass(_ identity: UInt64) -> Bool {
        let found = model.nodes[identity]!.classes.last!
        return !isLocked || (found != .complete && found != .completeUnlessOpen)
    }

    func pickFile() throws -> UInt64? {
        let files = model.all { $0.kind == .file }.filter { isOpenClass($0) }
        guard !files.isEmpty else { return nil }
        let file = random.pick(files)
        // The content of a file with lost pages is known only once it is open.
        if model.nodes[file]!.hasLostPages { _ = try handle(file) }
        return file
    }

    func handle(_ identity: UInt64) throws -> HandleID {
        if let found = kernel.handles.first(where: { $0.identity == identity }) {
            return found.handle
        }
        let handle = try volume.open(try node(identity))
        kernel.handles.append((identity, handle))
        if model.nodes[identity]!.hasLostPages { noteLost(opened: identity) }
        while kernel.handles.count > 5 { volume.release(kernel.handles.removeFirst().handle) }
        return handle
    }

    // MARK: Each operation: first what the model will be, then the request

    func classOfNewFile(_ key: CrashModel.Key) -> ProtectionClass {
        model.nodes[key.directory]!.classes.last!
    }

    /// Forgets a node whose last name is gone, as the kernel does.
    func dropIfGone(_ identity: UInt64) {
        guard model.keys(of: identity).isEmpty else { return }
        if random.chance(1, in: 2) { closeHandles(of: identity) }
        if !kernel.handles.contains(where: { $0.identity == identity }),
            let gone = kernel.nodes.removeValue(forKey: identity)
        {
            volume.forget(gone.node, gone.lookups)
        }
    }

    func forgetAll() {
        for identity in kernel.nodes.keys.sorted(by: >) {
            let gone = kernel.nodes.removeValue(forKey: identity)!
            volume.forget(gone.node, gone.lookups)
        }
    }

    func closeHandles(of identity: UInt64) {
        for (_, handle) in kernel.handles.filter({ $0.identity == identity }) {
            volume.release(handle)
        }
        kernel.handles.removeAll { $0.identity == identity }
    }

    func pickFileOrDirectory() throws -> UInt64? {
        random.chance(1, in: 4) ? random.pick(model.directories) : try pickFile()
    }

    /// Closes files and forgets nodes, as the kernel does when it needs memory.
    func closeOrForget() {
        label = "close, forget"
        if !kernel.handles.isEmpty, random.chance(1, in: 2) {
            let (identity, handle) = kernel.handles.remove(at: random.below(kernel.handles.count))
            volume.release(handle)
            dropIfGone(identity)
            return
        }
        // The kernel forgets leaves first, and never open files.
        for identity in kernel.nodes.keys.sorted(by: >) where random.chance(1, in: 2) {
            if kernel.handles.contains(where: { $0.identity == identity }) { continue }
            if model.children(of: identity).contains(where: { kernel.nodes[$0.identity] != nil }) {
                continue
            }
            let gone = kernel.nodes.removeValue(forKey: identity)!
            volume.forget(gone.node, gone.lookups)
        }
    }
}
