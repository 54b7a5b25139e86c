extension NSURL {
    /// Sets a resource value as Foundation does, and also `.fileProtectionKey` and
    /// `.isExcludedFromBackupKey`. A protection is a `URLFileProtection`, a `FileProtectionType`,
    /// or the string of either. Throws `CocoaError`.
    public func setResourceValue(_ value: Any?, forKey key: URLResourceKey) throws {
        if isFileURL, let path, try ProtectionResources.set(value, key, ofItemAt: path) { return }
        try self.Foundation::setResourceValue(value, forKey: key)
    }

    /// Sets several values; see `setResourceValue(_:forKey:)`.
    public func setResourceValues(_ keyedValues: [URLResourceKey: Any]) throws {
        var others = keyedValues
        for key in ProtectionResources.keys {
            if let value = others.removeValue(forKey: key) {
                try setResourceValue(value, forKey: key)
            }
        }
        try self.Foundation::setResourceValues(others)
    }

    /// Foundation's resource values, and those of `.fileProtectionKey`,
    /// `.volumeSupportsFileProtectionKey` and `.isExcludedFromBackupKey`. Throws `CocoaError`.
    public func resourceValues(forKeys keys: [URLResourceKey]) throws -> [URLResourceKey: Any] {
        let others = keys.filter { !ProtectionResources.keys.contains($0) }
        var values = try self.Foundation::resourceValues(forKeys: others)
        if isFileURL, let path, others.count < keys.count {
            values.merge(try ProtectionResources.values(keys, ofItemAt: path)) { $1 }
        }
        return values
    }

    /// Reads one value; see `resourceValues(forKeys:)`.
    public func getResourceValue(
        _ value: inout AnyObject?, forKey key: URLResourceKey
    ) throws {
        guard ProtectionResources.keys.contains(key), isFileURL, let path else {
            return try self.Foundation::getResourceValue(&value, forKey: key)
        }
        switch try ProtectionResources.values([key], ofItemAt: path)[key] {
        case let protection as NSString: value = protection
        case let flag as Bool: value = NSNumber(value: flag)
        default: value = nil
        }
    }
}
