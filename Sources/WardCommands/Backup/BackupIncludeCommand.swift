import ArgumentParser
import WardConsole

struct BackupIncludeCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "include", abstract: "Have backups take files again.",
        discussion: """
            Takes away the mark that ward backup exclude and isExcludedFromBackup set. Says so where a \
            directory above is marked: then the file is left out all the same.

            Examples:
              ward backup include ~/papers/downloads
            """)

    @Argument(help: "Files and directories of a mounted volume.", completion: .file())
    var paths: [String]
    @OptionGroup var options: ReportOptions

    func run() throws { try BackupMark.set(false, paths, options.console) }
}
