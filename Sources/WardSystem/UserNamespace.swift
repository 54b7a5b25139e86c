/// User namespaces, user_namespaces(7): a program in a sandbox or a rootless container has one of
/// its own.
public enum UserNamespace {
    /// Whether a process is in the namespace of this one. False for one that can't be looked at: it
    /// is in another process table, has ended, or is not dumpable (PR_SET_DUMPABLE of prctl(2)).
    ///
    /// `process`: a number that stays its own meanwhile, as that of the caller of a FUSE request
    /// that waits for its answer.
    public static func isOwn(ofProcess process: UInt32) -> Bool {
        guard let own = identity("self") else { return false }
        return identity("\(process)") == own
    }

    /// No other namespace has it while this one is there, namespaces(7).
    private static func identity(_ process: String) -> UInt64? {
        (try? Syscall.stat("/proc/\(process)/ns/user")).map { UInt64($0.st_ino) }
    }
}
