import CWardLinux
import Glibc
import WardFormat
import WardSystem

// The seals of classes (docs/format.md §6.2): files are judged when they are opened, directories
// when something looks at their state. A class that counts gets its seal in the background.
extension Volume {
    // MARK: Judging files

    /// Judges the class of an open file. `directory`: that of its name, judged. The seal key is in
    /// memory. Reports a class that is weaker than its directory's, with no right seal.
    func judgement(of file: OpenFile, in directory: DirectoryState) -> ClassSeals.Judgement {
        let own = file.protectionClass
        // The upgrade takes the class of a header of format 1 over, and seals it.
        if let stored = file.headers.stored, stored.format == .version1 { return .right }
        // An empty file without a header has the class that its directory had when it was opened.
        let judgement =
            file.header.map { seals.judge($0, in: directory.protectionClass) }
            ?? (directory.protectionClass.isStronger(than: own) ? .weak : .right)
        if judgement == .weak {
            let letter = own.letter
            report(
                .integrityFailure(
                    path: path(of: file.node),
                    reason: "nothing vouches for its class \(letter), which is weaker than that "
                        + "of its directory. It can be read, but not changed. To accept the class: "
                        + "ward class set \(letter) FILE"))
        }
        return judgement
    }

    /// Whether nothing vouches for the class of an open file, so that its content must not change.
    package func isClassRefused(of file: OpenFile) -> Bool { file.notes.seal.value == .weak }

    /// Throws `EIO` where nothing vouches for the class of an open file. Judges a file that was
    /// opened before the first unlock. The content lock is not held.
    func requireSeal(of file: OpenFile) throws(Errno) {
        guard seals.areOpen else { return }
        if file.notes.seal.value == .open {
            file.notes.seal.value = judgement(of: file, in: try lastDirectory(of: file.node))
        }
        guard file.notes.seal.value == .right else { throw .ioError }
    }

    /// A program is about to set the class of a file. The present class counts if the owner does
    /// it, and its header is sealed. The caller has write access.
    func judgeForChange(
        _ access: borrowing FileWriteAccess, isOwner: Bool
    ) throws(Errno) {
        let file = access.file
        let before = file.notes.seal.value
        guard before != .right else { return }
        guard isOwner else {
            if before == .open, seals.areOpen {
                file.notes.seal.value = judgement(of: file, in: try lastDirectory(of: file.node))
            }
            return
        }
        file.notes.seal.value = .right
        guard seals.areOpen else {
            if let header = file.header { seals.noteMade(header.fileID, header.protectionClass) }
            return
        }
        do throws(Errno) {
            try writeSeal(access)
        } catch {
            file.notes.seal.value = before
            throw error
        }
    }

    /// Writes the header of a file whose class counts, with its seal. Content and times stay.
    private func writeSeal(_ access: borrowing FileWriteAccess) throws(Errno) {
        let file = access.file
        guard let header = file.headers.bound, !seals.isRight(header) else { return }
        let before = try storage.fstat(file.descriptor)
        try rewriteHeader(access, header)
        try storage.setTimes(
            file.descriptor, access: timespec(tv_sec: 0, tv_nsec: ward_utime_omit()),
            modification: before.st_mtim)
    }

    /// Writes another header of the same key, of a file with content or without. The times move.
    /// `format`: nil for that of the present header.
    func rewriteHeader(
        _ access: borrowing FileWriteAccess, _ header: FileHeader, format: VolumeFormat? = nil
    ) throws(Errno) {
        let file = access.file
        if file.sizeBytes > 0 { return try replaceHeader(access, header, format: format) }
        let old = file.headers.stored
        access.headers.put(storedHeader(header, of: file, format: format))
        do throws(Errno) {
            try writeKeylessPage(access)
        } catch {
            access.headers.put(old)
            throw error
        }
    }

    // MARK: Sealing later

    /// Judges the classes of the whole tree, and gives their seals to those that count. Runs on a
    /// background thread after the first unlock of a mount, and rests as long as it works. Returns
    /// true if the whole tree was seen; always in format 1, which has no seals.
    public func sealClasses(shouldStop: @escaping () -> Bool) -> Bool {
        guard seals.areUsed else { return true }
        guard seals.areOpen, let sweep = SealSweep(self, shouldStop: shouldStop) else {
            return false
        }
        return sweep.run()
    }

    /// Gives the directories their seals that were judged since the last call. Throws the first
    /// error; the directories wait for the next call then.
    package func sealDirectories() throws(Errno) {
        guard !backing.unsealed.areNone, !isReadOnly else { return }
        let nodes = backing.unsealed.take()
        defer { for node in nodes { self.nodes.table.release(node, lookups: 1) } }
        var failure: Errno?
        for node in nodes {
            do throws(Errno) {
                try sealRecord(of: node)
            } catch {
                // A directory that was removed needs none.
                guard node.link != nil || node === root else { continue }
                failure = failure ?? error
                backing.unsealed.note(node) { self.nodes.table.retain($0) }
            }
        }
        if let failure { throw failure }
    }

    private func sealRecord(of node: Node) throws(Errno) {
        let state = try backing.directoryState(of: node)
        try names.withRecordFixed(of: state) { () throws(Errno) in
            let directory = try backing.directoryDescriptor(of: node)
            let record = DirectoryRecord(
                directoryID: state.id, protectionClass: state.protectionClass,
                isSynchronised: state.isMarked)
            _ = try backing.stageAndPlace(
                record, of: node, in: directory.rawValue, .read,
                beforePlacing: { state.isRecordUnsynced.value = true })
            // The seal comes before those of the files in it.
            try storage.fsync(directory.rawValue)
            state.isRecordUnsynced.value = false
        }
    }

    /// Judges one file and gives it its seal. False where that can't be done now.
    func sealFile(_ node: Node, _ context: WorkerContext) -> Bool {
        do throws(Errno) {
            let file = try acquire(node, context).file
            defer { release(file, context) }
            guard let isNew = isNewborn(file, { false }), !isNew else { return true }
            try file.withWriteAccess { access throws(Errno) in
                if file.notes.seal.value == .open {
                    file.notes.seal.value = judgement(of: file, in: try lastDirectory(of: node))
                }
                guard file.notes.seal.value == .right, file.isWritable, !isReadOnly else { return }
                try writeSeal(access)
            }
            return true
        } catch {
            return false
        }
    }
}

/// One pass over the tree after the first unlock: judges each class, and writes the seals that are
/// missing.
///
/// Concurrency: its thread alone. It takes one `OpenFile.lock` at a time, and only of files without
/// a right seal.
struct SealSweep {
    private let volume: Volume
    private let context: WorkerContext
    private let shouldStop: () -> Bool

    /// Nil without memory for a context.
    init?(_ volume: Volume, shouldStop: @escaping () -> Bool) {
        guard let context = try? WorkerContext(allocatingFor: volume) else { return nil }
        self.volume = volume
        self.context = context
        self.shouldStop = shouldStop
    }

    /// Returns false if it was stopped.
    func run() -> Bool {
        visit(volume.nodes.root)
        try? volume.sealDirectories()
        return !shouldStop()
    }

    private func visit(_ directory: Node) {
        let begin = SystemClock.monotonic()
        guard let state = try? volume.backing.directoryState(of: directory),
            let descriptor = try? volume.backing.directoryDescriptor(of: directory)
        else { return }
        try? volume.sealDirectories()
        var stored: [[CChar]] = []
        try? volume.storage.list(descriptor.rawValue) { entry in
            guard entry.type != UInt8(DT_LNK), volume.keys.names.isOurs(entry.name, in: state)
            else { return }
            stored.append(entry.name.zeroTerminated)
        }
        var directories: [Node] = []
        defer { for node in directories { volume.nodes.table.release(node, lookups: 1) } }
        for name in stored {
            if shouldStop() { return }
            guard let status = try? volume.storage.fstatat(descriptor.rawValue, name) else {
                continue
            }
            let type = status.st_mode & S_IFMT
            if type == S_IFREG {
                guard status.st_size > 0, lacksSeal(name, in: descriptor.rawValue) else { continue }
            } else if type != S_IFDIR {
                continue
            }
            let node = volume.nodes.table.retain(inode: UInt64(status.st_ino), type: type)
            node.addLink(directory, name)
            if type == S_IFDIR {
                directories.append(node)
            } else {
                _ = volume.sealFile(node, context)
                volume.nodes.table.release(node, lookups: 1)
            }
        }
        rest(SystemClock.monotonic() - begin)
        for node in directories where !shouldStop() { visit(node) }
    }

    /// Whether a file has a header without its right seal. Reads it without opening the file for
    /// programs.
    private func lacksSeal(_ stored: [CChar], in directory: Int32) -> Bool {
        guard
            let file = try? volume.storage.openat(
                directory, stored, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, mode: 0)
        else { return false }
        defer { volume.storage.close(file) }
        guard let found = try? volume.backing.header(of: file) else { return false }
        // The upgrade seals headers of format 1.
        return found.format >= .version2 && !volume.seals.isRight(found.header)
    }

    /// Leaves the store to programs for a while.
    private func rest(_ duration: Duration) {
        let microseconds = duration.components.attoseconds / 1_000_000_000_000
        if microseconds > 100 { usleep(UInt32(min(microseconds, 100_000))) }
    }
}
