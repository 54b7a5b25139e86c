import CWardLinux
import Glibc
import WardSystem

/// The child that aborts the connection when this process dies: a killed daemon whose thread waits for its own mount
/// could never be reaped otherwise. It learns of the death by the end of a pipe.
final class WatchdogProcess: Sendable {
    private let pid: pid_t
    /// Kept open as long as this process lives; nothing is ever written.
    private let pipeEnd: Int32
    /// Whether the child can abort the connection. Else (no `/sys/fs/fuse/connections`) an ordinary user's mount can only
    /// be detached after a crash, and programs find the bare mount point.
    let canAbort: Bool

    /// Starts `watchdog --connection N … --fd 3`, from the main thread: its death is the signal. Nil where it can't be
    /// started.
    ///
    /// The connection's `abort` file is opened here, while it is sure whose connection it is: numbers come back, but an
    /// open file of the control file system keeps to the connection that it was opened for (fs/fuse/control.c), mounted,
    /// detached or gone.
    init?(connectionID: UInt32, mountPoint: String, volumePath: String) {
        guard let ends = try? Syscall.pipe() else { return nil }
        defer { Syscall.close(ends.reading) }
        let abort =
            (try? Syscall.open("/sys/fs/fuse/connections/\(connectionID)/abort", O_WRONLY)) ?? -1
        defer { if abort >= 0 { Syscall.close(abort) } }
        var words = [
            "watchdog", "--connection", "\(connectionID)", "--mount-point", mountPoint, "--volume",
            volumePath, "--daemon", "\(getpid())", "--fd", "3",
        ]
        var descriptors = [ends.reading]
        canAbort = abort >= 0
        if canAbort {
            descriptors.append(abort)
            words += ["--abort-fd", "4"]
        }
        // A session of its own: what ends the daemon by its terminal or group must not end this too.
        guard let child = OwnProgram.start(words, descriptors: descriptors, ownSession: true) else {
            Syscall.close(ends.writing)
            return nil
        }
        pid = child
        pipeEnd = ends.writing
    }

    /// Ends it, before the number of its connection can belong to another mount.
    func stop() {
        kill(pid, SIGKILL)
        OwnProgram.wait(for: pid)
        Syscall.close(pipeEnd)
    }
}
