/// User namespaces, user_namespaces(7): a program in a sandbox or a rootless container has its own.
public enum UserNamespace {
    /// Whether a process is in the namespace of this one. False for a process that can't be looked
    /// at. It is in another process table, has ended, or is not dumpable (PR_SET_DUMPABLE of
    /// prctl(2)).
    ///
    /// The kernel must not reuse the number `process` meanwhile: for example, it is the caller of a
    /// FUSE request without an answer yet.
    public static func isOwn(ofProcess process: UInt32) -> Bool {
        guard let own = identity("self") else { return false }
        return identity("\(process)") == own
    }

    /// The namespace's inode number. No other namespace has it while this one exists,
    /// namespaces(7).
    private static func identity(_ process: String) -> UInt64? {
        (try? Syscall.stat("/proc/\(process)/ns/user")).map { UInt64($0.st_ino) }
    }
}
