import Glibc
import Synchronization
import WardControl
import WardDaemon
import WardSystem

/// Is the daemon: serves the mount in this process until it is unmounted.
struct ForegroundMount {
    let request: MountRequest
    let passcodeFile: String?
    /// Told when the mount answers, or why it does not.
    let readyFd: Int32?

    func run(_ console: Console) throws {
        turnOffBacktraces()
        do throws(CommandFailure) {
            try serve(try readPasscode(), console)
        } catch {
            if let readyFd {
                ReadyMessage.failed(status: error.status.rawValue, text: error.rendered)
                    .send(to: readyFd)
            }
            throw error
        }
    }

    /// Read before anything is mounted; gone from memory once it has unlocked, long before this
    /// process ends.
    private func readPasscode() throws(CommandFailure) -> SecretHandover {
        SecretHandover(
            try passcodeFile.map { path throws(CommandFailure) in
                SecretBox(try SecretInput.read(file: path))
            })
    }

    /// The backtracer prints memory that registers point to, and that could be keys. It reads its
    /// settings before main: so once more from the start, with the right ones.
    private func turnOffBacktraces() {
        let setting = getenv("SWIFT_BACKTRACE").map { String(cString: $0) }
        if setting == "enable=no" { return }
        setenv("SWIFT_BACKTRACE", "enable=no", 1)
        execv(ChildProcess.thisProgram, CommandLine.unsafeArgv)
    }

    private func serve(
        _ passcode: SecretHandover, _ console: Console
    ) throws(CommandFailure) {
        let failure = Mutex<CommandFailure?>(nil)
        do throws(DaemonError) {
            try Daemon.run(request.options(logsToStandardError: readyFd == nil)) { mounted in
                if let readyFd {
                    ReadyMessage.ready(mountPoint: mounted.mountPoint).send(to: readyFd)
                    return
                }
                do throws(CommandFailure) {
                    try ForegroundMount.announce(mounted, passcode, console)
                } catch {
                    failure.withLock { $0 = error }
                }
            }
        } catch {
            throw CommandFailure(
                "cannot \(error.what)", error.path, why: error.why, hint: error.hint,
                status: ExitStatus(rawValue: error.exitCode) ?? .software)
        }
        if let failure = failure.withLock({ $0 }) { throw failure }
    }

    /// Says where the volume is and unlocks it if asked to: the control socket answers already.
    private static func announce(
        _ mounted: MountedInfo, _ passcode: SecretHandover, _ console: Console
    ) throws(CommandFailure) {
        let connection = try VolumeConnection(MountCommand.what, socketPath: mounted.socketPath)
        if let passcode = passcode.take() {
            try MountCommand.unlock(connection, passcode, mounted.mountPoint)
        }
        // The volume is mounted: an output that is closed must not end it without an unmount.
        var console = console
        console.mayLoseOutput = true
        try MountCommand.report(try connection.status(), console)
    }
}
