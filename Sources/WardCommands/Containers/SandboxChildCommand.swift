import ArgumentParser
import Glibc
import WardSystem

/// Started in a sandbox, never by a person: says that the sandbox is there, and becomes the
/// command, with the signals that were held back from bubblewrap.
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
