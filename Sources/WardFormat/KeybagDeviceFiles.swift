import WardCrypto
import WardSystem

/// Reads and writes the files of a state directory that hold keys (`device.key`, `effaceable.key`).
///
/// ```
///   0  magic "WARDDEVK" or "WARDEFFC"   8
///   8  version (1)                      2
///  10  key count n                      2   device.key: 1; effaceable.key: 1, or 2: old, new
///  12  zero                             4
///  16  volume UUID                     16
///  32  keys                          32·n
///  ..  SHA-256                         32   of everything before it
/// ```
public enum KeyFile {
    public enum Kind: String, Sendable {
        case device = "WARDDEVK"
        case effaceable = "WARDEFFC"
    }

    public static let keyBytes = 32
    public static let maximumKeys = 2
    static let headBytes = 32
    /// The limit for readers.
    public static let maximumBytes =
        headBytes + maximumKeys * keyBytes + KeybagEnvelope.checksumBytes

    /// The file's bytes. `second` is given only while the effaceable key changes. Throws `ENOMEM`.
    public static func serialized(
        _ kind: Kind, uuid: [UInt8], first: borrowing SecretBytes,
        second: borrowing SecretBytes? = nil
    ) throws(Errno) -> SecretBytes {
        precondition(uuid.count == 16 && first.count == keyBytes)
        let count = second == nil ? 1 : 2
        let body = headBytes + count * keyBytes
        var file = try SecretBytes(zeroed: body + KeybagEnvelope.checksumBytes)
        var head = KeybagEnvelope.begin(magic: Array(kind.rawValue.utf8), version: 1)
        head.append(UInt16(count))
        head.appendZeros(4)
        head.append(uuid)
        file.withUnsafeMutableBytes { out in
            out[0..<headBytes].copyBytes(from: head.bytes)
            first.withUnsafeBytes { out[headBytes..<headBytes + keyBytes].copyBytes(from: $0) }
        }
        switch second {
        case .some(let second):
            precondition(second.count == keyBytes)
            file.withUnsafeMutableBytes { out in
                second.withUnsafeBytes { out[headBytes + keyBytes..<body].copyBytes(from: $0) }
            }
        case .none: break
        }
        file.withUnsafeMutableBytes { out in
            let checksum = SHA256Digest.hash(UnsafeRawBufferPointer(rebasing: out[0..<body]))
            out[body...].copyBytes(from: checksum)
        }
        return file
    }

    /// Checks `file` and returns its number of keys; key `n` is at `keyRange(n)`.
    ///
    /// Throws `FormatError` `malformed`, `notRecognised`, `newerVersion`.
    public static func check(
        _ file: borrowing SecretBytes, _ kind: Kind, uuid: [UInt8]
    ) throws(FormatError) -> Int {
        let name = kind == .device ? "device key" : "effaceable key"
        let magic = Array(kind.rawValue.utf8)
        let length = file.count
        // Every version has a magic number, a version and a checksum.
        guard length >= KeybagEnvelope.headBytes + KeybagEnvelope.checksumBytes,
            length <= maximumBytes
        else {
            throw FormatError(.malformed, "\(name): \(length) bytes")
        }
        let body = length - KeybagEnvelope.checksumBytes
        // Only the head leaves locked memory; the keys stay in it.
        let (head, sumIsRight) = file.withUnsafeBytes { bytes in
            (
                [UInt8](bytes[0..<min(headBytes, body)]),
                bytes[body...].elementsEqual(
                    SHA256Digest.hash(UnsafeRawBufferPointer(rebasing: bytes[0..<body])))
            )
        }
        guard head[0..<8].elementsEqual(magic) else {
            throw FormatError(.notRecognised, "\(name): no magic number")
        }
        guard sumIsRight else { throw FormatError(.malformed, "\(name): the checksum is wrong") }
        var reader = KeybagReader(head[8...], name)
        let version = try reader.integer(UInt16.self, "version")
        guard version == 1 else {
            throw FormatError(
                version > 1 ? .newerVersion : .malformed, "\(name): version \(version)")
        }
        let count = Int(try reader.integer(UInt16.self, "count"))
        try reader.zeros(4, "reserved field")
        guard (1...(kind == .device ? 1 : maximumKeys)).contains(count),
            body == headBytes + count * keyBytes
        else { throw FormatError(.malformed, "\(name): \(count) keys in \(length) bytes") }
        guard try reader.take(16, "volume UUID") == uuid else {
            throw FormatError(.malformed, "\(name): it belongs to another volume")
        }
        return count
    }

    /// The bytes of key `index` (from 0) in a file.
    public static func keyRange(_ index: Int) -> Range<Int> {
        headBytes + index * keyBytes..<headBytes + (index + 1) * keyBytes
    }
}

/// `remembered`: the generation of the keybag that this device wrote last.
///
/// ```
///   0  magic "WARDGENR"           8
///   8  version (1)                2
///  10  zero                       6
///  16  volume UUID               16
///  32  generation                 8
///  40  SHA-256                   32   of everything before it
/// ```
public struct RememberedGeneration: Equatable, Sendable {
    public static let bytes = 72
    static let magic: [UInt8] = Array("WARDGENR".utf8)

    public var uuid: [UInt8]
    public var generation: UInt64

    public init(uuid: [UInt8], generation: UInt64) {
        self.uuid = uuid
        self.generation = generation
    }

    public var serialized: [UInt8] {
        var writer = KeybagEnvelope.begin(magic: RememberedGeneration.magic, version: 1)
        writer.appendZeros(6)
        writer.append(uuid)
        writer.append(generation)
        return KeybagEnvelope.seal(writer.bytes)
    }

    /// Parses a file's bytes. Throws `FormatError` `malformed`, `notRecognised`, `newerVersion`.
    public init(reading bytes: [UInt8]) throws(FormatError) {
        var reader = try KeybagEnvelope.open(
            bytes, magic: RememberedGeneration.magic, version: 1,
            maximumBytes: RememberedGeneration.bytes, "remembered generation")
        try reader.zeros(6, "reserved field")
        uuid = try reader.take(16, "volume UUID")
        generation = try reader.integer(UInt64.self, "generation")
        try reader.end()
    }
}

/// `attempts`: the wrong passcodes since the last right one, and the end of the current delay.
///
/// ```
///   0  magic "WARDTRYS"           8
///   8  version (2)                2
///  10  wrong passcodes            2
///  12  number of tags n           2   at most 10
///  14  judged                     2   0: the last tag is counted, and not judged yet; else 1
///  16  volume UUID               16
///  32  clock                     16   the boot of the next field's clock: `boot_id`, random(4)
///  48  end of the delay           8   nanoseconds on that clock
///  56  tags                     160   n of 16 bytes, then zeros
/// 216  MAC                       32   under the device key, of everything before it
/// 248  SHA-256                   32   of everything before it
/// ```
public struct AttemptRecord: Equatable, Sendable {
    public static let bytes = 280
    public static let tagBytes = 16
    public static let maximumTags = 10
    static let macBytes = 32
    static let magic: [UInt8] = Array("WARDTRYS".utf8)

    public var uuid: [UInt8]
    public var wrongPasscodes: UInt16
    /// The tags of the passcodes that were counted. A passcode with one of these is not counted
    /// again.
    public var tags: [[UInt8]] = []
    /// The passcode of the last tag is counted, and it is not known yet whether it is wrong.
    public var lastIsPending = false
    /// The boot (16 bytes) whose clock `delayEndNanoseconds` uses.
    public var clockIdentity: [UInt8]
    /// The end of the delay, in nanoseconds on that clock.
    public var delayEndNanoseconds: UInt64
    /// The MAC of `authenticated`.
    public var mac = [UInt8](repeating: 0, count: macBytes)

    public init(
        uuid: [UInt8], wrongPasscodes: UInt16, clockIdentity: [UInt8], delayEndNanoseconds: UInt64
    ) {
        precondition(uuid.count == 16 && clockIdentity.count == 16)
        self.uuid = uuid
        self.wrongPasscodes = wrongPasscodes
        self.clockIdentity = clockIdentity
        self.delayEndNanoseconds = delayEndNanoseconds
    }

    /// The bytes that the MAC covers.
    public var authenticated: [UInt8] {
        precondition(tags.count <= AttemptRecord.maximumTags)
        var writer = KeybagEnvelope.begin(magic: AttemptRecord.magic, version: 2)
        writer.append(wrongPasscodes)
        writer.append(UInt16(tags.count))
        writer.append(UInt16(lastIsPending ? 0 : 1))
        writer.append(uuid)
        writer.append(clockIdentity)
        writer.append(delayEndNanoseconds)
        for tag in tags {
            precondition(tag.count == AttemptRecord.tagBytes)
            writer.append(tag)
        }
        writer.appendZeros((AttemptRecord.maximumTags - tags.count) * AttemptRecord.tagBytes)
        return writer.bytes
    }

    public var serialized: [UInt8] { KeybagEnvelope.seal(authenticated + mac) }

    /// Parses a file's bytes. The caller checks the MAC.
    ///
    /// Throws `FormatError` `malformed`, `notRecognised`, `newerVersion`.
    public init(reading bytes: [UInt8]) throws(FormatError) {
        var reader = try KeybagEnvelope.open(
            bytes, magic: AttemptRecord.magic, version: 2, maximumBytes: AttemptRecord.bytes,
            "attempts")
        wrongPasscodes = try reader.integer(UInt16.self, "wrong passcodes")
        let count = Int(try reader.integer(UInt16.self, "number of tags"))
        let judged = try reader.integer(UInt16.self, "judged")
        guard count <= AttemptRecord.maximumTags, judged <= 1, judged == 1 || count > 0 else {
            throw FormatError(.malformed, "attempts: \(count) tags, judged \(judged)")
        }
        lastIsPending = judged == 0
        uuid = try reader.take(16, "volume UUID")
        clockIdentity = try reader.take(16, "clock")
        delayEndNanoseconds = try reader.integer(UInt64.self, "end of the delay")
        for _ in 0..<count { tags.append(try reader.take(AttemptRecord.tagBytes, "a tag")) }
        try reader.zeros(
            (AttemptRecord.maximumTags - count) * AttemptRecord.tagBytes, "room for tags")
        mac = try reader.take(AttemptRecord.macBytes, "MAC")
        try reader.end()
    }
}
