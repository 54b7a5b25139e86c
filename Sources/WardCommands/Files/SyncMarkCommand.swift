import ArgumentParser
import WardConsole
import WardControl
import WardFormat
import WardSimulation
import WardSystem

struct SyncMarkCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "mark", abstract: "Mark directories as synchronised.",
        discussion: """
            From now on nothing in the directory, at any depth, gets a class above C; its own class \
            becomes C where it was A, B or CX. What is in it keeps its class: the files that are \
            above C are listed, and the exit code is 15 if there are any. Works in every lock state.

            Examples:
              ward sync mark ~/papers/Shared
              ward sync mark ~/papers/Shared || ward class set C ~/papers/Shared -R
            """)

    @Argument(help: "Directories of a mounted volume.", completion: .directory)
    var directories: [String]
    @OptionGroup var options: ReportOptions

    private static let what = "cannot mark"

    func run() throws {
        let console = options.console
        var failures = 0
        var hasProtected = false
        for path in directories {
            do {
                if try mark(path, console) { hasProtected = true }
            } catch {
                if directories.count == 1 { throw error }
                console.failure(error)
                failures += 1
            }
        }
        if failures > 0 { throw ExitCode(ExitStatus.someFailed.rawValue) }
        if hasProtected { throw ExitCode(ExitStatus.findings.rawValue) }
    }

    /// Marks the directory. Returns true where files in it keep a class above C.
    private func mark(_ path: String, _ console: Console) throws(CommandFailure) -> Bool {
        let real = try SyncMark.directory(path, SyncMarkCommand.what)
        try SyncMark.set(real, SyncMarkCommand.what)
        // Searched after the mark: from now on such classes are refused there, so the list is
        // complete.
        var line = ProgressLine(console)
        let survey = FileSurvey(top: real) { _, done, _ in
            line.update("\(path): looking for protected files: \(Text.grouped(done))")
        }
        line.clear()
        let shown = survey.files.filter { !$0.protectionClass.isForSynchronised }
        if console.isJSON {
            console.json(
                .object([
                    ("path", .string(real)),
                    (
                        "letter",
                        survey.directories[0].protectionClass.map { .string($0.letter) } ?? .null
                    ),
                    (
                        "protected",
                        .array(
                            shown.map {
                                .object([
                                    ("path", .string(real + $0.path)),
                                    ("letter", .string($0.protectionClass.letter)),
                                ])
                            })
                    ),
                    ("unreachable", .int(Int64(survey.unreachable.count))),
                ]))
        } else {
            console.confirm("\(Text.printable(path)) is marked as synchronised: class C at most")
            for file in shown {
                let letter = Text.padded(file.protectionClass.letter, 2)
                console.result("\(letter)  \(Text.printable(real + file.path))")
            }
            if !shown.isEmpty {
                console.note(
                    "\(Text.count(shown.count, "file")) in it "
                        + (shown.count == 1 ? "keeps its class" : "keep their class")
                        + "; to give in to what synchronises: ward class set C "
                        + "\(Text.shellQuoted(path)) -R")
            }
        }
        for place in survey.unreachable {
            console.note(
                "not looked at: \(Text.printable(place.path)): \(Text.reason(place.reason))")
        }
        return !shown.isEmpty
    }
}
