import Glibc
import Synchronization
import WardFormat
import WardSystem
import WardVolume

/// Carries everything in a volume over from format 1 to format 2 (docs/format.md §10.1), and ends
/// the upgrade. A second walk finds what the first one did not reach, so it needs no journal.
///
/// The volume is open for writing and being upgraded (`Volume.beginUpgrade`), and no program uses
/// it meanwhile.
///
/// Concurrency: `run` is called once. Several threads work on the directories and files of one
/// level, and collect their results in `tally`.
public final class VolumeUpgrade: Sendable {
    struct Task: Sendable {
        let inode: UInt64
        let type: mode_t
        let nameCount: Int
        let parent: Node
        /// Zero-terminated.
        let stored: [CChar]
    }

    struct Tally {
        var report = UpgradeReport()
        /// Files and links with several names, by inode.
        var several: [UInt64: [Task]] = [:]
        /// The times of directories before anything in them was carried over, by inode.
        var times: [UInt64: timespec] = [:]
        /// The directories with these IDs, by path.
        var paths: [[UInt8]: String] = [:]
        /// Nodes with one look-up each, which is released at the end.
        var retained: [Node] = []
    }

    let volume: Volume
    let tally = Mutex(Tally())
    let contexts: ContextPool
    private let threads: Int
    let shouldStop: @Sendable () -> Bool

    public init(
        _ volume: Volume, threads: Int = Parallel.threadCount,
        shouldStop: @escaping @Sendable () -> Bool = { false }
    ) {
        self.volume = volume
        self.threads = threads
        self.shouldStop = shouldStop
        contexts = ContextPool(volume, WorkerContext(volume: volume))
    }

    /// Runs the upgrade. `onProgress` is called on this thread, often.
    ///
    /// `beforeEnd` is called when all is carried over and durable. The state record does not say so
    /// yet. It is the place for other things that have to follow, as the keybag. If it throws, the
    /// volume stays between the formats.
    public func run(
        beforeEnd: () throws -> Void = {}, onProgress: (UpgradeProgress) -> Void = { _ in }
    ) throws -> UpgradeReport {
        defer {
            for node in tally.withLock({ $0.retained }) { volume.releaseNode(node) }
            contexts.drain()
        }
        if volume.standing.isUpgrading {
            tally.withLock { $0.report.progress.total = 1 }
            walk(onProgress)
            if !shouldStop() { carryOverSeveralNames(onProgress) }
        }
        var report = tally.withLock { $0.report }
        report.isInterrupted = shouldStop()
        if report.isInterrupted || report.leftCount > 0 || report.locked > 0 { return report }
        try end(beforeEnd)
        report.isDone = true
        return report
    }

    private func end(_ beforeEnd: () throws -> Void) throws {
        guard volume.standing.isUpgrading else { return }
        try volume.sealDirectories()
        try volume.durablePoint()
        // Each link of format 2 is durable, so the targets of format 1 have no link.
        try volume.removeVersion1Targets()
        try beforeEnd()
        try volume.endUpgrade()
    }

    private func walk(_ onProgress: (UpgradeProgress) -> Void) {
        var level = [volume.root]
        while !level.isEmpty, !shouldStop() {
            let visits = map(level.count, onProgress) { [level] in self.visit(level[$0]) }
            let tasks = visits.flatMap(\.tasks)
            _ = map(tasks.count, onProgress) { if !self.shouldStop() { self.carryOver(tasks[$0]) } }
            for directory in level { restoreTime(of: directory) }
            level = visits.flatMap(\.directories)
        }
    }

    func map<T: Sendable>(
        _ count: Int, _ onProgress: (UpgradeProgress) -> Void,
        _ body: @escaping @Sendable (Int) -> T
    ) -> [T] {
        Parallel.map(
            count, threads: threads, share: 4, name: "ward-upgrade",
            tick: { _ in onProgress(tally.withLock { $0.report.progress }) }, body)
    }

    // MARK: Telling

    func noteDone(isNew: Bool) {
        tally.withLock { tally in
            tally.report.progress.done += 1
            if isNew { tally.report.carriedOver += 1 }
        }
    }

    func noteLeft(_ path: String, _ reason: String) {
        tally.withLock { tally in
            tally.report.leftCount += 1
            if tally.report.left.count < UpgradeReport.mostKept {
                tally.report.left.append(UpgradeReport.Left(path: path, reason: reason))
            }
        }
    }

    /// A directory whose time can't be restored keeps the present one.
    func restoreTime(of directory: Node) {
        guard let time = tally.withLock({ $0.times[directory.inode] }) else { return }
        try? volume.restore(modificationTime: time, of: directory)
    }

    func path(_ task: Task) -> String { volume.path(of: task.stored, in: task.parent) }

    // MARK: Directories

    private struct Visit: Sendable {
        var directories: [Node] = []
        var tasks: [Task] = []
    }

    private func visit(_ node: Node) -> Visit {
        if shouldStop() { return Visit() }
        do throws(Errno) {
            let time = try volume.modificationTime(of: node)
            tally.withLock { $0.times[node.inode] = time }
            let id = try volume.backing.directoryState(of: node).id
            let path = volume.path(of: node)
            // A seal holds for an ID, so two directories must not have the same one.
            if let other = tally.withLock({ $0.paths.updateValue(path, forKey: id) }) {
                noteLeft(path, "it has the ID of \(other): remove one of them")
                return Visit()
            }
            noteDone(isNew: try volume.carryOver(directory: node))
            return try look(at: node)
        } catch {
            noteLeft(volume.path(of: node), "the directory: \(error)")
            return Visit()
        }
    }

    private func look(at node: Node) throws(Errno) -> Visit {
        let directory = try volume.backing.directoryDescriptor(of: node)
        return try withExtendedLifetime(directory) { () throws(Errno) in
            var visit = Visit()
            for name in try names(in: node, directory.rawValue) {
                let stored = name.zeroTerminated
                let status = try volume.storage.fstatat(directory.rawValue, stored)
                guard status.st_dev == volume.store.device else { continue }
                let (inode, type) = (UInt64(status.st_ino), status.st_mode & S_IFMT)
                if type == S_IFDIR {
                    let child = try volume.retainNode(
                        inode: inode, type: type, stored, in: node, seen: nil)
                    tally.withLock { $0.retained.append(child) }
                    visit.directories.append(child)
                } else {
                    visit.tasks.append(
                        Task(
                            inode: inode, type: type, nameCount: Int(status.st_nlink),
                            parent: node, stored: stored))
                }
            }
            let count = visit.directories.count + visit.tasks.count
            tally.withLock { $0.report.progress.total += count }
            return visit
        }
    }

    /// The stored names of files in a directory. A name that ward could have made may not open. It
    /// may hide a file of format 1, so it keeps the upgrade from its end.
    private func names(in node: Node, _ descriptor: Int32) throws(Errno) -> [[UInt8]] {
        let state = try volume.backing.directoryState(of: node)
        let isRoot = node === volume.root
        var names: [[UInt8]] = []
        var others: [[UInt8]] = []
        try volume.storage.list(descriptor) { entry in
            let name = entry.name
            // Names with a dot are ward's own, or foreign.
            if name.contains(UInt8(ascii: ".")) || isRoot && name.elementsEqual("README".utf8) {
                return
            }
            let isLong = name.count == 44 && name[0] == NameCipher.longNamePrefix
            if !isLong, volume.opens(name, in: state.id) {
                names.append(name)
            } else if isLong || VolumeCheck.looksStored(name) {
                others.append(name)
            }
        }
        for name in others {
            if try opensLong(name, descriptor, state.id) {
                names.append(name)
            } else {
                let stored = name.zeroTerminated
                noteLeft(volume.path(of: stored, in: node), "its name does not open")
            }
        }
        return names
    }

    private func opensLong(
        _ name: [UInt8], _ descriptor: Int32, _ id: [UInt8]
    ) throws(Errno) -> Bool {
        guard name.first == NameCipher.longNamePrefix else { return false }
        do throws(Errno) {
            return try volume.names.readLongName(descriptor, name.zeroTerminated).map {
                volume.opens($0, in: id)
            } ?? false
        } catch {
            if error == .noSuchFileOrDirectory || error == .invalidArgument { return false }
            throw error
        }
    }
}
