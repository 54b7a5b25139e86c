import CWardLinux
import Glibc
import WardFormat
import WardSystem

/// Changes names and records in the backing store for a check, beside the requests of programs.
///
/// Concurrency: any thread; all properties are constant.
package struct NameRepair: Sendable {
    private let volume: Volume

    /// Changes the names of `volume`, which serves requests meanwhile.
    package init(_ volume: Volume) { self.volume = volume }

    /// Moves a file to another stored name in one step, durably, and never over another file.
    /// `type`: `S_IFMT` part of its mode. No lock is held.
    package func move(
        inode: UInt64, type: mode_t, from parent: Node, _ stored: [CChar], to target: Node,
        _ newName: [CChar], _ context: WorkerContext
    ) throws(Errno) {
        let from = try volume.backing.directoryDescriptor(of: parent)
        let to = try volume.backing.directoryDescriptor(of: target)
        try moveNode(
            (inode, type), (parent, from.rawValue, stored), (target, to.rawValue, newName), context)
        try volume.storage.fsync(to.rawValue)
        if from !== to { try volume.storage.fsync(from.rawValue) }
        forgetInKernel(target, newName)
        volume.durability.dirt.noteChange()
    }

    /// Exchanges two files in one step, durably. No lock is held.
    package func exchange(
        _ first: (inode: UInt64, parent: Node, stored: [CChar]),
        _ second: (inode: UInt64, parent: Node, stored: [CChar])
    ) throws(Errno) {
        let one = try volume.backing.directoryDescriptor(of: first.parent)
        let other = try volume.backing.directoryDescriptor(of: second.parent)
        do {
            volume.names.changes.begin()
            defer { volume.names.changes.end() }
            try volume.storage.renameat(
                one.rawValue, first.stored, other.rawValue, second.stored, flags: renameExchange)
            for (file, name, old) in [(first, second, first), (second, first, second)] {
                guard let node = volume.nodes.table.find(inode: file.inode) else { continue }
                node.addLink(name.parent, name.stored)
                node.removeLink(old.parent, old.stored)
                volume.names.movedNodes.note(node, isCounted: false) {
                    volume.nodes.table.retain($0)
                }
            }
        }
        try volume.storage.fsync(one.rawValue)
        try volume.storage.fsync(other.rawValue)
        for name in [first, second] { forgetInKernel(name.parent, name.stored) }
        volume.durability.dirt.noteChange()
    }

    private func forgetInKernel(_ parent: Node, _ stored: [CChar]) {
        guard let state = parent.directory,
            let plain = volume.names.plainNameBytes(
                of: NodeLink(parent: parent, name: stored), in: state)
        else { return }
        volume.kernel?.invalidateName(plain, in: parent.kernelID(volume))
    }

    /// Returns the stored name of a name in a directory, zero-terminated. Throws `ENAMETOOLONG`
    /// above 255 bytes.
    package func storedName(_ name: String, in directory: Node) throws(Errno) -> [CChar] {
        let state = try volume.backing.directoryState(of: directory)
        var stored = [CChar](repeating: 0, count: 512)
        try Array(name.utf8).withUnsafeBytesTyped { bytes throws(Errno) in
            try stored.withUnsafeMutableBufferPointer { out throws(Errno) in
                _ = try volume.keys.names.encrypt(bytes, in: state.id, to: out.baseAddress!)
            }
        }
        return Array(stored.prefix { $0 != 0 }) + [0]
    }

    private typealias Place = (parent: Node, descriptor: Int32, stored: [CChar])

    private func moveNode(
        _ file: (inode: UInt64, type: mode_t), _ from: Place, _ to: Place, _ context: WorkerContext
    ) throws(Errno) {
        defer {
            context.endClassDecision()
            volume.durability.unsynced.movedFiles.end(by: context)
        }
        if file.type == S_IFREG, let node = volume.nodes.table.find(inode: file.inode) {
            let state = try volume.backing.directoryState(of: to.parent)
            context.beginClassDecision()
            try volume.keepClass(of: node, movingTo: state, context)
        }
        // A look-up in between may find neither name; it then looks again.
        volume.names.changes.begin()
        defer { volume.names.changes.end() }
        // A file that goes back to where it belongs needs no permission to be there.
        try volume.renameToFreeName(
            from.descriptor, from.stored, to.descriptor, to.stored,
            isDirectory: file.type == S_IFDIR)
        let node = volume.nodes.table.find(inode: file.inode)
        if let node {
            node.addLink(to.parent, to.stored)
            node.removeLink(from.parent, from.stored)
        }
        volume.names.movedNodes.note(node, isCounted: false) { volume.nodes.table.retain($0) }
    }

    /// Forgets a removed name in the volume. Returns the call that has the kernel forget it. No
    /// lock may be held during that call: the kernel may wait for one with the directory locked.
    package func forget(
        _ parent: Node, _ stored: [CChar], _ status: FileStatus
    ) -> () -> Void {
        let link = NodeLink(parent: parent, name: stored)
        let plain = parent.directory.flatMap { volume.names.plainNameBytes(of: link, in: $0) }
        let node = volume.nodes.table.find(inode: UInt64(status.st_ino))
        volume.noteRemoved(node, status, parent, stored)
        volume.durability.dirt.noteChange()
        return { [self] in
            removeLongLink(parent, stored)
            if let plain { volume.kernel?.invalidateName(plain, in: parent.kernelID(volume)) }
        }
    }

    /// Whether a link in the directory needs this permit. Waits for renames and link(2) under way,
    /// which make the permit before the link's name.
    package func isNeeded(permit name: [UInt8], _ directory: Int32) -> Bool {
        volume.names.directoryMoves.withWriteLock { hasLink(of: name, directory) }
    }

    /// Removes a permit unless a link in the directory needs it by now.
    package func removePermit(_ name: [UInt8], _ directory: Int32) throws(Errno) {
        try volume.names.directoryMoves.withWriteLock { () throws(Errno) in
            if hasLink(of: name, directory) { return }
            try volume.storage.unlinkat(directory, name.zeroTerminated, 0)
        }
    }

    /// True also where the directory can't be read now.
    private func hasLink(of permit: [UInt8], _ directory: Int32) -> Bool {
        var links: [[CChar]] = []
        let listed: Void? = try? volume.storage.list(directory) { entry in
            guard entry.type == UInt8(DT_LNK) || entry.type == UInt8(DT_UNKNOWN),
                !volume.keys.ownNames.isPermit(entry.name)
            else { return }
            links.append(entry.name.zeroTerminated)
        }
        guard listed != nil else { return true }
        return links.contains { name in
            do throws(Errno) {
                let stored = try volume.storedLink(directory, name)
                return LinkPermit.name(of: stored).utf8.elementsEqual(permit)
            } catch {
                return !BackingStore.isGone(error) && error != .invalidArgument
            }
        }
    }

    /// Whether an open directory has a second record, and no move is under way.
    package func hasMoveRecord(_ descriptor: Int32) -> Bool {
        volume.names.directoryMoves.withWriteLock {
            (try? volume.storage.fstatat(descriptor, DirectoryRecord.nextLinkName)) != nil
        }
    }

    /// Ends an interrupted move: the record that is valid in the present place stays.
    package func endMove(of node: Node, _ descriptor: Int32) throws(Errno) {
        try volume.names.directoryMoves.withWriteLock { () throws(Errno) in
            let parentID = try volume.backing.parentID(of: node)
            let next = DirectoryRecord.nextLinkName
            if try volume.backing.isFirstRecordSound(descriptor, parentID: parentID) {
                try volume.storage.unlinkat(descriptor, next, 0)
            } else {
                try volume.storage.renameat(
                    descriptor, next, descriptor, DirectoryRecord.linkName, flags: 0)
            }
        }
    }

    /// Removes the other half of a long name that is gone. No lock is held.
    package func removeLongLink(_ parent: Node, _ stored: [CChar]) {
        guard stored.first == CChar(bitPattern: NameCipher.longNamePrefix),
            let descriptor = try? volume.backing.directoryDescriptor(of: parent)
        else { return }
        volume.names.longNames.withWriteLock {
            volume.names.removeLongLink(descriptor.rawValue, stored)
        }
    }

    /// Puts a record in place by a rename, and syncs the directory. For a known directory
    /// `NameTree.withRecordFixed` is held, so that no program changes the record meanwhile.
    package func putRecord(
        _ record: DirectoryRecord, of node: Node, in descriptor: Int32
    ) throws(Errno) {
        let parentID = try volume.backing.parentID(of: node)
        // A record that is only restored gets its seal. A new one is judged when it is used.
        let isKnown = node.directory.map {
            $0.judgement.value == .right && $0.id == record.directoryID
                && $0.protectionClass == record.protectionClass
        }
        let hidden = try volume.backing.stageRecord(
            isKnown == true
                ? volume.seals.sealed(record, parentID: parentID) : record,
            in: descriptor, parentID: parentID)
        try volume.backing.placeRecord(hidden, in: descriptor)
        try volume.storage.fsync(descriptor)
    }

    /// Whether this mount uses the staging name in the directory. The root's are always the same,
    /// and are written over.
    package func isInUse(_ staging: [UInt8], in directory: Node) -> Bool {
        staging.starts(with: volume.store.staging.prefix.utf8)
            || directory === volume.root && staging.starts(with: VolumeRoot.stagingPrefix.utf8)
    }
}

extension Node {
    /// The kernel's number of the node: 1 for the root.
    fileprivate func kernelID(_ volume: Volume) -> NodeID { self === volume.root ? 1 : id }
}

extension NameTree {
    /// Runs `body` while no program changes the directory's record, by a class or a move. Holds
    /// `directoryMoves`, shared, and `recordLock`.
    package func withRecordFixed<R>(
        of state: DirectoryState, _ body: () throws(Errno) -> R
    ) throws(Errno) -> R {
        try directoryMoves.withReadLock { () throws(Errno) in
            try state.recordLock.withLock(body)
        }
    }

    /// Runs `body` while no request makes or removes a half of a long name, with `longNames` held
    /// exclusively. `body` must not wait for decisions about classes.
    package func withLongNamesFixed<R, E: Error>(_ body: () throws(E) -> R) throws(E) -> R {
        try longNames.withWriteLock(body)
    }

    /// Runs `body` while no request is between a long link's target and the link, with
    /// `longTargets` held exclusively.
    package func withLongTargetsFixed<R, E: Error>(_ body: () throws(E) -> R) throws(E) -> R {
        try longTargets.withWriteLock(body)
    }
}
