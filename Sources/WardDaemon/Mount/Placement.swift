import CWardLinux
import Glibc
import WardControl
import WardKeys
import WardSystem

/// The absolute paths of a mount's directories, checked against each other.
struct Placement {
    let volumePath: String
    let mountPoint: String
    let stateRoot: String
    let runtimeDirectory: String

    /// Throws `DaemonError` where a directory is missing, or lies inside another one where it must
    /// not.
    init(_ options: MountOptions) throws(DaemonError) {
        volumePath = try Placement.existing(
            options.volumePath, hint: "ward init \(options.volumePath)")
        // A dead mount can't be resolved; `FUSEConnection.mount` will detach it.
        mountPoint =
            Placement.isDeadMount(options.mountPoint)
            ? Placement.resolvingParents(options.mountPoint)
            : try Placement.existing(options.mountPoint, hint: "mkdir -p \(options.mountPoint)")
        stateRoot = Placement.resolvingParents(options.stateRoot)
        // The last component may be a link that another user made: it is refused later, and not
        // followed here.
        runtimeDirectory =
            Placement.resolvingParents(PathBytes.parent(options.runtimeDirectory)) + "/"
            + PathBytes.lastComponent(options.runtimeDirectory)
        if PathBytes.isInside(volumePath, mountPoint) {
            throw refuse(
                options.volumePath, "the volume lies inside its own mount point \(mountPoint)")
        }
        if PathBytes.isInside(mountPoint, volumePath) {
            throw refuse(
                options.mountPoint, "the mount point lies inside the volume \(volumePath)")
        }
        for (name, path) in [("state", stateRoot), ("runtime", runtimeDirectory)]
        where PathBytes.isInside(path, mountPoint) {
            throw refuse(path, "the \(name) directory lies under the mount point \(mountPoint)")
        }
    }

    private func refuse(_ path: String, _ why: String) -> DaemonError {
        DaemonError(
            "mount", path, why, hint: "choose a mount point elsewhere",
            status: .cannotCreate)
    }

    private static func existing(_ path: String, hint: String) throws(DaemonError) -> String {
        guard let resolved = realpath(path, nil) else {
            let reason = Errno(rawValue: errno)
            throw DaemonError(
                "mount", path,
                reason == .noSuchFileOrDirectory ? "there is no such directory" : "\(reason)",
                hint: reason == .noSuchFileOrDirectory ? hint : nil,
                status: DaemonError.status(of: reason))
        }
        defer { free(resolved) }
        return String(cString: resolved)
    }

    private static func isDeadMount(_ path: String) -> Bool {
        // The kernel may answer stat(2) from its cache, so this asks for the file system's type.
        guard ward_file_system_type(path) == -1 else { return false }
        let reason = ward_errno()
        return reason == ENOTCONN || reason == ECONNABORTED
    }

    /// The absolute path, with links resolved as far as the path exists.
    private static func resolvingParents(_ path: String) -> String {
        var rest: [String] = []
        var parts = PathBytes.components(path)
        let prefix = path.hasPrefix("/") ? "/" : ""
        while true {
            let head = prefix + parts.joined(separator: "/")
            if let resolved = realpath(head.isEmpty ? "." : head, nil) {
                defer { free(resolved) }
                let base = String(cString: resolved)
                let tail = rest.reversed().joined(separator: "/")
                if tail.isEmpty { return base }
                return base == "/" ? "/" + tail : base + "/" + tail
            }
            guard let last = parts.popLast() else { return path }
            rest.append(last)
        }
    }
}
