internal import WardSystem

/// The resource values that Foundation lacks on Linux.
enum ProtectionResources {
    static let keys: Set<URLResourceKey> = [
        .fileProtectionKey, .volumeSupportsFileProtectionKey, .isExcludedFromBackupKey,
    ]

    /// The values of the wanted keys among `keys` that the item has. Throws `CocoaError`, 260 where
    /// there is no item.
    static func values(
        _ wanted: some Sequence<URLResourceKey>, ofItemAt path: String
    ) throws -> [URLResourceKey: Any] {
        var result: [URLResourceKey: Any] = [:]
        do throws(Errno) {
            for key in wanted where keys.contains(key) {
                var status = FileStatus()
                guard lstat(path, &status) == 0 else { throw Errno(rawValue: errno) }
                let isLink = status.st_mode & S_IFMT == S_IFLNK
                switch key {
                case .fileProtectionKey where !isLink:
                    if let protection = try VolumeAttributes.protection(ofItemAt: path) {
                        result[key] = URLFileProtection(protection)._bridgeToObjectiveC()
                    }
                case .volumeSupportsFileProtectionKey:
                    result[key] = VolumeAttributes.isOnVolume(
                        isLink ? Paths.directory(of: path) : path)
                case .isExcludedFromBackupKey where !isLink:
                    result[key] = try isExcludedFromBackup(path)
                default: break
                }
            }
        } catch {
            throw FileFailure.error(error, path, .reading)
        }
        return result
    }

    private static func isExcludedFromBackup(_ path: String) throws(Errno) -> Bool {
        do throws(Errno) {
            _ = try VolumeAttributes.value(VolumeAttributes.backupExclusion, at: path)
            return true
        } catch {
            if error == .noData || error == .notSupported { return false }
            throw error
        }
    }

    /// Sets the value of one of `keys`. Returns false for other keys. A nil value and a read-only
    /// key are ignored, as Foundation does.
    static func set(
        _ value: Any?, _ key: URLResourceKey, ofItemAt path: String
    ) throws -> Bool {
        if keys.contains(key), Paths.isLink(path) {
            // Resource values belong to the link itself, and a link can have none of these (row
            // I10).
            throw FileFailure.plain(.notPermitted, path, .writing)
        }
        switch (key, value) {
        case (.fileProtectionKey, let value?):
            let protection: FileProtectionType
            do throws(DataProtectionError) {
                protection = try FileProtectionType(attribute: value)
            } catch {
                throw FileFailure.error(error, path)
            }
            try ProtectionChange.set(protection, ofItemAt: path)
        case (.isExcludedFromBackupKey, _):
            let isExcluded = (value as? Bool) ?? (value as? NSNumber)?.boolValue ?? false
            do throws(Errno) {
                if isExcluded {
                    try VolumeAttributes.set(
                        VolumeAttributes.backupExclusion, [UInt8(ascii: "1")], at: path)
                } else {
                    try VolumeAttributes.remove(VolumeAttributes.backupExclusion, at: path)
                }
            } catch {
                throw FileFailure.error(error, path, .writing)
            }
        default: return keys.contains(key)
        }
        return true
    }
}
