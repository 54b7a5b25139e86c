import CWardLinux
import Glibc
import WardCrypto
import WardFormat
import WardKeys
import WardSystem

// Reading and changing the class of a file or directory (rows I4, I7 to I10). `ClassRules`
// decides; the class of a new file is in Volume+NewFileClass.swift.
extension Volume {
    /// Returns the class of a file or directory. Needs no key (row I9).
    func protectionClass(of node: Node, _ context: WorkerContext) throws(Errno) -> ProtectionClass {
        if node.isDirectory {
            // The class for new files: in a synchronised tree at most C, even if the record says
            // more.
            return ClassRules.inherited(
                try backing.directoryState(of: node).protectionClass,
                isInMarked: rules.markedDirectory(over: node) != nil)
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
        let isOwner = try isOwner(caller, of: node)
        guard ClassRules.mayChange(from: old, to: wanted, isOwner: isOwner) else {
            throw .notPermitted
        }
        if node.isDirectory {
            try setDirectoryClass(of: node, to: wanted, isSynced: isSynced, caller, context)
        } else {
            if wanted.isStronger(than: old) {
                try raiseSideFiles(of: node, to: wanted, isSynced: isSynced, caller, context)
            }
            try setFileClass(of: node, to: wanted, isSynced: isSynced, caller, context)
        }
        if !isOwner, old != wanted {
            report(
                .note(
                    "user \(caller.uid), not the owner, changed \(path(of: node)) from class "
                        + "\(old.letter) to \(wanted.letter) (process \(caller.pid))"))
        }
    }

    /// Whether the caller may do what only the owner may. Root may.
    func isOwner(_ caller: Caller, of node: Node) throws(Errno) -> Bool {
        if caller.uid == 0 { return true }
        return try backing.status(of: node).st_uid == caller.uid
    }

    /// The value of `unsyncedClassName`: names this mount and counts the failed syncs. A program
    /// that changes many classes reads it first.
    public var classSyncMark: [UInt8] {
        rules.syncMark(failures: durability.syncFailures)
    }

    /// Whether a value looks like a `classSyncMark`, of this mount or another.
    public static func isClassSyncMark(_ value: UnsafeRawBufferPointer) -> Bool {
        ClassRules.isSyncMark(value)
    }

    /// Makes durable the classes that were set without a sync since the program read `mark`. Throws
    /// `EIO` if some may be lost: a sync failed since, or the volume was mounted anew. The program
    /// then sets each class again.
    public func syncClasses(since mark: [UInt8]) throws(Errno) {
        guard let failures = rules.failures(in: mark) else { throw .ioError }
        try durability.sync(since: failures)
    }

    func setFileClass(
        of node: Node, to wanted: ProtectionClass, isSynced: Bool, _ caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) {
        let isSynced = isSynced || !store.traits.syncsWhole
        if !wanted.isForSynchronised { context.beginClassDecision() }
        defer { context.endClassDecision() }
        if !wanted.isForSynchronised, let inside = rules.markedDirectory(overAnyNameOf: node) {
            throw refused(names.path(of: inside.link), wanted, inside.marked, .setClass, caller)
        }
        let isOwner = try isOwner(caller, of: node)
        let file = try acquire(node, context).file
        defer { release(file, context) }
        try file.withWriteAccess { access throws(Errno) in
            let change = FileClassChange(
                old: file.protectionClass, wanted: wanted, isEmpty: file.sizeBytes == 0,
                isSynced: isSynced)
            // Another call may have raised the class since the first look.
            guard ClassRules.mayChange(from: change.old, to: wanted, isOwner: isOwner) else {
                throw .notPermitted
            }
            do throws(Errno) {
                try withChosenClass(access, wanted, isOwner: isOwner) { () throws(Errno) in
                    try carryOut(change, access, caller, context)
                }
            } catch .notPermitted where change.isRefusalTold {
                // A program that copies a file with its attributes (`cp -a`, `mv`) has written the
                // content by now and ignores this error. So close(2) of a file that was made while
                // locked reports it (`flush`). Only a request of the owner makes the close fail.
                if isOwner { node.classes.refused.value = wanted }
                report(
                    .weakened(
                        path: path(of: node), protectionClass: wanted, now: change.old,
                        operation: "setClass", caller: caller))
                throw .notPermitted
            }
            node.classes.refused.value = nil
        }
    }

    private func carryOut(
        _ change: FileClassChange, _ access: borrowing FileWriteAccess, _ caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) {
        try mayCreate(change.wanted, caller, .setClass, of: access.file.node)
        if change.leavesSyncDue { durability.unsynced.classes.begin() }
        defer { if change.leavesSyncDue { durability.unsynced.classes.end() } }
        switch change.step {
        case .none: break
        case .keylessHeader: try makeKeylessHeader(access, change.wanted)
        case .rewrappedKey:
            try rewrap(access, from: change.old, to: change.wanted, caller, context)
        }
        let needsSync = change.needsSync(
            areOthersDue: !durability.unsynced.classes.areNone,
            mayHaveLostPages: mayHaveLostPages(access.file))
        if needsSync { try syncData(access) }
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
                ClassRules.admitsNewKey(of: wanted, in: gate.classes.state(of: wanted))
            else { return false }
            let key = try loadKey(file, content.context)
            do throws(KeyringError) {
                let wrapped = try keyring.wrap(
                    key, for: wanted, format: file.headers.stored?.format ?? keys.format)
                header.wrappedKey = wrapped.bytes
                header.capsuleID = wrapped.capsuleID
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
}
