import ArgumentParser
import WardConsole
import WardControl
import WardKeys
import WardSystem

struct PasscodeRemoveCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "remove", abstract: "Remove the passcode of a volume.",
        discussion: """
            The device key alone opens everything afterwards, and a lock changes nothing.

            Examples:
              ward passcode remove ~/papers
            """)

    @OptionGroup var target: PasscodeTargetArgument
    @OptionGroup var current: PasscodeOptions
    @OptionGroup var general: GeneralOptions

    func run() throws {
        let what = "cannot remove the passcode of"
        let volume = try target.find(what)
        let name = try volume.name()
        let secret = try current.read(asking: "Present passcode of \(name): ", general.console)
        var removed: [String] = []
        try volume.perform(what) { client throws(ControlError) in
            removed = try client.removePasscode(current: secret)
        } unmounted: { store, path in
            let typed = try VolumeDirectory.passcode(try secret.copy(), path, what)
            removed = try store.removePasscode(typed)
        }
        TrustText.noteRemoved(removed, general.console)
        general.console.confirm("\(name): passcode removed, nothing is withheld any more")
    }
}
