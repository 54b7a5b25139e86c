import ArgumentParser
import WardConsole

struct DemoCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "demo", abstract: "Watch ward protect, lock, refuse, unlock and reboot.",
        discussion: """
            Makes a volume of its own in a temporary directory, puts a git repository, an SQLite \
            database and photographs on it, and goes through every class and lock state. Each step \
            checks what it shows; the first that does not behave ends the demo with an error. \
            Everything it made is removed at the end.

            Examples:
              ward demo
              NO_COLOR=1 ward demo
            """)

    @OptionGroup var general: GeneralOptions

    func run() throws {
        try DemoStory.tell(Narrator(isQuiet: general.quiet))
    }
}
