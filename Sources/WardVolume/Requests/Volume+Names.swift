import CWardLinux
import Glibc
import WardCrypto
import WardFormat
import WardSystem

// Looking names up, and making them.
extension Volume {
    /// Looks up a name. Each returned entry counts as one look-up for `forget`. Throws `ENOENT` if
    /// there is none.
    public func lookup(
        _ parent: NodeID, _ name: UnsafeRawBufferPointer, _ context: WorkerContext
    ) throws(Errno) -> Entry {
        let parent = node(parent)
        let state = try enter(parent)
        try keys.names.encrypt(name, in: state.id, to: context.nameA)
        return try lookup(parent, stored: context.nameA, context)
    }

    func lookup(
        _ parent: Node, stored: UnsafePointer<CChar>, _ context: WorkerContext
    ) throws(Errno) -> Entry {
        try lookup(parent, stored: stored, in: try backing.directoryDescriptor(of: parent), context)
    }

    private func lookup(
        _ parent: Node, stored: UnsafePointer<CChar>, in directory: StoreDescriptor,
        _ context: WorkerContext
    ) throws(Errno) -> Entry {
        let (node, status) = try retain(parent, stored, directory.rawValue)
        if status.st_nlink > 1, node.isRegular, !node.notes.hasSeveralNames.value {
            node.notes.hasSeveralNames.value = true
        }
        let forgotten = parent.nameSyncs.forgottenEpoch.value
        if forgotten >= durability.namesDurableBefore {
            node.nameSyncs.noteMade()
            if node.isDirectory { node.nameSyncs.forgottenEpoch.value = forgotten }
        }
        do throws(Errno) {
            return Entry(
                node: node.id, generation: node.generation,
                attributes: try attributes(of: node, status, context))
        } catch {
            nodes.table.release(node, lookups: 1)
            throw error
        }
    }

    /// Returns the node of the file with this name, with one more look-up.
    private func retain(
        _ parent: Node, _ stored: UnsafePointer<CChar>, _ directory: Int32
    ) throws(Errno) -> (Node, FileStatus) {
        while true {
            let before = names.changes.quietState
            let status = try storage.fstatat(directory, stored)
            guard status.st_dev == store.device else {
                report(.note("something is mounted inside the backing directory: not shown"))
                throw .noSuchFileOrDirectory
            }
            let node = nodes.table.retain(
                inode: UInt64(status.st_ino), type: status.st_mode & S_IFMT)
            do throws(Errno) {
                try requirePlace(of: node, parent, stored, directory)
            } catch {
                nodes.table.release(node, lookups: 1)
                // The name may have gone meanwhile.
                guard BackingStore.isGone(error), !names.changes.isQuiet(since: before) else {
                    throw error
                }
                continue
            }
            node.addLink(parent, stored)
            // A request that removes the name from here on finds the node.
            if names.changes.isQuiet(since: before) || hasName(node, directory, stored) {
                return (node, status)
            }
            node.removeLink(parent, stored)
            nodes.table.release(node, lookups: 1)
        }
    }

    func hasName(
        _ node: Node, _ directory: Int32, _ stored: UnsafePointer<CChar>
    ) -> Bool {
        (try? storage.fstatat(directory, stored)).map { UInt64($0.st_ino) } == node.inode
    }

    /// Gives back look-ups that the kernel has forgotten.
    public func forget(_ id: NodeID, lookups: UInt64) {
        guard id != 1 else { return }
        let node = node(id)
        if node.nameSyncs.unsynced != nil
            || node.nameSyncs.forgottenEpoch.value >= durability.namesDurableBefore
        {
            // A later fsync of the node must still make these names durable.
            let now = durability.epoch.load(ordering: .acquiring)
            for link in node.allLinks { link.parent.nameSyncs.forgottenEpoch.value = now }
        }
        nodes.table.release(node, lookups: lookups)
    }

    /// Reports damage and returns the `EIO` for the caller.
    func damaged(_ node: Node, _ reason: String) -> Errno {
        report(.integrityFailure(path: path(of: node), reason: reason))
        return .ioError
    }

    /// Makes a file under its stored name, with the link of a long name, and looks it up.
    func make(
        _ parent: NodeID, _ name: UnsafeRawBufferPointer, _ context: WorkerContext,
        isDirectory: Bool = false,
        _ body: (Int32, UnsafePointer<CChar>, DirectoryState) throws(Errno) -> Void
    ) throws(Errno) -> Entry {
        let parent = node(parent)
        let state = try backing.directoryState(of: parent)
        return try backing.withName(name, in: parent, state, to: context.nameA) {
            name throws(Errno) in
            try make(name, context, isDirectory: isDirectory, body)
        }
    }

    private func make(
        _ name: StoredName, _ context: WorkerContext, isDirectory: Bool,
        _ body: (Int32, UnsafePointer<CChar>, DirectoryState) throws(Errno) -> Void
    ) throws(Errno) -> Entry {
        try name.makeLongLink(names)
        do throws(Errno) {
            try body(name.descriptor, name.stored, name.state)
        } catch {
            name.removeLongLink(names)
            throw error
        }
        durability.dirt.noteChange()
        do throws(Errno) {
            let status = try storage.fstatat(name.descriptor, name.stored)
            nodes.table.supersede(inode: UInt64(status.st_ino))
            let entry = try lookup(name.parent, stored: name.stored, in: name.directory, context)
            noteNewName(of: node(entry.node))
            return entry
        } catch {
            takeBack(name.stored, name.parent, name.descriptor, isDirectory: isDirectory)
            name.removeLongLink(names)
            throw error
        }
    }

    /// Notes a name in `directory` that no node knows. A later look-up must learn that the name is
    /// not synced.
    func noteUnknownName(in directory: Node) {
        directory.nameSyncs.forgottenEpoch.value = durability.epoch.load(ordering: .acquiring)
        durability.unsynced.noteName()
    }

    func noteNewName(of node: Node) {
        node.nameSyncs.noteMade()
        durability.unsynced.noteName()
    }
}
