import ArgumentParser
import CWardLinux
import Glibc
import WardControl
import WardSystem

struct UnmountCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "unmount", abstract: "Unmount a volume.",
        discussion: """
            Returns when everything is stored, the mount is gone and its daemon has ended. A mount \
            whose daemon died is detached.

            Examples:
              ward unmount
              ward unmount ~/papers
              ward unmount --force ~/papers    (programs that use it get errors)
            """,
        aliases: ["umount"])

    @OptionGroup var target: MountPointArgument
    @Flag(name: .shortAndLong, help: "Also while programs use it: they get errors.")
    var force = false
    @OptionGroup var options: ReportOptions

    private static let what = "cannot unmount"

    func run() throws {
        let console = options.console
        let connection: VolumeConnection
        let status: VolumeStatus
        do throws(CommandFailure) {
            connection = try target.connect(UnmountCommand.what)
            status = try connection.status()
        } catch {
            guard let dead = DeadMount.find(target.mountpoint) else { throw error }
            try detach(dead)
            report(dead.mountPoint, note: "its daemon was dead: the mount was detached", console)
            return
        }
        try askToEnd(connection, status)
        try waitUntilGone(status, console)
        report(status.mountpoint, note: nil, console)
    }

    private func report(_ mountPoint: String, note: String?, _ console: Console) {
        if let note { console.note("\(Text.printable(mountPoint)): \(note)") }
        if console.isJSON {
            console.json(
                .object([("mountpoint", .string(mountPoint)), ("mounted", .bool(false))]))
        } else {
            console.confirm("\(Text.printable(mountPoint)): unmounted")
        }
    }

    private func askToEnd(
        _ connection: VolumeConnection, _ status: VolumeStatus
    ) throws(CommandFailure) {
        do throws(ControlError) {
            try connection.client.unmount(force: force)
        } catch {
            // It ends before it can answer where the kernel takes long for what programs have used: `waitUntilGone` tells.
            if error.code == .connectionLost { return }
            var failure = CommandFailure(UnmountCommand.what, status.mountpoint, error)
            if case .volume(.busy) = error.code {
                let users = ProcessTable.users(of: status.mountpoint)
                let inner = MountTable.now.inside(status.mountpoint)
                if !users.isEmpty {
                    failure.why = UnmountCommand.describe(users)
                } else if let inner {
                    failure.why = "\(Text.printable(inner.mountPoint)) is mounted inside it"
                    let place = Text.shellQuoted(inner.mountPoint)
                    failure.hint = inner.isWard ? "ward unmount \(place)" : "umount \(place)"
                }
            }
            throw failure
        }
    }

    /// "in use by sleep (pid 4711, /home/ada/papers/notes.txt)", at most five of them.
    private static func describe(_ users: [ProcessTable.User]) -> String {
        let shown = users.prefix(5).map { user in
            "\(Text.printable(user.program)) (pid \(user.pid), \(Text.printable(user.path)))"
        }
        let rest = users.count > 5 ? " and \(users.count - 5) more" : ""
        return "in use by " + shown.joined(separator: ", ") + rest
    }

    /// What was not stored yet is stored first, so this can take as long as the backing store takes.
    private func waitUntilGone(
        _ status: VolumeStatus, _ console: Console
    ) throws(CommandFailure) {
        var progress = ProgressLine(console)
        let patience = force ? 40 : 120
        let deadline = SystemClock.monotonic() + .seconds(patience)
        while MountTable.now.isMounted(status.mountpoint)
            || !ProcessTable.hasEnded(Int32(truncatingIfNeeded: status.pid))
        {
            progress.update("\(status.mountpoint): storing what was not stored yet")
            if SystemClock.monotonic() > deadline {
                throw CommandFailure(
                    UnmountCommand.what, status.mountpoint,
                    why: "its daemon (pid \(status.pid)) has not ended within \(patience) seconds",
                    hint: force
                        ? "its keys are gone; it ends when the backing store, "
                            + "\(Text.shellQuoted(status.volume)), answers again: see dmesg(1)"
                        : "ward unmount --force \(Text.shellQuoted(status.mountpoint))",
                    status: .temporary)
            }
            usleep(10_000)
        }
        progress.clear()
    }

    // MARK: Dead mounts

    private func detach(_ entry: MountTable.Entry) throws(CommandFailure) {
        if umount2(entry.mountPoint, 2 /* MNT_DETACH */) == 0 { return }
        let helper = ["fusermount3", "-u", "-z", "--", entry.mountPoint]
        let code: Int32
        do throws(Errno) {
            code = try ChildProcess.start(helper[0], helper, output: .null, error: .null).wait()
        } catch {
            throw CommandFailure(
                UnmountCommand.what, entry.mountPoint, why: "fusermount3 can't be started",
                hint: "apt-get install fuse3", status: .unavailable)
        }
        if code != 0 {
            throw CommandFailure(
                UnmountCommand.what, entry.mountPoint, why: "fusermount3 refused",
                hint: "fusermount3 -u -z \(Text.shellQuoted(entry.mountPoint))",
                status: .notPermitted)
        }
    }
}
