import Glibc
import WardConsole
import WardSystem

/// Finds programs and replaces this process by one.
enum ProgramStart {
    /// The absolute path of the file that execvp(3) would run for this name; nil where there is
    /// none.
    static func find(_ name: String) -> String? {
        let places =
            name.contains("/")
            ? [name]
            : getenv("PATH").map { String(cString: $0) }?.split(separator: ":").map {
                "\($0)/\(name)"
            } ?? []
        for place in places where access(place, X_OK) == 0 {
            guard let status = try? Syscall.stat(place), status.st_mode & S_IFMT == S_IFREG,
                let parent = try? Path.real(Path.parent(place))
            else { continue }
            return place.hasPrefix("/")
                ? place : Path.joined(parent, Path.lastComponent(place))
        }
        return nil
    }

    /// The exit codes of env(1) and shells.
    private static let notFound: Int32 = 127
    private static let notExecutable: Int32 = 126

    /// Calls execvp(3). Returns only on failure: reports it on stderr and returns the exit code.
    static func replaceThisProcess(
        _ command: [String], hint: String = "check the command"
    ) -> Int32 {
        var words = command.map { strdup($0) } + [nil]
        defer { for word in words { free(word) } }
        execvp(command[0], &words)
        let reason = Errno(rawValue: errno)
        Console().failure(
            CommandFailure("cannot run", command[0], errno: reason, hint: hint))
        return reason == .noSuchFileOrDirectory ? notFound : notExecutable
    }
}
