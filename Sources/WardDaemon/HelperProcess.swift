import CWardLinux
import Glibc
import WardSystem

/// A child of the daemon that is this program with another verb, and holds neither keys nor the FUSE device.
///
/// Its descriptor 3 is the read end of a pipe that nothing is written to: the pipe's end tells it that the daemon is gone.
final class HelperProcess: Sendable {
    /// The descriptor that the child waits on.
    static let parentDescriptor: Int32 = 3

    private let pid: pid_t
    /// Kept open as long as this process lives.
    private let pipeEnd: Int32

    /// Starts `/proc/self/exe` with these words after the program's name. `variables` are taken from the environment
    /// where they are set there; nothing else is, but `PATH`. Nil where it can't be started.
    init?(_ words: [String], variables names: [String] = []) {
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
        posix_spawn_file_actions_adddup2(&actions, ends.reading, HelperProcess.parentDescriptor)
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var none = sigset_t()
        sigemptyset(&none)
        posix_spawnattr_setsigmask(&attributes, &none)
        // A session of its own: what ends the daemon by its terminal or group must not end this too.
        let newSession: Int32 = 0x80
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK | newSession))
        let path = HelperProcess.variable("PATH") ?? "/usr/bin:/bin"
        let environment =
            ["PATH=\(path)", "SWIFT_BACKTRACE=enable=no"]
            + names.compactMap { name in HelperProcess.variable(name).map { "\(name)=\($0)" } }
        var arguments = (["ward"] + words).map { strdup($0) } + [nil]
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

    private static func variable(_ name: String) -> String? {
        getenv(name).map { String(cString: $0) }
    }

    /// Ends it and waits for its end.
    func stop() {
        kill(pid, SIGKILL)
        var status: Int32 = 0
        while waitpid(pid, &status, 0) < 0, errno == EINTR {}
        Syscall.close(pipeEnd)
    }
}
