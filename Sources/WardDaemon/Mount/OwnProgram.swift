import CWardLinux
import Glibc
import WardSystem

/// Starts this program again, `/proc/self/exe`, as a helper that shares neither the daemon's fate
/// nor its descriptors.
enum OwnProgram {
    /// Starts a helper; nil where that fails. `descriptors` become its numbers 3, 4 and so on; 0 to
    /// 2 are /dev/null. Its environment is `PATH` and those of `variables` that are set here.
    static func start(
        _ words: [String], descriptors: [Int32], ownSession: Bool, variables names: [String] = []
    ) -> pid_t? {
        // The helper must not inherit descriptors that a shell or a service manager left open in
        // the daemon.
        _ = ward_close_range(3, UInt32.max, 4 /* CLOSE_RANGE_CLOEXEC */)
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        for descriptor in 0...2 {
            posix_spawn_file_actions_addopen(&actions, Int32(descriptor), "/dev/null", O_RDWR, 0)
        }
        // Move the descriptors away from their final numbers first: dup2 onto itself clears
        // FD_CLOEXEC (posix_spawn_file_actions_adddup2(3), glibc 2.29).
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

    /// Waits until a helper has ended, and leaves it a zombie, so that its number stays taken.
    static func awaitEnd(of pid: pid_t) {
        var information = siginfo_t()
        while waitid(P_PID, id_t(pid), &information, WEXITED | WNOWAIT) < 0, errno == EINTR {}
    }

    /// Waits until a helper has ended, and reaps it.
    static func wait(for pid: pid_t) {
        var status: Int32 = 0
        while waitpid(pid, &status, 0) < 0, errno == EINTR {}
    }
}
