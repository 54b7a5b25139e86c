import WardCrypto
import WardSystem

/// One host in a `TrustedHostTable`.
///
/// ```
///   0  host ID                   16   random; the one in the host's own record
///  16  made                       8   seconds since 1970
///  24  last used                  8   seconds since 1970
///  32  length of name n           1   1 to 64
///  33  zero                       1
///  34  length of sealed slot s    2   0 where the host expired, else 123
///  36  name                       n   UTF-8, no control characters, no other host's name
/// 36+n sealed slot                s   nonce 12 ‖ ciphertext 95 ‖ tag 16, the device's host key
/// ```
///
/// The associated data of the sealed slot is the keybag's identity (52 bytes) ‖ bytes 0–33 ‖ name.
/// The slot seals nonce 12 ‖ ciphertext 67 ‖ tag 16 of the set of keys {A, B private}. The inner
/// seal is under the host's key; its associated data is identity ‖ host ID.
public struct TrustedHostEntry: Equatable, Sendable {
    public static let maximumNameBytes = 64
    /// The size of the set {A, B private}: a count, and two keys with their kinds.
    static let setBytes = 1 + 2 * KeybagKeySet.entryBytes
    static let sealBytes = AEADContext.nonceBytes + AEADContext.tagBytes
    public static let sealedBytes = setBytes + 2 * sealBytes

    public var hostID: [UInt8]
    public var name: String
    /// Seconds since 1970.
    public var made: UInt64
    /// Seconds since 1970.
    public var lastUsed: UInt64
    /// The sealed slot; empty where the host expired.
    public var sealed: [UInt8] = []

    public init(hostID: [UInt8], name: String, made: UInt64, lastUsed: UInt64) {
        precondition(hostID.count == HostRecord.idBytes && TrustedHostEntry.isName(name))
        self.hostID = hostID
        self.name = name
        self.made = made
        self.lastUsed = lastUsed
    }

    /// Whether a host may have this name. It is shown to people, so it must not control their
    /// terminal.
    public static func isName(_ name: String) -> Bool {
        (1...maximumNameBytes).contains(name.utf8.count)
            && name.unicodeScalars.allSatisfy { scalar in
                switch scalar.value {
                case 0..<0x20, 0x7F...0x9F, 0x2028...0x202E, 0x2066...0x2069: false
                default: true
                }
            }
    }

    /// The data that the outer seal authenticates beside the slot.
    public func associatedData(_ identity: KeybagIdentity) -> [UInt8] {
        var writer = KeybagWriter()
        writeHead(to: &writer)
        return identity.serialized + writer.bytes + Array(name.utf8)
    }

    /// The data that the inner seal authenticates beside the keys.
    public static func innerAssociatedData(_ identity: KeybagIdentity, hostID: [UInt8]) -> [UInt8] {
        identity.serialized + hostID
    }

    private func writeHead(to writer: inout KeybagWriter) {
        writer.append(hostID)
        writer.append(made)
        writer.append(lastUsed)
        writer.append([UInt8(name.utf8.count), 0])
    }

    func write(to writer: inout KeybagWriter) {
        precondition(sealed.isEmpty || sealed.count == TrustedHostEntry.sealedBytes)
        writeHead(to: &writer)
        writer.append(UInt16(sealed.count))
        writer.append(Array(name.utf8))
        writer.append(sealed)
    }

    init(from reader: inout KeybagReader) throws(FormatError) {
        hostID = try reader.take(HostRecord.idBytes, "host ID")
        made = try reader.integer(UInt64.self, "time made")
        lastUsed = try reader.integer(UInt64.self, "time of last use")
        let nameBytes = Int(try reader.integer(UInt8.self, "name"))
        try reader.zeros(1, "reserved field of a host")
        let sealedBytes = Int(try reader.integer(UInt16.self, "sealed slot"))
        let raw = try reader.take(nameBytes, "name")
        guard let text = String(validating: raw, as: UTF8.self), TrustedHostEntry.isName(text)
        else { throw FormatError(.malformed, "trusted hosts: a name that is none") }
        name = text
        guard sealedBytes == 0 || sealedBytes == TrustedHostEntry.sealedBytes else {
            throw FormatError(.malformed, "trusted hosts: a slot of \(sealedBytes) bytes")
        }
        sealed = try reader.take(sealedBytes, "sealed slot")
    }
}

/// `trusted-hosts`: the device's half of every trusted host.
///
/// ```
///   0  magic "WARDTRST"           8
///   8  version (1)                2
///  10  number of hosts n          2   1 to 32
///  12  zero                       4
///  16  volume UUID               16
///  32  latest time                8   seconds since 1970: no earlier one is believed
///  40  hosts                          n of them (`TrustedHostEntry`)
///  ..  MAC                       32   of everything before it; key of device and effaceable key
///  ..  SHA-256                   32   of everything before it
/// ```
public struct TrustedHostTable: Equatable, Sendable {
    public static let maximumHosts = 32
    public static let macBytes = 32
    static let headBytes = 40
    static let magic: [UInt8] = Array("WARDTRST".utf8)
    /// The limit for readers.
    public static let maximumBytes =
        headBytes + maximumHosts
        * (36 + TrustedHostEntry.maximumNameBytes + TrustedHostEntry.sealedBytes) + macBytes
        + KeybagEnvelope.checksumBytes

    public var uuid: [UInt8]
    /// The latest time seen, in seconds since 1970. No earlier time is believed.
    public var latestTime: UInt64
    public var hosts: [TrustedHostEntry] = []
    /// The MAC of `authenticated`.
    public var mac = [UInt8](repeating: 0, count: macBytes)

    public init(uuid: [UInt8], latestTime: UInt64) {
        precondition(uuid.count == 16)
        self.uuid = uuid
        self.latestTime = latestTime
    }

    /// The bytes that the MAC covers.
    public var authenticated: [UInt8] {
        precondition((1...TrustedHostTable.maximumHosts).contains(hosts.count))
        var writer = KeybagEnvelope.begin(magic: TrustedHostTable.magic, version: 1)
        writer.append(UInt16(hosts.count))
        writer.appendZeros(4)
        writer.append(uuid)
        writer.append(latestTime)
        for host in hosts { host.write(to: &writer) }
        return writer.bytes
    }

    public var serialized: [UInt8] { KeybagEnvelope.seal(authenticated + mac) }

    /// Parses a file's bytes. The caller checks the MAC.
    ///
    /// Throws `FormatError` `malformed`, `notRecognised`, `newerVersion`.
    public init(reading bytes: [UInt8]) throws(FormatError) {
        var reader = try KeybagEnvelope.open(
            bytes, magic: TrustedHostTable.magic, version: 1,
            maximumBytes: TrustedHostTable.maximumBytes, "trusted hosts")
        let count = Int(try reader.integer(UInt16.self, "number of hosts"))
        guard (1...TrustedHostTable.maximumHosts).contains(count) else {
            throw FormatError(.malformed, "trusted hosts: \(count) of them")
        }
        try reader.zeros(4, "reserved field")
        uuid = try reader.take(16, "volume UUID")
        latestTime = try reader.integer(UInt64.self, "latest time")
        for _ in 0..<count { hosts.append(try TrustedHostEntry(from: &reader)) }
        guard Set(hosts.map(\.name)).count == count, Set(hosts.map(\.hostID)).count == count else {
            throw FormatError(.malformed, "trusted hosts: two of the same name")
        }
        mac = try reader.take(TrustedHostTable.macBytes, "MAC")
        try reader.end()
    }
}
