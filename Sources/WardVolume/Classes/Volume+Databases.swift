import CWardLinux
import Glibc
import WardFormat
import WardSystem

// SQLite databases and the files that SQLite makes beside them.
extension Volume {
    /// Returns the class for a new side file of an open database; nil if the new file is none (row
    /// I12).
    ///
    /// `inherited`: the class of any other new file here. Another user's database never makes a
    /// file weaker.
    func sideFileClass(
        _ parent: Node, _ state: DirectoryState, _ name: UnsafeRawBufferPointer,
        else inherited: ProtectionClass, _ caller: Caller, _ context: WorkerContext
    ) throws(Errno) -> ProtectionClass? {
        guard let (kind, file, status) = try openDatabase(parent, state, besides: name, context),
            isDatabase(file, context)
        else { return nil }
        // A file without content may be no database: no class is made weaker for it.
        let isOthers = store.servesOthers && caller.uid != 0 && status.st_uid != caller.uid
        return ClassRules.sideFileClass(
            kind, beside: file.protectionClass, inherited: inherited,
            mayWeaken: file.sizeBytes > 0 && !isOthers)
    }

    /// The open file whose side file would have this name; nil where there is none.
    private func openDatabase(
        _ parent: Node, _ state: DirectoryState, besides name: UnsafeRawBufferPointer,
        _ context: WorkerContext
    ) throws(Errno) -> (kind: SideFile, file: OpenFile, status: FileStatus)? {
        guard let (kind, base) = SideFile.parse(name) else { return nil }
        try keys.names.encrypt(
            UnsafeRawBufferPointer(rebasing: name[0..<base]), in: state.id, to: context.nameB)
        let directory = try backing.directoryDescriptor(of: parent)
        let status: FileStatus
        do throws(Errno) {
            status = try storage.fstatat(directory.rawValue, context.nameB)
        } catch .noSuchFileOrDirectory {
            return nil
        }
        guard let file = nodes.table.find(inode: UInt64(status.st_ino))?.file else { return nil }
        return (kind, file, status)
    }

    /// The reason why the class of a new file counts, before the first unlock. The class is that of
    /// its directory, or of the database whose side file it is.
    func vouch(
        for given: ProtectionClass, _ name: UnsafeRawBufferPointer, in parent: Node,
        _ state: DirectoryState, _ context: WorkerContext
    ) throws(Errno) -> Vouch {
        let ofDirectory = try backing.vouch(for: given, in: parent, state)
        guard ofDirectory == .nothing,
            let database = try openDatabase(parent, state, besides: name, context)?.file,
            let header = database.header, header.protectionClass == given
        else { return ofDirectory }
        return seals.vouch(of: header, inode: database.node.inode)
    }

    /// Whether an open file starts with "SQLite format 3\0" (sqlite.org/fileformat.html), or is
    /// empty: a new database has its first journal before its first page.
    ///
    /// A file that can't be read now counts as a database. Otherwise its journal could get a weaker
    /// class than the content it copies.
    private func isDatabase(_ file: OpenFile, _ context: WorkerContext) -> Bool {
        if file.notes.isKnownDatabase.value { return true }
        return file.withReadLock {
            if file.sizeBytes == 0 { return true }
            guard file.sizeBytes >= 16 else { return false }
            guard isAdmitted(file) else { return true }
            guard (try? readPage(file, 0, to: context.sealed)) != nil,
                (try? examine(file, page: 0, context.sealed, .read, Caller.volume, context))
                    != nil
            else { return true }
            defer { context.excuses.forget() }
            return context.withContent { content in
                // While a class closes, a file keeps its key for a moment after all cipher contexts
                // were wiped.
                guard isAdmitted(file) else { return true }
                content.usePlain(layout.pageBytes)
                guard
                    (try? decode(file, page: 0, context.sealed, to: context.plain, content)) != nil
                else { return true }
                let magic = UnsafeRawBufferPointer(start: context.plain, count: 16)
                let isKnown = magic.elementsEqual(Array("SQLite format 3".utf8) + [0])
                file.notes.isKnownDatabase.value = isKnown
                return isKnown
            }
        }
    }

    /// Gives the side files of a database their stronger class, each atomically, before the
    /// database gets its own. Files of another owner stay as they are; `ward audit` reports them.
    func raiseSideFiles(
        of node: Node, to wanted: ProtectionClass, isSynced: Bool, _ caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) {
        // Most files are no databases and have no side files.
        for link in node.allLinks {
            guard let directory = link.parent.directory,
                let name = names.plainNameBytes(of: link, in: directory)
            else { continue }
            for (suffix, kind) in [
                ("-journal", SideFile.content), ("-wal", .content), ("-shm", .shared),
            ] {
                guard name.count + suffix.utf8.count <= 255,
                    let side = try sideFile(name + Array(suffix.utf8), in: link.parent, context)
                else { continue }
                defer { nodes.table.release(side, lookups: 1) }
                let expected = kind.protectionClass(beside: wanted)
                guard try backing.status(of: side).st_uid == backing.status(of: node).st_uid,
                    expected.isStronger(than: try protectionClass(of: side, context)),
                    try isDatabase(node, context)
                else { continue }
                try setFileClass(of: side, to: expected, isSynced: isSynced, caller, context)
            }
        }
    }

    private func isDatabase(_ node: Node, _ context: WorkerContext) throws(Errno) -> Bool {
        let file = try acquire(node, context).file
        defer { release(file, context) }
        return isDatabase(file, context)
    }

    /// Returns the regular file of this name, with one more look-up; nil if there is none.
    private func sideFile(
        _ name: [UInt8], in parent: Node, _ context: WorkerContext
    ) throws(Errno) -> Node? {
        let state = try backing.directoryState(of: parent)
        let directory = try backing.directoryDescriptor(of: parent)
        do throws(Errno) {
            try name.withUnsafeBytesTyped { name throws(Errno) in
                _ = try keys.names.encrypt(name, in: state.id, to: context.nameB)
            }
            let status = try storage.fstatat(directory.rawValue, context.nameB)
            guard status.st_mode & S_IFMT == S_IFREG else { return nil }
            let node = nodes.table.retain(inode: UInt64(status.st_ino), type: S_IFREG)
            node.addFirstLink(parent, context.nameB)
            return node
        } catch .noSuchFileOrDirectory {
            return nil
        }
    }
}
