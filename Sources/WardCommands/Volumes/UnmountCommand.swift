import ArgumentParser
import CWardLinux
import Glibc
import WardConsole
import WardControl
import WardSystem
import WardVolume

struct UnmountCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "unmount", abstract: "Unmount a volume.",
        discussion: """
            Returns when everything is stored, the mount is gone and its daemon has ended. A mount \
            whose daemon died is detached. Where the daemon can't be reached the volume is locked \
            through its mount, and the kernel unmounts it. With --force a daemon that does not \
            even lock is killed: its keys go with it, and what was not stored yet is lost.

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
        let volume = try target.find(UnmountCommand.what)
        if let mount = volume.mount {
            switch mount.standing {
            case .dead:
                try detach(mount.mountPoint, lazily: true)
                report(
                    mount.mountPoint, note: "its daemon was dead: the mount was detached", console)
                return
            case .silent:
                let failure = CommandFailure(
                    UnmountCommand.what, mount.mountPoint, why: "its daemon does not answer",
                    hint: "ward unmount --force \(Text.shellQuoted(mount.mountPoint))",
                    status: .temporary)
                if !force { throw failure }
                return try unmountByKernel(mount, failure, console)
            case .served: break
            }
        }
        let connection: VolumeConnection
        let status: VolumeStatus
        do throws(CommandFailure) {
            connection = try VolumeConnection(
                UnmountCommand.what, path: target.mountpoint, volume: volume)
            status = try connection.status()
        } catch {
            guard let mount = volume.mount else { throw error }
            return try unmountByKernel(mount, error, console)
        }
        try askToEnd(connection, status)
        try waitUntilGone(status.mountpoint, status.pid, status.volume, console)
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
            // The daemon may end before it answers, if the kernel takes long to free what programs
            // used. Then `waitUntilGone` decides.
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

    /// "in use by sleep (pid 4711, /home/ada/papers/notes.txt)", with at most five programs.
    private static func describe(_ users: [ProcessTable.User]) -> String {
        let shown = users.prefix(5).map { user in
            "\(Text.printable(user.program)) (pid \(user.pid), \(Text.printable(user.path)))"
        }
        let rest = users.count > 5 ? " and \(users.count - 5) more" : ""
        return "in use by " + shown.joined(separator: ", ") + rest
    }

    /// Waits for the end of mount and daemon. Pending data is stored first, which takes as long as
    /// the backing store needs.
    private func waitUntilGone(
        _ mountPoint: String, _ pid: Int, _ volume: String, _ console: Console
    ) throws(CommandFailure) {
        var progress = ProgressLine(console)
        let patience = force ? 40 : 120
        let deadline = SystemClock.monotonic() + .seconds(patience)
        while MountTable.now.isMounted(mountPoint)
            || !ProcessTable.hasEnded(Int32(truncatingIfNeeded: pid))
        {
            progress.update("\(mountPoint): storing what was not stored yet")
            if SystemClock.monotonic() > deadline {
                throw CommandFailure(
                    UnmountCommand.what, mountPoint,
                    why: "its daemon (pid \(pid)) has not ended within \(patience) seconds",
                    hint: force
                        ? "its keys are gone; it ends when the backing store, "
                            + "\(Text.shellQuoted(volume)), answers again: see dmesg(1)"
                        : "ward unmount --force \(Text.shellQuoted(mountPoint))",
                    status: .temporary)
            }
            usleep(10_000)
        }
        progress.clear()
    }

    // MARK: Without the daemon's help

    /// Unmounts where the daemon's socket can't be used. Locks the volume through its mount; then
    /// the kernel removes the mount, which ends the daemon.
    private func unmountByKernel(
        _ mount: VolumeMount, _ reason: CommandFailure, _ console: Console
    ) throws(CommandFailure) {
        let volume = FoundVolume(mount: mount, record: nil)
        // Before anything ends it, and another daemon takes its place.
        let daemon = DaemonProcess(holding: mount.volume, ownedBy: mount.owner)
        let outcome = VolumeLocking(now: true, endHosts: true).run([volume])[0]
        let status: VolumeStatus? = if case .done(_, let status) = outcome { status } else { nil }
        guard MountTable.now.entry(at: mount.mountPoint)?.deviceMinor == mount.deviceMinor else {
            throw CommandFailure(
                UnmountCommand.what, mount.mountPoint, why: "something else is mounted over it",
                hint: "umount \(Text.shellQuoted(mount.mountPoint)) removes that first",
                status: .temporary)
        }
        do throws(CommandFailure) {
            try detach(mount.mountPoint, lazily: force)
        } catch {
            let users = ProcessTable.users(of: mount.mountPoint)
            guard !users.isEmpty, !force else { throw error }
            throw CommandFailure(
                UnmountCommand.what, mount.mountPoint, why: UnmountCommand.describe(users),
                hint: "end them, or ward unmount --force \(Text.shellQuoted(mount.mountPoint))",
                status: .temporary)
        }
        let result: String
        switch outcome {
        case .done, .cutOff: result = "it was locked through the mount, and unmounted by the kernel"
        case .failed(_, isSilent: true) where force:
            // The mount is gone, but the keys are still in memory.
            try kill(daemon, of: mount)
            result =
                "it could not be locked, and was unmounted by the kernel; its daemon was killed"
        case .failed:
            result = "it could not be locked, and was unmounted by the kernel"
        }
        if let status {
            // It ends by itself unless another mount namespace (a container, unshare(1)) has a copy
            // of the mount.
            if let daemon, !daemon.ends(within: .seconds(2)) { daemon.send(SIGTERM) }
            try waitUntilGone(status.mountpoint, status.pid, status.volume, console)
        }
        report(mount.mountPoint, note: "\(reason.why): \(result)", console)
    }

    /// Kills a daemon that answers neither at its mount nor at its socket. Its keys are gone when
    /// all of its threads are.
    private func kill(_ daemon: DaemonProcess?, of mount: VolumeMount) throws(CommandFailure) {
        guard let daemon else {
            throw CommandFailure(
                UnmountCommand.what, mount.volume,
                why:
                    "the mount is gone, but its daemon does not answer and was not found: its keys "
                    + "may still be in memory",
                hint: "find its process and end it: ps -C ward -o pid,args", status: .temporary)
        }
        // It may have ended by itself.
        daemon.send(SIGKILL)
        if !daemon.ends(within: .seconds(10)) {
            throw CommandFailure(
                UnmountCommand.what, mount.volume,
                why:
                    "the mount is gone and its daemon (pid \(daemon.pid)) was killed, but it waits "
                    + "for the backing store, and its keys stay in memory until then",
                hint: "see dmesg(1) for the backing store", status: .temporary)
        }
    }

    /// Removes a mount from the mount table. `lazily`: even while programs use it.
    private func detach(_ mountPoint: String, lazily: Bool) throws(CommandFailure) {
        let flags: Int32 = 8 /* UMOUNT_NOFOLLOW */ | (lazily ? 2 /* MNT_DETACH */ : 0)
        if umount2(mountPoint, flags) == 0 { return }
        let reason = Errno(rawValue: errno)
        guard geteuid() != 0 else {
            throw CommandFailure(
                UnmountCommand.what, mountPoint, errno: reason,
                hint: lazily ? nil : "ward unmount --force \(Text.shellQuoted(mountPoint))",
                status: .temporary)
        }
        let helper = ["fusermount3", "-u"] + (lazily ? ["-z"] : []) + ["--", mountPoint]
        let code: Int32
        do throws(Errno) {
            code = try ChildProcess.start(helper[0], helper, output: .null, error: .null).wait()
        } catch {
            throw CommandFailure(
                UnmountCommand.what, mountPoint, why: "fusermount3 can't be started",
                hint: "apt-get install fuse3", status: .unavailable)
        }
        if code != 0 {
            throw CommandFailure(
                UnmountCommand.what, mountPoint, why: "fusermount3 refused",
                hint:
                    "\(helper.dropLast(2).joined(separator: " ")) \(Text.shellQuoted(mountPoint)) "
                    + "says why",
                status: .notPermitted)
        }
    }
}
