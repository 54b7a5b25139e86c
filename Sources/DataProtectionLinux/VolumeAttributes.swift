internal import CWardLinux
internal import WardSystem

/// The extended attributes by which a ward volume identifies itself and takes classes.
enum VolumeAttributes {
    /// The prefixes of all attributes of ward.
    static let prefixes = ["user.ward.", "system.ward."]
    static let protection = ClassAttribute.name
    static let volume = "user.ward.volume"
    /// Set on items that backups leave out.
    static let backupExclusion = "user.ward.backup-excluded"

    /// The longest value in bytes: XATTR_SIZE_MAX, xattr(7).
    private static let maximumBytes = 65536

    enum Place { case volume, elsewhere, unreachable }

    /// Tells where the item at `path` lies; symbolic links are followed.
    static func place(of path: String) -> Place {
        do throws(Errno) {
            _ = try value(volume, at: path)
            return .volume
        } catch {
            if error == .noData || error == .notSupported { return .elsewhere }
            // Reading an attribute needs the right to read the item (xattr(7)). statfs(2) does not.
            return error == .permissionDenied && isOnOtherFileSystem(path)
                ? .elsewhere : .unreachable
        }
    }

    /// Whether the item certainly lies on no volume, because its file system is not FUSE.
    private static func isOnOtherFileSystem(_ path: String) -> Bool {
        var status = statfs()
        return statfs(path, &status) == 0 && UInt32(truncatingIfNeeded: status.f_type) != fuseMagic
    }

    /// FUSE_SUPER_MAGIC, statfs(2).
    private static let fuseMagic: UInt32 = 0x6573_5546

    /// Whether the item lies on a mounted ward volume.
    static func isOnVolume(_ path: String) -> Bool { place(of: path) == .volume }

    /// The value of an attribute. Throws `ENODATA` or `EOPNOTSUPP` where there is none, and other
    /// errors of getxattr(2).
    static func value(_ name: String, at path: String) throws(Errno) -> [UInt8] {
        var buffer = [UInt8](repeating: 0, count: 256)
        while true {
            let count = ward_getxattr(path, name, &buffer, buffer.count)
            if count >= 0 { return Array(buffer[..<count]) }
            guard errno == ERANGE, buffer.count < maximumBytes else {
                throw Errno(rawValue: errno)
            }
            buffer = [UInt8](repeating: 0, count: maximumBytes)
        }
    }

    static func text(_ name: String, at path: String) throws(Errno) -> String {
        String(decoding: try value(name, at: path), as: UTF8.self)
    }

    static func set(_ name: String, _ value: [UInt8], at path: String) throws(Errno) {
        guard ward_setxattr(path, name, value, value.count, 0) == 0 else {
            throw Errno(rawValue: errno)
        }
    }

    /// Removes an attribute; a missing attribute is no error.
    static func remove(_ name: String, at path: String) throws(Errno) {
        guard ward_removexattr(path, name) == 0 || errno == ENODATA else {
            throw Errno(rawValue: errno)
        }
    }

    /// The names of the attributes that setxattr(2) may also set on another file.
    static func names(at path: String) -> [String] {
        var buffer = [UInt8](repeating: 0, count: maximumBytes)
        let count = ward_listxattr(path, &buffer, buffer.count)
        guard count > 0 else { return [] }
        return buffer[..<count].split(separator: 0).map { String(decoding: $0, as: UTF8.self) }
    }

    /// The class of a file or directory; nil off a ward volume. Works in every state (row I9 of the
    /// semantics).
    static func protection(ofItemAt path: String) throws(Errno) -> FileProtectionType? {
        do throws(Errno) {
            // Another file system may store an attribute of the class's name. Only a volume has
            // this one.
            _ = try value(volume, at: path)
            return FileProtectionType(rawValue: try text(protection, at: path))
        } catch {
            if error == .noData || error == .notSupported { return nil }
            if error == .permissionDenied, place(of: path) == .elsewhere { return nil }
            throw error
        }
    }

    /// Re-wraps the key of a file, or changes the class of new items in a directory (row I7). The
    /// owner may do it, also for a read-only file, as on iOS.
    ///
    /// Throws `EOPNOTSUPP` off a volume: other file systems would store the attribute and protect
    /// nothing.
    static func setProtection(
        _ wanted: FileProtectionType, ofItemAt path: String
    ) throws(Errno) {
        if place(of: path) == .elsewhere { throw .notSupported }
        try ClassAttribute.set(Array(wanted.rawValue.utf8), at: path)
    }
}
