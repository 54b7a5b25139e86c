import ArgumentParser

struct PasscodeCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "passcode", abstract: "Set, change or remove a volume's passcode.",
        discussion: """
            Only keys are wrapped anew: it takes the same time for ten files and for ten million, \
            and older copies of the keybag are worthless afterwards.

            Examples:
              ward passcode set ~/papers
              ward passcode change ~/papers
              ward passcode remove ~/.papers
            """,
        subcommands: [
            PasscodeSetCommand.self, PasscodeChangeCommand.self, PasscodeRemoveCommand.self,
        ])
}
