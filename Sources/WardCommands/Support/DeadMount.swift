import CWardLinux
import Glibc
import WardSystem

/// Mounts whose daemon died: still in the kernel's table, every request an error.
enum DeadMount {
    /// The dead ward mount that covers the path; without a path the only ward mount, if that is dead.
    static func find(_ path: String?) -> MountTable.Entry? {
        let table = MountTable.now
        guard let path else {
            let all = table.entries.filter(\.isWard)
            return all.count == 1 && isDead(all[0]) ? all[0] : nil
        }
        guard let entry = covering(path, table), isDead(entry) else { return nil }
        return entry
    }

    /// The ward mount that covers the path, dead or alive, found without touching it.
    static func covering(_ path: String, _ table: MountTable = MountTable.now) -> MountTable.Entry?
    {
        guard let real = resolve(path), let entry = table.covering(real), entry.isWard else {
            return nil
        }
        return entry
    }

    /// Absolute, links resolved as far as they can be: below a dead mount point nothing can.
    private static func resolve(_ path: String) -> String? {
        var path = path
        while true {
            if let real = try? Path.realParent(path) { return real }
            let parent = Path.parent(path)
            if parent == path { return nil }
            path = parent
        }
    }

    private static func isDead(_ entry: MountTable.Entry) -> Bool {
        // Not stat(2), which the kernel may answer from memory.
        guard ward_file_system_type(entry.mountPoint) == -1 else { return false }
        let reason = ward_errno()
        return reason == ENOTCONN || reason == ECONNABORTED
    }
}
