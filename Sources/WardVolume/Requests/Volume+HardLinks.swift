import Glibc
import WardFormat
import WardSystem

// Further names of files.
extension Volume {
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

    /// Gives a file a durable header before it gets a name in a directory of another class. So it
    /// keeps its class (`Rename`). After the change of names the caller calls `movedFiles.end`.
    func keepClass(
        of node: Node, movingTo target: DirectoryState, _ context: WorkerContext
    ) throws(Errno) {
        let file = try acquire(node, context).file
        defer { release(file, context) }
        try file.withWriteAccess { access throws(Errno) in
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
            try makeDurableHeader(access, file.protectionClass)
        }
    }
}
