import CWardLinux
import Glibc
import WardSystem

/// Protections that the daemon and its helpers apply to themselves first of all.
public enum ProcessHardening {
    /// Protects a helper process: no dumps and no debuggers of the same user (`PR_SET_DUMPABLE`,
    /// prctl(2)). As execve(2) resets the daemon's setting, a program can attach for an instant
    /// before this. Then this process ends, and the daemon starts another. Signals that end a whole
    /// service are left to the daemon, which ends its helpers last.
    public static func applyToHelper() {
        forbidLooking()
        if isTraced() { _exit(70 /* EX_SOFTWARE */) }
        for number in [SIGTERM, SIGINT, SIGHUP] { signal(number, SIG_IGN) }
    }

    /// Protects the daemon: no dumps and no debuggers of the same user (`PR_SET_DUMPABLE`,
    /// prctl(2)). Also sets the umask to 0 and the working directory to `/`, which keeps no mount
    /// busy. Raises the limits of descriptors and locked memory as far as allowed. A write past
    /// `RLIMIT_FSIZE` becomes an error instead of a signal.
    static func apply() {
        forbidLooking()
        raise(__rlimit_resource_t(RLIMIT_NOFILE.rawValue))
        raise(__rlimit_resource_t(__RLIMIT_MEMLOCK.rawValue))
        ward_use_one_heap()
        umask(0)
        chdir("/")
        signal(SIGPIPE, SIG_IGN)
        signal(SIGXFSZ, SIG_IGN)
    }

    private static func forbidLooking() {
        _ = ward_prctl(PR_SET_DUMPABLE, 0)
        var none = rlimit(rlim_cur: 0, rlim_max: 0)
        setrlimit(__rlimit_resource_t(RLIMIT_CORE.rawValue), &none)
    }

    /// Whether another process traces this one, `TracerPid` of proc_pid_status(5).
    static func isTraced() -> Bool {
        guard let text = try? FileReading.text(of: "/proc/self/status", limit: 1 << 16) else {
            return false
        }
        let line = text.split(separator: "\n").first { $0.hasPrefix("TracerPid:") }
        return line.map { $0.dropFirst(10).contains { $0.isNumber && $0 != "0" } } ?? false
    }

    private static func raise(_ resource: __rlimit_resource_t) {
        var limit = rlimit()
        guard getrlimit(resource, &limit) == 0 else { return }
        limit.rlim_cur = limit.rlim_max
        setrlimit(resource, &limit)
    }
}
