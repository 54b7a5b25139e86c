/// The extended attributes by which a mount answers for itself. They are stored nowhere, and not
/// listed.
///
/// The kernel carries such a call to the daemon of the mount that it is made on, and no program can
/// redirect it. It works on every file of the mount with any mode, and on a read-only mount. The
/// kernel leaves names that begin with `system.` to the file system, xattr(7). Only locks must be
/// asked of the mount's root. The daemon answers the user who mounted, and root; all other users
/// get EACCES.
public enum MountAttribute {
    public static let prefix = "system.ward.mount."
    /// The place where the daemon listens: `ControlEndpoints` as JSON.
    public static let control = "system.ward.mount.control"
    /// `VolumeStatus` as JSON, without names of files and hosts.
    public static let status = "system.ward.mount.status"
    /// Begins a lock as `Lock` does, and answers at once with the lock's number, in decimal digits.
    public static let lock = "system.ward.mount.lock"
    /// The same without a grace period.
    public static let lockNow = "system.ward.mount.lock-now"
    /// The same, ending the connections of trusted hosts.
    public static let lockEndHosts = "system.ward.mount.lock-end-hosts"
    public static let lockNowEndHosts = "system.ward.mount.lock-now-end-hosts"
    /// The number of the last lock that ended, a space, and the name of the state then. Locks end
    /// in order.
    public static let locked = "system.ward.mount.locked"

    /// Returns the attribute that begins such a lock.
    public static func lock(now: Bool, endingHosts: Bool) -> String {
        now ? (endingHosts ? lockNowEndHosts : lockNow) : (endingHosts ? lockEndHosts : lock)
    }
}
