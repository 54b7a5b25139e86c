import ArgumentParser
import WardConsole
import WardControl
import WardSystem

struct UnlockCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "unlock", abstract: "Unlock a mounted volume with its passcode.",
        discussion: """
            The passcode is asked for on the terminal, or read from a file or a descriptor. During \
            the grace period of a lock, an unlock cancels the lock.

            Examples:
              ward unlock
              ward unlock ~/papers --passcode-file /run/keys/papers
              pass show papers | ward unlock ~/papers --passcode-fd 0
            """)

    @OptionGroup var target: MountPointArgument
    @OptionGroup var passcode: PasscodeOptions
    @OptionGroup var options: ReportOptions

    func run() throws {
        let console = options.console
        let connection = try target.connect("cannot unlock")
        let before = try connection.status()
        if !before.passcodeSet {
            console.note("no passcode is set: there is nothing to unlock (ward passcode set)")
            if console.isJSON { console.json(before.json) }
            return
        }
        let secret = try readPasscode(of: before, console)
        let state = try connection.call { client throws(ControlError) in
            try client.unlock(passcode: secret)
        }
        if console.isJSON { return console.json(try connection.status().json) }
        console.confirm("\(Text.printable(before.mountpoint)): \(StateText.name(state))")
    }

    /// Reads the passcode. A test volume's passcode is no secret: `ward test` has written it to a
    /// file for its scripts.
    private func readPasscode(
        of status: VolumeStatus, _ console: Console
    ) throws(CommandFailure) -> SecretBytes {
        if !passcode.isGiven, status.mountpoint == TestEnvironment.volume,
            let file = TestEnvironment.passcodeFile
        {
            return try SecretInput.read(file: file)
        }
        return try passcode.read(
            asking: "Passcode of \(Text.printable(status.mountpoint)): ", console)
    }
}
