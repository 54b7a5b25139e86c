import ArgumentParser
import Glibc
import WardSystem

/// Started by the daemon, never by a person. Holds no FUSE device, so it can't be stuck where a killed daemon is.
struct WatchdogCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "watchdog", abstract: "Abort a mount whose daemon died.", shouldDisplay: false)

    @Option(help: "Number under /sys/fs/fuse/connections.") var connection: UInt32
    @Option(help: "Read end of a pipe that the daemon keeps open.") var fd: Int32

    func run() throws {
        // The daemon's end closes with its last thread, however it ended; nothing is ever written.
        var byte: UInt8 = 0
        while let count = try? Syscall.read(fd, &byte, 1), count > 0 {}
        do throws(Errno) {
            let control = try OwnedDescriptor(
                opening: "/sys/fs/fuse/connections/\(connection)/abort", O_WRONLY)
            try Syscall.writeAll(control.rawValue, "1", 1)
        } catch {
            detach()
        }
    }

    /// Without the control file system the mount is at least taken out of everybody's way.
    private func detach() {
        let entry = MountTable().entries.first { $0.isWard && $0.minor == Int(connection) }
        guard let entry else { return }
        // As root without any helper; MNT_FORCE aborts the connection first, umount(2).
        if umount2(entry.mountPoint, Int32(MNT_FORCE) | 2 /* MNT_DETACH */) == 0 { return }
        let words = ["fusermount3", "-u", "-z", "--", entry.mountPoint]
        _ = try? ChildProcess.start(words[0], words, output: .null, error: .null).wait()
    }
}
