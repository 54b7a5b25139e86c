extension URLResourceValues {
    /// The class of the file, or the one that a directory gives; nil off a ward volume, and where
    /// the key was not asked for. To be set by `NSURL.setResourceValue(_:forKey:)`, as on iOS.
    public var fileProtection: URLFileProtection? {
        carried[.fileProtectionKey] as? URLFileProtection
    }

    /// Whether the item lies on a ward volume.
    public var volumeSupportsFileProtection: Bool? {
        carried[.volumeSupportsFileProtectionKey] as? Bool
    }

    /// As Foundation's, with the values of this module.
    public var allValues: [URLResourceKey: Any] {
        var all = self.Foundation::allValues
        guard !carried.isEmpty else { return all }
        all[.quarantinePropertiesKey] = nil
        return all.merging(carried) { $1 }
    }

    /// Foundation's type has no place for keys that it does not know, and it must stay Foundation's
    /// type: a call with another result would not be preferred to Foundation's, but be ambiguous.
    /// The only property for values of any kind is that for quarantine, which means nothing on
    /// Linux.
    var carried: [URLResourceKey: Any] {
        get { quarantineProperties?[Self.carrierName] as? [URLResourceKey: Any] ?? [:] }
        set { quarantineProperties = [Self.carrierName: newValue] }
    }

    private static let carrierName = "org.ward.values"
}

extension URL {
    /// As Foundation's, with `.fileProtectionKey`, `.volumeSupportsFileProtectionKey` and
    /// `.isExcludedFromBackupKey`.
    public func resourceValues(forKeys keys: Set<URLResourceKey>) throws -> URLResourceValues {
        let others = keys.subtracting(ProtectionResources.keys)
        guard isFileURL, others.count < keys.count else {
            return try self.Foundation::resourceValues(forKeys: keys)
        }
        var ours = try ProtectionResources.values(keys, ofItemAt: path)
        var values = try self.Foundation::resourceValues(forKeys: others)
        if let isExcluded = ours.removeValue(forKey: .isExcludedFromBackupKey) as? Bool {
            values.isExcludedFromBackup = isExcluded
        }
        if !ours.isEmpty { values.carried = ours }
        return values
    }

    /// As Foundation's, with `isExcludedFromBackup`.
    public mutating func setResourceValues(_ values: URLResourceValues) throws {
        if isFileURL, let excluded = values.isExcludedFromBackup {
            _ = try ProtectionResources.set(excluded, .isExcludedFromBackupKey, ofItemAt: path)
        }
        var others = values
        if !values.carried.isEmpty { others.quarantineProperties = nil }
        try self.Foundation::setResourceValues(others)
    }
}
