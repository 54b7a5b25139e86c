import Glibc
import Synchronization
import WardControl
import WardFormat
import WardSystem
import WardVolume

/// Finds the processes that use a mount, through /proc alone: the daemon must never ask its own
/// mount.
///
/// Concurrency: `find` is called on a thread that may wait. Each call examines the processes on a
/// thread of its own, and waits for it until a deadline. Reading a process's mappings waits for its
/// address space, where a page fault may hang for ever. Such a thread is left behind; its process
/// is skipped until the thread comes back.
final class HolderSearch: Sendable {
    static let deadline = Duration.seconds(5)
    /// With this many threads left behind, mappings are not examined any more.
    static let maximumThreads = 4
    /// Half of the 256 KiB that an answer may have.
    static let maximumAnswerBytes = 128 << 10

    private struct State {
        var threads = 0
        /// The processes whose mappings a thread waits for.
        var stuck: Set<Int32> = []
    }

    private let volume: Volume
    private let deviceMinor: UInt32
    private let state = Mutex(State())

    /// `deviceMinor` is the minor number of the mount's `st_dev`.
    init(volume: Volume, deviceMinor: UInt32) {
        self.volume = volume
        self.deviceMinor = deviceMinor
    }

    /// The processes that use the mount, or files of one class. Returns within the deadline, with
    /// the results so far.
    func find(_ protectionClass: ProtectionClass?) -> HolderReport {
        let scan = HolderScan(volume: volume, deviceMinor: deviceMinor)
        let mayWait = state.withLock { state in
            state.threads += 1
            return state.threads <= HolderSearch.maximumThreads
        }
        let thread = try? SystemThread("ward-holders") { [self] in
            scan.look(mappings: mayWait) { pid, look in
                guard state.withLock({ $0.stuck.insert(pid).inserted }) else { return false }
                look()
                state.withLock { _ = $0.stuck.remove(pid) }
                return true
            }
            state.withLock { $0.threads -= 1 }
            scan.finish()
        }
        if let thread {
            thread.detach()
        } else {
            // No thread can be started, and this one must not wait for a process.
            state.withLock { $0.threads -= 1 }
            scan.leaveOut()
            scan.finish()
        }
        return report(of: scan.wait(until: HolderSearch.deadline), protectionClass)
    }

    private func report(
        of found: HolderScan.Found, _ protectionClass: ProtectionClass?
    ) -> HolderReport {
        var report = HolderReport()
        report.unreadable = found.unreadable.count
        report.isComplete = found.isComplete
        let open = volume.openFileInodes()
        report.unattributed = open.count { inode, itsClass in
            !found.inodes.contains(inode) && (protectionClass == nil || itsClass == protectionClass)
        }
        let order = ["A", "B", "C", "CX", "D"]
        func rank(_ holder: Holder) -> Int {
            holder.protectionClass.flatMap { order.firstIndex(of: $0) } ?? order.count
        }
        let wanted = found.holders
            .filter { protectionClass == nil || $0.protectionClass == protectionClass?.letter }
            .sorted {
                (rank($0), $0.pid, $0.path, $0.use) < (rank($1), $1.pid, $1.path, $1.use)
            }
        var bytes = 0
        for holder in wanted {
            bytes += holder.json.bytes.count + 1
            if bytes > HolderSearch.maximumAnswerBytes { break }
            report.holders.append(holder)
        }
        report.leftOut = wanted.count - report.holders.count
        return report
    }
}

/// One search of all processes. Its thread fills it, and the caller that waits reads it.
final class HolderScan: Sendable {
    struct Found: Sendable {
        var holders: Set<Holder> = []
        /// The inodes of files for which a process was found.
        var inodes: Set<UInt64> = []
        /// The processes that could not be examined.
        var unreadable: Set<Int32> = []
        var isComplete = true
    }

    /// One use of a file by a process, as far as it is known.
    private struct Usage {
        var pid: Int32
        var inode: UInt64?
        var path: String?
        var use: Holder.Use
    }

    private let volume: Volume
    private let deviceMinor: UInt32
    private let found = Mutex(Found())
    private let isCancelled = Atomic(false)
    private let done = WakeWord()

    init(volume: Volume, deviceMinor: UInt32) {
        self.volume = volume
        self.deviceMinor = deviceMinor
    }

    /// All results, or those found until `timeout`.
    func wait(until timeout: Duration) -> Found {
        let isDone = done.wait(timeout: timeout)
        isCancelled.store(true, ordering: .relaxed)
        return found.withLock { found in
            if !isDone { found.isComplete = false }
            return found
        }
    }

    func finish() { done.signal() }

    /// Notes that the search is incomplete.
    func leaveOut() { found.withLock { $0.isComplete = false } }

    private var isWanted: Bool { !isCancelled.load(ordering: .relaxed) }

    // MARK: The scan's thread

    /// Examines all processes. Without `mappings` the search counts as incomplete. The closure
    /// `guarded` examines the mappings of one process, or returns false where another thread is
    /// stuck there.
    func look(mappings: Bool, guarded: (Int32, () -> Void) -> Bool) {
        var tables: [String: MountTable] = [:]
        lookAtAll { process, use in findDescriptors(of: process, &tables, use) }
        guard mappings else { return leaveOut() }
        lookAtAll { process, use in findMappings(of: process, guarded, use) }
    }

    /// Examines all processes with `find`, and adds their uses at once. A new fork is examined
    /// later: until it runs a program of its own, it has all files of its parent open. It is
    /// examined again once it runs one, or is not new any more.
    private func lookAtAll(_ find: (ProcessDirectory, (Usage) -> Void) -> Void) {
        var seen: Set<Int32> = [getpid()]
        var forks: [Fork] = []
        func lookAtUnseen() {
            for process in ProcessDirectory.all() where seen.insert(process.pid).inserted {
                guard isWanted else { return }
                var usages: [Usage] = []
                var isFork: Bool?
                find(process) { usage in
                    if isFork == nil { isFork = process.isNewFork }
                    if isFork == true { usages.append(usage) } else { add(usage) }
                }
                if isFork == true { forks.append(Fork(process: process, usages: usages)) }
            }
        }
        lookAtUnseen()
        let end = SystemClock.monotonic() + ProcessDirectory.newFor
        while !forks.isEmpty, isWanted, SystemClock.monotonic() < end {
            usleep(10_000)
            // Wait one more round: a new program closes inherited descriptors shortly after its
            // start.
            let settled = forks.filter(\.isSettled)
            forks.removeAll(where: \.isSettled)
            for index in forks.indices { forks[index].isSettled = !forks[index].process.isNewFork }
            for fork in settled { find(fork.process, add) }
            // The ended process may have left its files to a child.
            if settled.contains(where: { $0.process.hasEnded }) { lookAtUnseen() }
        }
        for fork in forks {
            if fork.isSettled { find(fork.process, add) } else { fork.usages.forEach(add) }
        }
    }

    private struct Fork {
        var process: ProcessDirectory
        /// Its uses while it has run no program of its own.
        var usages: [Usage]
        var isSettled = false
    }

    /// Finds descriptors, working and root directories; none of these reads waits for a process.
    /// `tables` are those of the mount namespaces seen so far.
    private func findDescriptors(
        of process: ProcessDirectory, _ tables: inout [String: MountTable], _ use: (Usage) -> Void
    ) {
        guard let descriptors = process.descriptors() else {
            found.withLock { _ = $0.unreadable.insert(process.pid) }
            return
        }
        // A zombie has no descriptors any more.
        guard let space = process.link("ns/mnt") else { return }
        guard let table = tables[space] ?? process.mounts() else { return }
        tables[space] = table
        let mounts = Set(table.entries.filter(isOurs).map(\.id))
        if mounts.isEmpty { return }
        for (name, kind) in [
            ("cwd", Holder.Use.workingDirectory), ("root", Holder.Use.rootDirectory),
        ] {
            if let path = process.link(name).flatMap({ inside($0, table) }) {
                use(Usage(pid: process.pid, path: path, use: kind))
            }
        }
        for number in descriptors {
            guard isWanted else { return }
            // Sockets, pipes and the like have no path. This is read first because it costs least.
            guard let target = process.target(ofDescriptor: number), target.hasPrefix("/"),
                target != "/dev/null", let descriptor = process.descriptor(number),
                mounts.contains(descriptor.mountID)
            else { continue }
            use(
                Usage(
                    pid: process.pid, inode: descriptor.inode, path: inside(target, table),
                    use: descriptor.use))
        }
    }

    private func findMappings(
        of process: ProcessDirectory, _ guarded: (Int32, () -> Void) -> Bool, _ use: (Usage) -> Void
    ) {
        if found.withLock({ $0.unreadable.contains(process.pid) }) { return }
        var mappings: Set<MappingInformation> = []
        let wasLookedAt = guarded(process.pid) {
            mappings = process.mappings(onDeviceMinor: deviceMinor, isWanted: { isWanted }) ?? []
        }
        if !wasLookedAt { leaveOut() }
        for mapping in mappings {
            use(Usage(pid: process.pid, inode: mapping.inode, path: nil, use: mapping.use))
        }
    }

    private func isOurs(_ entry: MountTable.Entry) -> Bool {
        entry.deviceMinor == deviceMinor && entry.isWard
    }

    /// A process's path as a path inside the volume; nil where it lies elsewhere.
    private func inside(_ path: String, _ table: MountTable) -> String? {
        guard path.hasPrefix("/"), let mount = table.covering(path), isOurs(mount) else {
            return nil
        }
        let rest = mount.mountPoint == "/" ? path : String(path.dropFirst(mount.mountPoint.count))
        let whole = mount.root == "/" ? rest : mount.root + rest
        return whole.isEmpty ? "/" : whole
    }

    private func add(_ usage: Usage) {
        guard let process = ProcessInformation.read(Int(usage.pid)) else { return }
        let node = usage.inode.flatMap { volume.heldNode(inode: $0) }
        let holder = Holder(
            pid: process.pid, uid: process.uid, program: process.program,
            path: node?.path ?? usage.path ?? "?", protectionClass: node?.protectionClass?.letter,
            use: usage.use)
        found.withLock { found in
            found.holders.insert(holder)
            if let inode = usage.inode { found.inodes.insert(inode) }
        }
    }
}
