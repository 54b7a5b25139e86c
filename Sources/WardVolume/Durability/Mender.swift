import CWardLinux
import Glibc
import WardFormat
import WardSystem

/// One pass over the files in doubt. After a power cut or a half-done change, every file is read,
/// and pages that only the doubt excuses are written anew. Then the doubt ends (format.md §8).
///
/// Concurrency: its thread alone, with a context of its own; the daemon's is `ward-mend`. It holds
/// no lock from file to file, and `FileMender` takes one `OpenFile.lock` at a time.
struct Mender {
    private let volume: Volume
    private let nodes: VolumeNodes
    private let names: NameTree
    private let doubt: Doubt
    private let files: FileMender
    private let shouldStop: () -> Bool

    /// Nil without memory for a context.
    init?(_ volume: Volume, shouldStop: @escaping () -> Bool) {
        guard let context = try? WorkerContext(allocatingFor: volume) else { return nil }
        self.volume = volume
        nodes = volume.nodes
        names = volume.names
        doubt = volume.durability.doubt
        files = FileMender(volume, context, shouldStop: shouldStop)
        self.shouldStop = shouldStop
    }

    /// Mends what can be read now. Ends the doubt if every file was readable. Otherwise the next
    /// pass waits for an unlock, or, if that would not help, for the backing store.
    func run() {
        doubt.noteMendingDue(false)
        let before = doubt.halfDoneChanges
        let intervals = doubt.intervals
        names.movedNodes.watch()
        defer { for node in names.movedNodes.unwatch() { nodes.table.release(node, lookups: 1) } }
        if mend(directory: nodes.root, isWalk: true), mendMovedNodes() {
            if !volume.endDoubt(of: intervals, ifHalfDoneIs: before) { doubt.noteMendingDue(true) }
        } else if ProtectionClass.allCases.allSatisfy({
            volume.gate.classes.state(of: $0) == .open
        }) {
            // An unlock would not help: the next pass waits until the backing store works again.
            doubt.noteMendingDue(true)
        }
    }

    // MARK: Directories

    /// Mends everything below a directory. Returns false if a file could not be read: then the
    /// doubt stays. `isWalk`: also mends moved nodes in between.
    private func mend(directory: Node, isWalk: Bool = false) -> Bool {
        var isComplete = true
        var stored: [[CChar]] = []
        guard let descriptor = try? volume.backing.directoryDescriptor(of: directory),
            let state = try? volume.backing.directoryState(of: directory),
            (try? volume.storage.list(
                descriptor.rawValue,
                { entry in
                    guard entry.type != UInt8(DT_LNK),
                        volume.keys.names.isOurs(entry.name, in: state)
                    else { return }
                    stored.append(entry.name.zeroTerminated)
                })) != nil
        else { return false }
        for name in stored {
            if shouldStop() { return false }
            // Moved nodes are mended early: each holds memory, and perhaps the file that it
            // replaced.
            if isWalk, names.movedNodes.areWaiting, mendThoseMoved() == false {
                isComplete = false
            }
            let seen = names.changes.quietState
            let status: FileStatus
            do throws(Errno) {
                status = try volume.storage.fstatat(descriptor.rawValue, name)
            } catch {
                if !BackingStore.isGone(error)
                    || !volume.store.isGone(nil, descriptor.rawValue, name)
                {
                    isComplete = false
                }
                continue
            }
            let type = status.st_mode & S_IFMT
            guard type == S_IFDIR || type == S_IFREG else { continue }
            let inode = UInt64(status.st_ino)
            let found = try? volume.retainNode(
                inode: inode, type: type, name, in: directory, seen: seen)
            guard let node = found else {
                if !volume.store.isGone(inode, descriptor.rawValue, name) { isComplete = false }
                continue
            }
            defer { nodes.table.release(node, lookups: 1) }
            if type == S_IFDIR {
                if !mend(directory: node, isWalk: isWalk) { isComplete = false }
            } else if !files.mend(node),
                !volume.store.isGone(node.inode, descriptor.rawValue, name)
            {
                isComplete = false
            }
        }
        return isComplete
    }

    // MARK: Moved nodes

    /// Mends nodes that moved during the pass, because the walk may have missed them. Returns false
    /// if a node could not be read, or if moves come faster than reads. A later pass then sees
    /// them.
    private func mendMovedNodes() -> Bool {
        for _ in 0..<Mender.mostRoundsOfMoved {
            // A move that the backing store has done is noted when the request ends.
            let end = SystemClock.monotonic() + Mender.movePatience
            while names.changes.areUnderWay {
                if shouldStop() || SystemClock.monotonic() > end { return false }
                usleep(100)
            }
            guard let isSeen = mendThoseMoved() else { return true }
            if !isSeen { return false }
        }
        return false
    }

    /// Mends the moved nodes that wait. Returns nil if none wait, false if one could not be read.
    private func mendThoseMoved() -> Bool? {
        guard let moved = names.movedNodes.take() else { return false }
        if moved.isEmpty { return nil }
        defer { for node in moved { nodes.table.release(node, lookups: 1) } }
        for node in moved {
            guard let link = node.link else { continue }
            let isSeen =
                node.isDirectory
                ? mend(directory: node)
                : !node.isRegular || files.mend(node)
            if !isSeen, !isGone(node, link) { return false }
        }
        return true
    }

    /// Whether a node was removed meanwhile, or moved again. Then it waits again.
    private func isGone(_ node: Node, _ link: NodeLink) -> Bool {
        if node.link == nil { return true }
        guard let parent = try? volume.backing.directoryDescriptor(of: link.parent) else {
            return false
        }
        return volume.store.isGone(node.inode, parent.rawValue, link.name)
    }

    private static let mostRoundsOfMoved = 100

    /// If a move hangs in the backing store for longer, the doubt stays.
    private static let movePatience = Duration.seconds(10)
}
