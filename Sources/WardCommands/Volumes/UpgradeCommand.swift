import ArgumentParser
import WardConsole
import WardControl
import WardFormat
import WardKeys
import WardSystem
import WardVolume
import WardVolumeCheck

struct UpgradeCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "upgrade", abstract: "Bring a volume to format 2.",
        discussion: """
            Format 2 binds each file, directory and link to its directory: one that was put into \
            another directory behind ward's back is refused. Its keys last for as many writes as a \
            disk can do, and class B is safe from quantum computers. Classes and the policy can't \
            be weakened by a person who has only the device's files.

            The volume is not mounted meanwhile. Headers, directory records, links and attributes \
            are written anew; contents stay as they are. The passcode is asked for, because class \
            B's keys are wrapped anew.

            Ctrl-C, a full disk or a power cut leave a volume that works: it can be mounted, and \
            the same command goes on where it was. From the first step on, versions of ward that \
            know format 1 alone refuse the volume. There is no way back: make a backup first. A \
            backup or copy that runs meanwhile is of no use.

            Exit code: 0 the volume has format 2, 1 something is left (ward check --repair, then \
            again), 75 it was stopped.

            Examples:
              ward upgrade ~/.papers
              ward upgrade ~/.papers --passcode-file /run/keys/papers --json
            """)

    @Argument(help: "The volume's directory.", completion: .directory) var volume: String
    @OptionGroup var passcode: PasscodeOptions
    @OptionGroup var options: ReportOptions

    private static let what = "cannot upgrade"
    private static let shownNames = 20

    func run() throws {
        let console = options.console
        // Class keys will be in memory.
        SecretInput.leaveNoDump()
        let path = try VolumeDirectory.path(volume, UpgradeCommand.what)
        let lock = try VolumeDirectory.lock(path, UpgradeCommand.what)
        defer { _ = lock.directoryDescriptor }
        let store = try VolumeDirectory.open(path, UpgradeCommand.what)
        let keyring = ClassKeyring(classBPublicKey: store.classBPublicKey)
        defer { keyring.evict(.all) }
        let passcode = try readPasscode(store, path, console)
        let volumeKey = try openSlots(store, passcode, keyring, path)
        let report = try upgrade(path, store, passcode, volumeKey, keyring, console)
        tell(report, path, console)
        if report.isInterrupted { throw ExitCode(ExitStatus.temporary.rawValue) }
        if !report.isDone { throw ExitCode(ExitStatus.someFailed.rawValue) }
    }

    /// The passcode; nil where none is set.
    private func readPasscode(
        _ store: KeybagStore, _ path: String, _ console: Console
    ) throws(CommandFailure) -> Passcode? {
        guard store.hasPasscode else { return nil }
        let secret = try passcode.read(
            asking: "Passcode of \(Text.printable(path)): ", console)
        return try VolumeDirectory.passcode(secret, path, UpgradeCommand.what)
    }

    private func openSlots(
        _ store: KeybagStore, _ passcode: borrowing Passcode?, _ keyring: ClassKeyring,
        _ path: String
    ) throws(CommandFailure) -> SecretBytes {
        do throws(KeybagError) {
            let volumeKey = try store.openDeviceSlot(into: keyring)
            switch passcode {
            case .some(let passcode): try store.openPasscodeSlot(passcode, into: keyring)
            case .none: break
            }
            return volumeKey
        } catch {
            throw CommandFailure(UpgradeCommand.what, path, error)
        }
    }

    // MARK: The work

    private func upgrade(
        _ path: String, _ store: KeybagStore, _ passcode: borrowing Passcode?,
        _ volumeKey: borrowing SecretBytes, _ keyring: ClassKeyring, _ console: Console
    ) throws(CommandFailure) -> UpgradeReport {
        do throws(VolumeOpenError) {
            try Volume.beginUpgrade(backingPath: path, volumeKey: volumeKey)
            let volume = try Volume(
                backingPath: path, parameters: store.parameters, volumeKey: volumeKey,
                keyring: keyring, readOnly: false, observer: nil)
            StopRequest.arm()
            var line = ProgressLine(console)
            let upgrade = VolumeUpgrade(volume, shouldStop: { StopRequest.isMade })
            let result = Result {
                try upgrade.run(
                    beforeEnd: { try store.raise(to: .version2, passcode: passcode) },
                    onProgress: { line.update(UpgradeCommand.text($0)) })
            }
            line.clear()
            let report: UpgradeReport
            do {
                report = try result.get()
            } catch {
                try? volume.close()
                throw VolumeOpenError(
                    .system(error as? Errno ?? .ioError), path: path,
                    "all is carried over, but the upgrade can't end: \(error). "
                        + "The same command tries again")
            }
            try UpgradeCommand.close(volume, path)
            return report
        } catch {
            throw CommandFailure(UpgradeCommand.what, path, error)
        }
    }

    private static func close(_ volume: Volume, _ path: String) throws(VolumeOpenError) {
        do throws(Errno) {
            try volume.close()
        } catch {
            throw VolumeOpenError(.system(error), path: path, "can't be closed: \(error)")
        }
    }

    private static func text(_ progress: UpgradeProgress) -> String {
        "upgrade: \(Text.grouped(progress.done)) of \(Text.grouped(progress.total)) found so far"
    }

    // MARK: Telling

    private func tell(_ report: UpgradeReport, _ path: String, _ console: Console) {
        if console.isJSON { return console.json(UpgradeCommand.json(report)) }
        let place = Text.shellQuoted(path)
        for left in report.left.prefix(UpgradeCommand.shownNames) {
            console.note("left: \(Text.printable(left.path)): \(left.reason)")
        }
        if report.leftCount > UpgradeCommand.shownNames {
            console.note("and \(Text.grouped(report.leftCount - UpgradeCommand.shownNames)) more")
        }
        if report.locked > 0 {
            console.note("left: \(Text.count(report.locked, "file")) of class B, which is locked")
        }
        if report.isDone {
            console.note(
                "the policy is as before, and only the passcode changes it from now on: "
                    + "ward policy show \(place)")
            console.note(
                "recovery kits from before still open it, but vouch only for format 1; "
                    + ExistingRecoveryKit.newKitHint(path))
            return console.confirm(
                "\(Text.printable(path)): format 2, "
                    + "\(Text.count(report.carriedOver, "entry")) upgraded now")
        }
        console.confirm(
            "\(Text.printable(path)): \(Text.count(report.carriedOver, "entry")) upgraded now, "
                + "not all: it can be mounted as it is")
        console.note(
            report.isInterrupted
                ? "to go on: ward upgrade \(place)"
                : "to go on: ward check --repair \(place), then ward upgrade \(place)")
    }

    private static func json(_ report: UpgradeReport) -> JSONValue {
        .object([
            ("done", .bool(report.isDone)), ("interrupted", .bool(report.isInterrupted)),
            ("upgraded", .int(Int64(report.carriedOver))),
            ("locked", .int(Int64(report.locked))),
            ("leftCount", .int(Int64(report.leftCount))),
            (
                "left",
                .array(
                    report.left.map {
                        .object([("path", .string($0.path)), ("reason", .string($0.reason))])
                    })
            ),
        ])
    }
}
