import ArgumentParser

struct SyncCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "sync", abstract: "Say which directories are synchronised.",
        discussion: """
            What a program that synchronises reads through the mount leaves the protection. A marked \
            directory takes class C at most, at any depth: class A, B or CX can't be set or created \
            in it (EINVAL), and what is moved in with such a class is told (ward events, ward audit).

            The better way is to synchronise the volume's own directory, the ciphertext: docs/sync.md.
            """,
        subcommands: [SyncMarkCommand.self, SyncUnmarkCommand.self, SyncListCommand.self])
}
