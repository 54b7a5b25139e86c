/// A trusted host, or one whose trust expired (`TrustedHost` of the interface).
public struct HostStatus: Equatable, Sendable {
    public var name: String
    /// RFC 3339, UTC.
    public var made: String
    public var lastUsed: String
    /// When the trust expires unless the host connects before; in the past where it has expired.
    public var expires: String
    public var expired: Bool
    /// The number of its connections now.
    public var connected: Int

    public init(
        name: String, made: String, lastUsed: String, expires: String, expired: Bool, connected: Int
    ) {
        self.name = name
        self.made = made
        self.lastUsed = lastUsed
        self.expires = expires
        self.expired = expired
        self.connected = connected
    }

    public var json: JSONValue {
        .object([
            ("name", .string(name)), ("made", .string(made)), ("lastUsed", .string(lastUsed)),
            ("expires", .string(expires)), ("expired", .bool(expired)),
            ("connected", .int(Int64(connected))),
        ])
    }

    /// Nil where a member is missing or of another type.
    public init?(json: JSONValue) {
        guard let name = json["name"]?.stringValue, let made = json["made"]?.stringValue,
            let lastUsed = json["lastUsed"]?.stringValue,
            let expires = json["expires"]?.stringValue,
            let expired = json["expired"]?.boolValue, let connected = json["connected"]?.intValue
        else { return nil }
        self.init(
            name: name, made: made, lastUsed: lastUsed, expires: expires, expired: expired,
            connected: connected)
    }
}
