import Glibc

/// The limit of open files, getrlimit(2).
enum DescriptorLimit {
    /// Raises the limit to the maximum: a walk down a tree holds descriptors for each level.
    static func raise() {
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return }
        limit.rlim_cur = limit.rlim_max
        setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    }
}
