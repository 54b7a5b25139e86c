import ArgumentParser
import WardConsole
import WardControl
import WardSystem

struct AdvanceCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "advance", abstract: "Move the manual clock of a volume on.",
        usage: "ward advance [<mountpoint>] <duration>",
        discussion: """
            Only for volumes mounted with --manual-clock, which tests and ward demo use: grace \
            periods pass when told to. Returns when everything that fell due is done.

            Examples:
              ward advance ~/papers 10s
              ward advance 2m
            """)

    @Argument(
        help: """
            The mount point, or any path in it (may be left out while one volume is mounted); then \
            how far: 500ms, 10s, 2m, 1h, 1d.
            """, completion: .directory)
    var arguments: [String] = []
    @OptionGroup var options: ReportOptions

    func validate() throws {
        guard (1...2).contains(arguments.count) else {
            throw ValidationError("a mount point and a duration are expected")
        }
        guard arguments.last.flatMap(DurationArgument.init(argument:)) != nil else {
            throw ValidationError("'\(arguments.last ?? "")' is not a duration like 10s or 2m")
        }
    }

    func run() throws {
        let console = options.console
        let seconds = arguments.last.flatMap(DurationArgument.init(argument:))?.seconds ?? 0
        let path = arguments.count == 2 ? arguments[0] : nil
        let connection = try VolumeConnection("cannot move the clock of", path: path)
        let state = try connection.call { client throws(ControlError) in
            try client.advance(seconds: seconds)
        }
        let status = try connection.status()
        if console.isJSON { return console.json(status.json) }
        console.confirm(
            "\(Text.printable(status.mountpoint)): \(Text.duration(seconds: seconds)) later, "
                + StateText.name(state))
    }
}
