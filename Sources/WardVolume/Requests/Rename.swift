import Glibc
import WardFormat
import WardSystem

/// One rename, step by step. Holds what the steps share.
///
/// Concurrency: its worker alone, which has begun a change of names.
struct Rename {
    /// The file or directory that has the new name before.
    private struct Replaced {
        let status: FileStatus
        let node: Node?
        /// Nil in an exchange.
        let unread: Volume.UnreadFile?
        /// Nil in an exchange.
        let companions: LinkCompanions?
    }

    private let volume: Volume
    private let context: WorkerContext
    private let caller: Caller
    private let old: StoredName
    private let new: StoredName
    private let flags: UInt32
    private let moved: FileStatus
    /// The status of what has the new name before.
    private let replacedStatus: FileStatus?

    private var isExchange: Bool { flags & renameExchange != 0 }
    private var leavesWhiteout: Bool { flags & renameWhiteout != 0 }
    private var isBetweenDirectories: Bool { old.state !== new.state }

    /// Looks at both names. Throws `ENOENT` or `EEXIST` where the flags say so.
    init(
        _ volume: Volume, _ old: StoredName, _ new: StoredName, flags: UInt32, _ caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) {
        self.volume = volume
        self.context = context
        self.caller = caller
        self.old = old
        self.new = new
        self.flags = flags
        moved = try volume.storage.fstatat(old.descriptor, old.stored)
        var replaced: FileStatus?
        do throws(Errno) {
            replaced = try volume.storage.fstatat(new.descriptor, new.stored)
        } catch .noSuchFileOrDirectory {
            if flags & renameExchange != 0 { throw .noSuchFileOrDirectory }
        }
        if replaced != nil, flags & renameNoReplace != 0 { throw .fileExists }
        replacedStatus = replaced
    }

    /// Whether both are names of one file: rename(2) then does nothing.
    var isWithinOneFile: Bool {
        replacedStatus?.st_ino == moved.st_ino && replacedStatus?.st_dev == moved.st_dev
    }

    func run() throws(Errno) {
        defer { volume.durability.unsynced.movedFiles.end(by: context) }
        defer { context.endClassDecision() }
        if isBetweenDirectories { try keepClasses() }
        let replaced = replacedStatus.map { lookAt(replaced: $0) }
        try new.makeLongLink(volume.names)
        if isExchange { try old.makeLongLink(volume.names) }
        if !isExchange, let replaced { prepareLoss(of: replaced) }
        var places = PlaceChanges(volume, context)
        defer { places.end() }
        do throws(Errno) {
            try addPlaces(to: &places)
            try places.with { () throws(Errno) in try change(replaced) }
        } catch {
            replaced?.node?.kept = nil
            new.removeLongLink(volume.names)
            throw error
        }
        context.endClassDecision()
        note(replaced)
        if isBetweenDirectories { noteArrivals() }
        if !isExchange { old.removeLongLink(volume.names) }
        if let companions = replaced?.companions {
            volume.remove(companions, of: new.descriptor)
        }
        volume.durability.dirt.noteChange()
    }

    // MARK: Before the change

    /// Begins a class decision. Files that go to a directory of another class keep their own.
    private func keepClasses() throws(Errno) {
        context.beginClassDecision()
        try keepClass(of: moved, old, movingTo: new.state)
        if isExchange, let replacedStatus {
            try keepClass(of: replacedStatus, new, movingTo: old.state)
        }
    }

    /// Makes a file's header durable before the file moves to a directory of another class.
    /// Otherwise a power cut could leave it without a header, as an empty file of the new class
    /// (row I5). An empty file without a header gets one with its present class. After the move the
    /// caller calls `movedFiles.end`.
    private func keepClass(
        of status: FileStatus, _ name: StoredName, movingTo target: DirectoryState
    ) throws(Errno) {
        guard status.st_mode & S_IFMT == S_IFREG, !target.gives(name.state.protectionClass)
        else { return }
        let table = volume.nodes.table
        let node = table.retain(inode: UInt64(status.st_ino), type: S_IFREG)
        node.addLink(name.parent, name.stored)
        defer { table.release(node, lookups: 1) }
        try volume.keepClass(of: node, movingTo: target, context)
    }

    private func lookAt(replaced status: FileStatus) -> Replaced {
        let node = volume.nodes.table.find(inode: UInt64(status.st_ino))
        if isExchange {
            return Replaced(status: status, node: node, unread: nil, companions: nil)
        }
        return Replaced(
            status: status, node: node,
            unread: volume.unreadableNow(status, new.parent, new.stored, context),
            companions: volume.companions(status, new))
    }

    /// Keeps a file or link reachable whose last name is about to be replaced. An open(2) or
    /// readlink(2) that found it by that name still gets it. A path that exists at every moment
    /// must never seem to be missing.
    private func prepareLoss(of replaced: Replaced) {
        let status = replaced.status
        volume.noteLeaving(status, context)
        guard let node = replaced.node, [S_IFREG, S_IFLNK].contains(status.st_mode & S_IFMT),
            status.st_nlink == 1,
            let descriptor = try? volume.storage.openPlace(new.descriptor, new.stored)
        else { return }
        node.kept = KeptDescriptor(StoreDescriptor(descriptor, volume.storage), in: new.state)
    }

    /// A directory that takes the place of an empty one is exchanged with it first. So the empty
    /// one moves, too.
    private func addPlaces(to places: inout PlaceChanges) throws(Errno) {
        try places.addMove(of: moved, from: old, to: new)
        guard let replacedStatus else { return }
        let isDirectory = replacedStatus.st_mode & S_IFMT == S_IFDIR
        if isExchange || isDirectory && moved.st_mode & S_IFMT == S_IFDIR {
            try places.addMove(of: replacedStatus, from: new, to: old)
        }
    }

    // MARK: The change

    private func change(_ replaced: Replaced?) throws(Errno) {
        let isDirectory = moved.st_mode & S_IFMT == S_IFDIR
        if let replaced, !isExchange, replaced.status.st_mode & S_IFMT == S_IFDIR {
            guard isDirectory else { throw .isDirectory }
            let empty = try volume.openVictim(new.descriptor, new.stored)
            volume.keepReachable(replaced.node, empty, in: new.state)
            try volume.replaceDirectory(
                old.descriptor, old.stored, new.descriptor, new.stored, empty.rawValue,
                whiteoutOf: leavesWhiteout ? caller : nil)
        } else if flags == renameNoReplace {
            try volume.renameToFreeName(
                old.descriptor, old.stored, new.descriptor, new.stored, isDirectory: isDirectory)
        } else if leavesWhiteout {
            try volume.renameWithWhiteout(
                old.descriptor, old.stored, new.descriptor, new.stored, caller)
        } else {
            try volume.storage.renameat(
                old.descriptor, old.stored, new.descriptor, new.stored, flags: flags)
        }
    }

    // MARK: After the change

    private func note(_ replaced: Replaced?) {
        if let unread = replaced?.unread { volume.report(unread.removed(by: .rename, caller)) }
        if let replaced, !isExchange {
            volume.noteRemoved(
                replaced.node, replaced.status, new.parent, new.stored, new.descriptor)
        }
        let hadContent = replaced?.status.st_size != 0
        let lost =
            isExchange || replaced?.unread != nil || !hadContent
            ? nil : replaced?.node?.protectionClass
        noteMoved(moved, from: old, to: new)
        reportWeakened(from: lost)
        if leavesWhiteout { volume.noteUnknownName(in: old.parent) }
        if isExchange, let replaced { noteMoved(replaced.status, from: new, to: old) }
    }

    private func noteMoved(_ status: FileStatus, from: StoredName, to: StoredName) {
        let table = volume.nodes.table
        let node = table.find(inode: UInt64(status.st_ino))
        defer { volume.names.movedNodes.note(node) { table.retain($0) } }
        guard let node else {
            return volume.noteUnknownName(in: to.parent)
        }
        // The new name first: a thread that climbs to the root meets either name, never none.
        node.addLink(to.parent, to.stored)
        node.removeLink(from.parent, from.stored)
        volume.noteNewName(of: node)
    }

    /// Reports a file that took the name of a file of a stronger class, as when programs save by
    /// writing another file (row I6). Also reports a file that was refused its class and now gets
    /// its final name. Uses only classes in memory. `before`: the class of the file that had the
    /// name.
    private func reportWeakened(from before: ProtectionClass?) {
        guard moved.st_mode & S_IFMT == S_IFREG, moved.st_size > 0,
            let node = volume.nodes.table.find(inode: UInt64(moved.st_ino)),
            let now = node.protectionClass
        else { return }
        let refused = node.classes.refused.value
        guard let wanted = ClassRules.lostClass(refused: refused, replaced: before, now: now)
        else { return }
        volume.report(
            .weakened(
                path: volume.path(of: node), protectionClass: wanted, now: now,
                operation: refused == nil ? "rename" : "setClass", caller: caller))
    }

    private func noteArrivals() {
        guard volume.rules.hasMarks else { return }
        let left = volume.rules.markedDirectory(over: old.parent)
        let entered = volume.rules.markedDirectory(over: new.parent)
        volume.noteArrival(
            moved, to: new.parent, new.stored, before: left, .rename, caller, context)
        if isExchange, let replacedStatus {
            volume.noteArrival(
                replacedStatus, to: old.parent, old.stored, before: entered, .rename, caller,
                context)
        }
    }
}
