/// Something that happened to a mounted volume; what `Monitor` streams (`Event` of the interface).
public struct ControlEvent: Equatable, Sendable {
    /// Names as they cross the socket.
    public enum Kind: String, CaseIterable, Sendable {
        case willBecomeUnavailable, locked, didBecomeAvailable, firstUnlock, reboot
        /// Of one class: at a lock, a reboot, and when CX expires.
        case didBecomeUnavailable
        /// A file was deleted or replaced while it could not be read.
        case removedUnread
        /// A file has a weaker class, as `detail` says, than `protectionClass`: that was asked for
        /// and could not be had, or the file had it whose name it took.
        case weakened
        /// A class above C was to be set or created in a synchronised directory; `detail` says
        /// which. And: a file of such a class was moved or linked into one (`files` of them, with a
        /// directory).
        case syncRefused, syncExposed
        case denied, integrityFailure, healed, lost, foreignFile, passcodeChanged, mounted
        case unmounting, note
        /// Of a trusted host: `operation` is `add`, `connect`, `end`, `remove`, `expire` or `hold`
        /// (A and B stay open).
        case trustedHost
    }

    /// Counts up by one with each event of a mount; 0 for a signal of one class, which is not
    /// remembered.
    public var sequence = 0
    /// RFC 3339, UTC; of a denial that was repeated, the first time.
    public var time: String
    /// A `Kind`'s name; later versions may know more.
    public var kind: String
    /// The lock state at the time (after the event, where it is one of the state).
    public var state: String?
    /// Inside the volume.
    public var path: String?
    /// A, B, C, D or CX.
    public var protectionClass: String?
    /// The operation that was denied: `open`, `read`, …; how a file was removed unread: `unlink`,
    /// `rename`; how one came to be weaker: `setClass`, `rename`; what was refused in a
    /// synchronised directory, or how a file got there: `setClass`, `create`, `link`, `rename`;
    /// what a trusted host did.
    public var operation: String?
    public var pid: Int?
    public var uid: Int?
    /// The command name of the process.
    public var program: String?
    /// How often, where the same denial came again; else nil.
    public var count: Int?
    /// When it came last, where it came again.
    public var lastTime: String?
    /// Until class A goes.
    public var secondsLeft: Double?
    /// How long it took: a lock from the end of the grace period, an unlock from the passcode's
    /// arrival.
    public var seconds: Double?
    /// Whose cached pages a lock has dropped; those that came into a synchronised directory with
    /// one.
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

    public var json: JSONValue {
        .object(present: [
            ("sequence", .int(Int64(sequence))), ("time", .string(time)), ("kind", .string(kind)),
            ("state", state.map { .string($0) }), ("path", path.map { .string($0) }),
            ("protectionClass", protectionClass.map { .string($0) }),
            ("operation", operation.map { .string($0) }), ("pid", pid.map { .int(Int64($0)) }),
            ("uid", uid.map { .int(Int64($0)) }), ("program", program.map { .string($0) }),
            ("count", count.map { .int(Int64($0)) }), ("lastTime", lastTime.map { .string($0) }),
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
        count = json["count"]?.intValue
        lastTime = json["lastTime"]?.stringValue
    }
}
