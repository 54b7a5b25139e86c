import Glibc
import WardFUSE
import WardSystem

/// The child that aborts the connection when this process dies. Otherwise a killed daemon with a
/// thread that waits for its own mount could never be reaped. The end of a pipe tells the child of
/// the death. It also wakes this process where a program stopped it.
final class WatchdogProcess: Sendable {
    let process: KeptProcess
    /// Whether the child can abort the connection. Without `/sys/fs/fuse/connections`, an ordinary
    /// user's mount can only be detached after a crash, and programs find the bare mount point.
    let canAbort: Bool

    /// Starts `watchdog --connection N … --fd 3` from the main thread, whose death is the signal.
    /// Nil where it can't be started. The child's events go to `report`.
    init?(
        _ connection: FUSEConnection, volumePath: String, alarm: Alarm,
        report: @escaping @Sendable (String) -> Void
    ) {
        let abort = connection.abortDescriptor
        var words = [
            "watchdog", "--connection", "\(connection.connectionID)", "--mount-point",
            connection.mountPoint, "--volume", volumePath, "--daemon", "\(getpid())", "--fd", "3",
        ]
        if abort != nil { words += ["--abort-fd", "4"] }
        let arguments = words
        // In a session of its own: signals to the daemon's terminal or process group must not end
        // it.
        let process = KeptProcess("ward-watchdog", "watchdog", alarm: alarm) {
            [connection] lifeline in
            // The connection owns the descriptor `abort`.
            withExtendedLifetime(connection) {
                OwnProgram.start(
                    arguments, descriptors: [lifeline] + (abort.map { [$0] } ?? []),
                    ownSession: true)
            }
        } report: {
            report("watchdog: \($0)")
        }
        guard let process else { return nil }
        self.process = process
        canAbort = abort != nil
    }

    /// Ends it, before another mount can get the number of its connection.
    func stop() { process.stop() }
}
