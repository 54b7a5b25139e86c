import Glibc

/// How many files may be open, getrlimit(2).
enum DescriptorLimit {
    /// As many as allowed: walking down a tree holds some open for each level.
    static func raise() {
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return }
        limit.rlim_cur = limit.rlim_max
        setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    }
}
