import ArgumentParser
import CWardLinux
import Glibc
import WardSystem

/// Internal command, started by `ward test`: becomes the command under test, which then ends with
/// `ward test` in every case. Only the process itself can set PR_SET_PDEATHSIG(2const), and the
/// setting survives execve(2).
struct TestChildCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "test-child", abstract: "Become a command that ends with its parent.",
        shouldDisplay: false)

    /// The exit code of env(1) and shells.
    private static let notFound: Int32 = 127

    @Option var parent: Int32
    @Argument(parsing: .postTerminator) var command: [String]

    func run() throws {
        _ = ward_prctl(1 /* PR_SET_PDEATHSIG */, UInt(SIGKILL))
        // The parent may have died before the call above.
        guard getppid() == parent else { throw ExitCode(TestChildCommand.notFound) }
        throw ExitCode(ProgramStart.replaceThisProcess(command))
    }
}
