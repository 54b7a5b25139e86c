import Glibc
import Synchronization
import WardConsole
import WardControl
import WardDaemon
import WardSystem

/// The daemon: serves the mount in this process until the unmount.
struct ForegroundMount {
    let request: MountRequest
    let passcodeFile: String?
    /// Gets a message when the mount answers, or the error.
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

    /// Reads the passcode before the mount. It is wiped from memory after the unlock.
    private func readPasscode() throws(CommandFailure) -> SecretHandover {
        SecretHandover(
            try passcodeFile.map { path throws(CommandFailure) in
                SecretBox(try SecretInput.read(file: path))
            })
    }

    /// The backtracer prints memory that registers point to, which could be keys. It reads its
    /// settings before main, so this starts the program again with other settings.
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
        var options = request.options
        options.logsToStandardError = readyFd == nil
        do throws(DaemonError) {
            try Daemon.run(options) { mounted in
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
                status: error.status)
        }
        if let failure = failure.withLock({ $0 }) { throw failure }
    }

    /// Reports the mount and unlocks it if requested. The control socket answers already.
    private static func announce(
        _ mounted: MountedInfo, _ passcode: SecretHandover, _ console: Console
    ) throws(CommandFailure) {
        let connection = try VolumeConnection(MountCommand.what, socketPath: mounted.socketPath)
        if let passcode = passcode.take() {
            try MountCommand.unlock(connection, passcode, mounted.mountPoint)
        }
        // The volume is mounted: a closed output must not end the daemon without an unmount.
        var console = console
        console.mayLoseOutput = true
        try MountCommand.report(try connection.status(), console)
    }
}
