import ArgumentParser
import Glibc
import WardConsole
import WardSystem

/// Starts the daemon in a new session and waits until its mount answers.
struct BackgroundMount {
    let request: MountRequest

    /// The reason why there is no daemon.
    enum Failure: Error {
        /// The daemon's own exit code and its two lines.
        case daemon(status: Int32, text: String)
        case command(CommandFailure)
    }

    /// Returns the mount point. Where the daemon fails, prints its two lines unchanged and throws
    /// its exit code.
    func start() throws -> String {
        do throws(Failure) {
            return try launch().mountPoint
        } catch {
            switch error {
            case .daemon(let status, let text):
                Console.write(text + "\n", to: 2)
                throw ExitCode(status)
            case .command(let failure): throw failure
            }
        }
    }

    /// Starts the daemon and waits until its mount answers.
    func launch() throws(Failure) -> (mountPoint: String, daemon: ChildProcess) {
        let what = MountCommand.what
        let volume = request.options.volumePath
        let bytes: [UInt8]
        let child: ChildProcess
        do throws(Errno) {
            let pipe = try Syscall.pipe()
            let reading = OwnedDescriptor(adopting: pipe.reading)
            let writing = OwnedDescriptor(adopting: pipe.writing)
            let words =
                request.arguments + ["--ready-fd", "3", "--", volume, request.options.mountPoint]
            child = try ChildProcess.start(
                ChildProcess.thisProgram, words,
                environment: ["SWIFT_BACKTRACE": "enable=no"], input: .null, output: .null,
                error: .null, passing: (from: writing.rawValue, to: 3), newSession: true)
            try writing.close()
            bytes = try FileReading.bytes(of: reading.rawValue)
        } catch {
            let why = "its daemon can't be started: \(Text.reason(error))"
            guard error == .resourceTemporarilyUnavailable else {
                throw .command(CommandFailure(what, volume, why: why, status: .system))
            }
            throw .command(
                CommandFailure(
                    what, volume, why: why,
                    hint: "raise the limit on processes: ulimit -u", status: .temporary))
        }
        switch ReadyMessage(bytes) {
        case .ready(let mountPoint): return (mountPoint, child)
        case .failed(let status, let text):
            _ = child.wait()
            throw .daemon(status: status, text: text)
        case nil:
            throw .command(
                CommandFailure(
                    what, volume,
                    why: "its daemon ended before the mount was ready (exit code \(child.wait()))",
                    hint: "ward mount --foreground shows what it says", status: .software))
        }
    }
}
