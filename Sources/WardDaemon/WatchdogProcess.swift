import Glibc

/// The child that aborts the connection when this process dies: a killed daemon whose thread waits for its own mount
/// could never be reaped otherwise. It learns of the death by the end of a pipe.
final class WatchdogProcess: Sendable {
    private let process: HelperProcess

    /// Starts `ward watchdog`, from the main thread: its death is the signal. Nil where it can't be started.
    init?(connectionID: UInt32, mountPoint: String, volumePath: String) {
        let words = [
            "watchdog", "--connection", "\(connectionID)", "--mount-point", mountPoint,
            "--volume", volumePath, "--daemon", "\(getpid())", "--fd",
            "\(HelperProcess.parentDescriptor)",
        ]
        guard let process = HelperProcess(words) else { return nil }
        self.process = process
    }

    /// Ends it, before the number of its connection can belong to another mount.
    func stop() { process.stop() }
}
