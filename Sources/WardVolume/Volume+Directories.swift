import CWardLinux
import Glibc
import WardFormat
import WardSystem

// Listing directories.
extension Volume {
    public func openDirectory(_ id: NodeID, _ context: WorkerContext) throws(Errno) -> HandleID {
        let node = node(id)
        _ = try directoryDescriptor(of: node)
        return .handle(DirectoryHandle(node: node))
    }

    /// Entries from `offset` on (0: the beginning) until `sink` is full. `lookup`: `readdirplus`.
    public func readDirectory<Sink: DirectorySink>(
        _ handle: HandleID, offset: UInt64, lookup: Bool, into sink: inout Sink,
        _ context: WorkerContext
    ) throws(Errno) {
        let handle = handle.object(as: DirectoryHandle.self)
        handle.lock.lockNow()
        defer { handle.lock.unlock() }
        if offset == 0 || handle.names == nil { handle.names = try names(in: handle.node) }
        let names = handle.names!
        var index = Int(clamping: offset)
        while index < names.count + 2 {
            let next = UInt64(index + 1)
            if index < 2 {
                let name: StaticString = index == 0 ? "." : ".."
                let bytes = UnsafeRawBufferPointer(
                    start: name.utf8Start, count: name.utf8CodeUnitCount)
                let inode =
                    index == 0 ? handle.node.inode : handle.node.link?.parent.inode ?? root.inode
                guard
                    sink.add(
                        name: bytes, inode: inode, type: UInt32(DT_DIR), nextOffset: next,
                        entry: nil)
                else { return }
            } else {
                let name = names[index - 2]
                var entry: Entry?
                if lookup {
                    do throws(Errno) {
                        entry = try self.lookup(handle.node, stored: name.stored, context)
                    } catch {
                        // Gone meanwhile, or damaged: its own look-up will say so.
                    }
                }
                let type = entry.map { ($0.attributes.mode & 0o170000) >> 12 } ?? UInt32(name.type)
                let fits = name.plain.withUnsafeBytes {
                    sink.add(
                        name: $0, inode: name.inode, type: type, nextOffset: next, entry: entry)
                }
                guard fits else {
                    if let entry { forget(entry.node, lookups: 1) }
                    return
                }
            }
            index += 1
        }
    }

    public func releaseDirectory(_ handle: HandleID, _ context: WorkerContext) {
        handle.releaseObject(as: DirectoryHandle.self)
    }

    /// Makes the directory's entries and their records durable, and its own name.
    public func fsyncDirectory(
        _ handle: HandleID, dataOnly: Bool, _ context: WorkerContext
    ) throws(Errno) {
        let node = handle.object(as: DirectoryHandle.self).node
        try storage.fsync(try directoryDescriptor(of: node).rawValue)
        try syncNames(of: node)
    }

    /// All names of a directory, decrypted. Foreign ones are left out and reported once; leftovers of interrupted
    /// operations are swept.
    private func names(in node: Node) throws(Errno) -> [DirectoryHandle.Name] {
        let state = try directoryState(of: node)
        let directory = try directoryDescriptor(of: node)
        var names: [DirectoryHandle.Name] = []
        var leftovers: [[UInt8]] = []
        var longNames: [DirectoryEntry] = []
        try storage.list(directory.rawValue) { entry in
            if entry.name[0] == UInt8(ascii: ".") {
                if entry.name.starts(with: ".ward-".utf8),
                    !entry.name.starts(with: stagingPrefix.utf8),
                    !(node === root && entry.name.starts(with: VolumeRoot.stagingPrefix.utf8))
                {
                    leftovers.append(entry.name)
                } else if !entry.name.elementsEqual(DirectoryRecord.linkName.utf8),
                    !entry.name.starts(with: ".ward-".utf8), !isLongLink(entry)
                {
                    reportForeign(entry.name, node)
                }
                return
            }
            if entry.name[0] == Volume.longNamePrefix {
                longNames.append(entry)
                return
            }
            guard let plain = entry.name.withUnsafeBytes({ decryptName($0, in: state.id) }) else {
                if !(node === root && isRootFile(entry.name)) { reportForeign(entry.name, node) }
                return
            }
            append(plain, entry, to: &names)
        }
        for entry in longNames {
            var stored = entry.name.map { CChar(bitPattern: $0) }
            stored.append(0)
            var target: [UInt8]?
            do throws(Errno) {
                target = try readLongName(directory.rawValue, stored)
            } catch .noSuchFileOrDirectory, .invalidArgument {
                // Its link is gone, or no link.
            }
            guard let target, let plain = target.withUnsafeBytes({ decryptName($0, in: state.id) })
            else {
                reportForeign(entry.name, node)
                continue
            }
            append(plain, entry, to: &names)
        }
        if !isReadOnly { for name in leftovers { sweep(directory.rawValue, name) } }
        return names
    }

    private func append(
        _ plain: [UInt8], _ entry: DirectoryEntry, to names: inout [DirectoryHandle.Name]
    ) {
        guard Volume.isPossibleName(plain) else { return }
        var stored = [CChar]()
        stored.reserveCapacity(entry.name.count + 1)
        for byte in entry.name { stored.append(CChar(bitPattern: byte)) }
        stored.append(0)
        names.append(
            DirectoryHandle.Name(
                plain: plain, stored: stored, inode: entry.inode, type: entry.type))
    }

    /// Nothing that would lead elsewhere (docs/format.md §5): whoever has the volume key could seal it.
    static func isPossibleName(_ name: [UInt8]) -> Bool {
        !name.contains { $0 == 0 || $0 == UInt8(ascii: "/") }
            && !name.elementsEqual(".".utf8) && !name.elementsEqual("..".utf8)
    }

    private func isLongLink(_ entry: DirectoryEntry) -> Bool {
        entry.name.count == 45 && entry.name.starts(with: ".n".utf8)
    }

    private func isRootFile(_ name: [UInt8]) -> Bool {
        let text = String(decoding: name, as: UTF8.self)
        return text == "README" || text.hasPrefix("ward.")
    }

    private func reportForeign(_ name: [UInt8], _ node: Node) {
        registryLock.lockNow()
        let isNew = reportedForeign.count < 1000 && reportedForeign.insert(name).inserted
        registryLock.unlock()
        if isNew {
            report(
                .foreignFile(
                    backingPath: "\(path(of: node)): \(String(decoding: name, as: UTF8.self))"))
        }
    }
}
