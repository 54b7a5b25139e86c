import Glibc
import WardFUSE
import WardSystem

/// The child that aborts the connection when this process dies: a killed daemon whose thread waits
/// for its own mount could never be reaped otherwise. It learns of the death by the end of a pipe.
/// It also wakes this process where somebody has stopped it.
final class WatchdogProcess: Sendable {
    let process: KeptProcess
    /// Whether the child can abort the connection. Else (no `/sys/fs/fuse/connections`) an ordinary
    /// user's mount can only be detached after a crash, and programs find the bare mount point.
    let canAbort: Bool

    /// Starts `watchdog --connection N … --fd 3`, from the main thread: its death is the signal.
    /// Nil where it can't be started. `report` is told where somebody has killed it.
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
        // A session of its own: what ends the daemon by its terminal or group must not end this
        // too.
        let process = KeptProcess("ward-watchdog", "watchdog", alarm: alarm) {
            [connection] lifeline in
            // The connection owns the descriptor.
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

    /// Ends it, before the number of its connection can belong to another mount.
    func stop() { process.stop() }
}
