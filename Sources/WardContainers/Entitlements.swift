import FoundationEssentials

/// An app's entitlements, as far as containers need them: from the property list that Xcode writes.
/// It has these keys; others are ignored.
///
/// - `com.apple.developer.default-data-protection`: the class of the app's container
/// - `com.apple.security.application-groups`: the groups whose containers the app may use
/// - `com.apple.developer.team-identifier`, else the part of `application-identifier` before its
///   first dot: the team
public struct Entitlements: Equatable, Sendable {
    /// The largest file that is read, bytes. Xcode's have a few kilobytes.
    public static let maximumBytes = 256 << 10
    /// The largest number of groups, so that the names fit into a container's record.
    public static let maximumGroups = 32

    /// Apple's string, in its present spelling; nil for the volume's default.
    public var dataProtection: String?
    /// Sorted, without duplicates.
    public var groups: [ContainerID]
    /// Nil where the app is not signed.
    public var team: String?

    /// Throws for an unknown class, for a class that an entitlement may not give, and for an
    /// invalid name of a group or a team.
    public init(
        dataProtection: String? = nil, groups: [String] = [], team: String? = nil
    ) throws(EntitlementsError) {
        self.dataProtection = try dataProtection.map(Entitlements.checkedClass)
        guard groups.count <= Entitlements.maximumGroups else {
            throw EntitlementsError(
                "\(Key.groups) names \(groups.count) groups, and \(Entitlements.maximumGroups) are "
                    + "the most")
        }
        var ids: Set<ContainerID> = []
        for group in groups {
            do throws(ContainerID.Invalid) {
                ids.insert(try ContainerID(group))
            } catch {
                throw EntitlementsError(
                    "\(Key.groups) names the group '\(error.text.prefix(160))': \(error.reason)",
                    advice: error.text.contains("$(")
                        ? EntitlementsError.signedAdvice
                        : "a group is like group.org.example: letters, digits, dots, hyphens, "
                            + "underscores")
            }
        }
        self.groups = ids.sorted { $0.text < $1.text }
        if let team, !Entitlements.isTeam(team) {
            throw EntitlementsError(
                "the team '\(team.prefix(80))' is none: letters and digits, at most 64")
        }
        self.team = team
    }

    /// Parses a property list, XML or binary, of at most `maximumBytes`.
    public init(propertyList: [UInt8]) throws(EntitlementsError) {
        try PropertyListLimits.check(propertyList)
        let values: Values
        do {
            values = try PropertyListDecoder().decode(Values.self, from: Data(propertyList))
        } catch let error as EntitlementsError {
            throw error
        } catch {
            throw EntitlementsError(describing: error)
        }
        try self.init(
            dataProtection: values.dataProtection, groups: values.groups ?? [], team: values.team)
    }

    enum Key {
        static let dataProtection = "com.apple.developer.default-data-protection"
        static let groups = "com.apple.security.application-groups"
        static let team = "com.apple.developer.team-identifier"
        /// The keys of iOS, then of macOS.
        static let identifiers = ["application-identifier", "com.apple.application-identifier"]
    }

    // MARK: Values

    static let none = "NSFileProtectionNone"

    /// Apple's strings for classes.
    private static let classes: Set<String> = [
        "NSFileProtectionComplete", "NSFileProtectionCompleteUnlessOpen",
        "NSFileProtectionCompleteUntilFirstUserAuthentication",
        "NSFileProtectionCompleteWhenUserInactive", none,
    ]
    /// Old spellings, and the present one of each.
    private static let legacy = [
        "NSFileProtectionWriteOnly": "NSFileProtectionCompleteUnlessOpen",
        "NSFileProtectionCompleteUntilUserAuthentication":
            "NSFileProtectionCompleteUntilFirstUserAuthentication",
    ]

    static func isClass(_ text: String) -> Bool { classes.contains(text) }

    private static func checkedClass(_ text: String) throws(EntitlementsError) -> String {
        let current = legacy[text] ?? text
        if current == none {
            throw EntitlementsError(
                "\(Key.dataProtection) is \(none): an entitlement can't take protection away, and an "
                    + "app's files would be readable before the first unlock",
                advice:
                    "leave the key out for the volume's default; a program that needs such a file "
                    + "gives it class D itself")
        }
        guard isClass(current) else {
            throw EntitlementsError(
                "\(Key.dataProtection) is '\(text.prefix(80))', which is no protection class",
                advice: classes.subtracting([none]).sorted().joined(separator: ", "))
        }
        return current
    }

    static func isTeam(_ text: String) -> Bool {
        (1...64).contains(text.utf8.count)
            && text.unicodeScalars.allSatisfy {
                switch $0 {
                case "a"..."z", "A"..."Z", "0"..."9": true
                default: false
                }
            }
    }
}

/// The keys of the property list that ward reads. A value of a wrong type throws an error that
/// names its key.
private struct Values: Decodable {
    var dataProtection: String?
    var groups: [String]?
    var team: String?

    private struct AnyKey: CodingKey {
        let stringValue: String
        var intValue: Int? { nil }
        init(stringValue: String) { self.stringValue = stringValue }
        init?(intValue: Int) { nil }
    }

    init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: AnyKey.self)
        func text(_ name: String) throws -> String? {
            let key = AnyKey(stringValue: name)
            guard values.contains(key) else { return nil }
            guard let text = try? values.decode(String.self, forKey: key) else {
                throw EntitlementsError("\(name) is no string")
            }
            return text
        }
        dataProtection = try text(Entitlements.Key.dataProtection)
        let groupsKey = AnyKey(stringValue: Entitlements.Key.groups)
        if values.contains(groupsKey) {
            guard let list = try? values.decode([String].self, forKey: groupsKey) else {
                throw EntitlementsError("\(groupsKey.stringValue) is no list of strings")
            }
            groups = list
        }
        team = try text(Entitlements.Key.team).flatMap(Values.unlessVariable)
        for name in Entitlements.Key.identifiers where team == nil {
            guard let identifier = try text(name).flatMap(Values.unlessVariable) else { continue }
            guard let dot = identifier.firstIndex(of: "."), dot != identifier.startIndex else {
                throw EntitlementsError(
                    "\(name) is '\(identifier.prefix(80))': no team before a dot")
            }
            team = String(identifier[..<dot])
        }
    }

    /// Nil for a text with a variable: Xcode fills in `$(AppIdentifierPrefix)` only when it signs
    /// the app.
    private static func unlessVariable(_ text: String) -> String? {
        text.contains("$(") ? nil : text
    }
}

/// The reason why a file is no entitlements file.
public struct EntitlementsError: Error, Equatable, Sendable, CustomStringConvertible {
    /// "it is neither an XML nor a binary property list"
    public let reason: String
    /// The next step for the user, where it is not obvious.
    public let advice: String?

    init(_ reason: String, advice: String? = nil) {
        self.reason = reason
        self.advice = advice
    }

    public var description: String { reason }

    static let signedAdvice =
        "take those of the signed app: codesign -d --entitlements - --xml NAME.app >FILE"

    /// Takes Foundation's reason from two levels down.
    init(describing error: any Error) {
        guard let error = error as? DecodingError else {
            self.init("it is no property list")
            return
        }
        switch error {
        case .typeMismatch(_, let context) where context.codingPath.isEmpty:
            self.init("its property list is no dictionary")
        case .dataCorrupted(let context):
            let inner = (context.underlyingError as? CocoaError)?.userInfo["NSDebugDescription"]
            let reason = inner as? String ?? context.debugDescription
            self.init("its property list is malformed: \(reason)")
        default:
            self.init("its property list is malformed: \(error)")
        }
    }
}
