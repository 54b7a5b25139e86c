import CWardLinux
import Glibc
import Synchronization
import WardControl
import WardCrypto
import WardFUSE
import WardFormat
import WardKeys
import WardSystem
import WardVolume

/// The process that serves one volume.
public enum Daemon {
    /// Mounts and serves until the volume is unmounted in any way. Calls `ready` once the mount
    /// answers.
    ///
    /// SIGTERM, SIGINT and SIGHUP unmount. This changes the whole process (limits, umask, working
    /// directory, signal mask), so it is the last thing that a process does. Throws `DaemonError`
    /// where it could not begin.
    public static func run(
        _ options: MountOptions, ready: (MountedInfo) -> Void
    ) throws(DaemonError) {
        let placement = try Placement(options)
        let logPath = try options.logPath.map { path throws(DaemonError) in
            try absolute(path)
        }
        ProcessHardening.apply()
        try refuseTracer()
        Signals.block()
        try selfTest()
        try tryDescriptors()
        try tryThreads()
        let runtime = try makeRuntimeDirectory(placement.runtimeDirectory)
        let lock = try VolumeLock(
            volumePath: placement.volumePath, runtimeDirectory: runtime,
            readOnly: options.readOnly)
        runtime.sweep()
        var options = options
        options.logPath = logPath
        let service = try MountedService(options, placement, runtime)
        Signals.handle { [service] in
            service.end(force: true)
        } lock: { [service] reason in
            service.lockNow(reason)
        }
        if let failure = service.missingScreenLock() {
            service.end(force: true)
            service.serve()
            service.finish()
            throw failure
        }
        ready(service.info)
        // This thread opened the device slot; from here on it only waits.
        ward_scrub_thread()
        service.serve()
        service.finish()
        SecretHeap.shared.wipeEverything()
        // No other daemon may begin before this.
        _ = consume lock
    }

    private static func absolute(_ path: String) throws(DaemonError) -> String {
        if path.hasPrefix("/") { return path }
        guard let directory = getcwd(nil, 0) else {
            throw DaemonError(
                "open the log", path, "\(Errno(rawValue: errno))", hint: "give its full path",
                status: .cannotCreate)
        }
        defer { free(directory) }
        return String(cString: directory) + "/" + path
    }

    /// A program that attached before this process was protected (`PR_SET_DUMPABLE`) would see
    /// every key. Root may attach.
    private static func refuseTracer() throws(DaemonError) {
        guard geteuid() != 0, ProcessHardening.isTraced() else { return }
        throw DaemonError(
            "start", "ward", "another program traces this process, and would see the keys",
            hint: "end it: grep TracerPid /proc/*/status shows which",
            status: .notPermitted)
    }

    /// Runs before any key is touched.
    private static func selfTest() throws(DaemonError) {
        do throws(SelfTestError) {
            try SelfTest.run()
        } catch {
            throw DaemonError(
                "start", "ward", error.description,
                hint: error.lacksLockedMemory
                    ? "raise the limit on locked memory: ulimit -l, or LimitMEMLOCK= of the unit"
                    : "install an official build",
                status: error.lacksLockedMemory ? .temporary : .software)
        }
    }

    /// The least number of descriptors: with fewer, hardly any are left for files, beside those
    /// reserved for locking.
    private static let descriptorsNeeded = 160

    private static func tryDescriptors() throws(DaemonError) {
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0,
            limit.rlim_cur < rlim_t(descriptorsNeeded)
        else { return }
        throw DaemonError(
            "start", "ward", "only \(limit.rlim_cur) files may be open at once",
            hint: "raise the limit to \(descriptorsNeeded) or more: ulimit -n",
            status: .temporary)
    }

    /// The threads that a mount needs, with a reserve.
    private static let threadsNeeded = 24
    private static let threadsWait = Mutex(())

    /// Tries whether that many threads can be started (`ulimit -u`, cgroups), before anything is
    /// half done. A mount starts its threads one by one, some only after it answers.
    private static func tryThreads() throws(DaemonError) {
        var threads: [SystemThread] = []
        var reason: Errno?
        threadsWait.withLock { _ in
            while threads.count < threadsNeeded, reason == nil {
                do throws(Errno) {
                    threads.append(try SystemThread("ward-try") { threadsWait.withLock { _ in } })
                } catch {
                    reason = error
                }
            }
        }
        for thread in threads { thread.join() }
        guard let reason else { return }
        throw DaemonError(
            "start", "ward", "only \(threads.count) threads can be started: \(reason)",
            hint: "raise the limit on processes: ulimit -u",
            status: .temporary)
    }

    private static func makeRuntimeDirectory(
        _ path: String
    ) throws(DaemonError) -> RuntimeDirectory {
        do throws(ControlError) {
            return try RuntimeDirectory.make(at: path)
        } catch {
            throw DaemonError(error)
        }
    }
}

/// Signals that end the mount or lock it, signal(7). They are blocked in every thread; one thread
/// waits for them.
enum Signals {
    private static let endings = [SIGTERM, SIGINT, SIGHUP]
    /// The session watch sends SIGUSR1 where this process does not answer it; other senders could
    /// lock by other means, too. SIGXCPU means that a program lowered `RLIMIT_CPU` (prlimit(2));
    /// the next signal is SIGKILL.
    private static let locks = [SIGUSR1, SIGXCPU]

    private static func set() -> sigset_t {
        var set = sigset_t()
        sigemptyset(&set)
        for number in endings + locks { sigaddset(&set, number) }
        return set
    }

    /// Called before the first thread is started, because threads inherit the mask.
    static func block() {
        var set = set()
        pthread_sigmask(SIG_BLOCK, &set, nil)
    }

    static func handle(
        _ end: @escaping @Sendable () -> Void, lock: @escaping @Sendable (String) -> Void
    ) {
        SystemThread.start("ward-signals") {
            var set = set()
            var number: Int32 = 0
            while sigwait(&set, &number) == 0 {
                switch number {
                case SIGUSR1: lock("a signal asks for it (SIGUSR1)")
                case SIGXCPU: lock("the limit on processor time is reached (RLIMIT_CPU)")
                default: end()
                }
            }
        }.detach()
    }
}
