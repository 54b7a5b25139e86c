extension URLResourceValues {
    /// The class of a file, or the class that a directory gives to new files. Nil off a ward
    /// volume, and where the key was not requested. `NSURL.setResourceValue(_:forKey:)` sets it, as
    /// on iOS.
    public var fileProtection: URLFileProtection? {
        carried[.fileProtectionKey] as? URLFileProtection
    }

    /// Whether the item lies on a ward volume; nil where the key was not requested.
    public var volumeSupportsFileProtection: Bool? {
        carried[.volumeSupportsFileProtectionKey] as? Bool
    }

    /// All of Foundation's values, with the values of this module.
    public var allValues: [URLResourceKey: Any] {
        var all = self.Foundation::allValues
        guard !carried.isEmpty else { return all }
        all[.quarantinePropertiesKey] = nil
        return all.merging(carried) { $1 }
    }

    /// The values of this module. Foundation's type has no place for unknown keys. It must stay
    /// Foundation's type: a call with another result type would be ambiguous, not preferred. Its
    /// only property for values of any kind is the quarantine, which has no meaning on Linux.
    var carried: [URLResourceKey: Any] {
        get { quarantineProperties?[Self.carrierName] as? [URLResourceKey: Any] ?? [:] }
        set { quarantineProperties = [Self.carrierName: newValue] }
    }

    private static let carrierName = "org.ward.values"
}

extension URL {
    /// Foundation's resource values, and those of `.fileProtectionKey`,
    /// `.volumeSupportsFileProtectionKey` and `.isExcludedFromBackupKey`. Throws `CocoaError`.
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

    /// Sets resource values as Foundation does, and also `isExcludedFromBackup`. Throws
    /// `CocoaError`.
    public mutating func setResourceValues(_ values: URLResourceValues) throws {
        if isFileURL, let excluded = values.isExcludedFromBackup {
            _ = try ProtectionResources.set(excluded, .isExcludedFromBackupKey, ofItemAt: path)
        }
        var others = values
        if !values.carried.isEmpty { others.quarantineProperties = nil }
        try self.Foundation::setResourceValues(others)
    }
}
