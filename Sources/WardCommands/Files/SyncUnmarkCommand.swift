import ArgumentParser
import WardConsole
import WardControl
import WardSystem

struct SyncUnmarkCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "unmark", abstract: "Take the mark of synchronised directories away.",
        discussion: """
            Classes stay as they are: ward class set gives the directory another one.

            Examples:
              ward sync unmark ~/papers/Shared
            """)

    @Argument(help: "Marked directories of a mounted volume.", completion: .directory)
    var directories: [String]
    @OptionGroup var options: ReportOptions

    private static let what = "cannot unmark"

    func run() throws {
        let console = options.console
        var failures = 0
        for path in directories {
            do throws(CommandFailure) {
                let real = try SyncMark.directory(path, SyncUnmarkCommand.what)
                try SyncMark.remove(real, SyncUnmarkCommand.what)
                if console.isJSON { console.json(.object([("path", .string(real))])) }
                console.confirm("\(Text.printable(path)) is not marked any more")
            } catch {
                if directories.count == 1 { throw error }
                console.failure(error)
                failures += 1
            }
        }
        if failures > 0 { throw ExitCode(ExitStatus.someFailed.rawValue) }
    }
}
