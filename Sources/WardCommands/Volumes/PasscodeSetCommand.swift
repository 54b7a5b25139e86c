import ArgumentParser
import WardConsole
import WardControl
import WardKeys
import WardSystem

struct PasscodeSetCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "set", abstract: "Set the first passcode of a volume.",
        discussion: """
            Files of classes A, B, C and CX are protected by it at once.

            Examples:
              ward passcode set ~/papers
              ward passcode set ~/.papers --passcode-file /run/keys/papers
            """)

    @OptionGroup var target: PasscodeTargetArgument
    @OptionGroup var passcode: PasscodeOptions
    @OptionGroup var general: GeneralOptions

    func run() throws {
        let what = "cannot set the passcode of"
        let volume = try target.find(what)
        let name = try volume.name()
        let secret = try passcode.readNew(asking: "New passcode of \(name): ", general.console)
        try volume.perform(what) { client throws(ControlError) in
            try client.setPasscode(secret)
        } unmounted: { store, path in
            let typed = try VolumeDirectory.passcode(try secret.copy(), path, what)
            try store.setPasscode(typed)
        }
        general.console.confirm("\(name): passcode set")
    }
}
