/// Foundation's resource values, and those that it does not know on Linux.
///
/// Every property of Foundation's is there, to read and to set.
@dynamicMemberLookup
public struct URLResourceValues {
    var base: Foundation.URLResourceValues
    private var protection: URLFileProtection?
    private var supportsProtection: Bool?
    private var excluded: Bool?

    public init() { base = Foundation.URLResourceValues() }

    init(_ base: Foundation.URLResourceValues, _ ours: [URLResourceKey: Any]) {
        self.base = base
        protection = ours[.fileProtectionKey] as? URLFileProtection
        supportsProtection = ours[.volumeSupportsFileProtectionKey] as? Bool
        excluded = ours[.isExcludedFromBackupKey] as? Bool
    }

    /// The class of the file, or the one that a directory gives; nil off a ward volume. To be set by
    /// `NSURL.setResourceValue(_:forKey:)`, as on iOS.
    public var fileProtection: URLFileProtection? { protection }

    /// Whether the item lies on a ward volume.
    public var volumeSupportsFileProtection: Bool? { supportsProtection }

    /// Whether backups leave the file out. The mark belongs to the file, and goes when the file is replaced.
    public var isExcludedFromBackup: Bool? {
        get { excluded }
        set { excluded = newValue }
    }

    public var allValues: [URLResourceKey: Any] {
        var all = base.allValues
        all[.fileProtectionKey] = protection
        all[.volumeSupportsFileProtectionKey] = supportsProtection
        all[.isExcludedFromBackupKey] = excluded
        return all
    }

    public subscript<Value>(
        dynamicMember path: KeyPath<Foundation.URLResourceValues, Value>
    ) -> Value { base[keyPath: path] }

    public subscript<Value>(
        dynamicMember path: WritableKeyPath<Foundation.URLResourceValues, Value>
    ) -> Value {
        get { base[keyPath: path] }
        set { base[keyPath: path] = newValue }
    }
}

extension URL {
    /// As Foundation's, with `.fileProtectionKey`, `.volumeSupportsFileProtectionKey` and `.isExcludedFromBackupKey`.
    public func resourceValues(forKeys keys: Set<URLResourceKey>) throws -> URLResourceValues {
        let others = keys.subtracting(ProtectionResources.keys)
        let ours =
            isFileURL && others.count < keys.count
            ? try ProtectionResources.values(keys, ofItemAt: path) : [:]
        return URLResourceValues(try self.Foundation::resourceValues(forKeys: others), ours)
    }

    /// As Foundation's, with `isExcludedFromBackup`.
    public mutating func setResourceValues(_ values: URLResourceValues) throws {
        if isFileURL, let excluded = values.isExcludedFromBackup {
            _ = try ProtectionResources.set(excluded, .isExcludedFromBackupKey, ofItemAt: path)
        }
        try self.Foundation::setResourceValues(values.base)
    }
}
