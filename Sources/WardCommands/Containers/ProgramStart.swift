import Glibc
import WardSystem

/// Becoming another program.
enum ProgramStart {
    /// As env(1) and shells say them.
    private static let notFound: Int32 = 127
    private static let notExecutable: Int32 = 126

    /// execvp(3): returns only where it fails, with the exit code for that; the failure is on stderr.
    static func replaceThisProcess(_ command: [String]) -> Int32 {
        var words = command.map { strdup($0) } + [nil]
        defer { for word in words { free(word) } }
        execvp(command[0], &words)
        let reason = Errno(rawValue: errno)
        Console().failure(
            CommandFailure("cannot run", command[0], errno: reason, hint: "check the command"))
        return reason == .noSuchFileOrDirectory ? notFound : notExecutable
    }
}
