import Glibc
import WardSystem

/// The child that locks the volume before the machine sleeps or shuts down, and with the screen where that is wanted.
///
/// A process of its own because it loads the system's D-Bus library, which has no business beside keys. It does what any
/// client of the control socket may do, and nothing stops working without it.
final class SessionWatchProcess: Sendable {
    /// Where the system bus listens, as sd_bus_open_system(3) looks for it.
    private static let busVariable = "DBUS_SYSTEM_BUS_ADDRESS"
    private static let busPaths = [
        "/run/dbus/system_bus_socket", "/var/run/dbus/system_bus_socket",
    ]

    private let process: KeptProcess

    /// Whether there is a system bus to watch.
    static var isUseful: Bool {
        getenv(busVariable) != nil || busPaths.contains { access($0, W_OK) == 0 }
    }

    /// Starts `ward session-watch`. Nil where it can't be started. `report` is told where somebody has killed it.
    init?(
        socketPath: String, mountPoint: String, locksWithScreen: Bool,
        report: @escaping @Sendable (String) -> Void
    ) {
        var words = [
            "session-watch", "--socket", socketPath, "--mount-point", mountPoint, "--fd", "3",
        ]
        if locksWithScreen { words.append("--screen") }
        let arguments = words
        // A session of its own: what ends the daemon by its terminal or group must not end this before its last lock.
        let process = KeptProcess("ward-session") { lifeline in
            OwnProgram.start(
                arguments, descriptors: [lifeline], ownSession: true,
                variables: [SessionWatchProcess.busVariable])
        } report: {
            report("session watch: \($0)")
        }
        guard let process else { return nil }
        self.process = process
    }

    func stop() { process.stop() }
}
