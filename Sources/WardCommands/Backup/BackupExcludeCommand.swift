import ArgumentParser
import WardConsole

struct BackupExcludeCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "exclude", abstract: "Have backups leave files out.",
        discussion: """
            Sets the attribute user.ward.backup-excluded, as isExcludedFromBackup does in Swift; of a \
            directory everything in it is left out, too. The mark belongs to the file: it goes along \
            when the file is renamed, and goes when the file is replaced by another, as on iOS. Works \
            in every lock state.

            Examples:
              ward backup exclude ~/papers/downloads ~/papers/index.db
              ward backup list ~/papers --excludes
            """)

    @Argument(help: "Files and directories of a mounted volume.", completion: .file())
    var paths: [String]
    @OptionGroup var options: ReportOptions

    func run() throws { try BackupMark.set(true, paths, options.console) }
}
