import CWardLinux
import Glibc
import WardFormat
import WardSystem

// The seals of classes (docs/format.md §6.2): files are judged when they are opened, directories
// when something looks at their state. A class that counts gets its seal in the background.
extension Volume {
    // MARK: Judging files

    /// Judges the class of an open file. Without the seal key the judgement stays. The file's lock
    /// is held, or no other thread knows the file. Reports a class that nothing vouches for.
    func judgement(of file: OpenFile) -> ClassSeals.Judgement {
        let present = file.notes.seal.value
        guard let judgement = (try? seals.whileOpen { judge(file) }) ?? nil else { return present }
        if judgement == .weak { reportWeak(file) }
        return judgement
    }

    private func judge(_ file: OpenFile) -> ClassSeals.Judgement {
        if let stored = file.headers.stored {
            // The upgrade takes the class of a header of format 1 over, and seals it.
            if stored.format == .version1 || seals.isRight(stored.header) { return .right }
            return seals.judge(
                stored.header, inode: file.node.inode, in: strongestDirectory(of: file.node))
        }
        // An empty file has the class that its directory had when it was made or opened.
        if seals.isRight(file.notes.origin) { return .right }
        guard let strongest = strongestDirectory(of: file.node) else { return .passed }
        return strongest.isStronger(than: file.protectionClass) ? .weak : .right
    }

    private func reportWeak(_ file: OpenFile) {
        let letter = file.protectionClass.letter
        report(
            .integrityFailure(
                path: path(of: file.node),
                reason: "nothing vouches for its class \(letter). It can be read, but not changed. "
                    + "To accept the content and the class: ward class set --rekey \(letter) FILE"))
    }

    /// The strongest class of the directories of a file's names, judged. Nil without a name.
    private func strongestDirectory(of node: Node) -> ProtectionClass? {
        let links = node.allLinks
        if links.isEmpty { return node.kept?.directory.protectionClass }
        // A directory that can't be read may have any class.
        return links.reduce(ProtectionClass.none) { strongest, link in
            let state = try? backing.directoryState(of: link.parent)
            return strongest.stronger(state?.protectionClass ?? .complete)
        }
    }

    /// Judges an empty file that is about to get its first header. The caller has write access.
    func judgeBeforeHeader(of file: OpenFile) {
        guard file.header == nil, seals.areOpen, file.notes.seal.value.isWaiting else { return }
        file.notes.seal.value = judgement(of: file)
    }

    /// Whether nothing vouches for the class of an open file, so that its content must not change.
    package func isClassRefused(of file: OpenFile) -> Bool { file.notes.seal.value == .weak }

    /// Throws `EIO` where nothing vouches for the class of an open file. Judges a file that was
    /// opened before the first unlock. The file's lock is held exclusively; the content lock is
    /// not held.
    func requireSeal(of file: OpenFile) throws(Errno) {
        if file.notes.seal.value != .weak {
            guard seals.areOpen else { return }
            file.notes.seal.value = judgement(of: file)
        }
        guard file.notes.seal.value != .weak else { throw .ioError }
    }

    /// Runs `change`, by which a program sets the class of a file. The class that the owner sets
    /// counts, and is sealed. The present one is not, unless it is the same. Throws `EIO` for a
    /// file with a key that nothing vouches for: another person may know the key. The caller has
    /// write access.
    func withChosenClass(
        _ access: borrowing FileWriteAccess, _ wanted: ProtectionClass, isOwner: Bool,
        _ change: () throws(Errno) -> Void
    ) throws(Errno) {
        let file = access.file
        if seals.areOpen, file.notes.seal.value.isWaiting {
            file.notes.seal.value = judgement(of: file)
        }
        let before = file.notes.seal.value
        guard seals.areUsed, isOwner, before != .right else { return try change() }
        if before == .weak, file.header?.wrappedKey.isEmpty == false {
            reportWeak(file)
            throw .ioError
        }
        let isPresent = file.protectionClass == wanted
        file.notes.seal.value = seals.areOpen ? .right : .chosen
        do throws(Errno) {
            try change()
            guard isPresent, let header = file.headers.bound else { return }
            if seals.areOpen { return try writeSeal(access) }
            seals.noteChosen(header, inode: file.node.inode)
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

    /// The number of times that the seal key has come. Each time `sealClasses` has work.
    public var sealKeyArrivals: UInt64 { seals.arrivals }

    /// Judges the classes of the whole tree, and seals those that this mount gave before. Runs on a
    /// background thread after the first unlock, and rests as long as it works. Returns true if the
    /// whole tree was seen; always in format 1, which has no seals.
    public func sealClasses(shouldStop: @escaping () -> Bool) -> Bool {
        guard seals.areUsed else { return true }
        let before = seals.arrivals
        sealChanges()
        guard seals.areOpen, var sweep = SealSweep(self, shouldStop: shouldStop) else {
            return false
        }
        return sweep.run() && seals.areOpen && seals.arrivals == before
    }

    /// Whether files or directories wait for their seals, and the seal key is in memory.
    public var hasUnsealedChanges: Bool {
        seals.areOpen && !(backing.changed.areNone && backing.unsealed.areNone)
    }

    /// Gives their seals to the files and directories that this mount made, changed or moved
    /// without the seal key. Does nothing without it. The next call tries failed ones again.
    public func sealChanges() {
        guard hasUnsealedChanges, !isReadOnly,
            var sweep = SealSweep(self, shouldStop: { false })
        else { return }
        let directories = backing.changed.take()
        for directory in directories {
            if !sweep.visitAlone(directory), directory.link != nil || directory === root {
                backing.changed.note(directory) { nodes.table.retain($0) }
            }
            nodes.table.release(directory, lookups: 1)
        }
        try? sealDirectories()
    }

    /// Gives the directories their seals that were judged since the last call. Throws the first
    /// error; the directories wait for the next call then.
    package func sealDirectories() throws(Errno) {
        guard seals.areOpen, !backing.unsealed.areNone, !isReadOnly else { return }
        let nodes = backing.unsealed.take()
        defer { for node in nodes { self.nodes.table.release(node, lookups: 1) } }
        var failure: Errno?
        for node in nodes {
            do throws(Errno) {
                try sealRecord(of: node)
            } catch {
                // A directory that was removed needs none. A directory that another program moved
                // in the store is judged in its new place.
                let isGone = error == .noSuchFileOrDirectory || error == .staleNFSFileHandle
                guard !isGone, node.link != nil || node === root else { continue }
                failure = failure ?? error
                backing.unsealed.note(node) { self.nodes.table.retain($0) }
            }
        }
        if let failure { throw failure }
    }

    private func sealRecord(of node: Node) throws(Errno) {
        let state = try backing.directoryState(of: node)
        try names.withRecordFixed(of: state) { () throws(Errno) in
            // Another program may have moved the directory since it was judged.
            let directory = try backing.directoryDescriptor(of: node)
            let isGiven = try backing.isGiven(node, state, directory.rawValue)
            guard keys.readsVersion1 || isGiven else { return }
            let record = DirectoryRecord(
                directoryID: state.id, protectionClass: state.protectionClass,
                isSynchronised: state.isMarked)
            try backing.stageAndPlace(
                record, of: node, state, in: directory.rawValue, .derived,
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
                if file.notes.seal.value.isWaiting {
                    file.notes.seal.value = judgement(of: file)
                }
                guard file.notes.seal.value == .right, file.isWritable, !isReadOnly else { return }
                try writeSeal(access)
            }
            return !file.notes.seal.value.isWaiting
        } catch {
            return false
        }
    }
}

/// One pass over the tree after the first unlock: judges each class, and writes the seals of those
/// that this mount gave before.
///
/// Concurrency: its thread alone. It takes one `OpenFile.lock` at a time, and only of files without
/// a right seal.
struct SealSweep {
    private let volume: Volume
    private let context: WorkerContext
    private let shouldStop: () -> Bool
    /// Directories that wait, each with a look-up.
    private var waiting: [Node] = []
    private var isComplete = true

    /// Nil without memory for a context.
    init?(_ volume: Volume, shouldStop: @escaping () -> Bool) {
        guard let context = try? WorkerContext(allocatingFor: volume) else { return nil }
        self.volume = volume
        self.context = context
        self.shouldStop = shouldStop
    }

    /// Returns false if it was stopped, or could not read or write something.
    mutating func run() -> Bool {
        volume.nodes.table.retain(volume.nodes.root)
        waiting = [volume.nodes.root]
        while let directory = waiting.popLast() {
            if !shouldStop() {
                let begin = SystemClock.monotonic()
                if (try? visit(directory)) == nil, directory.link != nil { isComplete = false }
                rest(SystemClock.monotonic() - begin)
            }
            volume.nodes.table.release(directory, lookups: 1)
        }
        return isComplete && !shouldStop()
    }

    /// Visits one directory, and judges those in it. Returns false if something has no seal yet.
    mutating func visitAlone(_ directory: Node) -> Bool {
        isComplete = true
        if (try? visit(directory)) == nil { isComplete = false }
        for inner in waiting {
            do throws(Errno) {
                let state = try volume.backing.directoryState(of: inner)
                let descriptor = try volume.backing.directoryDescriptor(of: inner)
                try volume.backing.noteUnsealed(inner, state, descriptor.rawValue)
            } catch {
                isComplete = false
            }
            volume.nodes.table.release(inner, lookups: 1)
        }
        waiting = []
        return isComplete
    }

    private mutating func visit(_ directory: Node) throws(Errno) {
        let state = try volume.backing.directoryState(of: directory)
        let descriptor = try volume.backing.directoryDescriptor(of: directory)
        try volume.backing.noteUnsealed(directory, state, descriptor.rawValue)
        if (try? volume.sealDirectories()) == nil { isComplete = false }
        var stored: [[CChar]] = []
        try volume.storage.list(descriptor.rawValue) { entry in
            guard entry.type != UInt8(DT_LNK), volume.keys.names.isOurs(entry.name, in: state)
            else { return }
            stored.append(entry.name.zeroTerminated)
        }
        for name in stored {
            guard !shouldStop(), volume.seals.areOpen else {
                isComplete = false
                return
            }
            let seen = volume.quietNames
            guard let status = try? volume.storage.fstatat(descriptor.rawValue, name) else {
                continue
            }
            look(at: name, status, in: directory, descriptor.rawValue, seen: seen)
        }
    }

    private mutating func look(
        at name: [CChar], _ status: FileStatus, in directory: Node, _ descriptor: Int32,
        seen: UInt64?
    ) {
        let type = status.st_mode & S_IFMT
        guard
            type == S_IFDIR
                || type == S_IFREG && status.st_size > 0 && lacksSeal(name, in: descriptor)
        else { return }
        // A name that has gone meanwhile is looked at in its new place, or needs no seal.
        let found = try? volume.retainNode(
            inode: UInt64(status.st_ino), type: type, name, in: directory, seen: seen)
        guard let node = found else { return }
        if type == S_IFDIR { return waiting.append(node) }
        if !volume.sealFile(node, context) { isComplete = false }
        volume.nodes.table.release(node, lookups: 1)
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
