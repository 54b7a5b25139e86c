import ArgumentParser
import WardConsole
import WardControl
import WardSystem

struct RebootCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "reboot", abstract: "Take a mounted volume back to the state after a boot.",
        discussion: """
            All class keys but D's are forgotten, also those of open files, without unmounting. Only \
            class D can be read until the next unlock.

            Examples:
              ward reboot ~/papers
            """)

    @OptionGroup var target: MountPointArgument
    @OptionGroup var options: ReportOptions

    func run() throws {
        let console = options.console
        let connection = try target.connect("cannot reboot")
        let state = try connection.call { client throws(ControlError) in try client.reboot() }
        let status = try connection.status()
        if console.isJSON { return console.json(status.json) }
        if state == "noPasscode" {
            console.note("no passcode is set: a reboot changes nothing (ward passcode set)")
        } else {
            console.confirm("\(Text.printable(status.mountpoint)): \(StateText.name(state))")
        }
    }
}
