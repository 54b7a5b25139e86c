import ArgumentParser
import Glibc
import WardConsole
import WardControl
import WardSystem

struct LockCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "lock", abstract: "Lock a mounted volume, or all of them.",
        discussion: """
            Files of class A, and files of class B that nobody has open, stay readable for the grace \
            period and then answer EPERM until the next unlock. With --now there is no grace period, \
            and the command returns when their keys are gone.

            The lock goes through the mount itself, and what is reported is what the mount says \
            afterwards. It needs no control socket and no XDG_RUNTIME_DIR. Root may lock every \
            user's volumes.

            --all locks every mounted volume of yours, as root everybody's, side by side. It goes on \
            where one can't be locked, and tells of each. A script that runs before the machine \
            sleeps calls ward lock --all --now as root (contrib/sleep-hook).

            While a trusted host is connected A and B stay open until it goes; --end-hosts ends such \
            connections first.

            Exit code: 0 locked, or the grace period has begun; 16 nothing was locked because there \
            is no passcode, with --all only where none of the volumes has one; 1 with --all where \
            one of several could not be locked; 69 where no volume is mounted. With --json the \
            member "locked" says whether class A is closed now.

            Examples:
              ward lock
              ward lock ~/papers --now
              ward lock --all --now
              ward lock ~/papers --now --end-hosts
            """)

    @OptionGroup var target: MountPointArgument
    @Flag(help: "Every mounted volume of yours; as root, everybody's.") var all = false
    @Flag(help: "Without the grace period.") var now = false
    @Flag(help: "End the connections of trusted hosts.") var endHosts = false
    @OptionGroup var options: ReportOptions

    func validate() throws {
        if all && target.mountpoint != nil {
            throw ValidationError("--all goes without a mount point")
        }
    }

    func run() throws {
        let console = options.console
        var (volumes, outcomes, failures) = try lockAll()
        if volumes.isEmpty, failures.isEmpty {
            throw CommandFailure(
                VolumeLocking.what, why: "no volume is mounted",
                hint: "ward mount VOLUME MOUNTPOINT", status: .unavailable)
        }
        for failure in failures { console.failure(failure) }
        let isOnlyOne = volumes.count == 1 && failures.isEmpty
        var isAnyLocked = false
        for (volume, outcome) in zip(volumes, outcomes) {
            if case .failed(let failure, _) = outcome {
                failures.append(failure)
                if !isOnlyOne || console.isJSON {
                    LockCommand.report(failure, volume, console)
                }
            } else if LockCommand.report(outcome, volume, console) {
                isAnyLocked = true
            }
        }
        if let failure = failures.first {
            if !isOnlyOne { throw ExitCode(ExitStatus.someFailed.rawValue) }
            throw failure
        }
        if !isAnyLocked { throw ExitCode(ExitStatus.noPasscode.rawValue) }
    }

    /// Locks the volumes that were asked for. With `--all` first those of the mount table, then
    /// those that only this user's records show.
    private func lockAll() throws(CommandFailure) -> (
        [FoundVolume], [VolumeLocking.Outcome], [CommandFailure]
    ) {
        let locking = VolumeLocking(now: now, endHosts: endHosts)
        guard all else {
            let volumes = try namedVolumes()
            return (volumes, locking.run(volumes), [])
        }
        let mounts = VolumeMount.all(ownedBy: geteuid() == 0 ? nil : geteuid())
        var volumes = mounts.map { FoundVolume(mount: $0, record: nil) }
        var outcomes = locking.run(volumes)
        guard let records = RecordsCommand.ask() else {
            return (
                volumes, outcomes,
                [
                    CommandFailure(
                        VolumeLocking.what,
                        why:
                            "the runtime directory does not answer: volumes that only its records "
                            + "tell of are not locked",
                        hint: "see what is mounted at $XDG_RUNTIME_DIR", status: .temporary)
                ]
            )
        }
        // The mount table of before counts: a volume that was mounted meanwhile is locked, too.
        let others = records.filter { record in !mounts.contains { record.isOf($0) } }
            .map { FoundVolume(mount: $0.mount, record: $0) }
        outcomes += locking.run(others)
        volumes += others
        return (volumes, outcomes, [])
    }

    /// The named volume, and volumes that its mount hides in the same place.
    private func namedVolumes() throws(CommandFailure) -> [FoundVolume] {
        let found = try target.find(VolumeLocking.what)
        guard let mount = found.mount else { return [found] }
        let hidden = VolumeMount.all().filter {
            $0.mountPoint == mount.mountPoint && $0.deviceMinor != mount.deviceMinor
                && $0.owner == mount.owner
        }
        return [found] + hidden.map { FoundVolume(mount: $0, record: nil) }
    }

    private static func report(
        _ failure: CommandFailure, _ volume: FoundVolume, _ console: Console
    ) {
        guard console.isJSON else { return console.failure(failure) }
        console.json(
            .object([
                ("mountpoint", .string(volume.mountPoint)), ("locked", .bool(false)),
                ("error", .string(failure.why)),
            ]))
    }

    /// Reports the outcome; returns false where a lock changes nothing.
    private static func report(
        _ outcome: VolumeLocking.Outcome, _ volume: FoundVolume, _ console: Console
    ) -> Bool {
        let place = Text.printable(volume.mountPoint)
        guard case .done(let state, let status) = outcome else {
            console.note("\(place): the lock took too long, so the mount was cut off")
            reportJSON(nil, volume, isLocked: true, console)
            console.confirm("\(place): locked")
            return true
        }
        let isLocked = VolumeLocking.closes(state) && state != "lockedWithHost"
        reportJSON(status, volume, isLocked: isLocked, console)
        switch state {
        case "noPasscode":
            console.note(
                "nothing is locked: \(place) has no passcode, so this device alone opens every class "
                    + "(ward passcode set \(Text.shellQuoted(volume.mountPoint)))")
            return false
        case "locking":
            let remaining = status.map {
                Text.duration(seconds: $0.graceRemainingSeconds ?? $0.graceSeconds)
            }
            console.confirm(
                "\(place): locking, protected files close "
                    + (remaining.map { "in \($0)" } ?? "after the grace period")
                    + (status?.manualClock == true ? " of its manual clock (ward advance)" : ""))
        default: console.confirm("\(place): \(StateText.name(state))")
        }
        return true
    }

    private static func reportJSON(
        _ status: VolumeStatus?, _ volume: FoundVolume, isLocked: Bool, _ console: Console
    ) {
        guard console.isJSON else { return }
        var members: [(key: String, value: JSONValue)] = [
            ("mountpoint", .string(volume.mountPoint))
        ]
        if case .object(let known)? = status?.json { members = known }
        console.json(.object(members + [("locked", .bool(isLocked))]))
    }
}
