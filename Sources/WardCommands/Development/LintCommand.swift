import ArgumentParser
import Glibc
import WardConsole
import WardControl
import WardSystem

/// Hands `ward lint` over to the program `ward-lint`: the program that holds keys reads no source.
struct LintCommand: ParsableCommand {
    static let configuration = LintOptions.configuration(commandName: "lint")

    @OptionGroup var options: LintOptions

    func run() throws {
        let program = LintCommand.program
        var words = LintCommand.words
        words[0] = strdup(program)
        execv(program, &words)
        throw CommandFailure(
            "cannot start", program, errno: Errno(rawValue: errno),
            hint: "in the sources of ward: make && sudo make install", status: .unavailable)
    }

    /// The program lies beside this one.
    private static var program: String {
        var buffer = [UInt8](repeating: 0, count: Int(PATH_MAX))
        let count = try? Syscall.readlinkat(
            AT_FDCWD, ChildProcess.thisProgram, &buffer, buffer.count)
        let own = String(decoding: buffer[..<(count ?? 0)], as: UTF8.self)
        return Path.joined(Path.parent(own), "ward-lint")
    }

    /// The words of this command line from `lint` on, as they are: a path may be any bytes.
    private static var words: [UnsafeMutablePointer<CChar>?] {
        let all = UnsafeBufferPointer(
            start: CommandLine.unsafeArgv, count: Int(CommandLine.argc))
        return Array(all.drop { $0.map { String(cString: $0) } != configuration.commandName }) + [
            nil
        ]
    }
}
