import CWardLinux
import Glibc
import Synchronization
import WardFormat
import WardSystem

/// Directories that wait for seals. The kernel may forget them meanwhile.
///
/// Concurrency: any thread; a mutex guards the nodes.
final class WaitingDirectories: Sendable {
    private let nodes = Mutex<[ObjectIdentifier: Node]>([:])

    /// Notes a directory. Calls `retain` on a node that is kept, to give it a look-up.
    func note(_ node: Node, retain: (Node) -> Void) {
        nodes.withLock {
            if $0.updateValue(node, forKey: ObjectIdentifier(node)) == nil { retain(node) }
        }
    }

    var areNone: Bool { nodes.withLock { $0.isEmpty } }

    /// Forgets a directory that was removed. Calls `release` on a node that was kept.
    func drop(_ node: Node, release: (Node) -> Void) {
        let dropped = nodes.withLock { $0.removeValue(forKey: ObjectIdentifier(node)) }
        if let dropped { release(dropped) }
    }

    /// Returns the noted directories, each with a look-up, and forgets them.
    func take() -> [Node] {
        nodes.withLock { nodes in
            defer { nodes = [:] }
            return Array(nodes.values)
        }
    }
}

// The classes of directories, judged by the seals of their records (`ClassSeals`).
extension BackingAccess {
    /// Judges the class of a directory, once in a mount. The seal key is in memory.
    ///
    /// The class and the mark count where the record has the right seal. They count, too, where
    /// this mount wrote it before the first unlock, for a reason that holds. Else no mark counts,
    /// and the strongest of these classes does: the record's, the parent's, and those of all files
    /// and directories in it. The root always has a seal: without it, class A counts. That is
    /// reported, and stays so until the owner sets a class.
    func judge(_ node: Node, _ state: DirectoryState) throws(Errno) {
        let found = try seals.whileOpen { () throws(Errno) in try verdict(node, state) }
        guard let found,
            state.judged(found.judgement, found.protectionClass, isMarked: found.isMarked)
        else { return }
        if found.needsSeal { unsealed.note(node) { nodes.table.retain($0) } }
        if found.judgement == .weak {
            reportUnsealed(node, found.record, found.claimed, found.protectionClass)
        }
    }

    /// The class and the mark of a directory that count, and the reason.
    private struct Verdict {
        let record: DirectoryRecord
        /// The class that the record names, or one that it named before.
        let claimed: ProtectionClass
        var judgement = ClassSeals.Judgement.right
        var protectionClass: ProtectionClass
        var isMarked: Bool
        var needsSeal = false
    }

    private func verdict(_ node: Node, _ state: DirectoryState) throws(Errno) -> Verdict {
        let descriptor = try directoryDescriptorForJudge(of: node, state)
        defer { storage.close(descriptor) }
        let parentID = try parentID(of: node)
        let record = try readRecord(descriptor, node)
        // The record may have been replaced since it was read.
        let claimed = record.protectionClass.stronger(state.protectionClass)
        var verdict = Verdict(
            record: record, claimed: claimed, protectionClass: claimed, isMarked: state.isMarked)
        if record.directoryID == state.id, seals.isRight(record, parentID: parentID) {
            verdict.isMarked = record.isSynchronised || state.isMarked
        } else if keys.readsVersion1, try isOfVersion1(node, record, descriptor, parentID) {
            // The upgrade takes the class over, and seals it. The root's record is new already.
            verdict.needsSeal = node === root
        } else if record.directoryID == state.id,
            seals.isGiven(record, inode: node.inode, in: parentID)
        {
            verdict.isMarked = record.isSynchronised || state.isMarked
            verdict.needsSeal = true
        } else {
            verdict.judgement = .weak
            verdict.isMarked = false
            verdict.protectionClass =
                node === root
                ? .complete
                : try strongest(
                    claimed.stronger(try parentClass(of: node) ?? .none), state.id, descriptor)
        }
        return verdict
    }

    /// Whether this mount wrote the record of a directory without a seal, and its class counts.
    func isGiven(
        _ node: Node, _ state: DirectoryState, _ descriptor: Int32
    ) throws(Errno) -> Bool {
        let (record, parentID) = (try readRecord(descriptor, node), try parentID(of: node))
        return record.directoryID == state.id
            && seals.isGiven(record, inode: node.inode, in: parentID)
    }

    /// Whether an upgrade has not carried over a directory's record yet, or a moment ago.
    private func isOfVersion1(
        _ node: Node, _ record: DirectoryRecord, _ descriptor: Int32, _ parentID: [UInt8]
    ) throws(Errno) -> Bool {
        if node === root { return !record.hasSeal }
        return try !isFirstRecordBound(descriptor, parentID: parentID)
    }

    /// The directory without a look at its state. A directory that lost its name is reached by the
    /// descriptor that was kept.
    private func directoryDescriptorForJudge(
        of node: Node, _ state: DirectoryState
    ) throws(Errno) -> Int32 {
        do throws(Errno) {
            return try openDirectoryDescriptor(of: node)
        } catch .staleNFSFileHandle {
            return try withKeptDescriptor(of: node) { kept throws(Errno) in
                try storage.openat(kept, ".", O_RDONLY | O_DIRECTORY, mode: 0)
            }
        }
    }

    /// The class of new files in the parent; nil where the directory has no name.
    private func parentClass(of node: Node) throws(Errno) -> ProtectionClass? {
        guard let parent = node.link?.parent else { return nil }
        return try directoryState(of: parent).protectionClass
    }

    /// The strongest of a class and those of all files and directories in an open directory.
    func strongest(
        _ own: ProtectionClass, _ id: [UInt8], _ descriptor: Int32
    ) throws(Errno) -> ProtectionClass {
        var strongest = own
        try storage.list(descriptor) { entry in
            guard strongest != .complete, entry.type != UInt8(DT_LNK),
                keys.names.isOurs(entry.name, in: id),
                let found = classOfEntry(entry.name.zeroTerminated, in: descriptor, id)
            else { return }
            strongest = strongest.stronger(found)
        }
        return strongest
    }

    /// The class that the header of a file, or the record of a directory, names. Nil where there is
    /// none that authenticates.
    private func classOfEntry(
        _ stored: [CChar], in directory: Int32, _ directoryID: [UInt8]
    ) -> ProtectionClass? {
        let flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK
        guard let type = try? storage.fstatat(directory, stored).st_mode & S_IFMT,
            type == S_IFREG || type == S_IFDIR,
            let opened = try? storage.openat(directory, stored, flags, mode: 0)
        else { return nil }
        defer { storage.close(opened) }
        if type == S_IFDIR {
            return try? record(in: opened, parentID: directoryID).get().protectionClass
        }
        return try? header(of: opened)?.header.protectionClass
    }

    /// Returns the header of an open backing file, and its format; nil where none authenticates.
    func header(
        of file: Int32
    ) throws(Errno) -> (header: FileHeader, format: VolumeFormat)? {
        try withUnsafeTemporaryAllocation(byteCount: FileHeader.bytes, alignment: 8) {
            page throws(Errno) in
            let bytes = page.baseAddress!
            let got = try storage.pread(file, bytes, FileHeader.bytes, at: 0)
            guard got == FileHeader.bytes, let header = try? keys.header(reading: bytes) else {
                return nil
            }
            return (header, keys.headerFormat(bytes))
        }
    }

    private func reportUnsealed(
        _ node: Node, _ record: DirectoryRecord, _ claimed: ProtectionClass,
        _ counts: ProtectionClass
    ) {
        let cause =
            record.hasSeal
            ? "the class of the directory was changed by a program without the passcode"
            : "nothing vouches for the class of the directory: it was set before a first unlock, "
                + "or by a program without the passcode"
        let mark = record.isSynchronised ? " Its mark of ward sync does not count." : ""
        reporter.report(
            .integrityFailure(
                path: names.path(of: node),
                reason: "\(cause). It says \(claimed.letter), and \(counts.letter) counts.\(mark) "
                    + "To set the class: ward class set CLASS DIRECTORY"))
    }

    /// The origin of a directory's new record.
    enum RecordOrigin {
        /// A program chose the class.
        case chosen
        /// The class or the mark follows from others, and from the record before.
        case derived
    }

    /// Writes a record in the place of a directory's old one, with its seal where it may have one.
    /// Does not sync. Calls `beforePlacing` when only the renaming is left. The directory's
    /// `recordLock` is held.
    func stageAndPlace(
        _ record: DirectoryRecord, of node: Node, _ state: DirectoryState, in directory: Int32,
        _ origin: RecordOrigin, beforePlacing: () -> Void
    ) throws(Errno) {
        let parentID = try parentID(of: node)
        let counts = origin == .chosen || state.judgement.value == .right
        let new = counts ? seals.sealed(record, parentID: parentID) : record
        let vouch =
            !seals.areUsed ? .nothing : counts ? .mount : try vouch(of: node, directory, parentID)
        let hidden = try stageRecord(new, in: directory, parentID: parentID)
        beforePlacing()
        try placeRecord(hidden, in: directory)
        // A record that an interrupted move left is of no use any more.
        try? storage.unlinkat(directory, DirectoryRecord.nextLinkName, 0)
        if new.hasSeal {
            seals.notes.forget(inode: node.inode)
            state.judgement.value = .right
        } else if vouch != .nothing {
            seals.notes.note(record, inode: node.inode, in: parentID, vouch)
            unsealed.note(node) { nodes.table.retain($0) }
        }
    }

    /// The reason why the class of a directory counts whose record gets another mark before the
    /// first unlock.
    private func vouch(
        of node: Node, _ descriptor: Int32, _ parentID: [UInt8]
    ) throws(Errno) -> Vouch {
        guard !seals.areOpen else { return .nothing }
        return seals.vouch(
            of: try readRecord(descriptor, node), inode: node.inode, in: parentID)
    }

    /// The reason why a class counts that a new file or directory inherits from `directory`, before
    /// the first unlock. The class may have been forged.
    func vouch(
        for inherited: ProtectionClass, in directory: Node, _ state: DirectoryState
    ) throws(Errno) -> Vouch {
        let descriptor = try directoryDescriptor(of: directory)
        let record = try readRecord(descriptor.rawValue, directory)
        guard record.directoryID == state.id, record.protectionClass == inherited else {
            return .nothing
        }
        return seals.vouch(
            of: record, inode: directory.inode, in: try parentID(of: directory))
    }

    /// Something in a directory was made, changed or moved there. It may wait for its seal.
    func noteChange(in directory: Node) {
        guard seals.areUsed, !seals.areOpen || seals.notes.areAny,
            directory.link != nil || directory === root
        else { return }
        changed.note(directory) { nodes.table.retain($0) }
    }

    /// Notes a directory whose class counts and whose record has no seal, so that it gets one.
    func noteUnsealed(
        _ node: Node, _ state: DirectoryState, _ descriptor: Int32
    ) throws(Errno) {
        guard state.judgement.value == .right, seals.notes.areAny,
            try isGiven(node, state, descriptor)
        else { return }
        unsealed.note(node) { nodes.table.retain($0) }
    }
}
