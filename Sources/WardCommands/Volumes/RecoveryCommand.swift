import ArgumentParser
import WardConsole
import WardControl
import WardFormat
import WardKeys
import WardSystem

struct RecoveryCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "recovery", abstract: "Make and check recovery kits.",
        discussion: """
            A recovery kit opens every copy of a volume without this device and without the \
            passcode: ward adopt does it. It can't be revoked.
            """,
        subcommands: [
            RecoveryCreateCommand.self, RecoveryShowCommand.self, RecoveryVerifyCommand.self,
        ])
}

struct RecoveryCreateCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "create", abstract: "Make a recovery kit for a volume.",
        discussion: """
            Writes the kit to a new file and shows its code, once. Whoever has both opens every \
            copy of the volume, made before or later, whatever the passcode is then: keep the file \
            and the code apart.

            Examples:
              ward recovery create ~/.papers --out /media/usb/papers.kit
            """)

    @Argument(help: "The volume's directory, or a path in its mount.", completion: .directory)
    var volume: String
    @Option(help: "The new file, outside the volume.", completion: .file()) var out: String
    @OptionGroup var passcode: PasscodeOptions
    @OptionGroup var options: ReportOptions

    func run() throws {
        let console = options.console
        let what = "cannot make a recovery kit of"
        let path = try VolumeDirectory.path(volume, what)
        let kitPath = try RecoveryKitFile.path(out)
        let store = try VolumeDirectory.open(path, what)
        var typed: Passcode?
        if store.hasPasscode {
            let secret = try passcode.read(asking: "Passcode of \(Text.printable(path)): ", console)
            typed = try VolumeDirectory.passcode(secret, path, what)
        }
        let code: RecoveryCode?
        do throws(KeybagError) {
            code = try store.createRecoveryKit(passcode: typed, at: kitPath)
        } catch {
            if error.code == .erased { VolumeDirectory.endErasedMount(path) }
            throw CommandFailure(what, path, error)
        }
        ExistingRecoveryKit.tellDaemon(uuid: store.parameters.uuidString)
        if console.isJSON {
            let json = JSONValue.object([
                ("volume", .string(path)), ("recoveryKit", .string(kitPath)),
            ])
            try RecoveryKitFile.writeJSON(json, code)
        } else {
            try RecoveryKitFile.write(kitPath, code)
        }
    }
}
