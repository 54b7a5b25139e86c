import CWardLinux

/// Sets the class of files and directories of a mounted volume, by attributes that the volume
/// answers (xattr(7)).
public enum ClassAttribute {
    /// The attribute for users who may write the item.
    public static let name = "user.ward.class"
    /// The same without a sync. The class becomes durable when the value that this attribute had
    /// before is set on any item of the volume.
    public static let unsyncedName = "user.ward.class.unsynced"
    /// The attribute for the owner, whose mode may forbid writing: xattr(7) leaves `system.*` to
    /// the file system.
    private static let ownersName = "system.ward.class"
    private static let ownersUnsyncedName = "system.ward.class.unsynced"

    /// Sets the class. Follows a symbolic link at `path`. `value`: any spelling of a class. Throws
    /// the errors of setxattr(2). `EPERM`: a key is locked away. `EACCES`: the user may not write
    /// the item and does not own it.
    ///
    /// - Parameter isSynced: False: durable later, see `unsyncedName`.
    public static func set(
        _ value: [UInt8], at path: String, isSynced: Bool = true
    ) throws(Errno) {
        do throws(Errno) {
            try set(isSynced ? name : unsyncedName, value, at: path)
        } catch .permissionDenied {
            // The kernel refuses to write. The daemon knows the owner.
            do throws(Errno) {
                try set(isSynced ? ownersName : ownersUnsyncedName, value, at: path)
            } catch .notSupported {
                // An older daemon, or no volume at all.
                throw .permissionDenied
            }
        }
    }

    private static func set(
        _ name: String, _ value: [UInt8], at path: String
    ) throws(Errno) {
        _ = try Syscall.check { ward_setxattr(path, name, value, value.count, 0) }
    }
}
