import ArgumentParser
import WardConsole
import WardControl
import WardKeys
import WardSystem

struct PasscodeChangeCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "change", abstract: "Change the passcode of a volume.",
        discussion: """
            The present passcode is asked for first (or read with --passcode-file or --passcode-fd), \
            then the new one. Trusted hosts have to be trusted again.

            Examples:
              ward passcode change ~/papers
              ward passcode change ~/papers --passcode-file old --new-passcode-file new
            """)

    @OptionGroup var target: PasscodeTargetArgument
    @OptionGroup var current: PasscodeOptions
    @OptionGroup var new: NewPasscodeOptions
    @OptionGroup var general: GeneralOptions

    func run() throws {
        let what = "cannot change the passcode of"
        let volume = try target.find(what)
        let name = try volume.name()
        let old = try current.read(asking: "Present passcode of \(name): ", general.console)
        let secret = try new.readNew(asking: "New passcode: ", general.console)
        var removed: [String] = []
        try volume.perform(what) { client throws(ControlError) in
            removed = try client.changePasscode(from: old, to: secret)
        } unmounted: { store, path in
            let typedOld = try VolumeDirectory.passcode(try old.copy(), path, what)
            let typed = try VolumeDirectory.passcode(try secret.copy(), path, what)
            removed = try store.changePasscode(typedOld, to: typed)
        }
        TrustText.noteRemoved(removed, general.console)
        general.console.confirm("\(name): passcode changed")
    }
}
