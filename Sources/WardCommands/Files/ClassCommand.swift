import ArgumentParser

struct ClassCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "class", abstract: "Show or set the protection class of files.",
        discussion: """
            \(ClassArgument.table)

            Examples:
              ward class show ~/papers/letter.txt
              ward class set A ~/papers/diary -R
            """,
        subcommands: [ClassShowCommand.self, ClassSetCommand.self])
}
