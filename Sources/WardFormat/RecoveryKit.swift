import WardCrypto

/// A recovery kit: all keys of a volume, sealed under the recovery code. It is a text file that the
/// owner keeps away from the volume.
///
/// The text is: free lines for the file's finder, `-----BEGIN WARD RECOVERY KIT-----`, the bytes
/// below in base64url (64 characters a line), `-----END WARD RECOVERY KIT-----`.
///
/// ```
///   0  magic "WARDRKIT"           8
///   8  version (1 or 2)           2   that of the keybag when the kit was made
///  10  identity                  52   as in the keybag (`KeybagIdentity`)
///  62  kit ID                    16   random; salt of the key's derivation
///  78  time made                  8   seconds since 1970
///  86  length of sealed set       2
///  88  sealed set                     nonce 12 ‖ ciphertext ‖ tag 16: a `KeybagKeySet` of all keys
///  ..  SHA-256                   32   of everything before it
/// ```
///
/// Associated data of the seal: bytes 0–85. So the code proves the version. A kit of version 2
/// vouches for format 2: a copy of format 1, or between the formats, is older than the kit.
public struct RecoveryKit: Equatable, Sendable {
    /// The limit for readers. A kit's text has about 1.5 KiB.
    public static let maximumTextBytes = 65536
    static let maximumBytes = 2048
    static let magic: [UInt8] = Array("WARDRKIT".utf8)
    static let versions = VolumeFormat.version1.rawValue...VolumeFormat.version2.rawValue
    static let beginLine = "-----BEGIN WARD RECOVERY KIT-----"
    static let endLine = "-----END WARD RECOVERY KIT-----"
    static let lineCharacters = 64

    /// The format for which the kit vouches: that of the keybag when it was made.
    public var format: VolumeFormat
    public var identity: KeybagIdentity
    public var kitID: [UInt8]
    /// Seconds since 1970.
    public var created: UInt64
    /// The set of keys, sealed with `associatedData`; empty until then.
    public var sealed: [UInt8]

    public init(
        format: VolumeFormat, identity: KeybagIdentity, kitID: [UInt8], created: UInt64
    ) {
        precondition(kitID.count == 16)
        self.format = format
        self.identity = identity
        self.kitID = kitID
        self.created = created
        sealed = []
    }

    /// The data that the seal authenticates beside the set.
    public var associatedData: [UInt8] {
        var writer = KeybagEnvelope.begin(magic: RecoveryKit.magic, version: format.rawValue)
        identity.write(to: &writer)
        writer.append(kitID)
        writer.append(created)
        return writer.bytes
    }

    /// The bytes above. The set must be sealed already.
    public var serialized: [UInt8] {
        precondition(
            (KeybagSlot.minimumSealedBytes...KeybagSlot.maximumSealedBytes).contains(sealed.count))
        var writer = KeybagWriter()
        writer.append(associatedData)
        writer.append(UInt16(sealed.count))
        writer.append(sealed)
        return KeybagEnvelope.seal(writer.bytes)
    }

    /// Parses the bytes above; authenticates nothing.
    ///
    /// Throws `FormatError` `malformed`, `notRecognised`, `newerVersion`.
    public init(reading bytes: [UInt8]) throws(FormatError) {
        var reader: KeybagReader
        let version: UInt16
        (reader, version) = try KeybagEnvelope.open(
            bytes, magic: RecoveryKit.magic, versions: RecoveryKit.versions,
            maximumBytes: RecoveryKit.maximumBytes, "recovery kit")
        format = VolumeFormat(rawValue: version)!
        identity = try KeybagIdentity(from: &reader)
        kitID = try reader.take(16, "kit ID")
        created = try reader.integer(UInt64.self, "time")
        let count = Int(try reader.integer(UInt16.self, "length"))
        guard (KeybagSlot.minimumSealedBytes...KeybagSlot.maximumSealedBytes).contains(count) else {
            throw FormatError(.malformed, "recovery kit: a sealed set of \(count) bytes")
        }
        sealed = try reader.take(count, "sealed set")
        try reader.end()
    }

    /// The text of the kit's file.
    public var text: String {
        let encoded = Array(Base64URL.encode(serialized).utf8)
        var lines = [
            "Recovery kit of the ward volume \(identity.parameters.uuidString).", "",
            "Together with its recovery code, which is written down elsewhere, this file opens any",
            "copy of that volume on any machine, without the passcode and without the device it was",
            "made on. It can't be revoked. Keep it away from the volume and from the code.", "",
            RecoveryKit.beginLine,
        ]
        for start in stride(from: 0, to: encoded.count, by: RecoveryKit.lineCharacters) {
            let end = min(start + RecoveryKit.lineCharacters, encoded.count)
            lines.append(String(decoding: encoded[start..<end], as: UTF8.self))
        }
        return (lines + [RecoveryKit.endLine, ""]).joined(separator: "\n")
    }

    /// Finds and parses the kit in a file's text. It accepts line ends of any kind, and blanks
    /// around a line.
    ///
    /// Throws `FormatError`: `notRecognised` where the text has no kit, and the errors of
    /// `init(reading:)`.
    public init(text: [UInt8]) throws(FormatError) {
        guard text.count <= RecoveryKit.maximumTextBytes else {
            throw FormatError(.malformed, "recovery kit: the file is too long")
        }
        let isBlank = { (byte: UInt8) in byte == 32 || byte == 9 }
        var encoded: [UInt8]?
        for rawLine in text.split(whereSeparator: { $0 == 10 || $0 == 13 }) {
            let line = rawLine.drop(while: isBlank).reversed().drop(while: isBlank).reversed()
            if line.elementsEqual(RecoveryKit.beginLine.utf8) {
                encoded = []
            } else if line.elementsEqual(RecoveryKit.endLine.utf8), let encoded {
                guard let bytes = Base64URL.decode(String(decoding: encoded, as: UTF8.self)) else {
                    throw FormatError(.malformed, "recovery kit: characters that are not base64url")
                }
                try self.init(reading: bytes)
                return
            } else {
                encoded?.append(contentsOf: line)
            }
        }
        throw FormatError(
            encoded == nil ? .notRecognised : .malformed,
            encoded == nil
                ? "no recovery kit in this file" : "recovery kit: the end line is missing")
    }
}
