import ArgumentParser
import CWardLinux
import Glibc
import WardControl
import WardFormat
import WardKeys
import WardSystem
import WardVolume

struct InitCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "init", abstract: "Make a volume.",
        discussion: """
            The directory is made, or must be empty. What a device needs to open it, the device \
            key, is kept in the state directory ($XDG_STATE_HOME/ward): without that, and without \
            a recovery kit, nothing opens the volume, not even the passcode.

            \(ClassArgument.table)

            Examples:
              ward init ~/.papers
              ward init ~/.papers --recovery-kit /media/usb/papers.kit
              ward init ~/.papers --passcode-file /run/keys/papers --class A
              ward init ~/.scratch --no-passcode
            """)

    @Argument(help: "The directory to make, or an empty one.", completion: .directory)
    var volume: String
    @OptionGroup var passcode: PasscodeOptions
    @Flag(help: "No passcode: nothing is ever withheld, until one is set.") var noPasscode = false
    @Option(name: .customLong("class"), help: "Class of new files where nothing else says.")
    var defaultClass = ClassArgument(.completeUntilFirstUserAuthentication)
    @Option(help: "Bytes of a page: 4096, or 512 for stores with atomic sectors only.")
    var pageSize = 4096
    @Option(help: "Write a recovery kit to this new file, outside the volume.", completion: .file())
    var recoveryKit: String?
    @Option(help: ArgumentHelp("scrypt N of the passcode, for tests.", visibility: .hidden))
    var passcodeCost: UInt64?
    @OptionGroup var options: ReportOptions

    private static let what = "cannot make a volume in"

    func validate() throws {
        if noPasscode && passcode.isGiven {
            throw ValidationError("--no-passcode excludes --passcode-file and --passcode-fd")
        }
        if pageSize != 512 && pageSize != 4096 {
            throw ValidationError("--page-size is 512 or 4096")
        }
        if let passcodeCost, !ScryptCost.n(passcodeCost).isPossible {
            throw ValidationError("--passcode-cost is a power of two from 1024 on")
        }
    }

    func run() throws {
        let console = options.console
        let directory = try NewVolumeDirectory(volume, pageBytes: pageSize)
        do {
            let kit = try makeVolume(in: directory.path, console)
            report(directory.path, kit, console)
        } catch {
            directory.undo()
            throw error
        }
    }

    /// Returns the recovery kit's path and code, where one was made.
    private func makeVolume(in path: String, _ console: Console) throws -> (String, SecretBox)? {
        var typed: Passcode?
        if !noPasscode {
            let secret = try passcode.readNew(asking: "New passcode: ", console)
            do throws(PasscodeError) {
                typed = try Passcode(utf8: secret)
            } catch {
                throw CommandFailure(InitCommand.what, path, error)
            }
        }
        let kitPath = try recoveryKitPath(console)
        let parameters = VolumeParameters(uuid: UUID4.random(), pageBytes: pageSize)
        let root = StateDirectory.defaultRoot()
        let code: SecretBox?
        do throws(KeybagError) {
            let made = try KeybagStore.create(
                volumePath: path, stateRoot: root, parameters: parameters, passcode: typed,
                cost: passcodeCost.map { .n($0) } ?? .calibrated, recoveryKitPath: kitPath)
            code = try InitCommand.text(of: made, path)
            let store = try KeybagStore(volumePath: path, stateRoot: root)
            let keyring = ClassKeyring(classBPublicKey: store.classBPublicKey)
            let volumeKey = try store.openDeviceSlot(into: keyring)
            try makeRoot(path, parameters, volumeKey)
        } catch {
            throw CommandFailure(InitCommand.what, path, error)
        }
        guard let kitPath, let code else { return nil }
        return (kitPath, code)
    }

    private static func text(
        of code: borrowing RecoveryCode?, _ path: String
    ) throws(KeybagError) -> SecretBox? {
        switch code {
        case .some(let code):
            do throws(Errno) {
                return SecretBox(try code.text())
            } catch {
                throw KeybagError(.outOfLockedMemory, path: path, "no more memory may be locked")
            }
        case .none: return nil
        }
    }
}
