import CWardLinux
import Glibc
import Synchronization
import WardFormat
import WardSystem

/// Directories whose classes were judged and whose records have no right seal yet.
///
/// Concurrency: any thread; a mutex guards the nodes.
final class UnsealedDirectories: Sendable {
    private let nodes = Mutex<[ObjectIdentifier: Node]>([:])

    /// Notes a directory. Calls `retain` on a node that is kept.
    func note(_ node: Node, retain: (Node) -> Void) {
        nodes.withLock {
            if $0.updateValue(node, forKey: ObjectIdentifier(node)) == nil { retain(node) }
        }
    }

    var areNone: Bool { nodes.withLock { $0.isEmpty } }

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
    /// The class and the mark count where the record has the right seal, or this mount wrote it
    /// before the first unlock. Else the strongest of these classes counts, and no mark: the
    /// record's class, the parent's, and those of all files and directories in it. The root always
    /// has a seal: without it, class A counts. That is reported, and stays so until the owner sets
    /// a class.
    func judge(_ node: Node, _ state: DirectoryState) throws(Errno) {
        let descriptor = try directoryDescriptorForJudge(of: node, state)
        defer { storage.close(descriptor) }
        let parentID = try parentID(of: node)
        let record = try readRecord(descriptor, node)
        // The record may have been replaced since it was read.
        let claimed = record.protectionClass.stronger(state.protectionClass)
        if record.directoryID == state.id, seals.isRight(record, parentID: parentID) {
            _ = state.judged(.right, claimed, isMarked: record.isSynchronised || state.isMarked)
        } else if keys.readsVersion1, try isOfVersion1(node, record, descriptor, parentID) {
            // The upgrade takes the class over, and seals it. The root's record is new already.
            if state.judged(.right, claimed, isMarked: state.isMarked), node === root {
                unsealed.note(node) { nodes.table.retain($0) }
            }
        } else if let made = seals.madeDirectory(state.id, inode: node.inode) {
            // The parent's class may have been another person's when it was inherited.
            let counts =
                made.isChosen
                ? made.protectionClass
                : made.protectionClass.stronger(try parentClass(of: node) ?? .none)
            if state.judged(.right, counts, isMarked: made.isSynchronised) {
                unsealed.note(node) { nodes.table.retain($0) }
            }
        } else if let before = seals.recordBeforeMoves(state.id, inode: node.inode) {
            if state.judged(.right, before.protectionClass, isMarked: before.isSynchronised) {
                unsealed.note(node) { nodes.table.retain($0) }
            }
        } else {
            let counts =
                node === root
                ? .complete
                : try strongest(
                    claimed.stronger(try parentClass(of: node) ?? .none), state.id, descriptor)
            guard state.judged(.weak, counts, isMarked: false) else { return }
            reportUnsealed(node, record, claimed, counts)
        }
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
        let isOurs = origin == .chosen || state.judgement.value == .right
        let new = isOurs ? seals.sealed(record, parentID: parentID) : record
        let hidden = try stageRecord(new, in: directory, parentID: parentID)
        beforePlacing()
        try placeRecord(hidden, in: directory)
        if origin == .chosen { seals.noteChosen(directory: state.id, inode: node.inode) }
        if new.hasSeal {
            seals.forgetMade(state.id, inode: node.inode)
            state.judgement.value = .right
        } else if origin == .chosen {
            seals.noteMade(record, inode: node.inode, isChosen: true)
        }
    }
}
