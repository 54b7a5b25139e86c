import CWardLinux
import Glibc
import WardConsole
import WardSystem

/// Runs a command with bubblewrap, bwrap(1), in a small view of the machine.
struct Sandbox {
    let view: SandboxView

    static let what = "cannot run in a sandbox"

    /// Runs the command to its end. Returns its exit code, or 128 plus the number of the signal
    /// that ended it.
    func run(_ command: [String], _ signals: ForwardedSignals) throws(CommandFailure) -> Int32 {
        try Sandbox.refuseDirectories()
        let code: Int32
        var hasStarted: UInt8 = 0
        do throws(Errno) {
            let started = try Sandbox.pipe()
            let reading = OwnedDescriptor(adopting: started.reading)
            let writing = OwnedDescriptor(adopting: started.writing)
            let words = view.arguments(
                filter: Sandbox.filterDescriptor,
                forbidsNamespaces: try Sandbox.forbidsNamespaces())
            let arguments = try Sandbox.pipe(holding: words.flatMap { Array($0.utf8) + [0] })
            let filter = try Sandbox.pipe(holding: TerminalInputFilter.program)
            let terminal = try SandboxTerminal()
            // The command must not get the keys of ward's session keyring, keyrings(7).
            ward_new_session_keyring()
            let child = try ChildProcess.start(
                "bwrap",
                ["bwrap", "--args", "\(Sandbox.viewDescriptor)", "--"] + starter + command,
                input: terminal.stream(0), output: terminal.stream(1), error: terminal.stream(2),
                passing: (writing.rawValue, Sandbox.startedDescriptor),
                alsoPassing: [
                    (arguments.rawValue, Sandbox.viewDescriptor),
                    (filter.rawValue, Sandbox.filterDescriptor),
                ],
                // Blocked signals: a signal to the process group then ends the command, and does
                // not end bubblewrap first.
                blocking: ForwardedSignals.numbers)
            try writing.close()
            try terminal.begin()
            code = signals.forward(to: child, keysToo: true) {
                Sandbox.deliver($0, below: child.pid)
            }
            terminal.end()
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

    static let program = (try? Path.real(ChildProcess.thisProgram)) ?? ChildProcess.thisProgram

    private var starter: [String] { [Sandbox.program, "sandbox-child", "--"] }

    /// An open directory would lead out of the sandbox through "..".
    private static func refuseDirectories() throws(CommandFailure) {
        for (number, name) in ["input", "output", "error"].enumerated() {
            guard let status = try? Syscall.fstat(Int32(number)),
                status.st_mode & S_IFMT == S_IFDIR
            else { continue }
            throw CommandFailure(
                what, why: "its standard \(name) is a directory, which leads out of it",
                hint: "redirect it from /dev/null, or name the directory with --show",
                status: .usage)
        }
    }

    /// Whether this bubblewrap can forbid user namespaces to the command: 0.8 and later.
    private static func forbidsNamespaces() throws(Errno) -> Bool {
        let ends = try pipe()
        let reading = OwnedDescriptor(adopting: ends.reading)
        let writing = OwnedDescriptor(adopting: ends.writing)
        let child = try ChildProcess.start(
            "bwrap", ["bwrap", "--help"], input: .null, output: .descriptor(writing.rawValue),
            error: .null)
        try writing.close()
        let help = try FileReading.bytes(of: reading.rawValue)
        _ = child.wait()
        return String(decoding: help, as: UTF8.self).contains("--disable-userns")
    }

    /// A pipe that holds these bytes and then ends.
    private static func pipe(holding bytes: [UInt8]) throws(Errno) -> OwnedDescriptor {
        let ends = try pipe()
        let reading = OwnedDescriptor(adopting: ends.reading)
        let writing = OwnedDescriptor(adopting: ends.writing)
        // Non-blocking: more than the pipe's capacity gives an error instead of waiting forever.
        _ = fcntl(writing.rawValue, F_SETFL, O_NONBLOCK)
        try Syscall.writeAll(writing.rawValue, bytes, bytes.count)
        return reading
    }

    /// Makes a pipe whose descriptors lie above the numbers that the child uses.
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

    // MARK: The command in the sandbox

    /// The descriptor on which `ward sandbox-child` reports that it runs.
    static let startedDescriptor: Int32 = 3
    private static let viewDescriptor: Int32 = 4
    private static let filterDescriptor: Int32 = 5

    /// Number of waits for bubblewrap to start the command; after them bubblewrap is killed.
    private static let startAttempts = 1000

    /// Sends the signal to the command directly: bubblewrap forwards none.
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

    /// The command is process 2 in the new PID namespace, a child of bubblewrap's process 1 there.
    private static func command(below bubblewrap: pid_t) -> pid_t? {
        guard let first = child(of: bubblewrap, numbered: "1") else { return nil }
        return child(of: first, numbered: "2")
    }

    /// Finds a child by its number in its own PID namespace, proc_pid_status(5).
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
