import ArgumentParser
import WardConsole
import WardControl
import WardFormat
import WardSimulation
import WardSystem

struct SyncListCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list", abstract: "List the marked directories of a mounted volume.",
        discussion: """
            With the class that new files in each get, and how many files in it are above C. Works in \
            every lock state.

            Examples:
              ward sync list ~/papers
              ward sync list --json | jq -r .path
            """)

    @OptionGroup var target: MountPointArgument
    @OptionGroup var options: ReportOptions

    func run() throws {
        let console = options.console
        let connection = try target.connect("cannot list the marks of")
        let mountPoint = try connection.status().mountpoint
        var line = ProgressLine(console)
        let survey = FileSurvey(top: mountPoint) { what, done, _ in
            line.update("\(what): \(Text.grouped(done))")
        }
        line.clear()
        let protected = survey.files.filter { !$0.protectionClass.isForSynchronised }
        for directory in survey.directories where directory.isMarked {
            let prefix = directory.path == "/" ? "/" : directory.path + "/"
            let count = protected.count { $0.path.hasPrefix(prefix) }
            let path = directory.path == "/" ? mountPoint : mountPoint + directory.path
            let letter = directory.protectionClass?.letter
            if console.isJSON {
                console.json(
                    .object([
                        ("path", .string(path)), ("letter", letter.map { .string($0) } ?? .null),
                        ("protected", .int(Int64(count))),
                    ]))
            } else {
                let note = count == 0 ? "" : "  \(Text.count(count, "protected file")) in it"
                console.result("\(Text.padded(letter ?? "-", 2))  \(Text.printable(path))\(note)")
            }
        }
        for place in survey.unreachable {
            console.note(
                "not looked at: \(Text.printable(place.path)): \(Text.reason(place.reason))")
        }
        if !survey.unreachable.isEmpty { throw ExitCode(ExitStatus.someFailed.rawValue) }
    }
}
