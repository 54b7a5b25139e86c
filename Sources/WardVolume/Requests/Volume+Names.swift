import CWardLinux
import Glibc
import WardCrypto
import WardFormat
import WardSystem

// Looking up, moving, linking and removing names.
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
        if status.st_nlink > 1, node.isRegular { node.notes.hasSeveralNames.value = true }
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
            node.addLink(parent, stored)
            // A request that removes the name from here on finds the node.
            if names.changes.isQuiet(since: before) || hasName(node, directory, stored) {
                return (node, status)
            }
            node.removeLink(parent, stored)
            nodes.table.release(node, lookups: 1)
        }
    }

    private func hasName(
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

    // MARK: Removing

    /// Removes the name of a file, unlink(2).
    public func unlink(
        _ parent: NodeID, _ name: UnsafeRawBufferPointer, caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) {
        let parent = node(parent)
        let state = try backing.directoryState(of: parent)
        let isLong = try keys.names.encrypt(name, in: state.id, to: context.nameA)
        if isLong { names.longNames.beginReading() }
        defer { if isLong { names.longNames.endReading() } }
        let directory = try backing.directoryDescriptor(of: parent)
        names.changes.begin()
        defer { names.changes.end() }
        let status = try storage.fstatat(directory.rawValue, context.nameA)
        let victim = nodes.table.find(inode: UInt64(status.st_ino))
        let unread = unreadableNow(status, parent, context.nameA, context)
        noteLeaving(status, context)
        defer { durability.unsynced.movedFiles.end(by: context) }
        let held = store.removedFiles.hold(status, directory.rawValue, context.nameA)
        defer { store.removedFiles.giveBack(held) }
        let target = longTarget(status, directory.rawValue, context.nameA)
        try storage.unlinkat(directory.rawValue, context.nameA, 0)
        if let unread { report(unread.removed(by: .unlink, caller)) }
        noteRemoved(victim, status, parent, context.nameA, directory.rawValue)
        if isLong { names.removeLongLink(directory.rawValue, context.nameA) }
        if let target { removeLongTarget(target, after: directory.rawValue) }
        durability.dirt.noteChange()
    }

    /// Notes that one of several names of a file is about to go. After a power cut the name may be
    /// back, in a directory of another class. The caller ends with `movedFiles.end`.
    private func noteLeaving(_ status: FileStatus, _ context: WorkerContext) {
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
        guard let node else { return }
        if node.removeLink(parent, stored) {
            names.movedNodes.drop(node) { nodes.table.release($0, lookups: 1) }
        }
        // Without a name (and without a descriptor of ours) the inode's number may return as
        // another file.
        if status.st_nlink <= 1 || status.st_mode & S_IFMT == S_IFDIR { nodes.table.detach(node) }
    }

    /// Removes an empty directory, rmdir(2). Throws `ENOTEMPTY` otherwise.
    public func removeDirectory(
        _ parent: NodeID, _ name: UnsafeRawBufferPointer, _ context: WorkerContext
    ) throws(Errno) {
        let parent = node(parent)
        let state = try backing.directoryState(of: parent)
        let isLong = try keys.names.encrypt(name, in: state.id, to: context.nameA)
        if isLong { names.longNames.beginReading() }
        defer { if isLong { names.longNames.endReading() } }
        let directory = try backing.directoryDescriptor(of: parent)
        names.changes.begin()
        defer { names.changes.end() }
        let status = try storage.fstatat(directory.rawValue, context.nameA)
        guard status.st_mode & S_IFMT == S_IFDIR else { throw .notDirectory }
        let removed = nodes.table.find(inode: UInt64(status.st_ino))
        let victim = try openVictim(directory.rawValue, context.nameA)
        try requireEmpty(victim.rawValue)
        keepReachable(removed, victim, in: state)
        // Rename it to a hidden name first: a directory is never seen without its record.
        let hidden = store.staging.next()
        do throws(Errno) {
            try storage.renameat(
                directory.rawValue, context.nameA, directory.rawValue, hidden, flags: 0)
        } catch {
            removed?.kept = nil
            throw error
        }
        noteRemoved(removed, status, parent, context.nameA, directory.rawValue)
        if isLong { names.removeLongLink(directory.rawValue, context.nameA) }
        removeHidden(directory.rawValue, hidden, victim.rawValue)
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
        if node.directory == nil, let record = try? backing.readRecord(victim.rawValue, node) {
            _ = node.adopt(DirectoryState(record: record))
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
            if entry.name.elementsEqual(DirectoryRecord.linkName.utf8) { return }
            if entry.name.starts(with: ".n".utf8) || entry.name.starts(with: ".ward-".utf8) {
                leftovers.append(entry.name)
            } else {
                isEmpty = false
            }
        }
        guard isEmpty else { throw .directoryNotEmpty }
        for name in leftovers { sweep(descriptor, name) }
    }

    /// Removes what an interrupted operation left.
    func sweep(_ directory: Int32, _ name: [UInt8]) {
        let stored = name.zeroTerminated
        guard (try? storage.unlinkat(directory, stored, 0)) == nil else { return }
        do throws(Errno) {
            try withOpenDirectory(directory, stored) { descriptor throws(Errno) in
                var isEmpty = true
                try storage.list(descriptor) { entry in
                    if !entry.name.elementsEqual(DirectoryRecord.linkName.utf8) { isEmpty = false }
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
            try storage.unlinkat(victim, DirectoryRecord.linkName, 0)
            try storage.unlinkat(directory, hidden, AT_REMOVEDIR)
        } catch {
            // The directory has left the tree; the next listing sweeps it.
            report(.note("a removed directory could not be cleaned up: \(error)"))
        }
    }

    // MARK: Moving

    /// Renames a file or directory. `flags`: 0, `RENAME_NOREPLACE` or `RENAME_EXCHANGE`;
    /// `RENAME_WHITEOUT` alone or with the first (rename(2)). A whiteout is a character device 0/0
    /// under the old name, which overlayfs takes for a removed file. Throws `EINVAL` if the backing
    /// store has no such rename.
    public func rename(
        _ oldParent: NodeID, _ oldName: UnsafeRawBufferPointer, _ newParent: NodeID,
        _ newName: UnsafeRawBufferPointer, flags: UInt32, caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) {
        let exchange = flags & renameExchange != 0
        let leavesWhiteout = flags & renameWhiteout != 0
        guard [0, renameNoReplace, renameExchange].contains(flags & ~renameWhiteout),
            !(exchange && leavesWhiteout)
        else { throw .invalidArgument }
        let from = node(oldParent)
        let to = node(newParent)
        let fromState = try backing.directoryState(of: from)
        let toState = try backing.directoryState(of: to)
        let oldIsLong = try keys.names.encrypt(oldName, in: fromState.id, to: context.nameA)
        let newIsLong = try keys.names.encrypt(newName, in: toState.id, to: context.nameB)
        if oldIsLong || newIsLong { names.longNames.beginReading() }
        defer { if oldIsLong || newIsLong { names.longNames.endReading() } }
        let fromDirectory = try backing.directoryDescriptor(of: from)
        let toDirectory = try backing.directoryDescriptor(of: to)
        let old = context.nameA
        let new = context.nameB

        names.changes.begin()
        defer { names.changes.end() }
        let moved = try storage.fstatat(fromDirectory.rawValue, old)
        var replaced: FileStatus?
        do throws(Errno) {
            replaced = try storage.fstatat(toDirectory.rawValue, new)
        } catch .noSuchFileOrDirectory {
            if exchange { throw .noSuchFileOrDirectory }
        }
        if replaced != nil, flags & renameNoReplace != 0 { throw .fileExists }
        if let replaced, replaced.st_ino == moved.st_ino, replaced.st_dev == moved.st_dev {
            return  // two names of one file: rename(2) does nothing
        }
        defer { durability.unsynced.movedFiles.end(by: context) }
        defer { context.endClassDecision() }
        if fromState !== toState {
            context.beginClassDecision()
            try keepClass(of: moved, from, old, movingTo: toState, context)
            if exchange, let replaced {
                try keepClass(of: replaced, to, new, movingTo: fromState, context)
            }
        }
        let victim = replaced.flatMap { nodes.table.find(inode: UInt64($0.st_ino)) }
        let unread =
            exchange ? nil : replaced.flatMap { unreadableNow($0, to, new, context) }
        let target = exchange ? nil : replaced.flatMap { longTarget($0, toDirectory.rawValue, new) }
        if newIsLong { try names.makeLongLink(toDirectory.rawValue, new, newName, toState.id) }
        if exchange, oldIsLong {
            try names.makeLongLink(fromDirectory.rawValue, old, oldName, fromState.id)
        }
        if !exchange, let replaced { noteLeaving(replaced, context) }
        if !exchange, let victim, let replaced {
            keepOpenable(victim, replaced, toDirectory.rawValue, new, toState)
        }
        do throws(Errno) {
            if let replaced, !exchange, replaced.st_mode & S_IFMT == S_IFDIR {
                guard moved.st_mode & S_IFMT == S_IFDIR else { throw .isDirectory }
                let empty = try openVictim(toDirectory.rawValue, new)
                keepReachable(victim, empty, in: toState)
                try replaceDirectory(
                    fromDirectory.rawValue, old, toDirectory.rawValue, new, empty.rawValue,
                    whiteoutOf: leavesWhiteout ? caller : nil)
            } else if flags == renameNoReplace {
                try renameToFreeName(
                    fromDirectory.rawValue, old, toDirectory.rawValue, new,
                    isDirectory: moved.st_mode & S_IFMT == S_IFDIR)
            } else if leavesWhiteout {
                try renameWithWhiteout(
                    fromDirectory.rawValue, old, toDirectory.rawValue, new, caller)
            } else {
                try storage.renameat(
                    fromDirectory.rawValue, old, toDirectory.rawValue, new, flags: flags)
            }
        } catch {
            victim?.kept = nil
            if newIsLong { names.removeLongLink(toDirectory.rawValue, new) }
            throw error
        }
        context.endClassDecision()
        if let unread { report(unread.removed(by: .rename, caller)) }
        if let replaced, !exchange { noteRemoved(victim, replaced, to, new, toDirectory.rawValue) }
        let lost = exchange || unread != nil ? nil : victim?.protectionClass
        noteMoved(moved, from, old, to, new)
        noteWeakened(moved, replaced?.st_size == 0 ? nil : lost, caller)
        if leavesWhiteout { noteUnknownName(in: from) }
        if exchange, let replaced { noteMoved(replaced, to, new, from, old) }
        if fromState !== toState, rules.hasMarks.load(ordering: .sequentiallyConsistent) {
            let (left, entered) = (markedDirectory(over: from), markedDirectory(over: to))
            noteArrival(moved, to: to, new, before: left, .rename, caller, context)
            if exchange, let replaced {
                noteArrival(replaced, to: from, old, before: entered, .rename, caller, context)
            }
        }
        if oldIsLong, !exchange { names.removeLongLink(fromDirectory.rawValue, old) }
        if let target { removeLongTarget(target, after: toDirectory.rawValue) }
        durability.dirt.noteChange()
    }

    /// Keeps a file or link reachable whose last name is about to be replaced. An open(2) or
    /// readlink(2) that found it by that name still gets it. A path that exists at every moment
    /// must never seem to be missing.
    private func keepOpenable(
        _ victim: Node, _ status: FileStatus, _ directory: Int32, _ stored: UnsafePointer<CChar>,
        _ state: DirectoryState
    ) {
        guard [S_IFREG, S_IFLNK].contains(status.st_mode & S_IFMT), status.st_nlink == 1,
            let descriptor = try? storage.openPlace(directory, stored)
        else { return }
        victim.kept = KeptDescriptor(StoreDescriptor(descriptor, storage), in: state)
    }

    /// Reports a file that took the name of a file of a stronger class, as when programs save by
    /// writing another file (row I6). Also reports a file that was refused its class and now gets
    /// its final name. Uses only classes in memory. `before`: the class of the file that had the
    /// name.
    private func noteWeakened(
        _ status: FileStatus, _ before: ProtectionClass?, _ caller: Caller
    ) {
        guard status.st_mode & S_IFMT == S_IFREG, status.st_size > 0,
            let node = nodes.table.find(inode: UInt64(status.st_ino)),
            let now = node.protectionClass
        else { return }
        let refused = node.classes.refused.value
        guard let wanted = refused ?? before, wanted.isStronger(than: now) else { return }
        report(
            .weakened(
                path: path(of: node), protectionClass: wanted, now: now,
                operation: refused == nil ? "rename" : "setClass", caller: caller))
    }

    private func noteMoved(
        _ status: FileStatus, _ from: Node, _ old: UnsafePointer<CChar>, _ to: Node,
        _ new: UnsafePointer<CChar>
    ) {
        let node = nodes.table.find(inode: UInt64(status.st_ino))
        defer { names.movedNodes.note(node) { nodes.table.retain($0) } }
        guard let node else {
            return noteUnknownName(in: to)
        }
        // The new name first: a thread that climbs to the root meets either name, never none.
        node.addLink(to, new)
        node.removeLink(from, old)
        noteNewName(of: node)
    }

    /// Makes a file's header durable before the file moves to a directory of another class.
    /// Otherwise a power cut could leave it without a header, as an empty file of the new class
    /// (row I5). An empty file without a header gets one with its present class. After the move the
    /// caller calls `movedFiles.end`.
    private func keepClass(
        of status: FileStatus, _ parent: Node, _ stored: UnsafePointer<CChar>,
        movingTo target: DirectoryState, _ context: WorkerContext
    ) throws(Errno) {
        guard status.st_mode & S_IFMT == S_IFREG,
            try !target.gives(backing.directoryState(of: parent).protectionClass)
        else { return }
        let node = nodes.table.retain(inode: UInt64(status.st_ino), type: S_IFREG)
        node.addLink(parent, stored)
        defer { nodes.table.release(node, lookups: 1) }
        try keepClass(of: node, movingTo: target, context)
    }

    func keepClass(
        of node: Node, movingTo target: DirectoryState, _ context: WorkerContext
    ) throws(Errno) {
        let file = try acquire(node, context).file
        defer { release(file, context) }
        try file.lock.withWriteLock { () throws(Errno) in
            var needsHeader = !target.gives(file.protectionClass)
            // An empty file without a header would have another class by each of its names.
            for link in node.allLinks where !needsHeader {
                needsHeader = try !backing.directoryState(of: link.parent).gives(
                    file.protectionClass)
            }
            guard needsHeader else { return }
            // After a power cut either name may be there, in directories of different classes.
            if !store.traits.keepsOrder {
                durability.unsynced.movedFiles.note(node.inode, by: context)
            }
            try makeDurableHeader(file, file.protectionClass)
        }
    }

    /// Gives a file another name, link(2). Throws `EPERM` or `EINVAL` if the class of an unnamed
    /// file is not permitted there.
    public func link(
        _ id: NodeID, _ newParent: NodeID, _ newName: UnsafeRawBufferPointer, caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) -> Entry {
        let node = node(id)
        let parent = self.node(newParent)
        let state = try backing.directoryState(of: parent)
        defer { context.endClassDecision() }
        let isUnnamed = node.link == nil
        let before = markedDirectory(overAnyNameOf: node)?.marked
        defer { durability.unsynced.movedFiles.end(by: context) }
        if node.isRegular {
            if isUnnamed, let file = node.file {
                // Rows O15, Y4.
                if !file.protectionClass.isForSynchronised {
                    try mayDecide(file.protectionClass, parent, newName, .link, caller, context)
                }
                try mayCreate(file.protectionClass, caller)
            }
            context.beginClassDecision()
            try keepClass(of: node, movingTo: state, context)
        }
        let isLong = try keys.names.encrypt(newName, in: state.id, to: context.nameB)
        if isLong { names.longNames.beginReading() }
        defer { if isLong { names.longNames.endReading() } }
        let directory = try backing.directoryDescriptor(of: parent)
        if isLong { try names.makeLongLink(directory.rawValue, context.nameB, newName, state.id) }
        do throws(Errno) {
            if let file = node.file {
                // An unnamed file has only its descriptor. A file with names could lose the known
                // one meanwhile.
                try storage.linkDescriptor(file.descriptor, directory.rawValue, context.nameB)
            } else {
                try backing.withLink(of: node) { old, name throws(Errno) in
                    try storage.linkat(old, name, directory.rawValue, context.nameB)
                }
            }
        } catch {
            if isLong { names.removeLongLink(directory.rawValue, context.nameB) }
            throw error
        }
        node.addLink(parent, context.nameB)
        if !isUnnamed {
            node.notes.hasSeveralNames.value = true
            names.movedNodes.note(node) { nodes.table.retain($0) }
        }
        noteNewName(of: node)
        durability.dirt.noteChange()
        context.endClassDecision()
        let status: FileStatus
        let attributes: Attributes
        do throws(Errno) {
            status = try storage.fstatat(directory.rawValue, context.nameB)
            attributes = try self.attributes(of: node, status, context)
        } catch {
            takeBack(context.nameB, parent, directory.rawValue)
            node.removeLink(parent, context.nameB)
            if isLong { names.removeLongLink(directory.rawValue, context.nameB) }
            throw error
        }
        noteArrival(status, to: parent, context.nameB, before: before, .link, caller, context)
        nodes.table.retain(node)
        return Entry(node: node.id, generation: node.generation, attributes: attributes)
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
        let isLong = try keys.names.encrypt(name, in: state.id, to: context.nameA)
        if isLong { names.longNames.beginReading() }
        defer { if isLong { names.longNames.endReading() } }
        let directory = try backing.directoryDescriptor(of: parent)
        if isLong { try names.makeLongLink(directory.rawValue, context.nameA, name, state.id) }
        do throws(Errno) {
            try body(directory.rawValue, context.nameA, state)
        } catch {
            if isLong { names.removeLongLink(directory.rawValue, context.nameA) }
            throw error
        }
        durability.dirt.noteChange()
        do throws(Errno) {
            let status = try storage.fstatat(directory.rawValue, context.nameA)
            nodes.table.supersede(inode: UInt64(status.st_ino))
            let entry = try lookup(parent, stored: context.nameA, in: directory, context)
            noteNewName(of: node(entry.node))
            return entry
        } catch {
            takeBack(context.nameA, parent, directory.rawValue, isDirectory: isDirectory)
            if isLong { names.removeLongLink(directory.rawValue, context.nameA) }
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
