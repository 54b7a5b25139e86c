/// Something that happened to a mounted volume: `Event` of the interface, streamed by `Monitor`.
/// The members of `repetition` are members of the event too, as in JSON.
@dynamicMemberLookup
public struct ControlEvent: Equatable, Sendable {
    /// Names as they cross the socket.
    public enum Kind: String, CaseIterable, Sendable {
        case willBecomeUnavailable, locked, didBecomeAvailable, firstUnlock, reboot
        /// One class became unavailable: at a lock, a reboot, or the expiry of CX.
        case didBecomeUnavailable
        /// A file was deleted or replaced while it could not be read.
        case removedUnread
        /// The file's class is weaker than `protectionClass`; `detail` names it. A program asked
        /// for the stronger class in vain, or the file took the name of a file with that class.
        case weakened
        /// Events of synchronised directories. Refused: a program wanted to set or create a class
        /// above C; `detail` says which. Exposed: a file of such a class was moved or linked into
        /// one; with a directory, `files` counts them.
        case syncRefused, syncExposed
        case denied, integrityFailure, healed, lost, foreignFile, passcodeChanged, mounted
        case unmounting, note
        /// A trusted host: `operation` is `add`, `connect`, `end`, `remove`, `expire` or `hold` (A
        /// and B stay open).
        case trustedHost
        /// The kernel keeps pages that a lock must drop (`operation` is `failed`), or could not be
        /// checked (`notChecked`).
        case kernelCheck
    }

    /// A denial that came again.
    public struct Repetition: Equatable, Sendable {
        /// The number of times that the same denial came, where it came again; else nil.
        public var count: Int?
        /// The last time of a repeated denial.
        public var lastTime: String?
    }

    /// Counts up by one with each event of a mount; 0 for a signal of one class, which is not kept.
    public var sequence = 0
    /// RFC 3339, UTC; for a repeated denial, the first time.
    public var time: String
    /// A `Kind`'s name; later versions may know more.
    public var kind: String
    /// The lock state at the time; for a change of the state, the state after it.
    public var state: String?
    /// The path inside the volume.
    public var path: String?
    /// A, B, C, D or CX.
    public var protectionClass: String?
    /// The operation of the event:
    ///
    /// - denied: `open`, `read`, …
    /// - removed unread: `unlink`, `rename`
    /// - became weaker: `setClass`, `rename`
    /// - refused in a synchronised directory, or came into one: `setClass`, `create`, `link`,
    ///   `rename`
    /// - trusted host: its action
    /// - kernel check: `failed`, `notChecked`
    public var operation: String?
    public var pid: Int?
    public var uid: Int?
    /// The command name of the process.
    public var program: String?
    public var repetition = Repetition()
    /// Seconds until class A is closed.
    public var secondsLeft: Double?
    /// The duration in seconds: of a lock from the end of the grace period, of an unlock from the
    /// passcode's arrival.
    public var seconds: Double?
    /// The number of files whose cached pages a lock dropped, or that came into a synchronised
    /// directory with their directory.
    public var files: Int?
    public var detail: String?

    public init(
        time: String = Timestamp.now(), kind: Kind, state: String? = nil, path: String? = nil,
        protectionClass: String? = nil, operation: String? = nil, pid: Int? = nil, uid: Int? = nil,
        program: String? = nil, secondsLeft: Double? = nil, seconds: Double? = nil,
        files: Int? = nil, detail: String? = nil
    ) {
        self.time = time
        self.kind = kind.rawValue
        self.state = state
        self.path = path
        self.protectionClass = protectionClass
        self.operation = operation
        self.pid = pid
        self.uid = uid
        self.program = program
        self.secondsLeft = secondsLeft
        self.seconds = seconds
        self.files = files
        self.detail = detail
    }

    public subscript<Value>(dynamicMember path: WritableKeyPath<Repetition, Value>) -> Value {
        get { repetition[keyPath: path] }
        set { repetition[keyPath: path] = newValue }
    }

    public var json: JSONValue {
        .object(present: [
            ("sequence", .int(Int64(sequence))), ("time", .string(time)), ("kind", .string(kind)),
            ("state", state.map { .string($0) }), ("path", path.map { .string($0) }),
            ("protectionClass", protectionClass.map { .string($0) }),
            ("operation", operation.map { .string($0) }), ("pid", pid.map { .int(Int64($0)) }),
            ("uid", uid.map { .int(Int64($0)) }), ("program", program.map { .string($0) }),
            ("count", repetition.count.map { .int(Int64($0)) }),
            ("lastTime", repetition.lastTime.map { .string($0) }),
            ("secondsLeft", secondsLeft.map { .double($0) }),
            ("seconds", seconds.map { .double($0) }), ("files", files.map { .int(Int64($0)) }),
            ("detail", detail.map { .string($0) }),
        ])
    }

    /// Nil where `time` or `kind` is missing.
    public init?(json: JSONValue) {
        guard let time = json["time"]?.stringValue, let kind = json["kind"]?.stringValue
        else { return nil }
        self.init(
            time: time, kind: .note, state: json["state"]?.stringValue,
            path: json["path"]?.stringValue,
            protectionClass: json["protectionClass"]?.stringValue,
            operation: json["operation"]?.stringValue, pid: json["pid"]?.intValue,
            uid: json["uid"]?.intValue, program: json["program"]?.stringValue,
            secondsLeft: json["secondsLeft"]?.doubleValue, seconds: json["seconds"]?.doubleValue,
            files: json["files"]?.intValue, detail: json["detail"]?.stringValue)
        self.kind = kind
        sequence = json["sequence"]?.intValue ?? 0
        repetition.count = json["count"]?.intValue
        repetition.lastTime = json["lastTime"]?.stringValue
    }
}
