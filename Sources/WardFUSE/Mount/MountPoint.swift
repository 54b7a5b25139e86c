import CWardLinux
import Glibc
import WardSystem

/// A directory that a volume can be mounted on. Everything is checked before anything is touched.
struct MountPoint {
    /// The canonical path, as in the mount table.
    let path: String
    /// Whether a mount of a daemon that died is in the way.
    let hasDeadMount: Bool

    /// Checks the directory. Throws why it can't be mounted on.
    init(checking given: String) throws(FUSEError) {
        path = try MountPoint.canonicalPath(given)
        if MountPoint.isDead(path) {
            hasDeadMount = true
            return
        }
        hasDeadMount = false
        if let mounted = try? MountTable().entry(at: path) {
            throw FUSEError(
                .busy, "mount on", given,
                "something is mounted there already (\(mounted.type), \(mounted.source))",
                hint: mounted.type == "fuse.ward"
                    ? "ward unmount \(given)" : "choose another directory")
        }
        var status = stat()
        guard stat(path, &status) == 0 else {
            throw MountPoint.unreachable(given, Errno(rawValue: ward_errno()))
        }
        guard status.st_mode & S_IFMT == S_IFDIR else {
            throw FUSEError(
                .notADirectory, "mount on", given, "it is not a directory",
                hint: "mkdir a directory and mount on that")
        }
        try MountPoint.checkEmpty(given)
    }

    /// Whether a FUSE mount without a daemon is at `path`. For `stat` the kernel may answer from
    /// memory for as long as the dead daemon allowed; for an open it always asks.
    private static func isDead(_ path: String) -> Bool {
        do throws(Errno) {
            Syscall.close(try Syscall.open(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK))
            return false
        } catch {
            return isDisconnected(error)
        }
    }

    private static func isDisconnected(_ reason: Errno) -> Bool {
        reason.rawValue == ENOTCONN || reason.rawValue == ECONNABORTED
    }

    /// Detaches the mount of a daemon that died, if there is one.
    func detachDeadMount() throws(FUSEError) {
        guard hasDeadMount else { return }
        try Unmounting.detach(path)
        // The directory below the dead mount was not checked yet.
        let below = try MountPoint(checking: path)
        guard !below.hasDeadMount else { return try below.detachDeadMount() }
    }

    static func canonicalPath(_ given: String) throws(FUSEError) -> String {
        if let resolved = realpath(given) { return resolved }
        let reason = Errno(rawValue: ward_errno())
        guard isDisconnected(reason) else { throw unreachable(given, reason) }
        // A dead mount can't be resolved itself, but its parent directory can.
        var trimmed = Substring(given)
        while trimmed.count > 1, trimmed.last == "/" { trimmed.removeLast() }
        let name = trimmed.split(separator: "/").last.map(String.init) ?? ""
        let parent = trimmed.dropLast(name.count)
        guard let directory = realpath(parent.isEmpty ? "." : String(parent)) else {
            throw unreachable(given, Errno(rawValue: ward_errno()))
        }
        return directory == "/" ? "/" + name : directory + "/" + name
    }

    private static func realpath(_ path: String) -> String? {
        guard let resolved = Glibc.realpath(path, nil) else { return nil }
        defer { free(resolved) }
        return String(cString: resolved)
    }

    private static func checkEmpty(_ path: String) throws(FUSEError) {
        guard let directory = opendir(path) else {
            throw unreachable(path, Errno(rawValue: ward_errno()))
        }
        defer { closedir(directory) }
        var entries = 0
        while let entry = readdir(directory) {
            let isDot = withUnsafeBytes(of: &entry.pointee.d_name) { name in
                name[0] == UInt8(ascii: ".")
                    && (name[1] == 0 || (name[1] == UInt8(ascii: ".") && name[2] == 0))
            }
            if !isDot { entries += 1 }
        }
        guard entries == 0 else {
            throw FUSEError(
                .notEmpty, "mount on", path, "the directory is not empty",
                hint: "choose an empty directory: the mount would hide what is in this one")
        }
    }

    private static func unreachable(_ path: String, _ reason: Errno) -> FUSEError {
        if reason == .noSuchFileOrDirectory {
            return FUSEError(
                .mountPointMissing, "mount on", path, "there is no such directory",
                hint: "mkdir -p \(path)")
        }
        if reason == .notDirectory {
            return FUSEError(
                .notADirectory, "mount on", path, "part of the path is not a directory")
        }
        return FUSEError(.refused, "mount on", path, "\(reason)")
    }
}
