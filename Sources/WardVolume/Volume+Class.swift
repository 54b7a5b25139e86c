import CWardLinux
import Glibc
import WardCrypto
import WardFormat
import WardKeys
import WardSystem

// Reading and changing the class of a file or directory (rows I1–I13).
extension Volume {
    /// The class of a file or directory; needs no key (row I9).
    func protectionClass(of node: Node, _ context: WorkerContext) throws(Errno) -> ProtectionClass {
        if node.isDirectory {
            // What new files get: in a synchronised tree no more than C, whatever the record says.
            let own = try directoryState(of: node).protectionClass
            return own.isForSynchronised || markedDirectory(over: node) == nil
                ? own : .completeUntilFirstUserAuthentication
        }
        if let file = node.file { return file.protectionClass }
        if let known = node.protectionClass { return known }
        let file = try acquire(node, context).file
        defer { release(file, context) }
        return file.protectionClass
    }

    func setProtectionClass(
        of node: Node, to wanted: ProtectionClass, isSynced: Bool = true, _ caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) {
        guard node.isDirectory || node.isRegular else { throw .notPermitted }
        let old =
            try node.isDirectory
            ? directoryState(of: node).protectionClass : protectionClass(of: node, context)
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

    /// For callers who are not the owner, as chmod(2) asks: the right to write a file is none to
    /// have it read while locked.
    private static func requireNoWeakening(
        from old: ProtectionClass, to wanted: ProtectionClass
    ) throws(Errno) {
        guard old == wanted || wanted.isStronger(than: old) else { throw .notPermitted }
    }

    /// Whether the caller may do what takes the owner: root may.
    func isOwner(_ caller: Caller, of node: Node) throws(Errno) -> Bool {
        if caller.uid == 0 { return true }
        return try status(of: node).st_uid == caller.uid
    }

    /// What `unsyncedClassName` says: of this mount, and which syncs have failed by now. Whoever
    /// changes many classes asks for it first.
    public var classSyncMark: [UInt8] {
        Array("\(classSyncMarkStart)\(syncFailures.load(ordering: .acquiring))".utf8)
    }

    public static func isClassSyncMark(_ value: UnsafeRawBufferPointer) -> Bool {
        value.starts(with: classSyncWord.utf8)
    }

    static let classSyncWord = "sync "

    /// Makes durable what was set without a sync of its own since `mark` was asked for. `EIO` where
    /// that can't be said of all of it, because a sync of whatever file failed since, or the volume
    /// was mounted anew: setting each again does.
    public func syncClasses(since mark: [UInt8]) throws(Errno) {
        let start = Array(classSyncMarkStart.utf8)
        guard mark.starts(with: start),
            let failures = UInt64(String(decoding: mark.dropFirst(start.count), as: UTF8.self))
        else { throw .ioError }
        try syncBackingStore(since: failures)
    }

    func setFileClass(
        of node: Node, to wanted: ProtectionClass, isSynced: Bool, _ caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) {
        let isSynced = isSynced || !syncsWhole
        if !wanted.isForSynchronised { context.beginClassDecision() }
        defer { context.endClassDecision() }
        if !wanted.isForSynchronised, let inside = markedDirectory(overAnyNameOf: node) {
            throw refused(path(of: inside.link), wanted, inside.marked, .setClass, caller)
        }
        let isOthers = try !isOwner(caller, of: node)
        let file = try acquire(node, context).file
        defer { release(file, context) }
        file.lock.lockWrite()
        defer { file.lock.unlock() }
        let old = file.protectionClass
        // Another call may have raised it since the caller looked.
        if isOthers { try Volume.requireNoWeakening(from: old, to: wanted) }
        do throws(Errno) {
            try setFileClass(file, from: old, to: wanted, isSynced: isSynced, caller, context)
        } catch .notPermitted where wanted.isStronger(than: old) && file.sizeBytes > 0 {
            // A program that copies a file with its attributes, cp -a and mv among others, has
            // written it by now, and says nothing: the close of a file that was made while locked
            // does (`flush`). Only the owner's own request makes it fail.
            if !isOthers { node.refusedClass = wanted }
            report(
                .weakened(
                    path: path(of: node), protectionClass: wanted, now: old,
                    operation: "setClass", caller: caller))
            throw .notPermitted
        }
        node.refusedClass = nil
    }

    /// The file's lock is held.
    private func setFileClass(
        _ file: OpenFile, from old: ProtectionClass, to wanted: ProtectionClass, isSynced: Bool,
        _ caller: Caller, _ context: WorkerContext
    ) throws(Errno) {
        try mayCreate(wanted, caller, .setClass, of: file.node)
        if old == wanted {
            // It may have been set by a call whose sync failed, or is yet to come.
            if mayHaveLostPages(file) || isSynced && !unsyncedClasses.areNone { try syncData(file) }
            return
        }
        let isStronger = wanted.strength > old.strength
        if isStronger, !isSynced { unsyncedClasses.begin() }
        defer { if isStronger, !isSynced { unsyncedClasses.end() } }
        if file.sizeBytes == 0 {
            try makeKeylessHeader(file, wanted)
        } else {
            try rewrap(file, from: old, to: wanted, caller, context)
        }
        // The disk may have a class that is weaker than both.
        if isSynced, isStronger || !unsyncedClasses.areNone { try syncData(file) }
    }

    /// Wraps the file key under another class key and writes page 0 with the new header: whole,
    /// once (row I7).
    private func rewrap(
        _ file: OpenFile, from old: ProtectionClass, to wanted: ProtectionClass, _ caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) {
        guard gate.state(of: old) == .open else { throw denied(file.node, old, .setClass, caller) }
        guard var header = file.header else { throw .ioError }
        context.lockContent()
        do throws(Errno) {
            guard gate.state(of: old) == .open,
                gate.state(of: wanted) == .open || wanted == .completeUnlessOpen
            else {
                context.unlockContent()
                throw denied(file.node, wanted, .setClass, caller)
            }
            let key = try loadKey(file, context)
            do throws(KeyringError) {
                header.wrappedKey = try keyring.wrap(key, for: wanted)
            } catch {
                throw error == .outOfLockedMemory ? .noMemory : .notPermitted
            }
            if !file.hasKey { file.setKey(key) }
            header.protectionClass = wanted
            // Under the content lock: a lock that begins now sees the file in its new class.
            file.protectionClass = wanted
            file.node.protectionClass = wanted
        } catch {
            context.unlockContent()
            throw error
        }
        context.unlockContent()
        do throws(Errno) {
            let before = try storage.fstat(file.descriptor)
            try replaceHeader(file, header)
            // A class is no content: only ctime moves. What is done must not fail for that.
            try? storage.setTimes(
                file.descriptor, access: timespec(tv_sec: 0, tv_nsec: ward_utime_omit()),
                modification: before.st_mtim)
        } catch {
            file.protectionClass = file.header?.protectionClass ?? old
            file.node.protectionClass = file.protectionClass
            dropIfLocked(file)
            throw error
        }
    }

    /// After a change of class that failed. A lock in between took the file for one of the class it
    /// did not get: if it is of a locked one after all, its key and its pages go now.
    private func dropIfLocked(_ file: OpenFile) {
        guard gate.state(of: file.protectionClass) != .open else { return }
        file.forgetKey()
        forEachContext { $0.drain(wiping: true, patience: .seconds(1)) }
        dropLocked(file.node)
    }

    /// What is created in it from now on (row I4).
    private func setDirectoryClass(
        of node: Node, to wanted: ProtectionClass, isSynced: Bool, _ caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) {
        let state = try directoryState(of: node)
        state.recordLock.lockNow()
        defer { state.recordLock.unlock() }
        if try !isOwner(caller, of: node) {
            try Volume.requireNoWeakening(from: state.protectionClass, to: wanted)
        }
        // Under the lock, which a mark takes too; one above it that comes now caps what is set
        // here.
        if !wanted.isForSynchronised, let marked = markedDirectory(over: node) {
            throw refused(path(of: node), wanted, marked, .setClass, caller)
        }
        try writeRecord(
            of: node, state, wanted, isMarked: state.isMarked, isSynced: isSynced, context)
    }

    /// Writes the directory's record anew; the record lock is held. Where the class changes, empty
    /// files in it that have no header get one first: they keep the class they have. Durable.
    ///
    /// Not `isSynced`: a sync of the store does that later, for many directories. Only where the
    /// store keeps the order of changes: what is made in it meanwhile and synced has its class from
    /// this record.
    func writeRecord(
        of node: Node, _ state: DirectoryState, _ wanted: ProtectionClass, isMarked: Bool,
        isSynced: Bool = true, _ context: WorkerContext
    ) throws(Errno) {
        let isSynced = isSynced || !keepsOrder || !syncsWhole
        let old = state.protectionClass
        let wasMarked = state.isMarked
        // Where a sync failed, or is yet to come, it may be in memory alone.
        let failures = syncFailures.load(ordering: .acquiring)
        if old == wanted, wasMarked == isMarked, !state.isRecordUnsynced,
            failures == 0, !isSynced || unsyncedClasses.areNone
        {
            return
        }
        let directory = try directoryDescriptor(of: node)
        // Files that are made or moved here from now on get a header before their name; those that
        // others are at are waited for.
        if old != wanted {
            state.nextClass = wanted
            awaitClassDecisions()
        }
        defer { state.nextClass = nil }
        if old != wanted {
            let hasFiles = try keepClassOfEmptyFiles(in: node, state, directory, context)
            // A power cut that takes a file's header leaves an empty file of its directory's class:
            // headers first.
            if hasFiles, failures != 0 || !unsyncedHeaders.areNone {
                try syncBackingStore(since: failures)
            }
        }
        let record = DirectoryRecord(
            directoryID: state.id, protectionClass: wanted, isSynchronised: isMarked)
        let hidden = stagingName()
        if !isSynced { unsyncedClasses.begin() }
        defer { if !isSynced { unsyncedClasses.end() } }
        try storage.symlinkat(
            target: record.linkTarget(macKey: keys.records), directory.rawValue, hidden)
        state.isRecordUnsynced = true
        do throws(Errno) {
            try storage.renameat(
                directory.rawValue, hidden, directory.rawValue, DirectoryRecord.linkName, flags: 0)
        } catch {
            try? storage.unlinkat(directory.rawValue, hidden, 0)
            throw error
        }
        state.protectionClass = wanted
        state.isMarked = isMarked
        if isMarked { hasMarks.store(true, ordering: .sequentiallyConsistent) }
        guard isSynced else {
            // `unsyncedClasses` says it from here on, and the failure of a sync.
            state.isRecordUnsynced = false
            return
        }
        // A weaker class, too: a file without a header that is synced from now on has its class
        // from this record alone.
        do throws(Errno) {
            try storage.fsync(directory.rawValue)
        } catch {
            syncFailures.add(1, ordering: .acquiringAndReleasing)
            throw error
        }
        state.isRecordUnsynced = false
    }

    /// True where there are files in the directory at all.
    private func keepClassOfEmptyFiles(
        in node: Node, _ state: DirectoryState, _ directory: StoreDescriptor,
        _ context: WorkerContext
    ) throws(Errno) -> Bool {
        var candidates: [[CChar]] = []
        try storage.list(directory.rawValue) { entry in
            if entry.type != UInt8(DT_REG), entry.type != UInt8(DT_UNKNOWN) { return }
            guard isOurs(entry.name, in: state) else { return }
            candidates.append(entry.name.zeroTerminated)
        }
        for stored in candidates {
            var inode: UInt64?
            do throws(Errno) {
                let status = try storage.fstatat(directory.rawValue, stored)
                inode = UInt64(status.st_ino)
                // In doubt a file of any size may be nothing but zeros: empty, and without a
                // header.
                guard status.st_mode & S_IFMT == S_IFREG,
                    status.st_size == 0 || hasDoubt.load(ordering: .acquiring)
                        || table.find(inode: UInt64(status.st_ino))?.file != nil
                else { continue }
                try keepClassOfEmptyFile(node, stored, status, context)
            } catch {
                // Deleted or moved meanwhile: no file of this directory any more. A store may say
                // the same of one that is there.
                guard Volume.isGone(error), isGone(inode, directory.rawValue, stored)
                else { throw error }
            }
        }
        return !candidates.isEmpty
    }

    private func keepClassOfEmptyFile(
        _ parent: Node, _ stored: [CChar], _ status: FileStatus, _ context: WorkerContext
    ) throws(Errno) {
        let node = table.retain(inode: UInt64(status.st_ino), type: S_IFREG)
        node.addLink(parent, stored)
        defer { table.release(node, lookups: 1) }
        let file = try acquire(node, context).file
        defer { release(file, context) }
        file.lock.lockWrite()
        defer { file.lock.unlock() }
        if file.header != nil, !mayHaveLostPages(file) { return }
        try makeDurableHeader(file, file.protectionClass)
    }
}
