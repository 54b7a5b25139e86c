/// A protection class: when a file may be read. The raw value is the byte on disk.
///
/// A `complete`, B `completeUnlessOpen`, C `completeUntilFirstUserAuthentication`, D `none`, CX
/// `completeWhenUserInactive`; the semantics are Apple's (Platform Security Guide, "Data Protection
/// classes").
public enum ProtectionClass: UInt8, CaseIterable, Sendable, Hashable {
    case complete = 1
    case completeUnlessOpen = 2
    case completeUntilFirstUserAuthentication = 3
    case none = 4
    case completeWhenUserInactive = 5

    /// The class's letter: A, B, C, D or CX.
    public var letter: String {
        switch self {
        case .complete: "A"
        case .completeUnlessOpen: "B"
        case .completeUntilFirstUserAuthentication: "C"
        case .none: "D"
        case .completeWhenUserInactive: "CX"
        }
    }

    /// The stronger one of two classes.
    public func stronger(_ other: ProtectionClass) -> ProtectionClass {
        other.isStronger(than: self) ? other : self
    }

    /// The short name, the same as that of the Swift case.
    public var name: String {
        switch self {
        case .complete: "complete"
        case .completeUnlessOpen: "completeUnlessOpen"
        case .completeUntilFirstUserAuthentication: "completeUntilFirstUserAuthentication"
        case .none: "none"
        case .completeWhenUserInactive: "completeWhenUserInactive"
        }
    }

    /// Apple's string (`NSFileProtectionComplete` and so on), the value of `user.ward.class`.
    public var fileProtectionName: String {
        switch self {
        case .complete: "NSFileProtectionComplete"
        case .completeUnlessOpen: "NSFileProtectionCompleteUnlessOpen"
        case .completeUntilFirstUserAuthentication:
            "NSFileProtectionCompleteUntilFirstUserAuthentication"
        case .none: "NSFileProtectionNone"
        case .completeWhenUserInactive: "NSFileProtectionCompleteWhenUserInactive"
        }
    }

    /// Reads any spelling: letter (either case), short name, `NSFileProtection…`,
    /// `NSURLFileProtection…`, and two legacy strings. These are `NSFileProtectionWriteOnly` (B)
    /// and `NSFileProtectionCompleteUntilUserAuthentication` (C).
    public init?(spelling: some StringProtocol) {
        let text = String(spelling)
        for candidate in ProtectionClass.allCases
        where text == candidate.name || text.uppercased() == candidate.letter
            || text == candidate.fileProtectionName
            || text == "NSURL" + candidate.fileProtectionName.dropFirst(2)
        {
            self = candidate
            return
        }
        switch text {
        case "NSFileProtectionWriteOnly": self = .completeUnlessOpen
        case "NSFileProtectionCompleteUntilUserAuthentication":
            self = .completeUntilFirstUserAuthentication
        default: return nil
        }
    }
}

/// A set of protection classes.
public struct ProtectionClassSet: OptionSet, Sendable, Hashable {
    public let rawValue: UInt8
    public init(rawValue: UInt8) { self.rawValue = rawValue }
    public init(_ protectionClass: ProtectionClass) { rawValue = 1 << protectionClass.rawValue }

    public static let a = ProtectionClassSet(.complete)
    public static let b = ProtectionClassSet(.completeUnlessOpen)
    public static let c = ProtectionClassSet(.completeUntilFirstUserAuthentication)
    public static let d = ProtectionClassSet(.none)
    public static let cx = ProtectionClassSet(.completeWhenUserInactive)
    public static let all: ProtectionClassSet = [a, b, c, d, cx]

    public func contains(_ protectionClass: ProtectionClass) -> Bool {
        contains(ProtectionClassSet(protectionClass))
    }

    /// The members in the order A, B, C, D, CX.
    public var classes: [ProtectionClass] { ProtectionClass.allCases.filter { contains($0) } }
}

extension ProtectionClass {
    /// Whether files in a synchronised directory may have this class: true for C and D.
    public var isForSynchronised: Bool {
        self == .completeUntilFirstUserAuthentication || self == .none
    }
}

extension ProtectionClass {
    /// Whether files of this class are readable at fewer times than files of `other`. A change to a
    /// stronger class is durable when it returns (row I7).
    public func isStronger(than other: ProtectionClass) -> Bool { strength > other.strength }

    /// The place in the order D, C, CX, B, A, from 0.
    public var strength: Int {
        switch self {
        case .none: 0
        case .completeUntilFirstUserAuthentication: 1
        case .completeWhenUserInactive: 2
        case .completeUnlessOpen: 3
        case .complete: 4
        }
    }
}
