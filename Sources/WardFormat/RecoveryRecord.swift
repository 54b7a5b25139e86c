/// `recovery` in the state directory: two recovery kits of this device. One is the kit that was
/// made last, the other the kit that was opened last for a check.
///
/// ```
///   0  magic "WARDRCVY"           8
///   8  version (1)                2
///  10  zero                       6
///  16  volume UUID               16
///  32  kit made last: its ID     16   zeros: none is known
///  48  made                       8   seconds since 1970; 0: none is known
///  56  kit opened last: its ID   16
///  72  opened                     8   seconds since 1970; 0: never
///  80  MAC                       32   entangle("ward recovery kits v1", bytes 0 to 79)
/// 112  SHA-256                   32   of everything before it
/// ```
///
/// The record opens nothing. Its MAC prevents that another program's file makes the owner believe
/// in a kit.
public struct RecoveryRecord: Equatable, Sendable {
    /// A kit, and the time when it was made or opened.
    public struct Entry: Equatable, Sendable {
        public var kitID: [UInt8]
        /// Seconds since 1970, never 0.
        public var time: UInt64

        public init(kitID: [UInt8], time: UInt64) {
            precondition(kitID.count == 16)
            self.kitID = kitID
            self.time = max(time, 1)
        }
    }

    public static let bytes = 144
    static let macBytes = 32
    static let magic: [UInt8] = Array("WARDRCVY".utf8)

    public var uuid: [UInt8]
    /// The kit made last; nil where none is known.
    public var made: Entry?
    /// The kit opened last for a check; nil where none was.
    public var verified: Entry?
    /// The MAC of `authenticated`.
    public var mac = [UInt8](repeating: 0, count: macBytes)

    public init(uuid: [UInt8]) {
        precondition(uuid.count == 16)
        self.uuid = uuid
    }

    /// The bytes that the MAC covers.
    public var authenticated: [UInt8] {
        var writer = KeybagEnvelope.begin(magic: RecoveryRecord.magic, version: 1)
        writer.appendZeros(6)
        writer.append(uuid)
        for entry in [made, verified] {
            writer.append(entry?.kitID ?? [UInt8](repeating: 0, count: 16))
            writer.append(entry?.time ?? 0)
        }
        return writer.bytes
    }

    public var serialized: [UInt8] { KeybagEnvelope.seal(authenticated + mac) }

    /// Parses a file's bytes. The caller checks the MAC.
    ///
    /// Throws `FormatError` `malformed`, `notRecognised`, `newerVersion`.
    public init(reading bytes: [UInt8]) throws(FormatError) {
        var reader = try KeybagEnvelope.open(
            bytes, magic: RecoveryRecord.magic, version: 1, maximumBytes: RecoveryRecord.bytes,
            "recovery record")
        try reader.zeros(6, "reserved field")
        uuid = try reader.take(16, "volume UUID")
        made = try RecoveryRecord.entry(&reader)
        verified = try RecoveryRecord.entry(&reader)
        mac = try reader.take(RecoveryRecord.macBytes, "MAC")
        try reader.end()
    }

    private static func entry(_ reader: inout KeybagReader) throws(FormatError) -> Entry? {
        let kitID = try reader.take(16, "kit ID")
        let time = try reader.integer(UInt64.self, "time")
        return time == 0 ? nil : Entry(kitID: kitID, time: time)
    }
}
