import ArgumentParser
import WardConsole
import WardControl

struct FillCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "fill", abstract: "Have a volume with a manual clock run out of space.",
        discussion: """
            Only for volumes mounted with --manual-clock, ward test's among them. What needs room \
            fails with "no space left on device" as on a full disk; what is there already can be \
            read and overwritten. --undo gives the space back.

            Examples:
              ward fill
              ward fill --undo
            """)

    @OptionGroup var target: MountPointArgument
    @Flag(help: "There is room again.") var undo = false
    @OptionGroup var options: ReportOptions

    func run() throws {
        let console = options.console
        let connection = try target.connect("cannot fill")
        try connection.call { client throws(ControlError) in try client.setFull(!undo) }
        let status = try connection.status()
        if console.isJSON { return console.json(status.json) }
        let place = Text.printable(status.mountpoint)
        console.confirm("\(place): \(undo ? "there is room again" : "out of space")")
    }
}
