import CWardLinux
import Glibc
import WardCrypto
import WardFormat
import WardKeys
import WardSystem

// Reading and changing the class of a file or directory (rows I4, I7 to I10). `classOfNewFile`
// in Volume+Creation.swift decides the class of a new file (rows I1 and I12).
extension Volume {
    /// Returns the class of a file or directory. Needs no key (row I9).
    func protectionClass(of node: Node, _ context: WorkerContext) throws(Errno) -> ProtectionClass {
        if node.isDirectory {
            // The class for new files: in a synchronised tree at most C, even if the record says
            // more.
            let own = try backing.directoryState(of: node).protectionClass
            return own.isForSynchronised || markedDirectory(over: node) == nil
                ? own : .completeUntilFirstUserAuthentication
        }
        if let file = node.file { return file.protectionClass }
        if let known = node.protectionClass { return known }
        let file = try acquire(node, context).file
        defer { release(file, context) }
        return file.protectionClass
    }

    /// Sets the class of a file or directory. Throws `EPERM` if the caller may not weaken it, or if
    /// a class that is not open is needed. Without `isSynced`, a later sync of the backing store
    /// makes it durable.
    func setProtectionClass(
        of node: Node, to wanted: ProtectionClass, isSynced: Bool = true, _ caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) {
        guard node.isDirectory || node.isRegular else { throw .notPermitted }
        let old =
            try node.isDirectory
            ? backing.directoryState(of: node).protectionClass : protectionClass(of: node, context)
        let isOthers = try !isOwner(caller, of: node)
        if isOthers { try Volume.requireNoWeakening(from: old, to: wanted) }
        if node.isDirectory {
            try setDirectoryClass(of: node, to: wanted, isSynced: isSynced, caller, context)
        } else {
            if wanted.isStronger(than: old) {
                try raiseSideFiles(of: node, to: wanted, isSynced: isSynced, caller, context)
            }
            try setFileClass(of: node, to: wanted, isSynced: isSynced, caller, context)
        }
        if isOthers, old != wanted {
            report(
                .note(
                    "user \(caller.uid), not the owner, changed \(path(of: node)) from class "
                        + "\(old.letter) to \(wanted.letter) (process \(caller.pid))"))
        }
    }

    /// Throws `EPERM` where a caller who is not the owner weakens a class, as chmod(2) would. A
    /// program that may write a file gets no right to make it readable while locked.
    private static func requireNoWeakening(
        from old: ProtectionClass, to wanted: ProtectionClass
    ) throws(Errno) {
        guard old == wanted || wanted.isStronger(than: old) else { throw .notPermitted }
    }

    /// Whether the caller may do what only the owner may. Root may.
    func isOwner(_ caller: Caller, of node: Node) throws(Errno) -> Bool {
        if caller.uid == 0 { return true }
        return try backing.status(of: node).st_uid == caller.uid
    }

    /// The value of `unsyncedClassName`: names this mount and counts the failed syncs. A program
    /// that changes many classes reads it first.
    public var classSyncMark: [UInt8] {
        Array("\(rules.syncMarkStart)\(durability.syncFailures)".utf8)
    }

    /// Whether a value looks like a `classSyncMark`, of this mount or another.
    public static func isClassSyncMark(_ value: UnsafeRawBufferPointer) -> Bool {
        value.starts(with: classSyncWord.utf8)
    }

    static let classSyncWord = "sync "

    /// Makes durable the classes that were set without a sync since the program read `mark`. Throws
    /// `EIO` if some may be lost: a sync failed since, or the volume was mounted anew. The program
    /// then sets each class again.
    public func syncClasses(since mark: [UInt8]) throws(Errno) {
        let start = Array(rules.syncMarkStart.utf8)
        guard mark.starts(with: start),
            let failures = UInt64(String(decoding: mark.dropFirst(start.count), as: UTF8.self))
        else { throw .ioError }
        try durability.sync(since: failures)
    }

    func setFileClass(
        of node: Node, to wanted: ProtectionClass, isSynced: Bool, _ caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) {
        let isSynced = isSynced || !store.traits.syncsWhole
        if !wanted.isForSynchronised { context.beginClassDecision() }
        defer { context.endClassDecision() }
        if !wanted.isForSynchronised, let inside = markedDirectory(overAnyNameOf: node) {
            throw refused(names.path(of: inside.link), wanted, inside.marked, .setClass, caller)
        }
        let isOthers = try !isOwner(caller, of: node)
        let file = try acquire(node, context).file
        defer { release(file, context) }
        try file.withWriteAccess { access throws(Errno) in
            let old = file.protectionClass
            // Another call may have raised the class since the first look.
            if isOthers { try Volume.requireNoWeakening(from: old, to: wanted) }
            do throws(Errno) {
                try setFileClass(access, from: old, to: wanted, isSynced: isSynced, caller, context)
            } catch .notPermitted where wanted.isStronger(than: old) && file.sizeBytes > 0 {
                // A program that copies a file with its attributes (`cp -a`, `mv`) has written the
                // content by now and ignores this error. So close(2) of a file that was made while
                // locked reports it (`flush`). Only a request of the owner makes the close fail.
                if !isOthers { node.classes.refused.value = wanted }
                report(
                    .weakened(
                        path: path(of: node), protectionClass: wanted, now: old,
                        operation: "setClass", caller: caller))
                throw .notPermitted
            }
            node.classes.refused.value = nil
        }
    }

    private func setFileClass(
        _ access: borrowing FileWriteAccess, from old: ProtectionClass, to wanted: ProtectionClass,
        isSynced: Bool,
        _ caller: Caller, _ context: WorkerContext
    ) throws(Errno) {
        let file = access.file
        try mayCreate(wanted, caller, .setClass, of: file.node)
        if old == wanted {
            // An earlier call may have set the class without a sync, or its sync may have failed.
            if mayHaveLostPages(file) || isSynced && !durability.unsynced.classes.areNone {
                try syncData(access)
            }
            return
        }
        let isStronger = wanted.strength > old.strength
        if isStronger, !isSynced { durability.unsynced.classes.begin() }
        defer { if isStronger, !isSynced { durability.unsynced.classes.end() } }
        if file.sizeBytes == 0 {
            try makeKeylessHeader(access, wanted)
        } else {
            try rewrap(access, from: old, to: wanted, caller, context)
        }
        // The disk may still have a class that is weaker than both.
        if isSynced, isStronger || !durability.unsynced.classes.areNone { try syncData(access) }
    }

    /// Wraps the file key under another class key and writes page 0 with the new header, as a whole
    /// and once (row I7).
    private func rewrap(
        _ access: borrowing FileWriteAccess, from old: ProtectionClass, to wanted: ProtectionClass,
        _ caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) {
        let file = access.file
        guard gate.classes.state(of: old) == .open else {
            throw denied(file.node, old, .setClass, caller)
        }
        guard var header = file.header else { throw .ioError }
        let isAdmitted = try context.withContent { content throws(Errno) in
            guard gate.classes.state(of: old) == .open,
                gate.classes.state(of: wanted) == .open || wanted == .completeUnlessOpen
            else { return false }
            let key = try loadKey(file, content.context)
            do throws(KeyringError) {
                header.wrappedKey = try keyring.wrap(key, for: wanted)
            } catch {
                throw error == .outOfLockedMemory ? .noMemory : .notPermitted
            }
            if !file.hasKey { file.key.set(key, content) }
            header.protectionClass = wanted
            // Under the content lock: a lock that begins now sees the file in its new class.
            access.protectionClass = wanted
            file.node.protectionClass = wanted
            return true
        }
        guard isAdmitted else { throw denied(file.node, wanted, .setClass, caller) }
        do throws(Errno) {
            let before = try storage.fstat(file.descriptor)
            try replaceHeader(access, header)
            // A class is no content, so only ctime may move. The change is made already and must
            // not fail here.
            try? storage.setTimes(
                file.descriptor, access: timespec(tv_sec: 0, tv_nsec: ward_utime_omit()),
                modification: before.st_mtim)
        } catch {
            access.protectionClass = file.header?.protectionClass ?? old
            file.node.protectionClass = file.protectionClass
            dropIfLocked(file)
            throw error
        }
    }

    /// Called after a failed change of class. A lock meanwhile may have treated the file as one of
    /// the new class. If its real class is locked, its key and cached pages go now.
    private func dropIfLocked(_ file: OpenFile) {
        guard gate.classes.state(of: file.protectionClass) != .open else { return }
        file.key.forget()
        gate.contexts.forEach { $0.drain(wiping: true, patience: .seconds(1)) }
        dropLocked(file.node)
    }

    /// Sets the class for files that are created in the directory from now on (row I4).
    private func setDirectoryClass(
        of node: Node, to wanted: ProtectionClass, isSynced: Bool, _ caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) {
        let state = try backing.directoryState(of: node)
        try state.recordLock.withLock { () throws(Errno) in
            if try !isOwner(caller, of: node) {
                try Volume.requireNoWeakening(from: state.protectionClass, to: wanted)
            }
            // Setting a mark takes the same record lock. A mark that is set above this directory
            // later caps the class that is set here.
            if !wanted.isForSynchronised, let marked = markedDirectory(over: node) {
                throw refused(path(of: node), wanted, marked, .setClass, caller)
            }
            try writeRecord(
                of: node, state, wanted, isMarked: state.isMarked, isSynced: isSynced, context)
        }
    }

    /// Writes the directory's record anew and makes it durable. The caller holds the record lock.
    /// If the class changes, empty files without a header get one first, so that they keep their
    /// class.
    ///
    /// Without `isSynced`, one later sync of the backing store covers many directories. The flag
    /// counts only if the backing store keeps the order of changes. Files that are made and synced
    /// meanwhile have their class from this record.
    func writeRecord(
        of node: Node, _ state: DirectoryState, _ wanted: ProtectionClass, isMarked: Bool,
        isSynced: Bool = true, _ context: WorkerContext
    ) throws(Errno) {
        let isSynced = isSynced || !store.traits.keepsOrder || !store.traits.syncsWhole
        let old = state.protectionClass
        let wasMarked = state.isMarked
        // After a failed or pending sync the present record may be in memory alone.
        let failures = durability.syncFailures
        if old == wanted, wasMarked == isMarked, !state.isRecordUnsynced.value,
            failures == 0, !isSynced || durability.unsynced.classes.areNone
        {
            return
        }
        let directory = try backing.directoryDescriptor(of: node)
        // From now on, files that are made or moved here get a header before their name. Requests
        // that are at it already are waited for.
        if old != wanted {
            state.nextClass = wanted
            awaitClassDecisions()
        }
        defer { state.nextClass = nil }
        if old != wanted {
            let hasFiles = try keepClassOfEmptyFiles(in: node, state, directory, context)
            // The headers must be durable before the record. A power cut that takes a file's header
            // leaves an empty file with its directory's class.
            if hasFiles, failures != 0 || !durability.unsynced.headers.areNone {
                try durability.sync(since: failures)
            }
        }
        let record = DirectoryRecord(
            directoryID: state.id, protectionClass: wanted, isSynchronised: isMarked)
        let hidden = store.staging.next()
        if !isSynced { durability.unsynced.classes.begin() }
        defer { if !isSynced { durability.unsynced.classes.end() } }
        try storage.symlinkat(
            target: record.linkTarget(macKey: keys.records), directory.rawValue, hidden)
        state.isRecordUnsynced.value = true
        do throws(Errno) {
            try storage.renameat(
                directory.rawValue, hidden, directory.rawValue, DirectoryRecord.linkName, flags: 0)
        } catch {
            try? storage.unlinkat(directory.rawValue, hidden, 0)
            throw error
        }
        state.protectionClass = wanted
        state.isMarked = isMarked
        if isMarked { rules.hasMarks.store(true, ordering: .sequentiallyConsistent) }
        guard isSynced else {
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
            do throws(Errno) {
                let status = try storage.fstatat(directory.rawValue, stored)
                inode = UInt64(status.st_ino)
                // In doubt, a file of any size may consist of zeros. It counts as empty, without a
                // header.
                guard status.st_mode & S_IFMT == S_IFREG,
                    status.st_size == 0 || durability.doubt.isOpen
                        || nodes.table.find(inode: UInt64(status.st_ino))?.file != nil
                else { continue }
                try keepClassOfEmptyFile(node, stored, status, context)
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
        _ parent: Node, _ stored: [CChar], _ status: FileStatus, _ context: WorkerContext
    ) throws(Errno) {
        let node = nodes.table.retain(inode: UInt64(status.st_ino), type: S_IFREG)
        node.addLink(parent, stored)
        defer { nodes.table.release(node, lookups: 1) }
        let file = try acquire(node, context).file
        defer { release(file, context) }
        try file.withWriteAccess { access throws(Errno) in
            if file.header != nil, !mayHaveLostPages(file) { return }
            try makeDurableHeader(access, file.protectionClass)
        }
    }
}
