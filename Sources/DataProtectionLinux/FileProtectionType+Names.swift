/// As on Apple's platforms.
extension FileProtectionType: @retroactive Hashable {}

extension FileProtectionType {
    /// As `completeUntilFirstUserAuthentication`, until the volume's period without an unlock has passed.
    public static let completeWhenUserInactive = FileProtectionType(
        rawValue: "NSFileProtectionCompleteWhenUserInactive")

    /// Apple's five, in the order of their letters A, B, C, D, CX.
    static let known: [FileProtectionType] = [
        .complete, .completeUnlessOpen, .completeUntilFirstUserAuthentication, .none,
        .completeWhenUserInactive,
    ]

    /// The value of a file attribute or resource: a `FileProtectionType`, a `URLFileProtection` or the string of either.
    /// Throws `DataProtectionError.unknownClass`.
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
        guard let known = FileProtectionType.known.first(where: { $0.rawValue == name }) else {
            throw .unknownClass(text)
        }
        self = known
    }
}

extension Data.WritingOptions {
    /// As Apple's: the fifth value of the mask.
    public static let completeFileProtectionWhenUserInactive = Data.WritingOptions(
        rawValue: 0x5000_0000)

    /// The class that the options ask for; nil where they ask for none of them, which leaves it to the directory.
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
    mutating func takeProtection() throws(DataProtectionError) -> FileProtectionType? {
        guard let value = removeValue(forKey: .protectionKey) else { return nil }
        return try FileProtectionType(attribute: value)
    }
}

/// Core Data's option for the class of a store; there is no Core Data on Linux, code that names it compiles. Its value is a
/// `FileProtectionType`.
// swift-format-ignore: AlwaysUseLowerCamelCase
public let NSPersistentStoreFileProtectionKey = "NSPersistentStoreFileProtectionKey"
