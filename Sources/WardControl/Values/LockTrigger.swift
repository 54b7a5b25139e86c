/// An event that locks a volume by itself, or was wanted to: one entry of `VolumeStatus.locksAt`.
public struct LockTrigger: Equatable, Sendable {
    /// Names as they cross the socket.
    public enum Kind: String, CaseIterable, Sendable {
        case sleep, shutdown, screen, logout
    }

    /// A `Kind`'s name; later versions may know more.
    public var kind: String
    /// Whether the event locks the volume.
    public var armed: Bool
    /// Where not armed, the reason. Where armed, a limitation (the machine does not wait for the
    /// lock).
    public var why: String?

    public init(kind: Kind, armed: Bool, why: String? = nil) {
        self.kind = kind.rawValue
        self.armed = armed
        self.why = why
    }

    public var json: JSONValue {
        .object(present: [
            ("kind", .string(kind)), ("armed", .bool(armed)), ("why", why.map { .string($0) }),
        ])
    }

    /// Nil where a member is missing or of another type.
    public init?(json: JSONValue) {
        guard let kind = json["kind"]?.stringValue, let armed = json["armed"]?.boolValue else {
            return nil
        }
        self.init(kind: .sleep, armed: armed, why: json["why"]?.stringValue)
        self.kind = kind
    }
}
