import ArgumentParser
import CWardLinux
import Glibc
import WardConsole
import WardControl
import WardSystem

/// Internal command: `ward lock` starts one for each volume. It locks one volume through its mount,
/// as the user who may enter it. A separate process, because a mount whose daemon hangs blocks its
/// callers. Also, a process changes its user as a whole.
struct LockMountCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "lock-mount", abstract: "Lock one volume through its mount.",
        shouldDisplay: false)

    @Option(help: "Where the volume is mounted.") var mountPoint: String
    @Option(help: "The minor number of its device.") var device: UInt32
    @Option(help: "The volume's directory.") var volume: String
    @Option(help: "The user who mounted it.") var owner: UInt32
    @Option(help: "The group of that user.") var group: UInt32
    @Flag(help: "Without the grace period.") var now = false
    @Flag(help: "End the connections of trusted hosts.") var endHosts = false

    func run() throws {
        if geteuid() == 0, owner != 0 { try becomeOwner() }
        let mount = VolumeMount(
            mountPoint: mountPoint, deviceMinor: device, volume: volume, owner: owner, group: group)
        Console.write(answer(mount).text() + "\n", to: 1)
    }

    private func answer(_ mount: VolumeMount) -> JSONValue {
        let state: String
        var wasAsked = false
        do throws(Errno) {
            state = try mount.lock(
                now: now, endingHosts: endHosts, asked: { wasAsked = true },
                until: SystemClock.monotonic() + VolumeLocking.patience)
        } catch {
            return .object(
                present: [
                    ("errno", .int(Int64(error.rawValue))),
                    // The lock was requested: if it can't end otherwise, it cuts the mount off.
                    ("wasAsked", wasAsked ? .bool(true) : nil),
                ])
        }
        return .object(
            present: [
                ("state", .string(state)), ("status", (try? mount.status())?.json),
            ])
    }

    /// Becomes the owner permanently: real, effective and saved IDs, and no supplementary groups.
    /// The kernel admits no other user, fuse(4).
    private func becomeOwner() throws(Errno) {
        _ = try Syscall.check { setgroups(0, nil) }
        _ = try Syscall.check { setgid(group) }
        _ = try Syscall.check { setuid(owner) }
        // Makes /proc/self belong to this user again; this process holds no secret.
        _ = ward_prctl(4 /* PR_SET_DUMPABLE */, 1)
    }
}
