import ArgumentParser
import Glibc
import WardSystem

/// Started by the daemon, never by a person. Holds no FUSE device, so it can't be stuck where a killed daemon is.
struct WatchdogCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "watchdog", abstract: "Abort a mount whose daemon died.", shouldDisplay: false)

    @Option(help: "Number under /sys/fs/fuse/connections.") var connection: UInt32
    @Option(help: "Read end of a pipe that the daemon keeps open.") var fd: Int32

    /// How often the daemon is looked at, milliseconds.
    private static let intervalMilliseconds: Int32 = 1000

    func run() throws {
        let daemon = getppid()
        while !pipeEnded(), !WatchdogCommand.isDying(daemon) {}
        do throws(Errno) {
            let control = try OwnedDescriptor(
                opening: "/sys/fs/fuse/connections/\(connection)/abort", O_WRONLY)
            try Syscall.writeAll(control.rawValue, "1", 1)
        } catch {
            detach()
        }
    }

    /// Waits a while for the pipe to end, which it does with the daemon's last thread; nothing is ever written.
    private func pipeEnded() -> Bool {
        var waiting = pollfd(fd: fd, events: Int16(POLLIN), revents: 0)
        return poll(&waiting, 1, WatchdogCommand.intervalMilliseconds) > 0
    }

    /// Whether the daemon was killed and can't end: a thread of it waits, uninterruptibly, for the mount that the daemon
    /// itself serves (`notify_inval_inode` of a page that is being written back). Its pipe stays open then. The other
    /// threads are gone, so the first is a zombie; if the first is the one that waits, SIGKILL is pending.
    private static func isDying(_ daemon: pid_t) -> Bool {
        guard let status = try? FileReading.text(of: "/proc/\(daemon)/status", limit: 1 << 16)
        else {
            return true
        }
        for line in status.split(separator: "\n") {
            if line.hasPrefix("State:") {
                let state = line.dropFirst(6).first { $0 != "\t" && $0 != " " }
                if state == "Z" || state == "X" { return true }
            } else if line.hasPrefix("SigPnd:") || line.hasPrefix("ShdPnd:") {
                let pending = UInt64(line.dropFirst(8), radix: 16) ?? 0
                if pending & (1 << UInt64(SIGKILL - 1)) != 0 { return true }
            }
        }
        return false
    }

    /// Without the control file system: root forces the connection to end, umount2(2) `MNT_FORCE`; anybody else can at
    /// least take the mount out of everybody's way (the kernel's request time-out does the rest).
    private func detach() {
        let entry = MountTable().entries.first { $0.isWard && $0.minor == Int(connection) }
        guard let entry else { return }
        if umount2(entry.mountPoint, Int32(MNT_FORCE) | Int32(MNT_DETACH)) == 0 { return }
        let words = ["fusermount3", "-u", "-z", "--", entry.mountPoint]
        _ = try? ChildProcess.start(words[0], words, output: .null, error: .null).wait()
    }
}
