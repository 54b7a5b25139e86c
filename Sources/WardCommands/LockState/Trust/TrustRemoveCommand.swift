import ArgumentParser
import WardConsole
import WardControl
import WardKeys
import WardSystem
import WardTrustedHosts

struct TrustRemoveCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "remove", abstract: "Trust a host no longer.",
        discussion: """
            At once: what the host has is worthless afterwards, and where it is connected its connection \
            ends, with the lock that it held up. Needs no passcode, and works in every state.

            Examples:
              ward trust remove ~/papers laptop
            """)

    @Argument(
        help:
            "The mount point or any path in it, or the directory of a volume that is not mounted.",
        completion: .directory)
    var volume: String
    @Argument(help: "The host's name, as ward trust list shows it.") var name: String
    @OptionGroup var general: GeneralOptions

    func run() throws {
        let what = "cannot remove the trusted host \(Text.printable(name)) of"
        let target = try PasscodeTarget.find(volume, what)
        do {
            try target.perform(what) { client throws(ControlError) in
                try client.trustRemove(name: name)
            } unmounted: { store, _ in
                _ = try store.removeTrustedHost(named: name, at: TrustTime.now(store))
            }
        } catch var failure as CommandFailure where failure.status == .notPermitted {
            failure.why = "no host of this name is trusted"
            failure.hint = "ward trust list \(Text.shellQuoted(volume))"
            failure.status = .noInput
            throw failure
        }
        general.console.confirm("\(Text.printable(name)): not trusted any more")
    }
}
