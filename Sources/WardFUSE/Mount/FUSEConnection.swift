import CWardLinux
import Glibc
import Synchronization
import WardSystem
import WardVolume

/// A mount and the conversation with the kernel about it.
///
/// `mount` puts it in place and agrees on the protocol; from then on programs that touch it wait
/// until `serve` answers. The process that serves must never touch the mount itself.
public final class FUSEConnection: Sendable {
    /// The canonical path of the mount point.
    public let mountPoint: String
    /// The connection's number: its directory in `/sys/fs/fuse/connections`, and the minor number
    /// of the mount's device.
    public let connectionID: UInt32
    let share: DeviceShare
    let negotiation: Negotiation
    let policy: CachePolicy
    /// `abort` under `/sys/fs/fuse/connections`; -1 where it can't be opened.
    ///
    /// It is opened while the number is certainly this connection's: the kernel reuses numbers, but
    /// an open file keeps its connection (fs/fuse/control.c). So a program that uses up all
    /// descriptors can't keep ward from cutting the connection.
    private let abortFile: Int32
    let counts = RequestCounts()
    /// The file by which a helper sees whether the kernel drops pages.
    public let probe = ProbeFile()
    /// The workers that read from the device.
    let workers = Mutex<[WipeProgress]>([])
    /// The workers of the rings, while FUSE over io_uring serves this connection.
    let ring = Mutex<RingWorkers?>(nil)
    let usesRing: Atomic<Bool>
    /// An error of a ring that no rule expects, for the log; 0: none.
    let strangeResult = Atomic<Int32>(0)

    private init(
        mountPoint: String, connectionID: UInt32, share: DeviceShare, negotiation: Negotiation,
        policy: CachePolicy
    ) {
        self.mountPoint = mountPoint
        self.connectionID = connectionID
        self.share = share
        self.negotiation = negotiation
        self.policy = policy
        usesRing = Atomic(negotiation.usesRing)
        abortFile =
            (try? Syscall.open("/sys/fs/fuse/connections/\(connectionID)/abort", O_WRONLY)) ?? -1
    }

    deinit {
        if abortFile >= 0 { Syscall.close(abortFile) }
    }

    // MARK: Mounting

    /// Checks whether `mount` would be refused, without touching anything. Throws what `mount`
    /// would throw.
    public static func check(_ options: FUSEMountOptions) throws(FUSEError) {
        try Mounting.check(options)
        _ = try MountPoint(checking: options.mountPoint)
    }

    /// Mounts: mount(2) as root, through `fusermount3` otherwise. First detaches a mount whose
    /// daemon died. Makes all checks before it touches anything.
    public static func mount(_ options: FUSEMountOptions) throws(FUSEError) -> FUSEConnection {
        try Mounting.check(options)
        let point = try MountPoint(checking: options.mountPoint)
        try point.detachDeadMount()
        let device = try Mounting.mount(options, on: point)
        do throws(FUSEError) {
            let negotiation = try Handshake(device, options).negotiate()
            let entry = try? MountTable().entry(at: point.path)
            guard let entry, entry.isWard else {
                throw FUSEError(
                    .refused, "mount on", options.mountPoint,
                    "it is not in the mount table (/proc/self/mountinfo)")
            }
            Handshake.raiseReadAhead(of: entry.deviceMinor)
            return FUSEConnection(
                mountPoint: point.path, connectionID: entry.deviceMinor,
                share: DeviceShare(adopting: device, rules: options.rules),
                negotiation: negotiation,
                policy: options.sharedStorage ? .shared : .exclusive)
        } catch {
            Syscall.close(device)
            try? Unmounting.detach(point.path)
            throw error
        }
    }

    // MARK: Serving

    /// The number of worker threads that suits this machine.
    public static var usualThreads: Int {
        max(2, min(8, Int(sysconf(Int32(_SC_NPROCESSORS_ONLN))) * 2))
    }

    /// Serves `volume` on `threads` threads of its own. Returns when the kernel has ended the
    /// connection: it was unmounted or aborted. To be called once. Over io_uring the number of
    /// threads follows the number of CPUs.
    public func serve(_ volume: Volume, threads: Int) {
        if negotiation.usesRing {
            if serveByRing(volume) { return }
            usesRing.store(false, ordering: .relaxed)
        }
        let syncs = SyncPool<DeviceChannel>(volume, workers: max(threads, 1))
        let count = max(threads, 1)
        share.sole.mayYield.store(
            share.maySpareWorkers && count > 1 && share.rules.contains(.yield)
                && Yielding.isPossible(), ordering: .relaxed)
        let progress = (0..<count).map { _ in WipeProgress() }
        workers.withLock { $0 = progress }
        defer { workers.withLock { $0 = [] } }
        // The first worker has a thread of its own, too, with its name and without signals. If no
        // thread can be started, this one serves. The first worker gets its memory before the
        // others.
        let start = WorkerStart()
        let first = try? SystemThread("ward-fuse-0") { [self] in
            work(volume, syncs, 0, progress[0], start)
        }
        if let first, !start.wait() {
            first.join()
            return cutOff(.noMemory)
        }
        var others: [SystemThread] = []
        for number in 1..<max(count, 2) where number < count {
            let mine = progress[number]
            let thread = try? SystemThread("ward-fuse-\(number)") { [self] in
                work(volume, syncs, number, mine)
            }
            if let thread {
                others.append(thread)
            } else {
                mine.met.store(.max, ordering: .relaxed)
            }
        }
        if let first {
            first.join()
        } else {
            work(volume, syncs, 0, progress[0], start)
            if others.isEmpty, !start.wait() { cutOff(.noMemory) }
        }
        for thread in others { thread.join() }
        syncs.end()
    }

    func work(
        _ volume: Volume, _ syncs: SyncPool<DeviceChannel>, _ number: Int,
        _ progress: WipeProgress, _ start: WorkerStart? = nil, isAside: Bool = false
    ) {
        defer { progress.end() }
        let (transport, context): (DeviceTransport, WorkerContext)
        do throws(Errno) {
            transport = try DeviceTransport(share, number: number, progress, isAside: isAside)
            context = try WorkerContext(allocatingFor: volume)
        } catch {
            start?.report(false)
            return
        }
        start?.report(true)
        transport.willSleep = { context.scrub() }
        let server = RequestServer<DeviceChannel>(
            volume, context, policy, hasExtendedSetxattr: negotiation.hasExtendedSetxattr, syncs,
            counts, probe)
        server.willSync = { transport.willSync() }
        while let (request, channel) = transport.nextRequest() {
            server.serve(request, channel)
        }
    }

    /// Requests of the kernel since the mount, by the names of linux/fuse.h, without those that
    /// never came.
    public var requestCounts: [(name: String, count: Int)] { counts.all }

    /// Makes ordinary threads of the workers that yield (decision 0068), and keeps them so for some
    /// time. Called before a wait for a worker that must be short.
    public func stopYielding() {
        share.sole.pauseYielding(nanoseconds: Yielding.pauseAtLockNanoseconds)
        ring.withLock { $0 }?.stopYielding()
    }

    /// Wipes content of earlier requests from the workers' buffers: their class was just evicted. A
    /// worker that sleeps has done so already. False: a worker was still serving a request after
    /// `timeout`.
    @discardableResult
    public func wipeRequestBuffers(timeout: Duration = .seconds(1)) -> Bool {
        let deadline = SystemClock.monotonic() + timeout
        let ring = ring.withLock { $0 }
        stopYielding()
        let demand = share.wipeDemand.add(1, ordering: .sequentiallyConsistent).newValue
        let all = workers.withLock { $0 }
        let ringIsWiped = ring?.wipeBuffers(until: deadline) ?? true
        return WipeProgress.await(all, demand, until: deadline) && ringIsWiped
    }

    // MARK: Ending

    /// Unmounts; `serve` returns once the kernel has done it. `lazy`: at once, even while files are
    /// open. Does nothing if it is not mounted any more. Call it from a thread that serves no
    /// requests. Throws `.busy` while a program uses the mount.
    public func unmount(lazy: Bool) throws(FUSEError) {
        guard isMounted else { return }
        try Unmounting.unmount(mountPoint, lazy: lazy)
    }

    /// Whether the mount is still in the mount table, at its place.
    public var isMounted: Bool {
        guard let entry = try? MountTable().entry(at: mountPoint) else { return false }
        return entry.deviceMinor == connectionID && entry.isWard
    }

    /// Cuts the connection: every request, waiting or to come, fails with ECONNABORTED or ENOTCONN,
    /// and `serve` returns. The dead mount stays until it is unmounted. False where that is not
    /// possible: no `/sys/fs/fuse/connections` and not root.
    @discardableResult
    public func abort() -> Bool {
        var one = UInt8(ascii: "1")
        if abortFile >= 0 { return write(abortFile, &one, 1) == 1 }
        return geteuid() == 0 && isMounted && forceAbort()
    }

    /// A descriptor for a helper process: a write to it cuts this connection and no other. Nil
    /// where there is none.
    public var abortDescriptor: Int32? { abortFile >= 0 ? abortFile : nil }

    /// The number of requests that the kernel has and that are not answered, with those that it has
    /// not handed out. Nil where the kernel does not tell.
    var requestsWaiting: Int? {
        // An open file tells the number once, so it is opened each time.
        guard
            let file = try? OwnedDescriptor(
                opening: "/sys/fs/fuse/connections/\(connectionID)/waiting", O_RDONLY)
        else { return nil }
        var text = [UInt8](repeating: 0, count: 16)
        guard let count = try? Syscall.read(file.rawValue, &text, text.count) else { return nil }
        return Int(
            String(decoding: text.prefix(count).prefix { $0 != UInt8(ascii: "\n") }, as: UTF8.self))
    }

    /// Aborts where the control file system is not mounted (containers). MNT_FORCE aborts the
    /// connection first, and may then unmount it, too.
    private func forceAbort() -> Bool {
        umount2(mountPoint, Int32(MNT_FORCE) | Unmounting.umountNoFollow) == 0
            || ward_errno() == EBUSY
    }
}
