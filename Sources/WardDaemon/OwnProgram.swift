import CWardLinux
import Glibc
import WardSystem

/// Starts this program once more, `/proc/self/exe`, as a helper that must not share the daemon's
/// fate or its descriptors.
enum OwnProgram {
    /// Nil where it can't be started. `descriptors` become 3, 4 and so on of the helper; it has no
    /// others but /dev/null. `variables` go with it where they are set here; nothing else of the
    /// environment does but `PATH`.
    static func start(
        _ words: [String], descriptors: [Int32], ownSession: Bool, variables names: [String] = []
    ) -> pid_t? {
        // What a shell or a service manager left open for a daemon in the foreground is not for
        // this to keep open.
        _ = ward_close_range(3, UInt32.max, 4 /* CLOSE_RANGE_CLOEXEC */)
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        for descriptor in 0...2 {
            posix_spawn_file_actions_addopen(&actions, Int32(descriptor), "/dev/null", O_RDWR, 0)
        }
        // First out of the way of the numbers they are to get. Onto itself dup2 clears FD_CLOEXEC
        // (posix_spawn_file_actions_adddup2(3), glibc 2.29).
        for (index, descriptor) in descriptors.enumerated() {
            posix_spawn_file_actions_adddup2(&actions, descriptor, Int32(100 + index))
        }
        for index in descriptors.indices {
            posix_spawn_file_actions_adddup2(&actions, Int32(100 + index), Int32(3 + index))
            posix_spawn_file_actions_addclose(&actions, Int32(100 + index))
        }
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var none = sigset_t()
        sigemptyset(&none)
        posix_spawnattr_setsigmask(&attributes, &none)
        let newSession: Int32 = ownSession ? 0x80 /* POSIX_SPAWN_SETSID */ : 0
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK | newSession))
        let environment =
            ["PATH=\(variable("PATH") ?? "/usr/bin:/bin")", "SWIFT_BACKTRACE=enable=no"]
            + names.compactMap { name in variable(name).map { "\(name)=\($0)" } }
        var arguments = (["ward"] + words).map { strdup($0) } + [nil]
        var variables = environment.map { strdup($0) } + [nil]
        defer { for word in arguments + variables { free(word) } }
        var child: pid_t = 0
        let reason = posix_spawn(
            &child, "/proc/self/exe", &actions, &attributes, &arguments, &variables)
        return reason == 0 ? child : nil
    }

    private static func variable(_ name: String) -> String? {
        getenv(name).map { String(cString: $0) }
    }

    /// Waits until a helper has ended, and leaves its number taken.
    static func awaitEnd(of pid: pid_t) {
        var information = siginfo_t()
        while waitid(P_PID, id_t(pid), &information, WEXITED | WNOWAIT) < 0, errno == EINTR {}
    }

    /// Waits until a helper has ended.
    static func wait(for pid: pid_t) {
        var status: Int32 = 0
        while waitpid(pid, &status, 0) < 0, errno == EINTR {}
    }
}
