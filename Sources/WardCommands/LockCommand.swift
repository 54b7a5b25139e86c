import ArgumentParser
import WardControl
import WardSystem

struct LockCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "lock", abstract: "Lock a mounted volume.",
        discussion: """
            Files of class A, and files of class B that nobody has open, stay readable for the grace \
            period and then answer EPERM until the next unlock. With --now there is no grace period, \
            and the command returns when their keys are gone.

            Examples:
              ward lock
              ward lock ~/papers --now
            """)

    @OptionGroup var target: MountPointArgument
    @Flag(help: "Without the grace period.") var now = false
    @OptionGroup var options: ReportOptions

    func run() throws {
        let console = options.console
        let connection = try target.connect("cannot lock")
        let now = now
        let state = try connection.call { client throws(ControlError) in
            try client.lock(now: now)
        }
        let status = try connection.status()
        if console.isJSON { return console.json(status.json) }
        switch state {
        case "noPasscode":
            console.note("no passcode is set: a lock changes nothing (ward passcode set)")
        case "locking":
            let remaining = Text.duration(
                seconds: status.graceRemainingSeconds ?? status.graceSeconds)
            console.confirm(
                "\(Text.printable(status.mountpoint)): locking, protected files close in \(remaining)"
            )
        default:
            console.confirm("\(Text.printable(status.mountpoint)): \(StateText.name(state))")
        }
    }
}
