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

    private let pid: pid_t
    /// Kept open as long as this process lives: its end tells the child.
    private let pipeEnd: Int32

    /// Whether there is a system bus to watch.
    static var isUseful: Bool {
        getenv(busVariable) != nil || busPaths.contains { access($0, W_OK) == 0 }
    }

    /// Starts `ward session-watch`. Nil where it can't be started.
    init?(socketPath: String, mountPoint: String, locksWithScreen: Bool) {
        guard let ends = try? Syscall.pipe() else { return nil }
        defer { Syscall.close(ends.reading) }
        var words = [
            "session-watch", "--socket", socketPath, "--mount-point", mountPoint, "--fd", "3",
        ]
        if locksWithScreen { words.append("--screen") }
        // A session of its own: what ends the daemon by its terminal or group must not end this before its last lock.
        let child = OwnProgram.start(
            words, descriptors: [ends.reading], ownSession: true,
            variables: [SessionWatchProcess.busVariable])
        guard let child else {
            Syscall.close(ends.writing)
            return nil
        }
        pid = child
        pipeEnd = ends.writing
    }

    func stop() {
        kill(pid, SIGKILL)
        OwnProgram.wait(for: pid)
        Syscall.close(pipeEnd)
    }
}
