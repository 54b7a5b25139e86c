import Glibc
import Synchronization
import WardFormat
import WardSystem
import WardVolume

/// Examines everything in a volume, through the volume's own tables and locks: programs may use it
/// meanwhile. With `isRepairing` it repairs its findings.
///
/// A repair changes nothing that can be read. A power cut leaves the old or the new state of each
/// step. Replaced and removed data is durable in the quarantine before the step.
///
/// Concurrency: `run` is called once. Several threads examine the directories and files of one
/// level, and collect their results in `tally`.
public final class VolumeCheck: Sendable {
    let volume: Volume
    let isRepairing: Bool
    /// The name of the quarantine's run and of the report: when the check began.
    let name: String
    let quarantine: Quarantine
    let contexts: ContextPool
    let pages: PageExaminer
    let pageRepair: PageRepair
    let salvaging: FileSalvage
    let nameRepair: NameRepair
    private let threads: Int
    private let onFinding: @Sendable (CheckFinding) -> Void
    let shouldStop: @Sendable () -> Bool

    struct Tally {
        var report = CheckReport()
        var links = LinkedFiles()
        var longNames = LongNames()
        /// Files that were left as they are: of a later version, or with a header that can't be
        /// read now.
        var untouched: Set<UInt64> = []
        /// Directories by their ID.
        var directories: [[UInt8]: Node] = [:]
        /// IDs of directories in which files were created, from their headers.
        var hints: Set<[UInt8]> = []
        var badNames: [BadName] = []
        var badRecords: [BadRecord] = []
        var misplaced: [Misplaced] = []
        var badLinks: [BadLink] = []
        /// The number of names for which a changed character was searched.
        var corrections = 0
        var told = ToldDirectories()
        /// Directories that can be examined now, and could not be before.
        var opened: [Node] = []
        var openedFiles: [FileTask] = []
        /// Nodes with one look-up each, which is released at the end.
        var retained: [Node] = []
    }
    let tally = Mutex(Tally())

    /// Regular files with several names.
    struct LinkedFiles {
        var examined: Set<UInt64> = []
        /// Those of `examined` that have a name which opens.
        var named: Set<UInt64> = []
        /// Those with a name in a directory where they belong.
        var placed: Set<UInt64> = []
        /// Names of files in `examined`, other than the names by which they were examined.
        var otherNames: [FileTask] = []
        /// Files without anything readable, removed under the name by which they were examined.
        var lost: Set<UInt64> = []
    }

    /// Directories that are looked at again after a repair, and told of once.
    struct ToldDirectories {
        /// Those in which no name opened.
        var foreign: Set<UInt64> = []
        /// Those whose class has no seal.
        var unsealed: Set<UInt64> = []
    }

    struct LongNames {
        /// Files of `ward.links` that links name.
        var targets: Set<String> = []
        /// Permits that links need.
        var permits: Set<String> = []
        /// Halves of long names whose other half seemed to be missing.
        var halves: [LongNameHalf] = []
        /// Names of halves that belong to a name with a changed character.
        var claimedHalves: Set<[CChar]> = []
    }

    /// `name`: when the check began, as part of file names. With `context` the check goes on where
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
        pages = PageExaminer(volume, shouldStop: shouldStop)
        pageRepair = PageRepair(volume, pages)
        salvaging = FileSalvage(volume, shouldStop: shouldStop)
        nameRepair = NameRepair(volume)
    }

    /// Runs the check. `onProgress` is called on this thread, often.
    public func run(onProgress: (CheckProgress) -> Void = { _ in }) -> CheckReport {
        let wholeWalk = VolumeWalk(volume)
        checkState()
        checkCapsules()
        let longTargets = longTargetFiles()
        var level = [volume.root]
        while !level.isEmpty {
            walk(level, onProgress)
            // Files without a name and directories without a record need all directory IDs.
            if !shouldStop() {
                resolveRecords()
                resolveNames()
                resolvePlaces()
            }
            let (next, files) = tally.withLock { tally in
                defer { (tally.opened, tally.openedFiles) = ([], []) }
                return (tally.opened, tally.openedFiles)
            }
            check(files, onProgress)
            level = next
        }
        checkEpochs()
        let isInterrupted = shouldStop()
        tally.withLock { $0.report.isInterrupted = isInterrupted }
        checkLongTargets(longTargets, wholeWalk)
        endDoubt(wholeWalk)
        if isRepairing { leaveReport() }
        let report = tally.withLock { tally -> CheckReport in
            for node in tally.retained { volume.releaseNode(node) }
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
            check(visits.flatMap(\.files), onProgress)
            level = visits.flatMap(\.directories)
        }
    }

    private func check(_ files: [FileTask], _ onProgress: (CheckProgress) -> Void) {
        _ = map(files.count, onProgress) { if !self.shouldStop() { self.check(files[$0]) } }
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

    /// Notes a finding, after its repair.
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

    /// Notes a finding and, in a repair, calls `repair`, which returns where the quarantine keeps
    /// the removed data.
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

    /// Whether a file vanished or was replaced while it was examined: that is no finding. Asks the
    /// backing store again, which may say so of a file that is there. `inode`: nil where it is not
    /// known.
    func isGone(_ error: Errno, _ inode: UInt64?, _ parent: Node, _ stored: [CChar]) -> Bool {
        guard error.mayMeanGone else { return false }
        do throws(Errno) {
            let directory = try volume.backing.directoryDescriptor(of: parent)
            return withExtendedLifetime(directory) {
                volume.store.isGone(inode, directory.rawValue, stored)
            }
        } catch {
            return isGone(error, parent)
        }
    }

    /// A node without a name was removed by a program.
    func isGone(_ error: Errno, _ node: Node) -> Bool {
        if node === volume.root { return false }
        guard let link = node.link else { return true }
        return isGone(error, node.inode, link.parent, link.name)
    }

    // MARK: The volume as a whole

    /// Returns the names in `ward.links`. Their links were made before this returns.
    private func longTargetFiles() -> [String] {
        volume.names.withLongTargetsFixed {
            var names: [String] = []
            do throws(Errno) {
                try volume.withLongTargets(makes: false) { directory throws(Errno) in
                    try volume.storage.list(directory) {
                        names.append(String(decoding: $0.name, as: UTF8.self))
                    }
                }
            } catch .noSuchFileOrDirectory {
                // The volume has never had any.
            } catch {
                note(unreachable: "/" + Volume.longTargetsName, error)
            }
            return names
        }
    }

    /// Finds targets that no link names any more. It needs to have seen every link: files that were
    /// moved meanwhile may have been missed.
    private func checkLongTargets(_ names: [String], _ walk: VolumeWalk) {
        let (isComplete, named) = tally.withLock { tally in
            let hidesNames = tally.report.findings.contains {
                [.root, .record, .name, .place].contains($0.kind)
            }
            return (tally.report.isComplete && !hidesNames, tally.longNames.targets)
        }
        guard isComplete, walk.hasSeenAll else { return }
        for name in names where !named.contains(name) {
            let isThere = try? volume.withLongTargets(makes: false) { directory throws(Errno) in
                try volume.storage.fstatat(directory, name)
            }
            // The target was removed meanwhile, with its link.
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

    /// Finds a page of an epoch that the volume has not reached yet: the state record is an older
    /// one.
    private func checkEpochs() {
        let highest = pages.highestEpoch
        guard highest > volume.epoch else { return }
        add(
            CheckFinding(
                .root, path: "/" + VolumeStateRecord.fileName,
                problem:
                    "it is an older one: pages carry epoch \(highest), which it has not reached",
                remedy: "epochs go on above it")
        ) { () throws(Errno) in
            try volume.skipEpochs(through: highest)
            return nil
        }
    }

    /// Ends the doubts of unclean ends, if every file was read and, where necessary, mended.
    private func endDoubt(_ walk: VolumeWalk) {
        tally.withLock { tally in
            if isRepairing, tally.report.isComplete,
                // A fault that was left, in a header or a record, hides content that the check has
                // not read.
                tally.report.repaired == tally.report.progress.findings
            {
                walk.endDoubt()
            }
            tally.report.isInDoubt = volume.isInDoubt
        }
    }
}

extension Errno {
    /// The errors of a backing store for a file that is gone, or that the store can't find for a
    /// moment.
    fileprivate static let gone: [Errno] = [
        .noSuchFileOrDirectory, .staleNFSFileHandle, .notDirectory,
    ]
    var mayMeanGone: Bool { Errno.gone.contains(self) }
}

/// Contexts for the check's threads, as many as memory allows. One thread at a time uses each.
final class ContextPool: Sendable {
    private let volume: Volume
    private let free: Mutex<[WorkerContext]>
    /// Signalled when a context is free again.
    private let returns = FutexWord()

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
            returns.signalAll()
        }
        return try body(context)
    }

    private func take() -> WorkerContext {
        var context: WorkerContext?
        // If other threads use all contexts and no memory is free, one of them returns its context.
        returns.wait(lookingEvery: .milliseconds(10)) {
            context = free.withLock { $0.popLast() }
            if context == nil { context = try? WorkerContext(allocatingFor: volume) }
            return context != nil
        }
        return context!
    }

    /// Frees the contexts. No thread uses them any more.
    func drain() { free.withLock { $0 = [] } }
}
