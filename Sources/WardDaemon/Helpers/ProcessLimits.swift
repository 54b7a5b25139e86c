import CWardLinux
import Glibc

/// The resource limits of a process, getrlimit(2): a program of the same user can lower them at any
/// time (prlimit(2)).
struct ProcessLimits: Sendable {
    /// In the order of their numbers, asm-generic/resource.h.
    private static let names = [
        "RLIMIT_CPU", "RLIMIT_FSIZE", "RLIMIT_DATA", "RLIMIT_STACK", "RLIMIT_CORE", "RLIMIT_RSS",
        "RLIMIT_NPROC", "RLIMIT_NOFILE", "RLIMIT_MEMLOCK", "RLIMIT_AS", "RLIMIT_LOCKS",
        "RLIMIT_SIGPENDING", "RLIMIT_MSGQUEUE", "RLIMIT_NICE", "RLIMIT_RTPRIO", "RLIMIT_RTTIME",
    ]

    private var soft: [UInt64] = []
    private var hard: [UInt64] = []

    /// The limits of this process (0), or of another process of the same user; nil where they can't
    /// be read.
    init?(of pid: pid_t = 0) {
        for number in ProcessLimits.names.indices {
            var (low, high) = (UInt64(0), UInt64(0))
            guard ward_get_limit(pid, Int32(number), &low, &high) == 0 else { return nil }
            soft.append(low)
            hard.append(high)
        }
    }

    /// The first limit that is lower than before, in words; nil where there is none.
    func lowered(since before: ProcessLimits) -> String? {
        for number in ProcessLimits.names.indices where soft[number] < before.soft[number] {
            return "\(ProcessLimits.names[number]) was lowered to \(soft[number])"
        }
        return nil
    }
}
