import WardCrypto

/// The frame of keybags, recovery kits and the files of a state directory, the same in all
/// versions:
///
/// ```
///   0  magic               8
///   8  version             2
///  10  ...
/// end  SHA-256            32   of everything before it
/// ```
///
/// The checksum protects against accidents only. Without any key it tells damage from a newer
/// version and from a missing device key. MACs and seals inside authenticate the content.
public enum KeybagEnvelope {
    public static let checksumBytes = SHA256Digest.bytes
    static let headBytes = 10

    /// Starts a structure: its magic and version.
    static func begin(magic: [UInt8], version: UInt16) -> KeybagWriter {
        precondition(magic.count == 8)
        var writer = KeybagWriter()
        writer.append(magic)
        writer.append(version)
        return writer
    }

    /// The finished structure: `bytes` with their checksum.
    static func seal(_ bytes: [UInt8]) -> [UInt8] { bytes + SHA256Digest.hash(bytes) }

    /// Checks length, magic, checksum and version, in this order. Returns a reader of the bytes
    /// between version and checksum.
    ///
    /// Throws `notRecognised` for another magic, `malformed` for a wrong length or checksum, and
    /// `newerVersion` for an undamaged structure of a later ward.
    static func open(
        _ bytes: [UInt8], magic: [UInt8], version: UInt16, maximumBytes: Int, _ structure: String
    ) throws(FormatError) -> KeybagReader {
        try open(
            bytes, magic: magic, versions: version...version, maximumBytes: maximumBytes, structure
        ).reader
    }

    /// The same for a structure of which several versions are known. Returns the one found, too.
    static func open(
        _ bytes: [UInt8], magic: [UInt8], versions: ClosedRange<UInt16>, maximumBytes: Int,
        _ structure: String
    ) throws(FormatError) -> (reader: KeybagReader, version: UInt16) {
        guard bytes.count <= maximumBytes else {
            throw FormatError(
                .malformed, "\(structure): \(bytes.count) bytes, at most \(maximumBytes) expected")
        }
        guard bytes.count >= headBytes + checksumBytes else {
            throw FormatError(.malformed, "\(structure): only \(bytes.count) bytes")
        }
        guard bytes[0..<8].elementsEqual(magic) else {
            throw FormatError(.notRecognised, "\(structure): no magic number")
        }
        let body = bytes[..<(bytes.count - checksumBytes)]
        guard bytes[body.endIndex...].elementsEqual(SHA256Digest.hash(Array(body))) else {
            throw FormatError(.malformed, "\(structure): the checksum is wrong")
        }
        var reader = KeybagReader(body, structure)
        _ = try reader.take(8, "magic")
        let found = try reader.integer(UInt16.self, "version")
        guard versions.contains(found) else {
            throw FormatError(
                found > versions.upperBound ? .newerVersion : .malformed,
                "\(structure): version \(found)")
        }
        return (reader, found)
    }
}
