import Glibc
import WardSystem

/// A view of the machine without the volumes but for one container and its groups: bubblewrap, bwrap(1).
struct Sandbox {
    /// Absolute.
    let container: String
    let groups: [String]
    let mountPoint: String
    /// Where the device keys of this user's volumes are.
    let keys: String

    private static let what = "cannot run in a sandbox"

    /// Runs the command to its end: its exit code, or 128 and the number of the signal that ended it.
    func run(_ command: [String], _ signals: ForwardedSignals) throws(CommandFailure) -> Int32 {
        let code: Int32
        var hasStarted: UInt8 = 0
        do throws(Errno) {
            let started = try Sandbox.pipe()
            let reading = OwnedDescriptor(adopting: started.reading)
            let writing = OwnedDescriptor(adopting: started.writing)
            let view = try Sandbox.pipe(holding: view.flatMap { Array($0.utf8) + [0] })
            let filter = try Sandbox.pipe(holding: TerminalInputFilter.program)
            let child = try ChildProcess.start(
                "bwrap",
                ["bwrap", "--args", "\(Sandbox.viewDescriptor)", "--"] + starter + command,
                passing: (writing.rawValue, Sandbox.startedDescriptor),
                alsoPassing: [
                    (view.rawValue, Sandbox.viewDescriptor),
                    (filter.rawValue, Sandbox.filterDescriptor),
                ],
                // So that a terminal's keys end the command, and not bubblewrap before it.
                blocking: ForwardedSignals.numbers)
            try writing.close()
            code = signals.forward(to: child) { Sandbox.deliver($0, below: child.pid) }
            _ = try Syscall.read(reading.rawValue, &hasStarted, 1)
        } catch {
            if error == .noSuchFileOrDirectory {
                throw CommandFailure(
                    Sandbox.what, why: "there is no program bwrap",
                    hint: "apt-get install bubblewrap", status: .unavailable)
            }
            throw CommandFailure(Sandbox.what, errno: error)
        }
        guard hasStarted != 0 else {
            throw CommandFailure(
                Sandbox.what, why: "bubblewrap could not make one, and says above why",
                hint: "where ordinary users may not make namespaces (sysctl "
                    + "user.max_user_namespaces, kernel.unprivileged_userns_clone, "
                    + "kernel.apparmor_restrict_unprivileged_userns), run it as root, or without "
                    + "--sandbox", status: .unavailable)
        }
        return code
    }

    private static let program =
        (try? Path.real(ChildProcess.thisProgram)) ?? ChildProcess.thisProgram

    private var starter: [String] { [Sandbox.program, "sandbox-child", "--"] }

    /// What bubblewrap is told of the view. By a descriptor: nobody else's business, and as long as it has to be.
    private var view: [String] {
        let shown = [container] + groups
        let hidden = hiddenDirectories.filter { !shown.contains($0) }
        var words = ["--dev-bind", "/", "/", "--die-with-parent"]
        words += ["--seccomp", "\(Sandbox.filterDescriptor)"]
        // With a process table of its own: /proc/PID/root of a process outside leads outside.
        words += ["--unshare-pid", "--proc", "/proc"]
        // What root may do would undo the rest.
        if geteuid() == 0 { words += ["--cap-drop", "ALL"] }
        // What is mounted in what is shown comes along with it.
        let inside = hidden.filter { place in shown.contains { PathBytes.isInside(place, $0) } }
        for place in hidden where !inside.contains(place) { words += ["--tmpfs", place] }
        for place in shown { words += ["--bind", place, place] }
        for place in inside { words += ["--tmpfs", place] }
        if hidden.contains(where: { PathBytes.isInside(Sandbox.program, $0) }) {
            words += ["--ro-bind", Sandbox.program, Sandbox.program]
        }
        // What is written beside the container must fail, and not be lost with the sandbox.
        for place in hidden { words += ["--remount-ro", place] }
        let here = Path.current ?? "/"
        let hiding = shown.contains { PathBytes.isInside(here, $0) } ? inside : hidden
        if hiding.contains(where: { PathBytes.isInside(here, $0) }) {
            words += ["--chdir", container]
        }
        return words
    }

    /// A pipe that holds these bytes, and then ends.
    private static func pipe(holding bytes: [UInt8]) throws(Errno) -> OwnedDescriptor {
        let ends = try pipe()
        let reading = OwnedDescriptor(adopting: ends.reading)
        let writing = OwnedDescriptor(adopting: ends.writing)
        // More than a pipe holds fails, and does not wait for ever.
        _ = fcntl(writing.rawValue, F_SETFL, O_NONBLOCK)
        try Syscall.writeAll(writing.rawValue, bytes, bytes.count)
        return reading
    }

    /// With numbers above those that the child knows them by.
    private static func pipe() throws(Errno) -> (reading: Int32, writing: Int32) {
        let ends = try Syscall.pipe()
        defer {
            Syscall.close(ends.reading)
            Syscall.close(ends.writing)
        }
        let reading = OwnedDescriptor(
            adopting: try Syscall.check { fcntl(ends.reading, F_DUPFD_CLOEXEC, 10) })
        let writing = try Syscall.check { fcntl(ends.writing, F_DUPFD_CLOEXEC, 10) }
        return (reading.release(), writing)
    }

    /// Mounts of volumes, and what holds the keys of this user's. Those that this user can't enter hide themselves.
    private var hiddenDirectories: [String] {
        let others = MountTable.now.entries.filter { $0.isWard && $0.mountPoint != mountPoint }
            .map(\.mountPoint)
        var places = [mountPoint]
        for place in others + [keys]
        where !places.contains(place) && (try? Syscall.stat(place)) != nil {
            places.append(place)
        }
        // The outer ones first: what is hidden in another is made again in it.
        return places.sorted { $0.utf8.count < $1.utf8.count }
    }

    // MARK: The command in the sandbox

    /// What `ward sandbox-child` tells that it runs by.
    static let startedDescriptor: Int32 = 3
    private static let viewDescriptor: Int32 = 4
    private static let filterDescriptor: Int32 = 5

    /// Until bubblewrap has started the command; where it does not come to that, it is ended.
    private static let startAttempts = 1000

    /// bubblewrap passes no signals on: the command gets them directly.
    private static func deliver(_ number: Int32, below bubblewrap: pid_t) {
        for _ in 0..<startAttempts {
            if let command = command(below: bubblewrap) {
                kill(command, number)
                return
            }
            if ProcessTable.hasEnded(bubblewrap) { return }
            usleep(5000)
        }
        kill(bubblewrap, SIGKILL)
    }

    /// bubblewrap, its first process in the new table, and the second there, which is the command.
    private static func command(below bubblewrap: pid_t) -> pid_t? {
        guard let first = child(of: bubblewrap, numbered: "1") else { return nil }
        return child(of: first, numbered: "2")
    }

    /// `number`: in its own table of processes, proc_pid_status(5).
    private static func child(of parent: pid_t, numbered number: String) -> pid_t? {
        ProcessTable.processes().first { pid in
            guard let text = try? FileReading.text(of: "/proc/\(pid)/status") else { return false }
            let lines = text.split(separator: "\n")
            func words(_ name: String) -> [Substring] {
                lines.first { $0.hasPrefix(name) }?.dropFirst(name.count).split { $0.isWhitespace }
                    ?? []
            }
            return words("PPid:").first.flatMap { pid_t($0) } == parent
                && words("NSpid:").last.map(String.init) == number
        }
    }
}
