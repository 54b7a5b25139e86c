import ArgumentParser
import Glibc
import WardConsole
import WardControl
import WardSimulation
import WardSystem

struct TestCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "test", abstract: "Run a command with a fresh volume, and audit what it did.",
        usage: "ward test [<options>] -- <command> ...",
        discussion: """
            Makes a volume with a manual clock, mounts it in a temporary directory, unlocks it, and \
            runs the command. Afterwards the audit: files by class, refusals, and findings. \
            Everything is removed at the end, however that comes.

            The command finds the volume in $WARD_TEST_VOLUME, and this ward first in PATH. Below it \
            ward lock, advance, unlock, reboot, fill, status and events are about that volume where \
            none is named, and ward unlock knows the passcode ($WARD_TEST_PASSCODE_FILE).

            Findings:
            \(Finding.Kind.table)

            The exit code is the command's. Where that is 0 and there are findings, it is 15.

            Examples:
              ward test -- python3 -m pytest
              ward test -- sh -c './app --data "$WARD_TEST_VOLUME" & ward lock --now; wait'
              ward test --before-first-unlock --no-denials -- ./app --background
              ward test --allow removed-unread --json -- ./cache-cleaner
            """)

    @OptionGroup var passcode: PasscodeOptions
    @Flag(help: "The volume has no passcode: nothing is ever withheld.") var noPasscode = false
    @Flag(help: "Begin before first unlock instead of unlocked.") var beforeFirstUnlock = false
    @Option(help: "Seconds that protected files stay readable after a lock.") var grace = 10.0
    @Option(name: .customLong("class"), help: "Class of new files where nothing else says.")
    var defaultClass = ClassArgument(.completeUntilFirstUserAuthentication)
    @Option(
        help: "A kind of finding that is no mistake here; may be repeated.",
        completion: .list(Finding.Kind.allCases.map(\.rawValue)))
    var allow: [FindingKind] = []
    @Flag(help: "A refusal is a finding, too.") var noDenials = false
    @OptionGroup var options: ReportOptions
    @Argument(parsing: .postTerminator, help: "What to run, after --.") var command: [String] = []

    /// The default passcode of the volume. The environment names a file with the passcode.
    private static let usualPasscode = "1234"
    private static let what = "cannot test with a volume of its own"

    func validate() throws {
        guard !command.isEmpty else {
            throw ValidationError("a command is expected after --, as in ward test -- make check")
        }
        guard (0...86400).contains(grace) else {
            throw ValidationError("--grace is a number of seconds, 0 to 86400")
        }
        if noPasscode && (passcode.isGiven || beforeFirstUnlock) {
            throw ValidationError("--no-passcode leaves nothing to unlock")
        }
    }

    func run() throws {
        let console = options.console
        // Blocked from here on, so that no signal is lost before the command runs. The device's
        // process starts with an empty signal mask.
        let signals = ForwardedSignals()
        let code: Int32
        do throws(SimulatorError) {
            let simulator = try SimulatorProcess(program: ChildProcess.thisProgram)
            code = try run(simulator, signals, console)
        } catch {
            throw CommandFailure(
                error.what, why: error.why, hint: error.hint,
                status: ExitStatus(rawValue: error.exitCode) ?? .software)
        }
        throw ExitCode(code)
    }

    private func run(
        _ simulator: SimulatorProcess, _ signals: ForwardedSignals, _ console: Console
    ) throws(SimulatorError) -> Int32 {
        var settings = SimulatorSettings(passcode: noPasscode ? nil : try readPasscode(console))
        settings.graceSeconds = grace
        settings.defaultClass = defaultClass.value
        settings.startsUnlocked = !beforeFirstUnlock
        let mount = try simulator.start(settings)
        let code = signals.forward(to: try startCommand(mount))
        unlock(mount)
        let audit = try simulator.audit()
        let report = TestReport(
            audit: audit, allowed: Set(allow.map(\.value)), forbidsDenials: noDenials)
        report.show(command, code, console)
        try simulator.end()
        return code != 0 ? code : report.isClean ? 0 : ExitStatus.findings.rawValue
    }

    /// A test's passcode is no secret, but it is read like one: the file may hold a secret.
    private func readPasscode(_ console: Console) throws(SimulatorError) -> String {
        guard passcode.isGiven else { return TestCommand.usualPasscode }
        do throws(CommandFailure) {
            let secret = try passcode.read(asking: "", console)
            return secret.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
        } catch {
            throw SimulatorError(error)
        }
    }

    private func startCommand(_ mount: SimulatedMount) throws(SimulatorError) -> ChildProcess {
        let programs = mount.directory + "/bin"
        let ownPath = (try? Path.real(ChildProcess.thisProgram)) ?? ChildProcess.thisProgram
        mkdir(programs, 0o700)
        symlink(ownPath, programs + "/ward")
        let path = getenv("PATH").map { String(cString: $0) } ?? "/usr/bin:/bin"
        do throws(Errno) {
            return try ChildProcess.start(
                ChildProcess.thisProgram,
                ["ward", "test-child", "--parent", "\(getpid())", "--"] + command,
                environment: [
                    TestEnvironment.volumeVariable: mount.mountPoint,
                    TestEnvironment.passcodeVariable: mount.passcodeFile,
                    "PATH": programs + ":" + path,
                ], inheritsDescriptors: true)
        } catch {
            throw SimulatorError(
                TestCommand.what, why: "\(command[0]) can't be started: \(Text.reason(error))",
                exitCode: ExitStatus.system.rawValue)
        }
    }

    /// Unlocks the volume so that contents can be compared. If that fails, because the passcode
    /// changed or no tries are left, the report names the unread files.
    private func unlock(_ mount: SimulatedMount) {
        guard let file = mount.passcodeFile, let secret = try? SecretInput.read(file: file),
            let client = try? ControlClient(socketPath: mount.socketPath)
        else { return }
        _ = try? client.unlock(passcode: secret)
    }
}

/// A kind of finding on the command line.
struct FindingKind: ExpressibleByArgument {
    let value: Finding.Kind

    init?(argument: String) {
        guard let value = Finding.Kind(rawValue: argument) else { return nil }
        self.value = value
    }

    static let allValueStrings = Finding.Kind.allCases.map(\.rawValue)
}
