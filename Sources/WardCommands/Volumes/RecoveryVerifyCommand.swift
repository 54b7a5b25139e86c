import ArgumentParser
import Glibc
import WardConsole
import WardControl
import WardFormat
import WardKeys
import WardSystem
import WardVolume

struct RecoveryVerifyCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "verify",
        abstract: "See whether a recovery kit and its code still open a volume.",
        discussion: """
            Opens the kit with its code, and compares what is in it with the volume: the one that \
            --volume names, else the mounted one that the kit is of. Any copy of the volume will do. \
            Nothing is changed but a note, on the device that has the volume's keys, of when it was \
            done: ward status reminds you after a year.

            Examples:
              ward recovery verify /media/usb/papers.kit
              ward recovery verify papers.kit --volume ~/.papers
              ward recovery verify papers.kit --code-file code.txt --volume /backup/papers
            """)

    @Argument(help: "The recovery kit.", completion: .file()) var kit: String
    @Option(
        help: "The volume's directory, a copy of it, or a path in its mount.",
        completion: .directory)
    var volume: String?
    @OptionGroup var code: RecoveryCodeOptions
    @OptionGroup var options: ReportOptions

    private static let what = "cannot verify the recovery kit"
    private static let comparing = "cannot verify the recovery kit with"

    func run() throws {
        let console = options.console
        let what = RecoveryVerifyCommand.what
        let file = try ExistingRecoveryKit(kit, what)
        let path = try volumePath(file)
        if let path { try VolumeCopy.requireVolume(path, RecoveryVerifyCommand.comparing) }
        let keys = try file.open(code, what, console)
        if let path { try RecoveryVerifyCommand.compare(keys, with: path, file) }
        let isNoted: Bool
        do throws(KeybagError) {
            isNoted = try KeybagStore.noteVerified(
                keys, stateRoot: StateDirectory.defaultRoot())
        } catch {
            throw CommandFailure("cannot write down that it was verified:", file.path, error)
        }
        ExistingRecoveryKit.tellDaemon(uuid: file.uuid)
        if console.isJSON {
            return console.json(
                .object(present: [
                    ("recoveryKit", .string(file.path)), ("uuid", .string(file.uuid)),
                    ("opens", .bool(true)), ("volume", path.map { .string($0) }),
                    ("noted", .bool(isNoted)),
                ]))
        }
        console.confirm("\(Text.printable(file.path)): the code opens it")
        if let path {
            console.confirm("\(Text.printable(path)): the kit's keys are the volume's")
            if keys.format < Volume.format(ofBackingPath: path).keybagFormat {
                console.note(
                    "the kit is from before the upgrade and vouches only for format "
                        + "\(keys.format.rawValue): \(ExistingRecoveryKit.newKitHint(path))")
            }
        } else {
            console.note(
                "not compared with the volume \(file.uuid), which is not mounted here: name its "
                    + "directory with --volume")
        }
        if !isNoted {
            console.note("this device has no keys of the volume, and does not remember it")
        }
    }

    private func volumePath(_ file: ExistingRecoveryKit) throws(CommandFailure) -> String? {
        if let volume { return try VolumeDirectory.path(volume, RecoveryVerifyCommand.what) }
        return RuntimeDirectory().mounted().first { $0.uuid == file.uuid }?.volume
    }

    /// Compares the keybag's public part, the root's record and, where this device has it, the
    /// volume key.
    private static func compare(
        _ keys: borrowing RecoveredKeys, with path: String, _ file: ExistingRecoveryKit
    ) throws(CommandFailure) {
        let what = comparing
        do throws(KeybagError) {
            try KeybagStore.compare(
                keys, volumePath: path, stateRoot: StateDirectory.defaultRoot())
        } catch {
            throw CommandFailure(what, path, error)
        }
        let volumeKey = try volumeKey(of: keys, path)
        do throws(VolumeOpenError) {
            _ = try Volume.examineCopy(backingPath: path, volumeKey: volumeKey)
        } catch {
            throw CopyProblem.failure(what, path, error)
        }
    }

    private static func volumeKey(
        of keys: borrowing RecoveredKeys, _ path: String
    ) throws(CommandFailure) -> SecretBytes {
        do throws(KeybagError) {
            return try keys.volumeKey()
        } catch {
            throw CommandFailure(what, path, error)
        }
    }
}
