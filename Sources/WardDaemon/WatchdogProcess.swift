import CWardLinux
import Glibc
import WardSystem

/// The child that aborts the connection when this process dies: a killed daemon whose thread waits for its own mount
/// could never be reaped otherwise. It holds no FUSE device and learns of the death by the end of a pipe.
final class WatchdogProcess: Sendable {
    private let pid: pid_t
    /// Kept open as long as this process lives; nothing is ever written.
    private let pipeEnd: Int32

    /// Starts `/proc/self/exe watchdog --connection N … --fd 3`, from the main thread: its death is the signal. Nil where
    /// it can't be started.
    init?(connectionID: UInt32, mountPoint: String, volumePath: String) {
        guard let ends = try? Syscall.pipe() else { return nil }
        defer { Syscall.close(ends.reading) }
        // What a shell or a service manager left open for a daemon in the foreground is not for this to keep open.
        _ = ward_close_range(3, UInt32.max, 4 /* CLOSE_RANGE_CLOEXEC */)
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        for descriptor in 0...2 {
            posix_spawn_file_actions_addopen(&actions, Int32(descriptor), "/dev/null", O_RDWR, 0)
        }
        // Onto itself it clears FD_CLOEXEC (posix_spawn_file_actions_adddup2(3), glibc 2.29).
        posix_spawn_file_actions_adddup2(&actions, ends.reading, 3)
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var none = sigset_t()
        sigemptyset(&none)
        posix_spawnattr_setsigmask(&attributes, &none)
        // A session of its own: what ends the daemon by its terminal or group must not end this too.
        let newSession: Int32 = 0x80
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK | newSession))
        let words = [
            "ward", "watchdog", "--connection", "\(connectionID)", "--mount-point", mountPoint,
            "--volume", volumePath, "--daemon", "\(getpid())", "--fd", "3",
        ]
        let path = getenv("PATH").map { String(cString: $0) } ?? "/usr/bin:/bin"
        let environment = ["PATH=\(path)", "SWIFT_BACKTRACE=enable=no"]
        var arguments = words.map { strdup($0) } + [nil]
        var variables = environment.map { strdup($0) } + [nil]
        defer { for word in arguments + variables { free(word) } }
        var child: pid_t = 0
        guard
            posix_spawn(&child, "/proc/self/exe", &actions, &attributes, &arguments, &variables)
                == 0
        else {
            Syscall.close(ends.writing)
            return nil
        }
        pid = child
        pipeEnd = ends.writing
    }

    /// Ends it, before the number of its connection can belong to another mount.
    func stop() {
        kill(pid, SIGKILL)
        var status: Int32 = 0
        while waitpid(pid, &status, 0) < 0, errno == EINTR {}
        Syscall.close(pipeEnd)
    }
}
