import CWardLinux
import Glibc
import WardSystem

/// Unmounts, as root or through `fusermount3`.
enum Unmounting {
    static let umountNoFollow: Int32 = 8

    /// `lazy`: detaches the mount at once, though programs may still use it (`MNT_DETACH`).
    static func unmount(_ path: String, lazy: Bool) throws(FUSEError) {
        let flags = umountNoFollow | (lazy ? Int32(MNT_DETACH) : 0)
        if umount2(path, flags) == 0 { return }
        let reason = ward_errno()
        if reason == EBUSY { throw busy(path) }
        guard reason == EPERM, geteuid() != 0 else {
            throw FUSEError(.refused, "unmount", path, "\(Errno(rawValue: reason))")
        }
        guard let helper = Fusermount.find() else { throw noHelper("unmount", path) }
        try helper.unmount(path, lazy: lazy)
    }

    static func detach(_ path: String) throws(FUSEError) {
        try unmount(path, lazy: true)
    }

    static func busy(_ path: String) -> FUSEError {
        FUSEError(
            .busy, "unmount", path, "a program has files open or its working directory there",
            hint: "fuser -vm \(path)")
    }

    static func noHelper(_ action: String, _ path: String) -> FUSEError {
        FUSEError(
            .noHelper, action, path, "fusermount3 is not installed, and only root can do without",
            hint: "apt-get install fuse3")
    }
}
