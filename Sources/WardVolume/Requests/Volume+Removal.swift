import Glibc
import WardFormat
import WardSystem

// Removing names of files and directories.
extension Volume {
    /// Removes the name of a file, unlink(2).
    public func unlink(
        _ parent: NodeID, _ name: UnsafeRawBufferPointer, caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) {
        let parent = node(parent)
        let state = try backing.directoryState(of: parent)
        try backing.withName(name, in: parent, state, to: context.nameA) { name throws(Errno) in
            try unlink(name, caller, context)
        }
    }

    private func unlink(
        _ name: StoredName, _ caller: Caller, _ context: WorkerContext
    ) throws(Errno) {
        names.changes.begin()
        defer { names.changes.end() }
        let status = try storage.fstatat(name.descriptor, name.stored)
        let leaving = openWithPlaces(status, name, context)
        defer { if let leaving { closeWithPlaces(leaving, context) } }
        let victim = nodes.table.find(inode: UInt64(status.st_ino))
        let unread = unreadableNow(status, name.parent, name.stored, context)
        noteLeaving(status, context)
        defer { durability.unsynced.movedFiles.end(by: context) }
        let held = store.removedFiles.hold(status, name.descriptor, name.stored)
        defer { store.removedFiles.giveBack(held) }
        let companions = companions(status, name)
        try storage.unlinkat(name.descriptor, name.stored, 0)
        if let leaving {
            leaving.withWriteAccess { _ in forgetPlace(of: leaving, in: name.state.id) }
        }
        if let unread { report(unread.removed(by: .unlink, caller)) }
        noteRemoved(victim, status, name.parent, name.stored, name.descriptor)
        name.removeLongLink(names)
        if let companions { remove(companions, of: name.descriptor) }
        durability.dirt.noteChange()
    }

    /// Opens a file that is about to lose one of several names, if it has a list of places, for
    /// `closeWithPlaces`. Nil also where it does not open: the list then stays longer, which harms
    /// nothing.
    private func openWithPlaces(
        _ status: FileStatus, _ name: StoredName, _ context: WorkerContext
    ) -> OpenFile? {
        let nothing = UnsafeMutableRawBufferPointer(start: nil, count: 0)
        guard bindsPlaces, status.st_nlink > 1, status.st_mode & S_IFMT == S_IFREG,
            (try? storage.getxattrat(
                name.descriptor, name.stored, FilePlaces.attributeName, nothing)) != nil
        else { return nil }
        let node = nodes.table.retain(inode: UInt64(status.st_ino), type: S_IFREG)
        node.addLink(name.parent, name.stored)
        guard let file = try? acquire(node, context).file else {
            nodes.table.release(node, lookups: 1)
            return nil
        }
        return file
    }

    private func closeWithPlaces(_ file: OpenFile, _ context: WorkerContext) {
        let node = file.node
        // With one name left, the header may name its directory.
        durability.moved.note(node) { nodes.table.retain($0) }
        release(file, context)
        nodes.table.release(node, lookups: 1)
    }

    /// Notes that one of several names of a file is about to go. After a power cut the name may be
    /// back, in a directory of another class. The caller ends with `movedFiles.end`.
    func noteLeaving(_ status: FileStatus, _ context: WorkerContext) {
        guard !store.traits.keepsOrder, status.st_nlink > 1, status.st_mode & S_IFMT == S_IFREG
        else { return }
        durability.unsynced.movedFiles.note(UInt64(status.st_ino), by: context)
    }

    /// Notes that a name of the inode is gone. `known` was found before that. Afterwards another
    /// thread may give the inode's number to a new file at once, and the new file's node must stay
    /// in the table.
    func noteRemoved(
        _ known: Node?, _ status: FileStatus, _ parent: Node, _ stored: UnsafePointer<CChar>,
        _ directory: Int32? = nil
    ) {
        if status.st_mode & S_IFMT == S_IFDIR {
            store.ahead.forget(directory: UInt64(status.st_ino))
        }
        var node = known
        if node == nil, let directory, let found = nodes.table.find(inode: UInt64(status.st_ino)),
            !hasName(found, directory, stored)
        {
            // A look-up made the node meanwhile.
            node = found
        }
        let isLast = status.st_nlink <= 1 || status.st_mode & S_IFMT == S_IFDIR
        if isLast, node?.file == nil { seals.notes.forget(inode: UInt64(status.st_ino)) }
        guard let node else { return }
        if isLast, node.isDirectory {
            for waiting in [backing.changed, backing.unsealed] {
                waiting.drop(node) { nodes.table.release($0, lookups: 1) }
            }
        }
        if node.removeLink(parent, stored) {
            names.movedNodes.drop(node) { nodes.table.release($0, lookups: 1) }
            if bindsPlaces { durability.moved.drop(node) { nodes.table.release($0, lookups: 1) } }
        }
        // Without a name (and without a descriptor of ours) the inode's number may return as
        // another file.
        if isLast { nodes.table.detach(node) }
    }

    /// Removes an empty directory, rmdir(2). Throws `ENOTEMPTY` otherwise.
    public func removeDirectory(
        _ parent: NodeID, _ name: UnsafeRawBufferPointer, _ context: WorkerContext
    ) throws(Errno) {
        let parent = node(parent)
        let state = try backing.directoryState(of: parent)
        try backing.withName(name, in: parent, state, to: context.nameA) { name throws(Errno) in
            try removeDirectory(name)
        }
    }

    private func removeDirectory(_ name: StoredName) throws(Errno) {
        names.changes.begin()
        defer { names.changes.end() }
        let status = try storage.fstatat(name.descriptor, name.stored)
        guard status.st_mode & S_IFMT == S_IFDIR else { throw .notDirectory }
        let removed = nodes.table.find(inode: UInt64(status.st_ino))
        let victim = try openVictim(name.descriptor, name.stored)
        try requireEmpty(victim.rawValue)
        keepReachable(removed, victim, in: name.state)
        // Rename it to a hidden name first: a directory is never seen without its record.
        let hidden = store.staging.next()
        do throws(Errno) {
            try storage.renameat(name.descriptor, name.stored, name.descriptor, hidden, flags: 0)
        } catch {
            removed?.kept = nil
            throw error
        }
        noteRemoved(removed, status, name.parent, name.stored, name.descriptor)
        name.removeLongLink(names)
        removeHidden(name.descriptor, hidden, victim.rawValue)
        durability.dirt.noteChange()
    }

    /// Opens a directory that is about to be removed or replaced.
    func openVictim(
        _ directory: Int32, _ name: UnsafePointer<CChar>
    ) throws(Errno) -> StoreDescriptor {
        StoreDescriptor(
            try storage.openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, mode: 0),
            storage)
    }

    /// Keeps an empty directory reachable that is about to lose its name, until the kernel forgets
    /// it. Programs may have it open or be in it. The `node` is nil if the kernel does not know it;
    /// `parent` has the name.
    func keepReachable(_ node: Node?, _ victim: StoreDescriptor, in parent: DirectoryState) {
        guard let node, node.isDirectory else { return }
        // Its attributes are bound to the ID in its record, and the record goes with the name.
        if node.directory == nil,
            let record = try? backing.record(in: victim.rawValue, parentID: parent.id).get()
        {
            _ = node.adopt(DirectoryState(record: record, seals))
        }
        node.kept = KeptDescriptor(victim, in: parent)
    }

    func withOpenDirectory(
        _ directory: Int32, _ name: UnsafePointer<CChar>, _ body: (Int32) throws(Errno) -> Void
    ) throws(Errno) {
        let descriptor = try storage.openat(
            directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, mode: 0)
        defer { storage.close(descriptor) }
        try body(descriptor)
    }

    /// Throws `ENOTEMPTY` if the directory holds more than the volume's own leftovers. Sweeps
    /// those.
    func requireEmpty(_ descriptor: Int32) throws(Errno) {
        var leftovers: [[UInt8]] = []
        var isEmpty = true
        try storage.list(descriptor) { entry in
            if keys.ownNames.isRecord(entry.name) { return }
            if keys.ownNames.isCompanion(entry.name) || entry.name.starts(with: ".n".utf8)
                || entry.name.starts(with: ".ward-".utf8)
            {
                leftovers.append(entry.name)
            } else {
                isEmpty = false
            }
        }
        guard isEmpty else { throw .directoryNotEmpty }
        for name in leftovers { sweep(descriptor, name) }
    }

    /// Removes what an interrupted operation left.
    package func sweep(_ directory: Int32, _ name: [UInt8]) {
        let stored = name.zeroTerminated
        guard (try? storage.unlinkat(directory, stored, 0)) == nil else { return }
        do throws(Errno) {
            try withOpenDirectory(directory, stored) { descriptor throws(Errno) in
                var isEmpty = true
                try storage.list(descriptor) { entry in
                    if !keys.ownNames.isRecord(entry.name) { isEmpty = false }
                }
                if isEmpty {
                    removeHidden(directory, String(decoding: name, as: UTF8.self), descriptor)
                }
            }
        } catch {
            // Without a free descriptor, an empty directory that has no record yet can still go.
            try? storage.unlinkat(directory, stored, AT_REMOVEDIR)
        }
    }

    func removeHidden(_ directory: Int32, _ hidden: String, _ victim: Int32) {
        do throws(Errno) {
            if bindsPlaces { try? storage.unlinkat(victim, DirectoryRecord.nextLinkName, 0) }
            try storage.unlinkat(victim, DirectoryRecord.linkName, 0)
            try storage.unlinkat(directory, hidden, AT_REMOVEDIR)
        } catch {
            // The directory has left the tree; the next listing sweeps it.
            report(.note("a removed directory could not be cleaned up: \(error)"))
        }
    }
}
