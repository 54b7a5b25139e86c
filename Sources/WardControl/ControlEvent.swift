/// Something that happened to a mounted volume; what `Monitor` streams (`Event` of the interface).
public struct ControlEvent: Equatable, Sendable {
    /// Names as they cross the socket.
    public enum Kind: String, CaseIterable, Sendable {
        case willBecomeUnavailable, locked, didBecomeAvailable, firstUnlock, reboot, denied
        case integrityFailure, healed, lost, foreignFile, passcodeChanged, mounted, unmounting, note
    }

    /// RFC 3339, UTC.
    public var time: String
    /// A `Kind`'s name; later versions may know more.
    public var kind: String
    /// The lock state after the event.
    public var state: String?
    /// Inside the volume.
    public var path: String?
    /// A, B, C, D or CX.
    public var protectionClass: String?
    /// What was denied: `open`, `read`, ….
    public var operation: String?
    public var pid: Int?
    public var uid: Int?
    /// Until class A goes.
    public var secondsLeft: Double?
    public var detail: String?

    public init(
        time: String = Timestamp.now(), kind: Kind, state: String? = nil, path: String? = nil,
        protectionClass: String? = nil, operation: String? = nil, pid: Int? = nil, uid: Int? = nil,
        secondsLeft: Double? = nil, detail: String? = nil
    ) {
        self.time = time
        self.kind = kind.rawValue
        self.state = state
        self.path = path
        self.protectionClass = protectionClass
        self.operation = operation
        self.pid = pid
        self.uid = uid
        self.secondsLeft = secondsLeft
        self.detail = detail
    }

    public var json: JSONValue {
        .object(present: [
            ("time", .string(time)), ("kind", .string(kind)), ("state", state.map { .string($0) }),
            ("path", path.map { .string($0) }),
            ("protectionClass", protectionClass.map { .string($0) }),
            ("operation", operation.map { .string($0) }), ("pid", pid.map { .int(Int64($0)) }),
            ("uid", uid.map { .int(Int64($0)) }), ("secondsLeft", secondsLeft.map { .double($0) }),
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
            uid: json["uid"]?.intValue, secondsLeft: json["secondsLeft"]?.doubleValue,
            detail: json["detail"]?.stringValue)
        self.kind = kind
    }
}
