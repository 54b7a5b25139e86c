import Glibc
import Synchronization
import WardControl
import WardFormat
import WardSystem
import WardVolume

/// Finds the processes that use a mount, through /proc alone: the daemon must never ask its own mount for anything.
///
/// Concurrency: `find` is called on one thread that may wait. What looks at processes runs on a thread of its own for each
/// call and is waited for until a deadline: reading a process's mappings waits for its address space, which may hang in a
/// page fault for as long as it likes. Such a thread is left behind, and its process is left out until it comes back.
final class HolderSearch: Sendable {
    static let deadline = Duration.seconds(5)
    /// Threads left behind before mappings are not looked at any more.
    static let maximumThreads = 4
    /// An answer takes 256 KiB.
    static let maximumAnswerBytes = 128 << 10

    private struct State {
        var threads = 0
        /// Processes whose mappings a thread waits for.
        var stuck: Set<Int32> = []
    }

    private let volume: Volume
    private let deviceMinor: UInt32
    private let state = Mutex(State())

    /// `deviceMinor`: of `st_dev` of the mount.
    init(volume: Volume, deviceMinor: UInt32) {
        self.volume = volume
        self.deviceMinor = deviceMinor
    }

    /// Everybody who uses the mount, or files of one class; returns within the deadline with what is known then.
    func find(_ protectionClass: ProtectionClass?) -> HolderReport {
        let scan = HolderScan(volume: volume, deviceMinor: deviceMinor)
        let mayWait = state.withLock { state in
            state.threads += 1
            return state.threads <= HolderSearch.maximumThreads
        }
        let thread = try? SystemThread("ward-holders") { [self] in
            scan.lookAtDescriptors()
            if mayWait {
                scan.lookAtMappings { pid, look in
                    guard state.withLock({ $0.stuck.insert(pid).inserted }) else { return false }
                    look()
                    state.withLock { _ = $0.stuck.remove(pid) }
                    return true
                }
            } else {
                scan.leaveOut()
            }
            state.withLock { $0.threads -= 1 }
            scan.finish()
        }
        if let thread {
            thread.detach()
        } else {
            // No thread to be had, and this one must not wait for a process.
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

/// One look at all processes. Filled by its thread, read by whoever waits for it.
final class HolderScan: Sendable {
    struct Found: Sendable {
        var holders: Set<Holder> = []
        /// Of files that some process was found for.
        var inodes: Set<UInt64> = []
        /// Processes that could not be looked at.
        var unreadable: Set<Int32> = []
        var isComplete = true
    }

    /// What a process uses, as far as it is known.
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
    private let done = WakeDescriptor()

    init(volume: Volume, deviceMinor: UInt32) {
        self.volume = volume
        self.deviceMinor = deviceMinor
    }

    /// What was found, all of it or what there is after `timeout`.
    func wait(until timeout: Duration) -> Found {
        let isDone = done.wait(timeout: timeout)
        isCancelled.store(true, ordering: .relaxed)
        return found.withLock { found in
            if !isDone { found.isComplete = false }
            return found
        }
    }

    func finish() { done.signal() }

    /// Says that not everything was looked at.
    func leaveOut() { found.withLock { $0.isComplete = false } }

    private var isWanted: Bool { !isCancelled.load(ordering: .relaxed) }

    // MARK: The scan's thread

    /// Descriptors, working and root directories: none of it waits for a process.
    func lookAtDescriptors() {
        var tables: [String: MountTable] = [:]
        for process in ProcessDirectory.all() where process.pid != getpid() {
            guard isWanted else { return }
            guard let descriptors = process.descriptors() else {
                found.withLock { _ = $0.unreadable.insert(process.pid) }
                continue
            }
            // One that has ended, and waits to be noticed, has none any more.
            guard let space = process.link("ns/mnt") else { continue }
            let table = tables[space] ?? process.mounts()
            guard let table else { continue }
            tables[space] = table
            let mounts = Set(table.entries.filter(isOurs).map(\.id))
            if mounts.isEmpty { continue }
            for (name, use) in [
                ("cwd", Holder.Use.workingDirectory), ("root", Holder.Use.rootDirectory),
            ] {
                if let path = process.link(name).flatMap({ inside($0, table) }) {
                    add(Usage(pid: process.pid, path: path, use: use))
                }
            }
            for number in descriptors {
                guard isWanted else { return }
                // Sockets, pipes and the like have no path; this is asked first because it costs least.
                guard let target = process.target(ofDescriptor: number), target.hasPrefix("/"),
                    target != "/dev/null", let descriptor = process.descriptor(number),
                    mounts.contains(descriptor.mountID)
                else { continue }
                add(
                    Usage(
                        pid: process.pid, inode: descriptor.inode, path: inside(target, table),
                        use: descriptor.use))
            }
        }
    }

    /// `guarded` runs the look at one process, or returns false where that would wait behind another.
    func lookAtMappings(guarded: (Int32, () -> Void) -> Bool) {
        for process in ProcessDirectory.all() where process.pid != getpid() {
            guard isWanted else { return }
            if found.withLock({ $0.unreadable.contains(process.pid) }) { continue }
            var mappings: Set<MappingInformation> = []
            let wasLookedAt = guarded(process.pid) {
                mappings =
                    process.mappings(onDeviceMinor: deviceMinor, isWanted: { isWanted }) ?? []
            }
            if !wasLookedAt { leaveOut() }
            for mapping in mappings {
                add(Usage(pid: process.pid, inode: mapping.inode, path: nil, use: mapping.use))
            }
        }
    }

    private func isOurs(_ entry: MountTable.Entry) -> Bool {
        entry.deviceMinor == deviceMinor && entry.isWard
    }

    /// A path of a process as one inside the volume; nil where it lies elsewhere.
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
