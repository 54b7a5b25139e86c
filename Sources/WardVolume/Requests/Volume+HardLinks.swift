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
        let before = rules.markedDirectory(overAnyNameOf: node)?.marked
        defer { durability.unsynced.movedFiles.end(by: context) }
        if node.isRegular {
            if isUnnamed, let file = node.file {
                // Rows O15, Y4.
                try mayDecide(file.protectionClass, parent, newName, .link, caller, context)
                try mayCreate(file.protectionClass, caller)
            }
            context.beginClassDecision()
            try keepClass(of: node, movingTo: state, context)
        }
        // A check may not take the permit of a link away before the link has its name.
        return try names.withMovesFixed(if: bindsPlaces && !node.isRegular) { () throws(Errno) in
            try backing.withName(newName, in: parent, state, to: context.nameB) {
                name throws(Errno) in
                let status = try makeLink(of: node, name, isUnnamed: isUnnamed, context)
                backing.noteChange(in: parent)
                noteArrival(
                    status.backing, to: parent, name.stored, before: before, .link, caller, context)
                nodes.table.retain(node)
                return Entry(
                    node: node.id, generation: node.generation, attributes: status.attributes)
            }
        }
    }

    /// Gives a file its further name, and ends the class decision. Takes the name back if it
    /// throws.
    private func makeLink(
        of node: Node, _ name: StoredName, isUnnamed: Bool, _ context: WorkerContext
    ) throws(Errno) -> (backing: FileStatus, attributes: Attributes) {
        try name.makeLongLink(names)
        do throws(Errno) {
            try withFurtherPlace(of: node, name, isUnnamed: isUnnamed, context) {
                () throws(Errno) in
                if let file = node.file {
                    // An unnamed file has only its descriptor. A file with names could lose the
                    // known one meanwhile.
                    try storage.linkDescriptor(file.descriptor, name.descriptor, name.stored)
                } else {
                    try backing.withLink(of: node) { directory, old throws(Errno) in
                        try storage.linkat(directory, old, name.descriptor, name.stored)
                    }
                }
            }
        } catch {
            name.removeLongLink(names)
            throw error
        }
        node.addLink(name.parent, name.stored)
        if !isUnnamed {
            node.notes.hasSeveralNames.value = true
            names.movedNodes.note(node) { nodes.table.retain($0) }
        }
        noteNewName(of: node)
        durability.dirt.noteChange()
        context.endClassDecision()
        do throws(Errno) {
            let status = try storage.fstatat(name.descriptor, name.stored)
            return (status, try attributes(of: node, status, context))
        } catch {
            takeBack(name.stored, name.parent, name.descriptor)
            node.removeLink(name.parent, name.stored)
            name.removeLongLink(names)
            throw error
        }
    }

    /// Runs `body`, which gives a file or link a further name. In format 2 it first gets permission
    /// to be in the directory of that name.
    private func withFurtherPlace(
        of node: Node, _ name: StoredName, isUnnamed: Bool, _ context: WorkerContext,
        _ body: () throws(Errno) -> Void
    ) throws(Errno) {
        guard bindsPlaces else { return try body() }
        if node.isRegular {
            let file = try acquire(node, context).file
            defer { release(file, context) }
            let isHome = file.withReadLock {
                file.headers.directoryID == name.state.id
                    && (file.headers.bound?.directoryID ?? name.state.id) == name.state.id
            }
            if isHome { return try body() }
            try withFilePlace(file, name.state, leaving: nil, context, body)
            if isUnnamed { durability.moved.note(node) { nodes.table.retain($0) } }
            return
        }
        guard node.type == S_IFLNK, let link = node.link, link.parent !== name.parent else {
            return try body()
        }
        let directory = try backing.directoryDescriptor(of: link.parent)
        try withExtendedLifetime(directory) { () throws(Errno) in
            try withLinkPlace(
                link.name, in: directory.rawValue, try backing.directoryState(of: link.parent),
                name, keepsOthers: true, body)
        }
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
