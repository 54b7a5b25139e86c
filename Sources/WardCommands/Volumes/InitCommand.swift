import ArgumentParser
import CWardLinux
import Glibc
import WardConsole
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
              ward init ~/.papers --grace 30s --erase-after-10
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
    @Option(help: "Format of the volume: 2, or 1 for programs that read no other.")
    var format = VolumeFormat.ofNewVolumes.rawValue
    @Option(help: "Write a recovery kit to this new file, outside the volume.", completion: .file())
    var recoveryKit: String?
    @OptionGroup var policy: PolicyOptions
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
        if VolumeFormat(rawValue: format) == nil {
            throw ValidationError("--format is 1 or 2")
        }
        if let passcodeCost, !ScryptCost.n(passcodeCost).isPossible {
            throw ValidationError("--passcode-cost is a power of two from 1024 on")
        }
    }

    func run() throws {
        let console = options.console
        let directory = try NewVolumeDirectory.prepare(volume, pageBytes: pageSize)
        do {
            try makeVolume(in: directory, console)
        } catch {
            directory.undo()
            throw error
        }
    }

    private func makeVolume(in directory: borrowing NewVolumeDirectory, _ console: Console) throws {
        let path = directory.path
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
        let format = VolumeFormat(rawValue: self.format)!
        let state = StateDirectory(
            root: StateDirectory.defaultRoot(), volumeUUID: parameters.uuid)
        let code: RecoveryCode?
        do throws(KeybagError) {
            code = try KeybagStore.create(
                volumePath: path, stateRoot: StateDirectory.defaultRoot(), parameters: parameters,
                passcode: typed, cost: passcodeCost.map { .n($0) } ?? .calibrated,
                recoveryKitPath: kitPath, policy: policy.change, format: format
            ) { volumeKey, keyring throws(KeybagError) in
                try InitCommand.makeRoot(
                    path, parameters, format, defaultClass.value, volumeKey, keyring)
            }
        } catch {
            _ = DirectoryTree.remove(state.path)
            throw CommandFailure(InitCommand.what, path, error)
        }
        try report(path, parameters, state, kitPath, code, console)
    }

    /// Makes all files of a volume but the keybag.
    static func makeRoot(
        _ path: String, _ parameters: VolumeParameters, _ format: VolumeFormat,
        _ defaultClass: ProtectionClass, _ volumeKey: borrowing SecretBytes, _ keyring: ClassKeyring
    ) throws(KeybagError) {
        do throws(VolumeOpenError) {
            try Volume.create(
                backingPath: path, parameters: parameters, volumeKey: volumeKey,
                format: format, defaultClass: defaultClass, sealedBy: keyring)
        } catch {
            let code: KeybagError.Code
            if case .system(let errno) = error.code {
                code = .system(errno)
            } else {
                code = .damaged
            }
            throw KeybagError(code, path: error.path, error.reason)
        }
    }

    /// The path for a recovery kit, from the option or from the user's answer; nil where none is
    /// wanted.
    private func recoveryKitPath(_ console: Console) throws(CommandFailure) -> String? {
        if let recoveryKit { return try RecoveryKitFile.path(recoveryKit) }
        guard console.mayAsk, !console.isQuiet, !passcode.isGiven, Console.isTerminal(0),
            Console.isTerminal(2)
        else { return nil }
        let question = "File for a recovery kit, outside the volume (empty: none): "
        let answer: String? = {
            guard let terminal = try? TerminalPrompt() else { return nil }
            while let line = try? terminal.readLine(question) {
                // The user means yes or no and not a file of that name.
                guard ["n", "no", "y", "yes"].contains(line.lowercased()) else { return line }
                console.note(
                    "the name of a new file, as in /media/usb/papers.kit, or nothing at all")
            }
            return nil
        }()
        guard let answer, !answer.isEmpty else { return nil }
        return try RecoveryKitFile.path(answer)
    }

    private func report(
        _ path: String, _ parameters: VolumeParameters, _ state: StateDirectory,
        _ kitPath: String?, _ code: borrowing RecoveryCode?, _ console: Console
    ) throws {
        let place = Text.shellQuoted(path)
        if console.isJSON {
            let json = JSONValue.object(present: [
                ("volume", .string(path)), ("uuid", .string(parameters.uuidString)),
                ("defaultClass", .string(defaultClass.value.letter)),
                ("pageSize", .int(Int64(pageSize))), ("format", .int(Int64(format))),
                ("passcodeSet", .bool(!noPasscode)),
                ("stateDirectory", .string(state.path)),
                ("recoveryKit", kitPath.map { .string($0) }),
            ])
            try RecoveryKitFile.writeJSON(json, code)
        } else {
            console.confirm(
                "\(Text.printable(path)): a volume of class \(defaultClass.value.letter), "
                    + "pages of \(Text.grouped(pageSize)) bytes")
            try RecoveryKitFile.write(kitPath, code)
            console.confirm("next: ward mount \(place) MOUNTPOINT")
        }
        if kitPath == nil {
            console.note(
                "no recovery kit was made. If \(Text.printable(state.path)) is lost, nothing opens "
                    + "this volume, not even its passcode: ward recovery create \(place) --out FILE"
            )
        }
    }
}
