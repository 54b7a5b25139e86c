/// The protection class of a file as a resource value, as Apple's type of this name.
public struct URLFileProtection: RawRepresentable, Hashable, Sendable {
    /// Apple's string for the class.
    public var rawValue: String

    public init(rawValue: String) { self.rawValue = rawValue }

    /// Class A.
    public static let complete = URLFileProtection(rawValue: "NSURLFileProtectionComplete")
    /// Class B.
    public static let completeUnlessOpen = URLFileProtection(
        rawValue: "NSURLFileProtectionCompleteUnlessOpen")
    /// Class C.
    public static let completeUntilFirstUserAuthentication = URLFileProtection(
        rawValue: "NSURLFileProtectionCompleteUntilFirstUserAuthentication")
    /// Class CX.
    public static let completeWhenUserInactive = URLFileProtection(
        rawValue: "NSURLFileProtectionCompleteWhenUserInactive")
    /// Class D.
    public static let none = URLFileProtection(rawValue: "NSURLFileProtectionNone")

    init(_ type: FileProtectionType) {
        self.init(rawValue: "NSURL" + type.rawValue.dropFirst(2))
    }
}

extension URLResourceKey {
    /// The class of a file as a `URLFileProtection`. `NSURL.setResourceValue(_:forKey:)` sets it.
    public static let fileProtectionKey = URLResourceKey(rawValue: "NSURLFileProtectionKey")
    /// Whether the item lies on a ward volume, as a `Bool`.
    public static let volumeSupportsFileProtectionKey = URLResourceKey(
        rawValue: "NSURLVolumeSupportsFileProtectionKey")
}
