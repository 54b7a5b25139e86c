import ArgumentParser
import Glibc
import WardConsole
import WardControl
import WardFormat
import WardKeys
import WardSystem
import WardVolume

struct AdoptCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "adopt", abstract: "Make a copy of a volume this machine's own.",
        discussion: """
            A copy of a volume, from a backup or from another machine, opens with a recovery kit: \
            this asks for the kit's code and a new passcode, makes a device key for this machine, \
            and writes a new keybag. No file is touched: each keeps its content and its class. The \
            passcodes of before open nothing here; the volume it was copied from, and other \
            copies, stay as they are.

            It is also the way out where the passcode is forgotten, all tries are used up, the \
            keybag is damaged or the volume was erased: with --replace, on the machine that has \
            keys of the volume.

            A copy that was made while the volume was in use counts as one that ended uncleanly. \
            Where its state record does not say so (the copying began before the volume was mounted, \
            or the record is missing), --copied-in-use does.

            A copy from before the end of ward upgrade has files of format 1, which are taken from \
            any directory. A person who can write to the copy can bring that time back with an old \
            file of yours. So such a copy needs --older-format, unless the kit and the copy are \
            both from before the upgrade.

            Examples:
              ward adopt ~/.papers --recovery-kit /media/usb/papers.kit
              ward adopt ~/.papers --recovery-kit papers.kit --code-file code --passcode-file new
              ward adopt ~/.papers --recovery-kit papers.kit --replace      (passcode forgotten)
            """)

    @Argument(help: "The copy: a directory of ciphertext, not mounted.", completion: .directory)
    var volume: String
    @Option(
        help: "A recovery kit of the volume, older or newer than the copy.", completion: .file())
    var recoveryKit: String
    @OptionGroup var code: RecoveryCodeOptions
    @OptionGroup var passcode: PasscodeOptions
    @Flag(help: "No passcode: nothing is ever withheld, until one is set.") var noPasscode = false
    @Flag(help: "Replace keys of the volume that this machine has.") var replace = false
    @Flag(help: "The copy was made while the volume was in use, whatever its state record says.")
    var copiedInUse = false
    @Flag(help: "The copy is from before the end of an upgrade: what it has of format 1 counts.")
    var olderFormat = false
    @OptionGroup var policy: PolicyOptions
    @Option(help: ArgumentHelp("scrypt N of the passcode, for tests.", visibility: .hidden))
    var passcodeCost: UInt64?
    @OptionGroup var options: ReportOptions

    static let what = "cannot adopt"

    func validate() throws {
        if noPasscode && passcode.isGiven {
            throw ValidationError("--no-passcode excludes --passcode-file and --passcode-fd")
        }
        if let passcodeCost, !ScryptCost.n(passcodeCost).isPossible {
            throw ValidationError("--passcode-cost is a power of two from 1024 on")
        }
    }

    func run() throws {
        let console = options.console
        let copy = try VolumeCopy.hold(volume)
        let opening = "cannot open the recovery kit"
        let file = try ExistingRecoveryKit(recoveryKit, opening)
        try copy.check(file, replaces: replace)
        let keys = try file.open(code, opening, console)
        let standing = try copy.examine(keys, countsAsInUse: copiedInUse)
        let format = try copy.judgeFormat(keys, standing, takesOlder: olderFormat)
        var typed: Passcode?
        if !noPasscode {
            let secret = try passcode.readNew(asking: "New passcode: ", console)
            typed = try VolumeDirectory.passcode(secret, copy.path, AdoptCommand.what)
        }
        let wasInUse = standing == .inUse || copiedInUse
        if wasInUse { try copy.acceptInUse(keys, format) }
        let adoption: Adoption
        do throws(KeybagError) {
            adoption = try KeybagStore.adopt(
                volumePath: copy.path, stateRoot: StateDirectory.defaultRoot(), keys: keys,
                passcode: typed, cost: passcodeCost.map { .n($0) } ?? .calibrated,
                policy: policy.change, format: format.keybagFormat, replacesDeviceKeys: replace)
        } catch {
            throw CommandFailure(AdoptCommand.what, copy.path, error)
        }
        // Check that the written volume opens. The loader also finishes interrupted changes.
        _ = try VolumeDirectory.open(copy.path, AdoptCommand.what)
        report(copy, file, adoption, wasInUse, format, console)
    }

    private func report(
        _ copy: borrowing VolumeCopy, _ file: ExistingRecoveryKit, _ adoption: Adoption,
        _ wasInUse: Bool, _ format: FormatStanding, _ console: Console
    ) {
        if console.isJSON {
            console.json(
                .object([
                    ("volume", .string(copy.path)), ("uuid", .string(file.uuid)),
                    ("stateDirectory", .string(adoption.stateDirectory.path)),
                    ("passcodeSet", .bool(!noPasscode)), ("copiedInUse", .bool(wasInUse)),
                    ("keptPolicy", .bool(adoption.keptPolicy)),
                    ("format", .int(Int64(format.format.rawValue))),
                    ("upgrading", .bool(format.isUpgrading)),
                ]))
        } else {
            let opener = noPasscode ? "without a passcode" : "with the new passcode"
            console.confirm(
                "\(Text.printable(copy.path)): this machine's own now, opens \(opener)")
        }
        if wasInUse {
            console.note(
                "the copy was made while the volume was in use: what was being written then may be "
                    + "half there; ward events tells of each such file")
        }
        if !adoption.keptPolicy && policy.change.isEmpty {
            console.note(
                "grace period and the rest of the policy are the usual ones: "
                    + "ward policy set \(Text.shellQuoted(copy.path))")
        }
        if format.isUpgrading {
            console.note(
                "the copy is between the formats: what it has of format 1 counts in every "
                    + "directory, with the class that it has, until this ends: "
                    + "ward upgrade \(Text.shellQuoted(copy.path))")
        }
        if copy.storesNoAttributes {
            console.note(
                "this file system keeps no extended attributes: those of the files, and some of "
                    + "their modes, are lost")
        }
        if !console.isJSON {
            console.confirm("next: ward mount \(Text.shellQuoted(copy.path)) MOUNTPOINT")
        }
    }
}
