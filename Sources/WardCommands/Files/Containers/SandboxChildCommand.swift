import ArgumentParser
import Glibc
import WardSystem

/// Internal command, started in a sandbox. It reports that the sandbox exists and becomes the
/// command, which then gets the signals that were blocked for bubblewrap.
struct SandboxChildCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "sandbox-child", abstract: "Become the command of a sandbox.",
        shouldDisplay: false)

    @Argument(parsing: .postTerminator) var command: [String]

    func run() throws {
        _ = write(Sandbox.startedDescriptor, "1", 1)
        close(Sandbox.startedDescriptor)
        SandboxTerminal.enter()
        var none = sigset_t()
        sigemptyset(&none)
        sigprocmask(SIG_SETMASK, &none, nil)
        throw ExitCode(
            ProgramStart.replaceThisProcess(
                command, hint: "check the command; --show DIRECTORY shows what it needs"))
    }
}
