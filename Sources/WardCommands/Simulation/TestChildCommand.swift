import ArgumentParser
import CWardLinux
import Glibc
import WardSystem

/// Started by `ward test`, never by a person: becomes the command under test, which then ends with
/// `ward test`, however that ends (PR_SET_PDEATHSIG(2const) can be set by the process itself only,
/// and survives execve(2)).
struct TestChildCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "test-child", abstract: "Become a command that ends with its parent.",
        shouldDisplay: false)

    /// As env(1) and shells say it.
    private static let notFound: Int32 = 127

    @Option var parent: Int32
    @Argument(parsing: .postTerminator) var command: [String]

    func run() throws {
        _ = ward_prctl(1 /* PR_SET_PDEATHSIG */, UInt(SIGKILL))
        // It may have died before this was set.
        guard getppid() == parent else { throw ExitCode(TestChildCommand.notFound) }
        throw ExitCode(ProgramStart.replaceThisProcess(command))
    }
}
