import CWardLinux
import Glibc
import WardSystem

/// A child process, posix_spawn(3): no shell, and only the named descriptors.
struct ChildProcess: Sendable {
    let pid: pid_t

    /// The source or destination of a standard stream of the child.
    enum Stream {
        case inherit
        case null
        case descriptor(Int32)
    }

    /// This program, by a path that stays right when the file is replaced.
    static let thisProgram = "/proc/self/exe"

    /// - Parameters:
    ///   - program: A path, or a name to find in `PATH`.
    ///   - arguments: The program's name comes first.
    ///   - environment: Variables to set (or, where nil, remove) in a copy of this process's
    ///     environment.
    ///   - passing: A descriptor of this process and its number in the child.
    ///   - alsoPassing: More of them, duplicated later. None may have a number here that an earlier
    ///     one gets in the child.
    ///   - inheritsDescriptors: The child keeps the descriptors that the shell left open; for a
    ///     wrapped program.
    ///   - blocking: Signals that are blocked when the child begins.
    ///   - newSession: Calls setsid(2) before the program starts: no controlling terminal and no
    ///     signals from its keys.
    static func start(
        _ program: String, _ arguments: [String], environment: [String: String?] = [:],
        input: Stream = .inherit, output: Stream = .inherit, error: Stream = .inherit,
        passing: (from: Int32, to: Int32)? = nil, alsoPassing: [(from: Int32, to: Int32)] = [],
        inheritsDescriptors: Bool = false, blocking: [Int32] = [], newSession: Bool = false
    ) throws(Errno) -> ChildProcess {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        // Descriptors that the shell left open stay in this process. The child gets the standard
        // streams and the passed ones.
        if !inheritsDescriptors {
            _ = ward_close_range(3, UInt32.max, 4 /* CLOSE_RANGE_CLOEXEC */)
        }
        for (number, stream) in [(Int32(0), input), (1, output), (2, error)] {
            switch stream {
            case .inherit: break
            case .null:
                posix_spawn_file_actions_addopen(
                    &actions, number, "/dev/null", number == 0 ? O_RDONLY : O_WRONLY, 0)
            case .descriptor(let descriptor):
                posix_spawn_file_actions_adddup2(&actions, descriptor, number)
            }
        }
        // A descriptor duplicated onto itself loses close-on-exec here (glibc 2.29).
        for passing in (passing.map { [$0] } ?? []) + alsoPassing {
            posix_spawn_file_actions_adddup2(&actions, passing.from, passing.to)
        }

        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var blocked = sigset_t()
        sigemptyset(&blocked)
        for number in blocking { sigaddset(&blocked, number) }
        posix_spawnattr_setsigmask(&attributes, &blocked)
        var all = sigset_t()
        sigfillset(&all)
        posix_spawnattr_setsigdefault(&attributes, &all)
        var flags = Int16(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF)
        if newSession { flags |= 0x80 /* POSIX_SPAWN_SETSID, spawn.h under _GNU_SOURCE */ }
        posix_spawnattr_setflags(&attributes, flags)

        var argumentPointers = arguments.map { strdup($0) } + [nil]
        var environmentPointers = merged(environment).map { strdup($0) } + [nil]
        defer { for pointer in argumentPointers + environmentPointers { free(pointer) } }
        var pid = pid_t()
        let result = posix_spawnp(
            &pid, program, &actions, &attributes, &argumentPointers, &environmentPointers)
        if result != 0 { throw Errno(rawValue: result) }
        return ChildProcess(pid: pid)
    }

    /// Waits for the end. Returns the exit code, or 128 plus the signal's number as in shells.
    func wait() -> Int32 {
        var status: Int32 = 0
        while waitpid(pid, &status, 0) < 0 {
            if errno != EINTR { return 127 }
        }
        return ward_wifexited(status) != 0 ? ward_wexitstatus(status) : 128 + ward_wtermsig(status)
    }

    private static func merged(_ changes: [String: String?]) -> [String] {
        var result: [String] = []
        var entry = environ
        while let text = entry.pointee {
            let assignment = String(cString: text)
            let name = assignment.prefix { $0 != "=" }
            if changes[String(name)] == nil { result.append(assignment) }
            entry += 1
        }
        for (name, value) in changes { if let value { result.append("\(name)=\(value)") } }
        return result
    }
}
