/// One protection class in `VolumeStatus`.
public struct ClassStatus: Equatable, Sendable {
    /// A, B, C, D or CX.
    public var letter: String
    public var name: String
    /// Whether files of this class can be opened now.
    public var available: Bool
    public var openFiles: Int

    public init(letter: String, name: String, available: Bool, openFiles: Int) {
        self.letter = letter
        self.name = name
        self.available = available
        self.openFiles = openFiles
    }

    public var json: JSONValue {
        .object([
            ("letter", .string(letter)), ("name", .string(name)), ("available", .bool(available)),
            ("openFiles", .int(Int64(openFiles))),
        ])
    }

    /// Nil where a member is missing or of another type.
    public init?(json: JSONValue) {
        guard let letter = json["letter"]?.stringValue, let name = json["name"]?.stringValue,
            let available = json["available"]?.boolValue,
            let openFiles = json["openFiles"]?.intValue
        else { return nil }
        self.init(letter: letter, name: name, available: available, openFiles: openFiles)
    }
}

/// What `Status` answers.
public struct VolumeStatus: Equatable, Sendable {
    public var uuid: String
    /// The backing directory, absolute.
    public var volume: String
    public var mountpoint: String
    /// `noPasscode`, `beforeFirstUnlock`, `unlocked`, `locking` or `locked`.
    public var state: String
    /// When the state began, RFC 3339, UTC.
    public var since: String
    public var passcodeSet: Bool
    public var graceSeconds: Double
    /// In state `locking`: seconds until class A goes.
    public var graceRemainingSeconds: Double?
    /// In the order A, B, C, D, CX.
    public var classes: [ClassStatus]
    /// The daemon's.
    public var pid: Int
    public var version: String
    public var readOnly: Bool
    public var manualClock: Bool

    public init(
        uuid: String, volume: String, mountpoint: String, state: String, since: String,
        passcodeSet: Bool, graceSeconds: Double, graceRemainingSeconds: Double?,
        classes: [ClassStatus], pid: Int, version: String, readOnly: Bool, manualClock: Bool
    ) {
        self.uuid = uuid
        self.volume = volume
        self.mountpoint = mountpoint
        self.state = state
        self.since = since
        self.passcodeSet = passcodeSet
        self.graceSeconds = graceSeconds
        self.graceRemainingSeconds = graceRemainingSeconds
        self.classes = classes
        self.pid = pid
        self.version = version
        self.readOnly = readOnly
        self.manualClock = manualClock
    }

    public var json: JSONValue {
        .object(present: [
            ("uuid", .string(uuid)), ("volume", .string(volume)),
            ("mountpoint", .string(mountpoint)), ("state", .string(state)),
            ("since", .string(since)), ("passcodeSet", .bool(passcodeSet)),
            ("graceSeconds", .double(graceSeconds)),
            ("graceRemainingSeconds", graceRemainingSeconds.map { .double($0) }),
            ("classes", .array(classes.map(\.json))), ("pid", .int(Int64(pid))),
            ("version", .string(version)), ("readOnly", .bool(readOnly)),
            ("manualClock", .bool(manualClock)),
        ])
    }

    /// Nil where a member is missing or of another type.
    public init?(json: JSONValue) {
        guard let uuid = json["uuid"]?.stringValue, let volume = json["volume"]?.stringValue,
            let mountpoint = json["mountpoint"]?.stringValue,
            let state = json["state"]?.stringValue, let since = json["since"]?.stringValue,
            let passcodeSet = json["passcodeSet"]?.boolValue,
            let graceSeconds = json["graceSeconds"]?.doubleValue,
            let classes = json["classes"]?.arrayValue, let pid = json["pid"]?.intValue,
            let version = json["version"]?.stringValue,
            let readOnly = json["readOnly"]?.boolValue,
            let manualClock = json["manualClock"]?.boolValue
        else { return nil }
        self.init(
            uuid: uuid, volume: volume, mountpoint: mountpoint, state: state, since: since,
            passcodeSet: passcodeSet, graceSeconds: graceSeconds,
            graceRemainingSeconds: json["graceRemainingSeconds"]?.doubleValue,
            classes: classes.compactMap(ClassStatus.init(json:)), pid: pid, version: version,
            readOnly: readOnly, manualClock: manualClock)
    }
}
