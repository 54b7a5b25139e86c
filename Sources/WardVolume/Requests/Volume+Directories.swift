import CWardLinux
import Glibc
import WardFormat
import WardSystem

// Listing directories.
extension Volume {
    /// Opens a directory for listing. Throws `EIO` if it has no valid record.
    public func openDirectory(_ id: NodeID, _ context: WorkerContext) throws(Errno) -> HandleID {
        let node = node(id)
        _ = try enter(node)
        _ = try backing.directoryDescriptor(of: node)
        return .handle(
            DirectoryHandle(
                node: node, storage: storage,
                ahead: store.traits.readsListingsAhead ? store.ahead : nil))
    }

    /// A listing begins with few look-ups if the stored directory has at least this many bytes:
    /// some two thousand names.
    private static let longListingBytes = 128 << 10
    /// Enough look-ups for the kernel to see whether the program wants more than names.
    private static let firstLookups = 4

    /// Adds entries from `offset` on (0: the beginning) until `sink` is full. `lookup`:
    /// `readdirplus`.
    ///
    /// The kernel asks for look-ups at the beginning of each listing, and later only if the program
    /// uses them (`fuse_use_readdirplus`, fs/fuse/readdir.c). Names come in the order of their
    /// hashes. So the first few hundred files of a long listing lie all over the backing store's
    /// inodes. A program that wants only names would wait while the disk reads those. So the first
    /// reply of a long listing is short.
    public func readDirectory<Sink: DirectorySink>(
        _ handle: HandleID, offset: UInt64, lookup: Bool, into sink: inout Sink,
        _ context: WorkerContext
    ) throws(Errno) {
        let handle = handle.object(as: DirectoryHandle.self)
        let node = handle.node
        try handle.lock.withLock { () throws(Errno) in
            handle.seek(to: offset)
            var lookups = 0
            while let name = try handle.name(
                open: { () throws(Errno) in
                    try storage.openat(
                        try backing.directoryDescriptor(of: node).rawValue, ".",
                        O_RDONLY | O_DIRECTORY,
                        mode: 0)
                },
                convert: { (entries, skipped) throws(Errno) in
                    try names(of: entries, in: node, skipped: &skipped)
                })
            {
                var entry: Entry?
                if lookup, !name.stored.isEmpty {
                    if offset == 0, lookups == Volume.firstLookups,
                        handle.storedBytes >= Volume.longListingBytes
                    {
                        return
                    }
                    lookups += 1
                    do throws(Errno) {
                        entry = try self.lookup(node, stored: name.stored.zeroTerminated, context)
                    } catch {
                        // The name is gone, or its file damaged: its own look-up will tell.
                    }
                }
                let type = entry.map { ($0.attributes.mode & 0o170000) >> 12 } ?? UInt32(name.type)
                let fits = name.plain.withUnsafeBytes {
                    sink.add(
                        name: $0, inode: name.inode, type: type, nextOffset: name.next,
                        entry: entry)
                }
                guard fits else {
                    if let entry { forget(entry.node, lookups: 1) }
                    return
                }
                handle.advance()
            }
        }
    }

    /// Whether the kernel may cache listings of this directory.
    public func keepsListing(of id: NodeID) -> Bool {
        keepsListings && !node(id).notes.hasUnreadableName.value
    }

    /// Releases a handle of `openDirectory`.
    public func releaseDirectory(_ handle: HandleID, _ context: WorkerContext) {
        handle.releaseObject(as: DirectoryHandle.self)
    }

    /// Makes the directory's entries, its record and its own name durable.
    public func fsyncDirectory(
        _ handle: HandleID, dataOnly: Bool, _ context: WorkerContext
    ) throws(Errno) {
        let node = handle.object(as: DirectoryHandle.self).node
        store.removedFiles.noteSync()
        try storage.fsync(try backing.directoryDescriptor(of: node).rawValue)
        try syncNames(of: node)
    }

    /// Decrypts the names of stored entries. Leaves foreign names out and reports each once; sweeps
    /// leftovers of interrupted operations. `skipped`: why a long name could not be read. The
    /// listing lacks only that name.
    private func names(
        of entries: [(entry: DirectoryEntry, next: UInt64)], in node: Node,
        skipped: inout Errno?
    ) throws(Errno) -> [DirectoryHandle.Name] {
        let state = try backing.directoryState(of: node)
        var names: [DirectoryHandle.Name] = []
        names.reserveCapacity(entries.count)
        for (entry, next) in entries {
            guard let plain = try plainName(of: entry, in: node, state, skipped: &skipped) else {
                continue
            }
            // "." and ".." have no stored form: nothing is looked up for them.
            let isOwn = entry.name.first == UInt8(ascii: ".")
            var name = DirectoryHandle.Name(
                plain: plain, stored: [], inode: entry.inode, type: entry.type, next: next)
            if isOwn {
                name.inode = plain.count == 1 ? node.inode : (node.link?.parent ?? root).inode
            } else {
                name.stored = entry.name
            }
            names.append(name)
        }
        return names
    }

    /// Returns the plaintext name of `entry`; nil if a listing does not show it.
    private func plainName(
        of entry: DirectoryEntry, in node: Node, _ state: DirectoryState, skipped: inout Errno?
    ) throws(Errno) -> [UInt8]? {
        if entry.name.first == UInt8(ascii: ".") {
            if entry.name.count == 1 || entry.name.elementsEqual("..".utf8) { return entry.name }
            if entry.name.starts(with: ".ward-".utf8) {
                if !isReadOnly, !entry.name.starts(with: store.staging.prefix.utf8),
                    !(node === root && entry.name.starts(with: VolumeRoot.stagingPrefix.utf8))
                {
                    sweep(try backing.directoryDescriptor(of: node).rawValue, entry.name)
                }
            } else if !keys.ownNames.isRecord(entry.name), !keys.ownNames.isCompanion(entry.name) {
                reportForeign(entry.name, node)
            }
            return nil
        }
        var stored = entry.name
        if entry.name.first == NameCipher.longNamePrefix {
            let directory = try backing.directoryDescriptor(of: node)
            do throws(Errno) {
                stored =
                    try names.readLongName(
                        directory.rawValue, entry.name.zeroTerminated) ?? []
            } catch .noSuchFileOrDirectory, .invalidArgument {
                // The link is gone, or no link.
                stored = []
            } catch {
                skipped = error
                node.notes.hasUnreadableName.value = true
                return nil
            }
        }
        guard let plain = stored.withUnsafeBytes({ keys.names.decrypt($0, in: state.id) }) else {
            if !(node === root && isRootFile(entry.name)) { reportForeign(entry.name, node) }
            return nil
        }
        return Volume.isPossibleName(plain) ? plain : nil
    }

    /// Whether a name stays inside its directory (docs/format.md §5). An attacker with the volume
    /// key could seal a name that leads elsewhere.
    static func isPossibleName(_ name: [UInt8]) -> Bool {
        !name.contains { $0 == 0 || $0 == UInt8(ascii: "/") }
            && !name.elementsEqual(".".utf8) && !name.elementsEqual("..".utf8)
    }

    private func isRootFile(_ name: [UInt8]) -> Bool {
        let text = String(decoding: name, as: UTF8.self)
        return text == "README" || text.hasPrefix("ward.")
    }

    private func reportForeign(_ name: [UInt8], _ node: Node) {
        if reporter.isNew(foreign: name) {
            report(
                .foreignFile(
                    backingPath: "\(path(of: node)): \(String(decoding: name, as: UTF8.self))"))
        }
    }
}
