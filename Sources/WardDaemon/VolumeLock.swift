import CWardLinux
import Glibc
import WardControl
import WardSystem

/// The exclusive lock on a backing directory, flock(2): one daemon serves a volume at a time. Held as long as it lives.
struct VolumeLock: ~Copyable {
    private let directory: OwnedDescriptor

    /// Throws exit code 75, naming the mount point of the first, where the volume is mounted already.
    init(volumePath: String, runtimeDirectory: RuntimeDirectory) throws(DaemonError) {
        directory = try VolumeLock.acquire(volumePath, runtimeDirectory)
    }

    private static func acquire(
        _ volumePath: String, _ runtimeDirectory: RuntimeDirectory
    ) throws(DaemonError) -> OwnedDescriptor {
        let directory = try open(volumePath)
        // A daemon that is being replaced needs a moment to go.
        for _ in 0..<20 {
            if flock(directory.rawValue, LOCK_EX | LOCK_NB) == 0 { return directory }
            let hasNoLocks = errno == ENOLCK || errno == EOPNOTSUPP
            if let first = runtimeDirectory.mounted().first(where: { $0.volume == volumePath }) {
                throw DaemonError(
                    "mount", volumePath, "it is mounted on \(first.mountpoint) already",
                    hint: "ward unmount \(first.mountpoint)",
                    exitCode: DaemonError.Exit.temporaryFailure)
            }
            // A store without locks: from another machine or user nothing protects it.
            if hasNoLocks { return directory }
            usleep(50_000)
        }
        throw DaemonError(
            "mount", volumePath, "another process has it mounted or checks it",
            hint: "find it with: fuser \(volumePath)", exitCode: DaemonError.Exit.temporaryFailure)
    }

    private static func open(_ path: String) throws(DaemonError) -> OwnedDescriptor {
        do throws(Errno) {
            return try OwnedDescriptor(opening: path, O_RDONLY | O_DIRECTORY)
        } catch {
            throw DaemonError(
                "mount", path, "\(error)", hint: nil, exitCode: DaemonError.exitCode(of: error))
        }
    }
}
