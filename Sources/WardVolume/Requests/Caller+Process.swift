import Glibc
import WardSystem

// Facts about the calling process that a request does not carry. They come from `/proc/PID/status`,
// proc_pid_status(5). It is read only where a file with set-ID bits is changed.
extension Caller {
    /// Whether the caller is a member of a group. A request names one of the caller's groups alone.
    /// False where the process's groups can't be read.
    func isMember(of group: gid_t) -> Bool {
        if gid == group { return true }
        return statusField("Groups")?.split(separator: " ").contains { gid_t($0) == group } ?? false
    }

    /// Whether set-ID bits stay when the caller changes a file. Root has `CAP_FSETID`
    /// (capabilities(7)) unless root gave it up. The capability of another user does not count: a
    /// process has every capability in a user namespace of its own.
    var keepsSetIDBits: Bool {
        guard uid == 0 else { return false }
        guard let field = statusField("CapEff"), let set = UInt64(field, radix: 16) else {
            return true
        }
        return set & (1 << Caller.capabilityFSETID) != 0
    }

    /// `CAP_FSETID` of linux/capability.h.
    private static let capabilityFSETID = 4

    /// The value of a line of the status file; nil where it can't be read.
    private func statusField(_ name: String) -> Substring? {
        guard pid != 0, let text = try? FileReading.text(of: "/proc/\(pid)/status"),
            let line = text.split(separator: "\n").first(where: { $0.hasPrefix(name + ":\t") })
        else { return nil }
        return line.dropFirst(name.utf8.count + 2)
    }
}
