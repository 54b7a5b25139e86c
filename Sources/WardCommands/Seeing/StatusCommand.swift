import ArgumentParser
import Glibc
import WardConsole
import WardControl
import WardKeys
import WardSystem

struct StatusCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "status", abstract: "Show the lock state of a volume.",
        discussion: """
            What can be read now and for how long, who may still try a passcode, and what is not \
            stored yet. Without a mount point every mounted volume is shown. With --json each is \
            one line.

            A volume that is not mounted is named by its directory; then the exit code is 69.

            Examples:
              ward status
              ward status ~/papers
              ward status ~/.papers                            a volume's directory
              ward status --json | jq -r .state
              ward status --requests ~/papers                  what the kernel has asked for
              ward status ~/papers --json | jq .protectedDataAvailable
            """)

    @OptionGroup var target: MountPointArgument
    @Flag(help: "Also how many requests of each kind the kernel has sent since the mount.")
    var requests = false
    @OptionGroup var options: ReportOptions

    func run() throws {
        let console = options.console
        if let mountpoint = target.mountpoint, try reportUnmounted(mountpoint, console) {
            throw ExitCode(ExitStatus.unavailable.rawValue)
        }
        let volumes =
            target.mountpoint == nil && TestEnvironment.volume == nil
            ? RuntimeDirectory().volumes() : [try target.find(StatusCommand.what)]
        if volumes.isEmpty {
            throw CommandFailure(
                "cannot show a state", why: "no volume is mounted",
                hint: "ward mount VOLUME MOUNTPOINT", status: .unavailable)
        }
        var failure: CommandFailure?
        for (index, volume) in volumes.enumerated() {
            do throws(CommandFailure) {
                let status = try status(of: volume, console)
                if console.isJSON {
                    console.json(status.json)
                } else {
                    if index > 0 { console.result("") }
                    console.result(StatusText.render(status, console.output))
                    if requests { console.result(StatusText.requests(status)) }
                }
            } catch {
                if volumes.count > 1 { console.failure(error) }
                failure = error
            }
        }
        guard let failure else { return }
        if volumes.count > 1 { throw ExitCode(failure.status.rawValue) }
        throw failure
    }

    private static let what = "cannot show the state of"

    /// Asks the daemon's socket; where that fails, asks through the mount.
    private func status(
        of volume: FoundVolume, _ console: Console
    ) throws(CommandFailure) -> VolumeStatus {
        do throws(CommandFailure) {
            return try VolumeConnection(
                StatusCommand.what, path: volume.mountPoint, volume: volume
            ).status()
        } catch {
            guard let mount = volume.mount, let status = try? mount.status() else { throw error }
            console.note(
                "\(Text.printable(mount.mountPoint)): its control socket can't be used "
                    + "(\(error.why)); this was asked through the mount")
            return status
        }
    }

    /// Reports the directory of a volume that no daemon serves. Returns false for other paths.
    private func reportUnmounted(_ path: String, _ console: Console) throws -> Bool {
        // A mount may contain a file of that name. Asking a mount whose daemon hangs would never
        // return.
        if let mount = try? MountTable().covering(Path.realParent(path)), mount.isWard {
            return false
        }
        guard access(Path.joined(path, "ward.keybag"), F_OK) == 0,
            let volume = try? Path.real(path),
            case .notInMount? = StatusCommand.failure(toFind: volume)
        else { return false }
        let kit = StatusCommand.recoveryKit(of: volume)
        if console.isJSON {
            console.json(
                .object(present: [
                    ("volume", .string(volume)), ("state", .string("unmounted")),
                    ("recoveryKit", kit.map { .string($0) }),
                ]))
        } else {
            let style = console.output
            var lines = [
                "\(style.bold(Text.printable(volume)))  \(style.yellow("not mounted"))",
                "  nothing of it can be read, whatever the class",
            ]
            if let kit = StatusText.recovery(kit, volume: volume, style) {
                lines.append("  recovery   \(kit)")
            }
            lines.append("  next       ward mount \(Text.shellQuoted(volume)) MOUNTPOINT")
            console.result(lines.joined(separator: "\n"))
        }
        return true
    }

    private static func failure(toFind path: String) -> ControlError.Code? {
        do throws(ControlError) {
            _ = try RuntimeDirectory().find(path)
            return nil
        } catch {
            return error.code
        }
    }

    /// As `VolumeStatus.recoveryKit`; nil where this device has no key for the volume.
    private static func recoveryKit(of volume: String) -> String? {
        guard let uuid = KeybagStore.volumeUUID(in: volume).flatMap(UUID4.bytes(of:)) else {
            return nil
        }
        return KeybagStore.recoveryHistory(
            volumeUUID: uuid, stateRoot: StateDirectory.defaultRoot())?
            .standing(now: SystemClock.sinceEpoch()).rawValue
    }
}
