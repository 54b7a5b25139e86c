import WardCrypto
import WardSystem

/// The file of a trusted host: the volume that trusts it, its ID, and its secret.
///
/// ```
///   0  magic "WARDHOST"           8
///   8  version (1)                2
///  10  zero                       6
///  16  volume UUID               16
///  32  host ID                   16   random
///  48  secret                    32   random
///  80  SHA-256                   32   of everything before it
/// ```
///
/// The secret leaves locked memory only into this file and, in a message that is wiped, to the
/// daemon.
public struct HostRecord: ~Copyable, Sendable {
    public static let bytes = 112
    public static let idBytes = 16
    public static let secretBytes = 32
    static let magic: [UInt8] = Array("WARDHOST".utf8)
    static let headBytes = 48
    static let name = "trust file"

    public let volumeUUID: [UInt8]
    public let hostID: [UInt8]
    public let secret: SecretBytes

    /// A new host of a volume. Throws `ENOMEM`.
    public init(volumeUUID: [UInt8]) throws(Errno) {
        precondition(volumeUUID.count == 16)
        self.init(
            volumeUUID: volumeUUID, hostID: SystemRandom.bytes(HostRecord.idBytes),
            secret: try SecretBytes(random: HostRecord.secretBytes))
    }

    /// The file's 112 bytes. Throws `ENOMEM`.
    public borrowing func serialized() throws(Errno) -> SecretBytes {
        var head = KeybagEnvelope.begin(magic: HostRecord.magic, version: 1)
        head.appendZeros(6)
        head.append(volumeUUID)
        head.append(hostID)
        let headBytes = head.bytes
        let body = HostRecord.bytes - KeybagEnvelope.checksumBytes
        var file = try SecretBytes(zeroed: HostRecord.bytes)
        file.withUnsafeMutableBytes { out in
            out[..<HostRecord.headBytes].copyBytes(from: headBytes)
            secret.withUnsafeBytes { out[HostRecord.headBytes..<body].copyBytes(from: $0) }
            let checksum = SHA256Digest.hash(UnsafeRawBufferPointer(rebasing: out[..<body]))
            out[body...].copyBytes(from: checksum)
        }
        return file
    }

    /// Reads a file's bytes. Checks length, magic, checksum and version, in this order.
    ///
    /// Throws `FormatError` `malformed`, `notRecognised`, `newerVersion`.
    public init(reading file: borrowing SecretBytes) throws(FormatError) {
        let count = file.count
        guard count >= KeybagEnvelope.headBytes + KeybagEnvelope.checksumBytes else {
            throw FormatError(.malformed, "\(HostRecord.name): only \(count) bytes")
        }
        let body = count - KeybagEnvelope.checksumBytes
        // Only the head leaves locked memory.
        let (head, sumIsRight) = file.withUnsafeBytes { bytes in
            (
                [UInt8](bytes[..<min(body, HostRecord.headBytes)]),
                bytes[body...].elementsEqual(
                    SHA256Digest.hash(UnsafeRawBufferPointer(rebasing: bytes[..<body])))
            )
        }
        guard head[0..<8].elementsEqual(HostRecord.magic) else {
            throw FormatError(.notRecognised, "\(HostRecord.name): no magic number")
        }
        guard sumIsRight else {
            throw FormatError(
                .malformed, "\(HostRecord.name): the checksum is wrong, or it is cut off")
        }
        var reader = KeybagReader(head[8...], HostRecord.name)
        let version = try reader.integer(UInt16.self, "version")
        guard version == 1 else {
            throw FormatError(
                version > 1 ? .newerVersion : .malformed, "\(HostRecord.name): version \(version)")
        }
        guard count == HostRecord.bytes else {
            throw FormatError(.malformed, "\(HostRecord.name): \(count) bytes")
        }
        try reader.zeros(6, "reserved field")
        let uuid = try reader.take(16, "volume UUID")
        let hostID = try reader.take(HostRecord.idBytes, "host ID")
        let secret: SecretBytes
        do throws(Errno) {
            secret = try file.slice(HostRecord.headBytes..<body)
        } catch {
            throw FormatError(.malformed, "\(HostRecord.name): no memory could be locked for it")
        }
        self.init(volumeUUID: uuid, hostID: hostID, secret: secret)
    }

    private init(volumeUUID: [UInt8], hostID: [UInt8], secret: consuming SecretBytes) {
        self.volumeUUID = volumeUUID
        self.hostID = hostID
        self.secret = secret
    }
}
