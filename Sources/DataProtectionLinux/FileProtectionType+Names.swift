/// As on Apple's platforms.
extension FileProtectionType: @retroactive Hashable {}

extension FileProtectionType {
    /// As `completeUntilFirstUserAuthentication`, until the volume's period without an unlock has
    /// passed.
    public static let completeWhenUserInactive = FileProtectionType(
        rawValue: "NSFileProtectionCompleteWhenUserInactive")

    /// Apple's five, in the order of their letters A, B, C, D, CX.
    static let known: [FileProtectionType] = [
        .complete, .completeUnlessOpen, .completeUntilFirstUserAuthentication, .none,
        .completeWhenUserInactive,
    ]

    /// The value of a file attribute or resource: a `FileProtectionType`, a `URLFileProtection` or
    /// the string of either. Throws `DataProtectionError.unknownClass`.
    init(attribute value: Any) throws(DataProtectionError) {
        let text: String
        switch value {
        case let type as FileProtectionType: text = type.rawValue
        case let type as URLFileProtection: text = type.rawValue
        case let string as String: text = string
        default: throw .unknownClass("\(value)")
        }
        // NSURLFileProtection… and NSFileProtection… name the same classes.
        let name = text.hasPrefix("NSURL") ? "NS" + text.dropFirst(5) : text
        guard
            let known = FileProtectionType.known.first(where: { $0.rawValue == name })
                ?? FileProtectionType.oldNames[name]
        else { throw .unknownClass(text) }
        self = known
    }

    /// Apple's names of before.
    private static let oldNames: [String: FileProtectionType] = [
        "NSFileProtectionWriteOnly": .completeUnlessOpen,
        "NSFileProtectionCompleteUntilUserAuthentication": .completeUntilFirstUserAuthentication,
    ]
}

extension Data.WritingOptions {
    /// As Apple's: the fifth value of the mask.
    public static let completeFileProtectionWhenUserInactive = Data.WritingOptions(
        rawValue: 0x5000_0000)

    /// Apple's old name of `atomic`.
    @available(*, deprecated, renamed: "atomic")
    public static let atomicWrite = Data.WritingOptions.atomic

    /// The class that the options ask for; nil where they ask for none of them, which leaves it to
    /// the directory.
    var protection: FileProtectionType? {
        get throws(DataProtectionError) {
            let value = rawValue & Data.WritingOptions.fileProtectionMask.rawValue
            switch Data.WritingOptions(rawValue: value) {
            case []: return nil
            case .noFileProtection: return FileProtectionType.none
            case .completeFileProtection: return .complete
            case .completeFileProtectionUnlessOpen: return .completeUnlessOpen
            case .completeFileProtectionUntilFirstUserAuthentication:
                return .completeUntilFirstUserAuthentication
            case .completeFileProtectionWhenUserInactive: return .completeWhenUserInactive
            default: throw .unknownClass("Data.WritingOptions(rawValue: \(rawValue))")
            }
        }
    }

    /// The same without a class.
    var withoutProtection: Data.WritingOptions { subtracting(.fileProtectionMask) }
}

extension [FileAttributeKey: Any] {
    /// Takes the class out of attributes for a file. Throws `DataProtectionError.unknownClass`.
    ///
    /// Attributes that the volume itself lists among the extended attributes go as well:
    /// `.protectionKey` alone says the class.
    mutating func takeProtection() throws(DataProtectionError) -> FileProtectionType? {
        dropVolumeAttributes()
        guard let value = removeValue(forKey: .protectionKey) else { return nil }
        return try FileProtectionType(attribute: value)
    }
}

extension [FileAttributeKey: Any] {
    /// Takes away the extended attributes of ward that have a meaning for the volume: the class,
    /// the mark of a synchronised directory, the record of a container.
    ///
    /// Foundation on Linux puts all `user.*` attributes into the dictionary, and would set them
    /// again with it: a class that was read before would come after the one that was asked for. On
    /// Apple's platforms none of them is there. That a backup leaves a file out stays, as it does
    /// there.
    mutating func dropVolumeAttributes() {
        guard let attributes = self[.extendedAttributes] as? [String: Any] else { return }
        let others = attributes.filter {
            let name = $0.key
            return name == VolumeAttributes.backupExclusion
                || !VolumeAttributes.prefixes.contains { name.hasPrefix($0) }
        }
        if others.count == attributes.count { return }
        self[.extendedAttributes] = others.isEmpty ? nil : others
    }
}

extension FileAttributeKey {
    /// Foundation's, which it keeps to itself: the names and values of extended attributes,
    /// xattr(7).
    fileprivate static let extendedAttributes = FileAttributeKey(
        rawValue: "NSFileExtendedAttributes")
}

/// Core Data's option for the class of a store; there is no Core Data on Linux, code that names it
/// compiles. Its value is a `FileProtectionType`.
// swift-format-ignore: AlwaysUseLowerCamelCase
public let NSPersistentStoreFileProtectionKey = "NSPersistentStoreFileProtectionKey"
