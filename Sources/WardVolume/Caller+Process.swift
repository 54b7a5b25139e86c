import Glibc
import WardSystem

// Facts that a request does not say of the process that makes it. They stand in `/proc/PID/status`,
// proc_pid_status(5), which is read only where a file with set-ID bits is changed.
extension Caller {
    /// Whether the caller is a member of a group: a request names one of the caller's groups. False
    /// where nobody can tell.
    func isMember(of group: gid_t) -> Bool {
        if gid == group { return true }
        return statusField("Groups")?.split(separator: " ").contains { gid_t($0) == group } ?? false
    }

    /// Whether set-ID bits stay when the caller changes a file: root has `CAP_FSETID`
    /// (capabilities(7)) unless it was given up. Nobody else's word for it is taken: a process has
    /// every capability in a user namespace of its own.
    var keepsSetIDBits: Bool {
        guard uid == 0 else { return false }
        guard let field = statusField("CapEff"), let set = UInt64(field, radix: 16) else {
            return true
        }
        return set & (1 << Caller.capabilityFSETID) != 0
    }

    /// `CAP_FSETID` of linux/capability.h.
    private static let capabilityFSETID = 4

    /// The value of a line of the status; nil where it can't be read.
    private func statusField(_ name: String) -> Substring? {
        guard pid != 0, let text = try? FileReading.text(of: "/proc/\(pid)/status"),
            let line = text.split(separator: "\n").first(where: { $0.hasPrefix(name + ":\t") })
        else { return nil }
        return line.dropFirst(name.utf8.count + 2)
    }
}
