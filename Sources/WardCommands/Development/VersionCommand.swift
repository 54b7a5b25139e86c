import ArgumentParser
import WardConsole
import WardControl

struct VersionCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "version", abstract: "Show the version of ward.",
        discussion: """
            Examples:
              ward version
              ward version --json
            """)

    @OptionGroup var options: ReportOptions

    func run() throws {
        let console = options.console
        if console.isJSON {
            console.json(.object([("version", .string(WardVersion.current))]))
        } else {
            console.result("ward \(WardVersion.current)")
        }
    }
}
