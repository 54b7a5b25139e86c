import CWardLinux
import Glibc
import Synchronization
import WardFormat
import WardSystem

/// Looks at everything in a volume, through the volume's own tables and locks, so that programs may
/// use it meanwhile; with `isRepairing` it puts right what it finds.
///
/// Repair changes nothing that can be read. Every step leaves the old or the new behind when the
/// power goes, and what is replaced or taken away is in the quarantine, durably, before.
///
/// Concurrency: `run` is called once. Directories and files of one level are looked at by several
/// threads; what they tell is collected in `tally`.
public final class VolumeCheck: Sendable {
    let volume: Volume
    let isRepairing: Bool
    /// As the quarantine and the report are called: when it began.
    let name: String
    let quarantine: Quarantine
    let contexts: ContextPool
    private let threads: Int
    private let onFinding: @Sendable (CheckFinding) -> Void
    let shouldStop: @Sendable () -> Bool

    struct Tally {
        var report = CheckReport()
        /// Regular files with several names that were looked at.
        var linked: Set<UInt64> = []
        /// Those with a name that opens.
        var named: Set<UInt64> = []
        /// Names beside the one by which they were looked at.
        var otherNames: [VolumeCheck.FileTask] = []
        /// Files of which nothing can be read, taken away under the name by which they were looked
        /// at.
        var lost: Set<UInt64> = []
        /// Files that were left as they are: of a later version, or with a header that can't be
        /// told now.
        var untouched: Set<UInt64> = []
        /// Directories by their ID.
        var directories: [[UInt8]: Node] = [:]
        /// IDs of directories that files were created in, by their headers.
        var hints: Set<[UInt8]> = []
        var highestEpoch: UInt32 = 0
        /// Files of `ward.links` that links name.
        var longTargets: Set<String> = []
        var badNames: [BadName] = []
        var badRecords: [BadRecord] = []
        /// Of long names that seemed to be gone.
        var halves: [LongNameHalf] = []
        /// Those that belong to a name with a changed character.
        var claimedHalves: Set<[CChar]> = []
        /// Names of which it was tried to find the changed character.
        var corrections = 0
        /// Directories of which no name opened, told once.
        var judgedRecords: Set<UInt64> = []
        /// Directories that can be looked at now, and could not before.
        var opened: [Node] = []
        /// With one look-up each, taken back at the end.
        var retained: [Node] = []
    }
    let tally = Mutex(Tally())

    /// `name`: when it began, as part of a file's name. `context`: with which it can go on where
    /// there is no memory for others. `onFinding` is called by any thread.
    public init(
        _ volume: Volume, repairs: Bool, name: String, threads: Int = 4,
        context: WorkerContext? = nil,
        onFinding: @escaping @Sendable (CheckFinding) -> Void = { _ in },
        shouldStop: @escaping @Sendable () -> Bool = { false }
    ) {
        self.volume = volume
        isRepairing = repairs
        self.name = name
        self.threads = threads
        self.onFinding = onFinding
        self.shouldStop = shouldStop
        quarantine = Quarantine(volume, name: name)
        contexts = ContextPool(volume, context ?? WorkerContext(volume: volume))
    }

    /// `onProgress` is called on this thread, often.
    public func run(onProgress: (CheckProgress) -> Void = { _ in }) -> CheckReport {
        let (halfDone, moves) = (volume.halfDoneChanges, volume.movedNodes.count)
        let intervals = volume.doubtful
        checkState()
        let longTargets = longTargetFiles()
        var level = [volume.root]
        while !level.isEmpty {
            walk(level, onProgress)
            // What has no name or no record is looked at when every directory is known.
            if !shouldStop() {
                resolveRecords()
                resolveNames()
            }
            level = tally.withLock { tally in
                defer { tally.opened = [] }
                return tally.opened
            }
        }
        checkEpochs()
        let isInterrupted = shouldStop()
        tally.withLock { $0.report.isInterrupted = isInterrupted }
        checkLongTargets(longTargets, moves: moves)
        endDoubt(intervals, halfDone: halfDone, moves: moves)
        if isRepairing { leaveReport() }
        let report = tally.withLock { tally -> CheckReport in
            for node in tally.retained { volume.table.release(node, lookups: 1) }
            tally.retained = []
            return tally.report
        }
        contexts.drain()
        return report
    }

    private func walk(_ top: [Node], _ onProgress: (CheckProgress) -> Void) {
        var level = top
        while !level.isEmpty, !shouldStop() {
            let visits = map(level.count, onProgress) { [level] in self.visit(level[$0]) }
            let files = visits.flatMap(\.files)
            _ = map(files.count, onProgress) { if !self.shouldStop() { self.check(files[$0]) } }
            level = visits.flatMap(\.directories)
        }
    }

    private func map<T: Sendable>(
        _ count: Int, _ onProgress: (CheckProgress) -> Void,
        _ body: @escaping @Sendable (Int) -> T
    ) -> [T] {
        Parallel.map(
            count, threads: threads, share: 4, name: "ward-check",
            tick: { _ in onProgress(tally.withLock { $0.report.progress }) }, body)
    }

    // MARK: Telling

    /// Notes a finding, after what could be done about it was done.
    func add(_ finding: CheckFinding) {
        tally.withLock {
            if $0.report.findings.count < CheckReport.mostKept {
                $0.report.findings.append(finding)
            }
            $0.report.progress.findings += 1
            if finding.isRepaired { $0.report.repaired += 1 }
        }
        onFinding(finding)
    }

    /// Notes a finding with what `repair` does about it; it returns where the quarantine has what
    /// it took away.
    func add(
        _ finding: CheckFinding, repair: () throws(Errno) -> String?
    ) {
        var finding = finding
        if isRepairing {
            do throws(Errno) {
                finding.quarantined = try repair()
                finding.outcome = .repaired
            } catch {
                finding.outcome = .left("it failed: \(error)")
            }
        }
        add(finding)
    }

    func note(unreachable path: String, _ error: Errno) {
        tally.withLock { $0.report.unreachable.append("\(path): \(error)") }
    }

    /// It vanished, or was replaced, while it was looked at: nothing to tell. The store is asked
    /// again, which may say the same of what is there. `inode`: nil where it was never told.
    func isGone(_ error: Errno, _ inode: UInt64?, _ parent: Node, _ stored: [CChar]) -> Bool {
        guard error.mayMeanGone else { return false }
        do throws(Errno) {
            let directory = try volume.directoryDescriptor(of: parent)
            return withExtendedLifetime(directory) {
                volume.isGone(inode, directory.rawValue, stored)
            }
        } catch {
            return isGone(error, parent)
        }
    }

    /// One without a name was taken away by a program.
    func isGone(_ error: Errno, _ node: Node) -> Bool {
        if node === volume.root { return false }
        guard let link = node.link else { return true }
        return isGone(error, node.inode, link.parent, link.name)
    }

    // MARK: The volume as a whole

    /// The files in `ward.links`, each with its link, which was made before this returns.
    private func longTargetFiles() -> [String] {
        volume.longTargets.lockWrite()
        defer { volume.longTargets.unlock() }
        var names: [String] = []
        do throws(Errno) {
            try volume.withLongTargets(makes: false) { directory throws(Errno) in
                try volume.storage.list(directory) {
                    names.append(String(decoding: $0.name, as: UTF8.self))
                }
            }
        } catch .noSuchFileOrDirectory {
            // There never was one.
        } catch {
            note(unreachable: "/" + Volume.longTargetsName, error)
        }
        return names
    }

    /// Targets that no link names any more. Only where every link was seen: what was moved
    /// meanwhile may have been missed.
    private func checkLongTargets(_ names: [String], moves: UInt64) {
        let (isComplete, named) = tally.withLock { tally in
            let hidesNames = tally.report.findings.contains {
                [.root, .record, .name].contains($0.kind)
            }
            return (tally.report.isComplete && !hidesNames, tally.longTargets)
        }
        guard isComplete, volume.nameChanges.quietState != nil, volume.movedNodes.count == moves
        else { return }
        for name in names where !named.contains(name) {
            let isThere = try? volume.withLongTargets(makes: false) { directory throws(Errno) in
                try volume.storage.fstatat(directory, name)
            }
            // Removed meanwhile, with its link.
            guard isThere != nil else { continue }
            add(
                CheckFinding(
                    .leftover, path: "/\(Volume.longTargetsName)/\(name)",
                    problem: "the target of a symbolic link that is not there any more",
                    remedy: "moved to the quarantine")
            ) { () throws(Errno) in
                try volume.withLongTargets(makes: false) { directory throws(Errno) in
                    try quarantine.move(
                        directory, name, ["target of a symbolic link: \(name)"])
                }
            }
        }
    }

    /// A page of an epoch that the volume has not reached yet: the state record is an older one.
    private func checkEpochs() {
        let highest = tally.withLock { $0.highestEpoch }
        guard highest > volume.epoch.load(ordering: .sequentiallyConsistent) else { return }
        add(
            CheckFinding(
                .root, path: "/" + VolumeStateRecord.fileName,
                problem:
                    "it is an older one: pages carry epoch \(highest), which it has not reached",
                remedy: "epochs go on above it")
        ) { () throws(Errno) in
            volume.skipEpochs(through: highest)
            try volume.durablePoint()
            return nil
        }
    }

    /// Where every file was read, and mended where it had to be, unclean ends excuse nothing any
    /// more. What was moved meanwhile may have been missed: the volume's own pass sees it.
    private func endDoubt(_ intervals: [ClosedRange<UInt32>], halfDone: Int, moves: UInt64) {
        tally.withLock { tally in
            if isRepairing, !intervals.isEmpty, tally.report.isComplete,
                // What was left, a header or a directory's record, has content that nobody has
                // looked at.
                tally.report.repaired == tally.report.progress.findings
            {
                if volume.nameChanges.quietState != nil, volume.movedNodes.count == moves {
                    volume.endDoubt(of: intervals, ifHalfDoneIs: halfDone)
                } else {
                    volume.noteMendingDue(true)
                }
            }
            tally.report.isInDoubt = volume.isInDoubt
        }
    }
}

extension Errno {
    /// What a store says of what is gone, or of what it has lost sight of.
    fileprivate static let gone: [Errno] = [
        .noSuchFileOrDirectory, .staleNFSFileHandle, .notDirectory,
    ]
    var mayMeanGone: Bool { Errno.gone.contains(self) }
}

/// Contexts for as many threads as there are and memory lasts; one thread after the other uses
/// each.
final class ContextPool: Sendable {
    private let volume: Volume
    private let free: Mutex<[WorkerContext]>

    init(_ volume: Volume, _ first: WorkerContext) {
        self.volume = volume
        free = Mutex([first])
    }

    func with<R>(_ body: (WorkerContext) -> R) -> R { withTyped(body) }

    func withTyped<R, E: Error>(_ body: (WorkerContext) throws(E) -> R) throws(E) -> R {
        let context = take()
        defer {
            context.scrub()
            free.withLock { $0.append(context) }
        }
        return try body(context)
    }

    private func take() -> WorkerContext {
        while true {
            if let context = free.withLock({ $0.popLast() }) { return context }
            if let context = try? WorkerContext(allocatingFor: volume) { return context }
            // Other threads have those that there are.
            usleep(1000)
        }
    }

    /// Frees them. None is in use, nor will be.
    func drain() { free.withLock { $0 = [] } }
}
