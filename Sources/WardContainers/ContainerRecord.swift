import WardControl

/// The record that makes a directory a container: an extended attribute of its root, encrypted in
/// the volume as all attributes are.
///
/// The record describes the container and protects nothing: a program that may write to the
/// container may change it. Copying tools take it along (`cp -a`, `rsync -X`, `tar --xattrs`). The
/// record counts only in a directory that has its ID as name and lies in the place of its kind. So
/// a copy elsewhere is a plain directory, and a copy that returns to the place is the container
/// again.
///
/// JSON, on one line:
/// ```
/// {"version":1,"id":"org.example.diary","kind":"application","class":"NSFileProtectionComplete",
///  "entitlement":"NSFileProtectionComplete","groups":["group.org.example"],"team":"ABCDE12345",
///  "created":"2026-11-21T10:30:00.123Z"}
/// ```
public struct ContainerRecord: Equatable, Sendable {
    /// The attribute's name.
    public static let attribute = "user.ward.container"
    /// Longest value that is written and read, bytes. On ext4, all attributes of one file share a
    /// block of 4,096 bytes, and ward's ciphertext needs a part of it.
    public static let maximumBytes = 3072
    public static let version = 1

    public var id: ContainerID
    public var kind: ContainerKind
    /// The root's class when it was made: Apple's string.
    public var classAtCreation: String
    /// The class that the app's entitlement names now,
    /// `com.apple.developer.default-data-protection`: Apple's string; nil without one.
    public var entitlement: String?
    /// The group containers that its app may use, sorted.
    public var groups: [ContainerID]
    /// The app's background modes, sorted: `UIBackgroundModes` of its Info.plist. Empty for an app
    /// that runs in the foreground alone. Entitlements do not have them.
    public var backgroundModes: [String]
    /// The team of the app; for a group, the team of the first app that named it.
    public var team: String?
    /// When the container was made: RFC 3339, UTC.
    public var created: String

    public init(
        id: ContainerID, kind: ContainerKind, classAtCreation: String, entitlement: String? = nil,
        groups: [ContainerID] = [], backgroundModes: [String] = [], team: String? = nil,
        created: String = Timestamp.now()
    ) {
        self.backgroundModes = Set(backgroundModes).sorted()
        self.id = id
        self.kind = kind
        self.classAtCreation = classAtCreation
        self.entitlement = entitlement
        self.groups = groups.sorted { $0.text < $1.text }
        self.team = team
        self.created = created
    }

    /// The attribute's value.
    public var bytes: [UInt8] {
        JSONValue.object(present: [
            ("version", .int(Int64(ContainerRecord.version))), ("id", .string(id.text)),
            ("kind", .string(kind.rawValue)), ("class", .string(classAtCreation)),
            ("entitlement", entitlement.map { .string($0) }),
            ("groups", groups.isEmpty ? nil : .array(groups.map { .string($0.text) })),
            (
                "background",
                backgroundModes.isEmpty ? nil : .array(backgroundModes.map { .string($0) })
            ),
            ("team", team.map { .string($0) }), ("created", .string(created)),
        ]).bytes
    }

    /// Whether a text can be a background mode, such as `audio`, `bluetooth-central`, `fetch` or
    /// `processing`.
    public static func isBackgroundMode(_ text: String) -> Bool {
        (1...64).contains(text.utf8.count)
            && text.utf8.allSatisfy { byte in
                byte == UInt8(ascii: "-")
                    || (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte | 0x20)
            }
    }

    /// The fault of an attribute's value.
    public struct Damage: Error, Equatable, Sendable {
        /// "the record is no JSON"
        public let reason: String
    }

    /// Parses the attribute's value. Fields that later versions add are ignored; a version other
    /// than 1 is refused.
    public init(parsing bytes: [UInt8]) throws(Damage) {
        guard bytes.count <= ContainerRecord.maximumBytes else {
            throw Damage(reason: "the record is too long")
        }
        let json: JSONValue
        do throws(JSONError) {
            json = try JSONParser.parse(bytes)
        } catch {
            throw Damage(reason: "the record is not JSON")
        }
        guard let version = json["version"]?.intValue else {
            throw Damage(reason: "the record has no version")
        }
        guard version == ContainerRecord.version else {
            throw Damage(reason: "the record is of version \(version), made by a later ward")
        }
        guard let kind = json["kind"]?.stringValue.flatMap(ContainerKind.init(rawValue:)),
            let classAtCreation = json["class"]?.stringValue, Entitlements.isClass(classAtCreation),
            let created = json["created"]?.stringValue, ContainerRecord.isTime(created)
        else { throw Damage(reason: "the record lacks its kind, class or time") }
        self.kind = kind
        self.classAtCreation = classAtCreation
        self.created = created
        do throws(ContainerID.Invalid) {
            id = try ContainerID(json["id"]?.stringValue ?? "")
            groups = []
            for group in json["groups"]?.arrayValue ?? [] {
                groups.append(try ContainerID(group.stringValue ?? ""))
            }
        } catch {
            throw Damage(reason: "the record has an impossible ID: \(error.reason)")
        }
        backgroundModes = []
        for mode in json["background"]?.arrayValue ?? [] {
            guard let mode = mode.stringValue, ContainerRecord.isBackgroundMode(mode) else {
                throw Damage(reason: "the record has an impossible background mode")
            }
            backgroundModes.append(mode)
        }
        entitlement = json["entitlement"]?.stringValue
        team = json["team"]?.stringValue
        guard entitlement.map(Entitlements.isClass) ?? true,
            team.map(Entitlements.isTeam) ?? true
        else { throw Damage(reason: "the record has an impossible class or team") }
    }

    /// Lets no control character through to a terminal: a program may write anything into its
    /// container's record.
    private static func isTime(_ text: String) -> Bool {
        (1...40).contains(text.utf8.count)
            && text.utf8.allSatisfy { "0123456789-:.TZ+".utf8.contains($0) }
    }
}
