import CWardLinux
import Glibc

/// What the daemon's process does to itself before it touches a key.
enum ProcessHardening {
    /// No dumps and no debuggers of the same user (`PR_SET_DUMPABLE`, prctl(2)), modes as callers ask for them, as many
    /// descriptors and as much locked memory as allowed, and a working directory that keeps nothing busy.
    static func apply() {
        _ = ward_prctl(PR_SET_DUMPABLE, 0)
        var none = rlimit(rlim_cur: 0, rlim_max: 0)
        setrlimit(__rlimit_resource_t(RLIMIT_CORE.rawValue), &none)
        raise(__rlimit_resource_t(RLIMIT_NOFILE.rawValue))
        raise(__rlimit_resource_t(__RLIMIT_MEMLOCK.rawValue))
        ward_use_one_heap()
        umask(0)
        chdir("/")
        signal(SIGPIPE, SIG_IGN)
    }

    private static func raise(_ resource: __rlimit_resource_t) {
        var limit = rlimit()
        guard getrlimit(resource, &limit) == 0 else { return }
        limit.rlim_cur = limit.rlim_max
        setrlimit(resource, &limit)
    }
}
