/// Hashable as on Apple's platforms.
extension FileProtectionType: @retroactive Hashable {}

extension FileProtectionType {
    /// Class CX: readable like `completeUntilFirstUserAuthentication`, until a period without an
    /// unlock has passed. The period is a setting of the volume.
    public static let completeWhenUserInactive = FileProtectionType(
        rawValue: "NSFileProtectionCompleteWhenUserInactive")

    /// Apple's five classes, in the order of their letters A, B, C, D, CX.
    static let known: [FileProtectionType] = [
        .complete, .completeUnlessOpen, .completeUntilFirstUserAuthentication, .none,
        .completeWhenUserInactive,
    ]

    /// Reads the value of a file attribute or resource: a `FileProtectionType`, a
    /// `URLFileProtection`, or the string of either. Throws `DataProtectionError.unknownClass`.
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

    /// Apple's former names.
    private static let oldNames: [String: FileProtectionType] = [
        "NSFileProtectionWriteOnly": .completeUnlessOpen,
        "NSFileProtectionCompleteUntilUserAuthentication": .completeUntilFirstUserAuthentication,
    ]
}

extension Data.WritingOptions {
    /// Asks for class CX, with Apple's value of the mask.
    public static let completeFileProtectionWhenUserInactive = Data.WritingOptions(
        rawValue: 0x5000_0000)

    /// Apple's old name of `atomic`.
    @available(*, deprecated, renamed: "atomic")
    public static let atomicWrite = Data.WritingOptions.atomic

    /// The class that the options ask for; nil where they leave it to the directory. Throws
    /// `DataProtectionError.unknownClass`.
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

    /// These options without a class.
    var withoutProtection: Data.WritingOptions { subtracting(.fileProtectionMask) }
}

extension [FileAttributeKey: Any] {
    /// Removes the class from attributes and returns it; nil where there is none. Throws
    /// `DataProtectionError.unknownClass`.
    ///
    /// It also removes ward's own extended attributes: `.protectionKey` alone decides the class.
    mutating func takeProtection() throws(DataProtectionError) -> FileProtectionType? {
        dropVolumeAttributes()
        guard let value = removeValue(forKey: .protectionKey) else { return nil }
        return try FileProtectionType(attribute: value)
    }
}

extension [FileAttributeKey: Any] {
    /// Removes the extended attributes of ward that have a meaning for the volume. They are the
    /// class, the mark of a synchronised directory and the record of a container.
    ///
    /// Foundation on Linux puts all `user.*` attributes into the dictionary, and sets them again
    /// from it. A class that was read earlier would replace the class that the caller asks for.
    /// Apple's platforms list none of these attributes. The exclusion from backups stays, as it
    /// does there.
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
    /// Foundation's private key for the names and values of extended attributes, xattr(7).
    fileprivate static let extendedAttributes = FileAttributeKey(
        rawValue: "NSFileExtendedAttributes")
}

/// Core Data's option for the class of a store. Linux has no Core Data; the name is here so that
/// code with it compiles. The value is a `FileProtectionType`.
// swift-format-ignore: AlwaysUseLowerCamelCase
public let NSPersistentStoreFileProtectionKey = "NSPersistentStoreFileProtectionKey"
