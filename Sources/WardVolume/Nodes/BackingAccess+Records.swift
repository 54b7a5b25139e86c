import Glibc
import WardFormat
import WardSystem

// Records of directories.
extension BackingAccess {
    /// Reads the record of a directory, by its name's parent. Looks again while names change: a
    /// rename changes the record, and the node a little later. Throws `ESTALE` where the directory
    /// has no name any more, and `EIO`, with an event, where there is no valid record.
    func readRecord(_ descriptor: Int32, _ node: Node) throws(Errno) -> DirectoryRecord {
        var attempt = 0
        while true {
            attempt += 1
            let quiet = names.changes.quietState
            switch try record(in: descriptor, parentID: try parentID(of: node)) {
            case .success(let record): return record
            case .failure(let error):
                if names.changes.isQuiet(since: quiet) || attempt == BackingAccess.mostAttempts {
                    // A directory that is removed loses its record before it is gone.
                    if hasLostName(node) { throw .staleNFSFileHandle }
                    throw damaged(names.path(of: node), error)
                }
                usleep(100)
            }
        }
    }

    func damaged(_ path: String, _ error: FormatError) -> Errno {
        reporter.report(.integrityFailure(path: path, reason: error.description))
        return .ioError
    }

    /// The ID of the directory that has the node's name; `noParent` for the root, and in format 1,
    /// where records know no parent.
    package func parentID(of node: Node) throws(Errno) -> [UInt8] {
        guard keys.format >= .version2, node !== root else { return DirectoryRecord.noParent }
        if let link = node.link { return try directoryState(of: link.parent).id }
        guard let kept = node.kept else { throw .staleNFSFileHandle }
        return kept.directory.id
    }

    /// Reads the record of a directory, or the second one that a move left. The failure is the
    /// first one's.
    func record(
        in descriptor: Int32, parentID: [UInt8]
    ) throws(Errno) -> Result<DirectoryRecord, FormatError> {
        let first = try record(named: DirectoryRecord.linkName, descriptor, parentID)
        guard case .failure(let error) = first, keys.format >= .version2,
            error.code != .newerVersion
        else { return first }
        // A power cut may have come into a move. The next move, or a check, puts it in place.
        let next = try record(named: DirectoryRecord.nextLinkName, descriptor, parentID)
        if case .success = next { return next }
        // The end of a move may have renamed it between the two looks.
        let again = try record(named: DirectoryRecord.linkName, descriptor, parentID)
        return (try? again.get()) != nil ? again : first
    }

    /// Whether the first record is valid, without the second one of a move.
    package func isFirstRecordSound(
        _ descriptor: Int32, parentID: [UInt8]
    ) throws(Errno) -> Bool {
        let found = try record(named: DirectoryRecord.linkName, descriptor, parentID)
        return (try? found.get()) != nil
    }

    /// `isBound`: only of the format that is written.
    private func record(
        named name: String, _ descriptor: Int32, _ parentID: [UInt8], isBound: Bool = false
    ) throws(Errno) -> Result<DirectoryRecord, FormatError> {
        var target = [UInt8](repeating: 0, count: 256)
        do throws(Errno) {
            let count = try target.withUnsafeMutableBufferPointer { out throws(Errno) in
                try storage.readlinkat(descriptor, name, out.baseAddress!, out.count)
            }
            target.removeLast(256 - count)
        } catch .noSuchFileOrDirectory {
            return .failure(FormatError(.notRecognised, "the directory has no record"))
        }
        return Result { () throws(FormatError) in
            let target = String(decoding: target, as: UTF8.self)
            let record =
                isBound
                ? try keys.boundRecord(target, parentID: parentID)
                : try keys.directoryRecord(target, parentID: parentID)
            let isRoot = keys.format == .version1 || parentID == DirectoryRecord.noParent
            guard isRoot || record.directoryID != keys.rootID else {
                throw FormatError(.malformed, "directory record: the root's ID")
            }
            return record
        }
    }

    /// Whether the first record is valid, and of the format that is written.
    func isFirstRecordBound(
        _ descriptor: Int32, parentID: [UInt8]
    ) throws(Errno) -> Bool {
        let found = try record(
            named: DirectoryRecord.linkName, descriptor, parentID, isBound: true)
        return (try? found.get()) != nil
    }

    /// Replaces a directory's record of format 1. Returns whether it had one. `recordLock` and
    /// `directoryMoves`, shared, are held.
    func carryOverRecord(
        of node: Node, _ state: DirectoryState, _ descriptor: Int32
    ) throws(Errno) -> Bool {
        if try isFirstRecordBound(descriptor, parentID: try parentID(of: node)) { return false }
        try stageAndPlace(
            DirectoryRecord(
                directoryID: state.id, protectionClass: state.protectionClass,
                isSynchronised: state.isMarked),
            of: node, state, in: descriptor, .chosen, beforePlacing: {})
        return true
    }

    /// Whether an open directory has a record for the place of its node, the second one of a move
    /// included.
    package func hasRecord(_ descriptor: Int32, _ node: Node) throws(Errno) -> Bool {
        let found = try record(in: descriptor, parentID: try parentID(of: node))
        return (try? found.get()) != nil
    }

    /// Whether the record of a directory, under this stored name, names `parentID` as its parent.
    func directoryBelongs(
        _ node: Node, _ stored: UnsafePointer<CChar>, in directory: Int32, _ parentID: [UInt8]
    ) throws(Errno) -> Bool {
        let descriptor = try storage.openat(
            directory, stored, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, mode: 0)
        defer { storage.close(descriptor) }
        try require(descriptor, node)
        guard let record = try? record(in: descriptor, parentID: parentID).get() else {
            return false
        }
        // The class in memory was judged in another place.
        guard node.directory?.judgement.value == .right, !keys.readsVersion1 else { return true }
        return try seals.whileOpen {
            seals.isRight(record, parentID: parentID)
                || seals.isGiven(record, inode: node.inode, in: parentID)
        } ?? true
    }

    /// Whether the store has no such name any more, or another inode under it. False where that
    /// can't be told now.
    func isGone(_ link: NodeLink, of node: Node) -> Bool {
        do throws(Errno) {
            let parent = try directoryDescriptor(of: link.parent)
            return withExtendedLifetime(parent) {
                store.isGone(node.inode, parent.rawValue, link.name)
            }
        } catch {
            return BackingStore.isGone(error)
        }
    }

    /// Whether a directory was removed, or moved by another program. False for the root.
    private func hasLostName(_ node: Node) -> Bool {
        guard node !== root else { return false }
        return node.link.map { isGone($0, of: node) } ?? true
    }

    /// Forgets a name that the store does not have any more.
    func dropIfGone(_ link: NodeLink, of node: Node) {
        guard isGone(link, of: node) else { return }
        node.dropLink(link)
        // A rename may have made the name anew in between.
        if !isGone(link, of: node) { node.addLink(link.parent, link.name) }
    }

    /// Throws `ESTALE` where a descriptor is not of the node's inode.
    func require(_ descriptor: Int32, _ node: Node) throws(Errno) {
        let status = try storage.fstat(descriptor)
        guard UInt64(status.st_ino) == node.inode, status.st_dev == store.device else {
            throw .staleNFSFileHandle
        }
    }

    /// Makes a directory record under a hidden name, for `placeRecord`. Returns that name.
    /// `parentID`: that of the directory's parent. `directoryMoves` is held, shared, where programs
    /// know the directory.
    func stageRecord(
        _ record: DirectoryRecord, in directory: Int32, parentID: [UInt8]
    ) throws(Errno) -> String {
        let hidden = store.staging.next()
        try storage.symlinkat(
            target: record.linkTarget(
                macKey: keys.records, parentID: keys.parentID(parentID)), directory, hidden)
        return hidden
    }

    /// Puts a staged record in the place of the old one, or takes it away if that fails. Does not
    /// sync. The directory's `recordLock` is held where programs know the directory.
    func placeRecord(_ hidden: String, in directory: Int32) throws(Errno) {
        do throws(Errno) {
            try storage.renameat(
                directory, hidden, directory, DirectoryRecord.linkName, flags: 0)
        } catch {
            try? storage.unlinkat(directory, hidden, 0)
            throw error
        }
    }
}
