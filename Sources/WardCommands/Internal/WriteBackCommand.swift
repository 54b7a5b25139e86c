import ArgumentParser
import CWardLinux
import Glibc
import WardSystem

/// Internal command, started by the daemon at a lock: makes the kernel write back the mount's dirty
/// mapped pages. A separate process, because it waits for the daemon.
struct WriteBackCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "write-back", abstract: "Write the mapped pages of a mount back.",
        shouldDisplay: false)

    @Option(help: "Number under /sys/fs/fuse/connections.") var connection: UInt32
    @Option(help: "Where the volume is mounted.") var mountPoint: String

    func run() throws {
        let root = try OwnedDescriptor(opening: mountPoint, O_RDONLY | O_DIRECTORY)
        // Another file system may be mounted over it.
        guard ward_makedev_minor(try Syscall.fstat(root.rawValue).st_dev) == connection else {
            return
        }
        try Syscall.syncfs(root.rawValue)
    }
}
