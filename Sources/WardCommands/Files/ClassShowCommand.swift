import ArgumentParser
import WardConsole
import WardControl
import WardFormat
import WardSystem

struct ClassShowCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "show", abstract: "Show the class of files and directories.",
        discussion: """
            A directory's class is the one that new files in it get. Works in every lock state.

            Examples:
              ward class show ~/papers/letter.txt
              ward class show ~/papers/*
            """,
        aliases: ["get"])

    @Argument(help: "Files and directories of a mounted volume.", completion: .file())
    var paths: [String]
    @OptionGroup var options: ReportOptions

    func run() throws {
        let console = options.console
        var failures = 0
        for path in paths {
            do {
                let protectionClass = try FileClass.read(path: path)
                if console.isJSON {
                    console.json(
                        .object([
                            ("path", .string(path)), ("letter", .string(protectionClass.letter)),
                            ("name", .string(protectionClass.name)),
                        ]))
                } else {
                    let letter = Text.padded(protectionClass.letter, 2)
                    console.result("\(letter)  \(Text.printable(path))")
                }
            } catch {
                if paths.count == 1 { throw error }
                console.failure(error)
                failures += 1
            }
        }
        if failures > 0 { throw ExitCode(ExitStatus.someFailed.rawValue) }
    }
}
