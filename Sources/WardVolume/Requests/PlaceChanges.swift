import Glibc
import WardFormat
import WardSystem

/// The changes that let files, directories and links be in other directories than before, for one
/// rename or link(2) in a volume of format 2. Each change comes before the new name, so that no
/// power cut leaves the name without it.
///
/// Concurrency: its worker alone. The files stay open until `end`, so that no thread opens them by
/// a name that is gone.
struct PlaceChanges {
    private struct Change {
        let type: mode_t
        /// The regular file, open, and its node with a look-up.
        let file: OpenFile?
        let parent: Node
        let from: DirectoryState
        let fromDescriptor: Int32
        let stored: UnsafePointer<CChar>
        let to: StoredName
        /// Whether the inode keeps other names.
        let keepsOthers: Bool
    }

    private let volume: Volume
    private let context: WorkerContext
    private var changes: [Change] = []

    init(_ volume: Volume, _ context: WorkerContext) {
        self.volume = volume
        self.context = context
    }

    /// Adds a rename. Opens a regular file. `status`: that of `from`.
    mutating func addMove(
        of status: FileStatus, from: StoredName, to: StoredName
    ) throws(Errno) {
        guard volume.bindsPlaces, from.state !== to.state else { return }
        var file: OpenFile?
        if status.st_mode & S_IFMT == S_IFREG {
            let table = volume.nodes.table
            let node = table.retain(inode: UInt64(status.st_ino), type: S_IFREG)
            node.addLink(from.parent, from.stored)
            do throws(Errno) {
                file = try volume.acquire(node, context).file
            } catch {
                table.release(node, lookups: 1)
                throw error
            }
        }
        changes.append(
            Change(
                type: status.st_mode & S_IFMT, file: file, parent: from.parent, from: from.state,
                fromDescriptor: from.descriptor, stored: from.stored, to: to,
                keepsOthers: status.st_nlink > 1))
    }

    /// Closes the files. Called once, after the nodes have their new names.
    func end() {
        for change in changes {
            guard let file = change.file else { continue }
            let node = file.node
            volume.durability.moved.note(node) { volume.nodes.table.retain($0) }
            volume.release(file, context)
            volume.nodes.table.release(node, lookups: 1)
        }
    }

    /// Runs `body`, which changes the names. The changes before it are taken back if it throws.
    /// `directoryMoves` is held exclusively.
    func with(_ body: () throws(Errno) -> Void) throws(Errno) {
        try with(changes[...], body)
    }

    private func with(
        _ rest: ArraySlice<Change>, _ body: () throws(Errno) -> Void
    ) throws(Errno) {
        guard let change = rest.first else { return try body() }
        func inner() throws(Errno) { try with(rest.dropFirst(), body) }
        if let file = change.file {
            try volume.withFilePlace(
                file, change.to.state, leaving: change.from, context, inner)
        } else if change.type == S_IFDIR {
            try volume.backing.withDirectoryPlace(
                change.stored, of: change.parent, in: change.fromDescriptor, change.from, change.to,
                inner)
        } else if change.type == S_IFLNK {
            try volume.withLinkPlace(
                change.stored, in: change.fromDescriptor, change.from, change.to,
                keepsOthers: change.keepsOthers, inner)
        } else {
            try inner()
        }
    }
}

extension Volume {
    /// Runs `body`, which gives an open file a name in another directory, while no other thread
    /// changes the file. `leaving`: the directory of a name that goes with it; nil with link(2).
    /// After the change of names the caller calls `movedFiles.end`.
    func withFilePlace(
        _ file: OpenFile, _ target: DirectoryState, leaving: DirectoryState?,
        _ context: WorkerContext, _ body: () throws(Errno) -> Void
    ) throws(Errno) {
        try file.withWriteAccess(outOfOrder: .exchange) { access throws(Errno) in
            let nameCount = Int(try storage.fstat(file.descriptor).st_nlink)
            let keepsOthers = nameCount > (leaving == nil ? 0 : 1)
            // The list of places is bound to the ID in the header. A header that the file got later
            // could be on the disk before the new name. With names in two directories, a file that
            // lost its header in a power cut would get an ID that fits one of them.
            if keepsOthers || !store.traits.keepsOrder {
                try makeDurableHeader(access, file.protectionClass)
            } else if file.header == nil {
                try makeKeylessHeader(access, file.protectionClass)
            }
            // After a power cut the file may be in either directory.
            if !store.traits.keepsOrder {
                durability.unsynced.movedFiles.note(file.node.inode, by: context)
            }
            // A header of format 1 belongs everywhere.
            let before = try file.headers.bound.flatMap { header throws(Errno) in
                try permit(
                    header, in: target.id, keeping: keepsOthers ? nil : leaving?.id ?? target.id,
                    file)
            }
            do throws(Errno) {
                try body()
            } catch {
                if let before { putBack(before, of: file) }
                throw error
            }
            if keepsOthers {
                if let leaving { forgetPlace(of: file, in: leaving.id) }
            } else {
                access.headers.moved(to: target.id)
            }
        }
    }
}

extension BackingAccess {
    /// Runs `body`, which moves a directory to another one. Meanwhile a second record in it names
    /// the new parent, and afterwards takes the place of the first one. `directoryMoves` is held
    /// exclusively. Throws `EIO`, with an event, where the directory does not belong in `from`.
    func withDirectoryPlace(
        _ stored: UnsafePointer<CChar>, of parent: Node, in directory: Int32,
        _ from: DirectoryState, _ to: StoredName, _ body: () throws(Errno) -> Void
    ) throws(Errno) {
        let moved = try storage.openat(
            directory, stored, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, mode: 0)
        defer { storage.close(moved) }
        var record: DirectoryRecord
        switch try self.record(in: moved, parentID: from.id) {
        case .success(let found): record = found
        case .failure(let error):
            throw damaged(names.path(of: NodeLink(parent: parent, stored)), error)
        }
        let next = DirectoryRecord.nextLinkName
        // A power cut may have left one. It may be the only valid one.
        if try !isFirstRecordSound(moved, parentID: from.id) {
            try storage.renameat(moved, next, moved, DirectoryRecord.linkName, flags: 0)
        }
        try? storage.unlinkat(moved, next, 0)
        // A class that nothing vouches for gets no seal by a move. An upgrade takes over those of
        // format 1.
        var isOfVersion1 = false
        if keys.readsVersion1 {
            isOfVersion1 = try !isFirstRecordBound(moved, parentID: from.id)
        }
        var old: (vouch: Vouch, inode: UInt64)?
        if seals.areUsed {
            let inode = UInt64(try storage.fstat(moved).st_ino)
            let vouch: Vouch =
                isOfVersion1 ? .mount : seals.vouch(of: record, inode: inode, in: from.id)
            let isRight = try seals.whileOpen { seals.isRight(vouch) }
            record.seal = ClassSeal.noDirectorySeal
            if isRight == true {
                record = seals.sealed(record, parentID: to.state.id)
            } else if isRight == false {
                // The class counts by its surroundings, and these change now.
                record.protectionClass = try strongest(
                    record.protectionClass.stronger(from.protectionClass), record.directoryID,
                    moved)
            }
            if isRight != false, !record.hasSeal { old = (vouch, inode) }
        }
        try storage.symlinkat(
            target: record.linkTarget(
                macKey: keys.records, parentID: keys.parentID(to.state.id)), moved, next)
        do throws(Errno) {
            if !store.traits.keepsOrder { try storage.fsync(moved) }
            // Before a look-up can find it.
            if let old {
                seals.notes.note(record, inode: old.inode, in: to.state.id, old.vouch)
            }
            try body()
        } catch {
            if let old { seals.notes.note(record, inode: old.inode, in: from.id, old.vouch) }
            try? storage.unlinkat(moved, next, 0)
            throw error
        }
        // Readers find the second record where the first one fails, so an error is left.
        if !store.traits.keepsOrder {
            guard (try? storage.fsync(to.descriptor)) != nil, (try? storage.fsync(directory)) != nil
            else { return }
        }
        try? storage.renameat(moved, next, moved, DirectoryRecord.linkName, flags: 0)
    }
}
