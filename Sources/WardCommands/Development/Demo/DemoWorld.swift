import CWardLinux
import Glibc
import WardConsole
import WardControl
import WardSystem

/// A temporary directory with the demo's volume, mount point, state and sockets. Every ward command
/// runs as a child process with an environment that points there.
final class DemoWorld {
    struct Outcome {
        var code: Int32
        /// stdout and stderr together, in order.
        var output: String
    }

    let narrator: Narrator
    let root: String
    /// The current step, for error messages.
    private(set) var step = "prepare a directory"
    private let environment: [String: String?]

    init(_ narrator: Narrator) throws(CommandFailure) {
        self.narrator = narrator
        let base = TemporaryDirectory.parent(forSockets: true)
        let made: String
        do throws(Errno) {
            made = try TemporaryDirectory.make("ward-demo", in: base)
        } catch {
            throw CommandFailure(
                "cannot make a directory in", base, errno: error,
                hint: "TMPDIR=/var/tmp ward demo", status: .cannotCreate)
        }
        root = (try? Path.real(made)) ?? made
        environment = [
            "XDG_STATE_HOME": root + "/state", "XDG_RUNTIME_DIR": root + "/run", "NO_COLOR": "1",
            "LC_ALL": "C", "HOME": root, "GIT_CONFIG_NOSYSTEM": "1", "GIT_DIR": nil,
            "GIT_WORK_TREE": nil,
        ]
        for name in ["state", "run", "files"] { mkdir(root + "/" + name, 0o700) }
        chdir(root)
    }

    // MARK: Steps

    /// Begins a step. Throws where the demo was interrupted.
    func begin(_ step: String) throws(DemoStop) {
        self.step = step
        try stopIfInterrupted()
    }

    func check(_ holds: Bool, _ text: String) throws(DemoStop) {
        try stopIfInterrupted()
        guard holds else {
            narrator.bad(text)
            throw .step(step, "this does not hold: \(text)")
        }
        narrator.good(text)
    }

    /// Runs a command and shows it with its output. Its exit code must be `expecting` (nil: any but
    /// 0).
    @discardableResult
    func run(
        _ words: [String], expecting: Int32? = 0, showOutput: Bool = true
    ) throws(DemoStop) -> Outcome {
        try stopIfInterrupted()
        narrator.command(words)
        let outcome = try capture(words)
        if showOutput { narrator.output(outcome.output) }
        try stopIfInterrupted()
        let isExpected = expecting.map { outcome.code == $0 } ?? (outcome.code != 0)
        if !isExpected {
            if !showOutput || narrator.isQuiet { narrator.write(outcome.output) }
            let shown = words.joined(separator: " ")
            let said = outcome.output.split(separator: "\n").first.map { ": \($0)" } ?? ""
            throw .step(step, "'\(shown)' ended with exit code \(outcome.code)\(said)")
        }
        return outcome
    }

    /// Runs a command silently; "ward" means this program.
    func capture(_ words: [String]) throws(DemoStop) -> Outcome {
        do throws(Errno) {
            let pipe = try Syscall.pipe()
            let reading = OwnedDescriptor(adopting: pipe.reading)
            let writing = OwnedDescriptor(adopting: pipe.writing)
            let program = words[0] == "ward" ? ChildProcess.thisProgram : words[0]
            let child = try ChildProcess.start(
                program, words, environment: environment, input: .null,
                output: .descriptor(writing.rawValue), error: .descriptor(writing.rawValue))
            try writing.close()
            let bytes = try FileReading.bytes(of: reading.rawValue, limit: 1 << 24)
            return Outcome(code: child.wait(), output: String(decoding: bytes, as: UTF8.self))
        } catch {
            throw .step(step, "'\(words[0])' can't be run: \(Text.reason(error))")
        }
    }

    func has(_ program: String) -> Bool {
        (try? capture([program, "--version"]))?.code == 0
    }

    // MARK: The end

    private func stopIfInterrupted() throws(DemoStop) {
        var pending = sigset_t()
        sigpending(&pending)
        for signal in DemoStory.signals where sigismember(&pending, signal) == 1 {
            throw .interrupted
        }
    }

    /// Unmounts, ends the daemon and removes all files. Reports files that could not be removed.
    func cleanUp() {
        let runtime = RuntimeDirectory(path: root + "/run/ward")
        let daemons = runtime.mounted().map { Int32(truncatingIfNeeded: $0.pid) }
        if isMounted || !daemons.isEmpty {
            _ = try? capture(["ward", "unmount", "--force", "--quiet", root + "/files"])
        }
        for daemon in daemons where !ProcessTable.hasEnded(daemon) {
            kill(daemon, SIGTERM)
            for _ in 0..<300 where !ProcessTable.hasEnded(daemon) { usleep(10_000) }
            if !ProcessTable.hasEnded(daemon) { kill(daemon, SIGKILL) }
        }
        if isMounted {
            _ = try? capture(["fusermount3", "-u", "-z", root + "/files"])
            umount2(root + "/files", 2 /* MNT_DETACH */)
        }
        chdir("/")
        if isMounted || !DirectoryTree.remove(root) {
            Console.write("ward: note: \(root) could not be removed\n", to: 2)
        }
    }

    private var isMounted: Bool {
        MountTable.now.entries.contains { PathBytes.isInside($0.mountPoint, root) }
    }
}

/// The reason for an early end of the demo.
enum DemoStop: Error {
    /// A step that failed: its name and the problem.
    case step(String, String)
    case interrupted
}
