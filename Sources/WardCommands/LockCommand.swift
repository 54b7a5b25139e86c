import ArgumentParser
import Glibc
import WardControl
import WardSystem

struct LockCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "lock", abstract: "Lock a mounted volume.",
        discussion: """
            Files of class A, and files of class B that nobody has open, stay readable for the grace \
            period and then answer EPERM until the next unlock. With --now there is no grace period, \
            and the command returns when their keys are gone.

            While a trusted host is connected A and B stay open until it goes; --end-hosts ends such \
            connections first.

            Examples:
              ward lock
              ward lock ~/papers --now
              ward lock ~/papers --now --end-hosts
            """)

    private static let attempts = 250

    @OptionGroup var target: MountPointArgument
    @Flag(help: "Without the grace period.") var now = false
    @Flag(help: "End the connections of trusted hosts.") var endHosts = false
    @OptionGroup var options: ReportOptions

    func run() throws {
        let console = options.console
        let (state, status) = try lock()
        let place = Text.printable(status.mountpoint)
        if state == "noPasscode" {
            console.note(
                "nothing is withheld: \(place) has no passcode, so this device alone opens every class "
                    + "(ward passcode set \(Text.shellQuoted(status.mountpoint)))")
        }
        if console.isJSON { return console.json(status.json) }
        switch state {
        case "noPasscode": break
        case "locking":
            let remaining = Text.duration(
                seconds: status.graceRemainingSeconds ?? status.graceSeconds)
            console.confirm("\(place): locking, protected files close in \(remaining)")
        default: console.confirm("\(place): \(StateText.name(state))")
        }
    }

    /// Where a crowd of other programs takes the places at the socket, this one tries until it gets one: a second lock
    /// changes nothing about the first.
    private func lock() throws(CommandFailure) -> (state: String, status: VolumeStatus) {
        let what = "cannot lock"
        var attemptsLeft = LockCommand.attempts
        while true {
            attemptsLeft -= 1
            let connection = try target.connect(what)
            do throws(ControlError) {
                let state = try connection.client.lock(now: now, endingHosts: endHosts)
                return (state, try connection.client.status())
            } catch {
                guard attemptsLeft > 0, LockCommand.isCrowdedOut(error) else {
                    throw CommandFailure(what, connection.path, error)
                }
            }
            usleep(20_000)
        }
    }

    private static func isCrowdedOut(_ error: ControlError) -> Bool {
        switch error.code {
        case .connectionLost, .volume(.busy), .system(.brokenPipe): true
        default: false
        }
    }
}
