import ArgumentParser
import WardConsole
import WardControl
import WardFormat
import WardSystem

struct ClassSetCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "set", abstract: "Set the class of files and directories.",
        discussion: """
            A file's key is wrapped anew; its content is not rewritten, whatever its size. A \
            directory's class is the one that new files in it get: what is in it keeps its own, \
            unless -R is given. With -R it goes on after a failure, reports the first ones and \
            counts the others, and can be run again; symbolic links are not followed.

            The owner of a file may, whatever its mode: a tree with read-only files, as git has \
            them, gets the class whole.

            --rekey writes the content anew under a new key, so that whoever held the old key or \
            an old copy of the file's header can't read what is written from now on.

            \(ClassArgument.table)

            Examples:
              ward class set A ~/papers/diary.txt
              ward class set complete ~/papers/diary -R
              ward class set A ~/papers/diary.txt --rekey
            """)

    @Argument(help: "A, B, C, D, CX, or a name of one.") var protectionClass: ClassArgument
    @Argument(help: "Files and directories of a mounted volume.", completion: .file())
    var paths: [String]
    @Flag(name: [.customShort("R"), .long], help: "Everything in the directories as well.")
    var recursive = false
    @Flag(help: "Write the content anew under a new key.") var rekey = false
    @OptionGroup var options: ReportOptions

    func run() throws {
        let console = options.console
        if recursive { DescriptorLimit.raise() }
        var change = ClassChange(
            protectionClass: protectionClass.value, isRecursive: recursive, isRekeying: rekey,
            reportsEach: recursive || paths.count > 1, console: console)
        for path in paths { change.apply(to: path) }
        change.finish()
        if let failure = change.onlyFailure { throw failure }
        if console.isJSON {
            console.json(
                .object([
                    ("letter", .string(protectionClass.value.letter)),
                    ("changed", .int(Int64(change.changed))),
                    ("skipped", .int(Int64(change.skipped))),
                    ("failed", .int(Int64(change.failed))),
                ]))
        } else if recursive || paths.count > 1 {
            var summary = "class \(protectionClass.value.letter) set on "
            summary += Text.count(change.changed, "path")
            if change.skipped > 0 {
                summary += ", \(Text.grouped(change.skipped)) without a class left out"
            }
            if change.failed > 0 { summary += ", \(Text.grouped(change.failed)) failed" }
            console.confirm(summary)
        }
        if change.failed > 0 { throw ExitCode(ExitStatus.someFailed.rawValue) }
    }
}
