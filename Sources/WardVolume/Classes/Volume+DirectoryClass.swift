import CWardLinux
import Glibc
import WardFormat
import WardSystem

// Changing the class of a directory and writing its record. `DirectoryClassChange` decides.
extension Volume {
    /// Sets the class for files that are created in the directory from now on (row I4).
    func setDirectoryClass(
        of node: Node, to wanted: ProtectionClass, isSynced: Bool, _ caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) {
        let state = try backing.directoryState(of: node)
        try names.withRecordFixed(of: state) { () throws(Errno) in
            let isOwner = try isOwner(caller, of: node)
            guard
                ClassRules.mayChange(from: state.protectionClass, to: wanted, isOwner: isOwner)
            else { throw .notPermitted }
            // Setting a mark takes the same record lock. A mark that is set above this directory
            // later caps the class that is set here.
            if !wanted.isForSynchronised, let marked = rules.markedDirectory(over: node) {
                throw refused(path(of: node), wanted, marked, .setClass, caller)
            }
            try writeRecord(
                of: node, state, wanted, isMarked: state.isMarked, isChosen: true,
                isSynced: isSynced, context)
        }
    }

    /// Writes the directory's record anew and makes it durable. The caller holds the record lock.
    /// If the class changes, empty files without a header get one first, so that they keep their
    /// class.
    ///
    /// `isChosen`: a program chose the class, so the record gets its seal.
    ///
    /// Without `isSynced`, one later sync of the backing store covers many directories. The flag
    /// counts only if the backing store keeps the order of changes. Files that are made and synced
    /// meanwhile have their class from this record.
    func writeRecord(
        of node: Node, _ state: DirectoryState, _ wanted: ProtectionClass, isMarked: Bool,
        isChosen: Bool, isSynced: Bool = true, _ context: WorkerContext
    ) throws(Errno) {
        let change = DirectoryClassChange(
            old: state.protectionClass, wanted: wanted, wasMarked: state.isMarked,
            isMarked: isMarked, isChosen: isChosen, hasSeal: state.judgement.value != .weak,
            isSynced: isSynced || !store.traits.keepsOrder || !store.traits.syncsWhole)
        let failures = durability.syncFailures
        guard
            change.isNeeded(
                isRecordUnsynced: state.isRecordUnsynced.value, syncFailures: failures,
                areClassesDue: !durability.unsynced.classes.areNone)
        else { return }
        let directory = try backing.directoryDescriptor(of: node)
        // From now on, files that are made or moved here get a header before their name. Requests
        // that are at it already are waited for.
        if change.changesClass {
            state.nextClass = wanted
            gate.contexts.awaitClassDecisions()
        }
        defer { state.nextClass = nil }
        if change.changesClass {
            let hasFiles = try keepClassOfEmptyFiles(in: node, state, directory, context)
            let needsSync = change.needsSyncedHeaders(
                hasFiles: hasFiles, syncFailures: failures,
                areHeadersDue: !durability.unsynced.headers.areNone)
            if needsSync { try durability.sync(since: failures) }
        }
        if !change.isSynced { durability.unsynced.classes.begin() }
        defer { if !change.isSynced { durability.unsynced.classes.end() } }
        try replaceRecord(of: node, state, directory, change)
        guard change.isSynced else {
            // From here on `unsyncedClasses` tells that a sync is due, and `syncFailures` that one
            // failed.
            state.isRecordUnsynced.value = false
            return
        }
        // A weaker class is synced, too: files without a header have their class from this record
        // alone.
        do throws(Errno) {
            try storage.fsync(directory.rawValue)
        } catch {
            durability.noteSyncFailure()
            throw error
        }
        state.isRecordUnsynced.value = false
    }

    /// Puts the new record in the place of the old one, and the change into the state in memory.
    private func replaceRecord(
        of node: Node, _ state: DirectoryState, _ directory: StoreDescriptor,
        _ change: DirectoryClassChange
    ) throws(Errno) {
        let record = DirectoryRecord(
            directoryID: state.id, protectionClass: change.wanted, isSynchronised: change.isMarked)
        try backing.stageAndPlace(
            record, of: node, state, in: directory.rawValue, change.isChosen ? .chosen : .derived,
            beforePlacing: { state.isRecordUnsynced.value = true })
        state.protectionClass = change.wanted
        state.isMarked = change.isMarked
        if change.isMarked { rules.noteMark() }
    }

    /// Gives each empty file in the directory a header with its present class. Returns true if the
    /// directory has any files.
    private func keepClassOfEmptyFiles(
        in node: Node, _ state: DirectoryState, _ directory: StoreDescriptor,
        _ context: WorkerContext
    ) throws(Errno) -> Bool {
        var candidates: [[CChar]] = []
        try storage.list(directory.rawValue) { entry in
            if entry.type != UInt8(DT_REG), entry.type != UInt8(DT_UNKNOWN) { return }
            guard keys.names.isOurs(entry.name, in: state) else { return }
            candidates.append(entry.name.zeroTerminated)
        }
        for stored in candidates {
            var inode: UInt64?
            let seen = names.changes.quietState
            do throws(Errno) {
                let status = try storage.fstatat(directory.rawValue, stored)
                inode = UInt64(status.st_ino)
                // In doubt, a file of any size may consist of zeros. It counts as empty, without a
                // header.
                guard status.st_mode & S_IFMT == S_IFREG,
                    status.st_size == 0 || durability.doubt.isOpen
                        || nodes.table.find(inode: UInt64(status.st_ino))?.file != nil
                else { continue }
                try keepClassOfEmptyFile(node, stored, status, seen: seen, context)
            } catch {
                // The file was deleted or moved meanwhile. A faulty backing store may say so of an
                // existing file.
                guard BackingStore.isGone(error), store.isGone(inode, directory.rawValue, stored)
                else { throw error }
            }
        }
        return !candidates.isEmpty
    }

    private func keepClassOfEmptyFile(
        _ parent: Node, _ stored: [CChar], _ status: FileStatus, seen: UInt64?,
        _ context: WorkerContext
    ) throws(Errno) {
        let node = try retainNode(
            inode: UInt64(status.st_ino), type: S_IFREG, stored, in: parent, seen: seen)
        defer { nodes.table.release(node, lookups: 1) }
        let file = try acquire(node, context).file
        defer { release(file, context) }
        try file.withWriteAccess { access throws(Errno) in
            if file.header != nil, !mayHaveLostPages(file) { return }
            try makeDurableHeader(access, file.protectionClass)
        }
    }
}
