import WardCrypto
import WardSystem

/// The directories in which a file may have names, beside the one that its header names (format 2).
///
/// The value of the extended attribute `user.ward.places`:
///
/// ```
///   0  version (1)           1
///   1  zero                  1
///   2  count n               2   1 to 240
///   4  directory IDs      16·n   one for each name, the same one more than once
///  ..  MAC                  16   first half of HMAC-SHA-256 under the place key, of file ID 16 ‖
///                                all bytes before
/// ```
///
/// Metadata, unlike page 0, reaches the disk in the order of its changes. So a rename writes the
/// attribute, and the header follows once the rename is durable.
public struct FilePlaces: Equatable, Sendable {
    public static let attributeName = "user.ward.places"
    /// The most names beside those in the header's directory.
    public static let mostDirectories = 240
    public static let mostBytes = headBytes + 16 * mostDirectories + macBytes
    static let headBytes = 4
    static let macBytes = 16
    static let version: UInt8 = 1

    /// IDs of 16 bytes each: one to `mostDirectories`.
    public private(set) var directoryIDs: [[UInt8]]

    /// Nil for no directories, or too many.
    public init?(directoryIDs: [[UInt8]]) {
        guard !directoryIDs.isEmpty, directoryIDs.count <= FilePlaces.mostDirectories else {
            return nil
        }
        self.directoryIDs = directoryIDs
    }

    public func contains(_ directoryID: [UInt8]) -> Bool { directoryIDs.contains(directoryID) }

    /// The attribute's value, the MAC included. `fileID`: 16 bytes.
    public func serialized(fileID: [UInt8], macKey: borrowing SecretBytes) -> [UInt8] {
        let count = UInt16(directoryIDs.count)
        let body =
            [FilePlaces.version, 0, UInt8(truncatingIfNeeded: count), UInt8(count >> 8)]
            + directoryIDs.joined()
        return body + HMACSHA256.authenticate(fileID + body, key: macKey)[0..<FilePlaces.macBytes]
    }

    /// Reads an attribute's value and checks its MAC.
    ///
    /// Throws `FormatError` `newerVersion`, `authenticationFailed`, `malformed`.
    public init(
        reading value: [UInt8], fileID: [UInt8], macKey: borrowing SecretBytes
    ) throws(FormatError) {
        guard value.count >= FilePlaces.headBytes + FilePlaces.macBytes else {
            throw FormatError(.malformed, "places: only \(value.count) bytes")
        }
        guard value[0] <= FilePlaces.version else {
            throw FormatError(.newerVersion, "places: version \(value[0])")
        }
        let matches = (fileID + value).withUnsafeBytes {
            HMACSHA256.verify(
                $0[($0.count - FilePlaces.macBytes)...],
                of: UnsafeRawBufferPointer(rebasing: $0.dropLast(FilePlaces.macBytes)), key: macKey)
        }
        guard matches else {
            throw FormatError(.authenticationFailed, "places: MAC does not match")
        }
        let count = Int(value[2]) | Int(value[3]) << 8
        guard value[0] == FilePlaces.version, value[1] == 0,
            (1...FilePlaces.mostDirectories).contains(count),
            value.count == FilePlaces.headBytes + 16 * count + FilePlaces.macBytes
        else { throw FormatError(.malformed, "places: impossible field") }
        directoryIDs = (0..<count).map { index in
            let begin = FilePlaces.headBytes + 16 * index
            return Array(value[begin..<(begin + 16)])
        }
    }
}

/// A permit for a symbolic link in a directory other than the one it was made in (format 2).
///
/// A stored link can't be written anew without another inode, and has no attribute. So a directory
/// that gets the link from elsewhere holds another link beside it, of this name and target:
///
/// ```
/// name:    ".l" ‖ base64url of SHA-256 of the stored link's target (43 characters)
/// target:  base64url of
///   0  ID of the directory that the link was made in   16
///  16  MAC                                             16   first half of HMAC-SHA-256 under the
///                     permit key, of directory ID 16 ‖ bytes 0–15 ‖ SHA-256 of the target 32
/// ```
public struct LinkPermit: Equatable, Sendable {
    static let bytes = 32
    /// The beginning of each permit's name. Names with a dot are ward's own.
    public static let namePrefix = ".l"
    public static let nameBytes = 45

    /// The ID (16 bytes) of the directory that the link was made in.
    public var originID: [UInt8]

    public init(originID: [UInt8]) {
        precondition(originID.count == 16)
        self.originID = originID
    }

    /// The name of the permit of a stored link. `stored`: the link's own target.
    public static func name(of stored: [UInt8]) -> String {
        namePrefix + Base64URL.encode(SHA256Digest.hash(stored))
    }

    /// The permit's target. `directoryID`: the directory (16 bytes) of permit and link.
    public func linkTarget(
        for stored: [UInt8], in directoryID: [UInt8], macKey: borrowing SecretBytes
    ) -> String {
        let mac = HMACSHA256.authenticate(message(stored, directoryID), key: macKey)
        return Base64URL.encode(originID + mac[0..<16])
    }

    /// Reads a permit's target and checks its MAC. Throws `FormatError` `notRecognised`,
    /// `authenticationFailed`.
    public init(
        linkTarget: String, for stored: [UInt8], in directoryID: [UInt8],
        macKey: borrowing SecretBytes
    ) throws(FormatError) {
        guard let bytes = Base64URL.decode(linkTarget), bytes.count == LinkPermit.bytes else {
            throw FormatError(.notRecognised, "link permit: not 32 bytes of base64url")
        }
        originID = Array(bytes[0..<16])
        let message = message(stored, directoryID)
        let matches = bytes.withUnsafeBytes { permit in
            message.withUnsafeBytes {
                HMACSHA256.verify(permit[16...], of: $0, key: macKey)
            }
        }
        guard matches else {
            throw FormatError(.authenticationFailed, "link permit: MAC does not match")
        }
    }

    private func message(_ stored: [UInt8], _ directoryID: [UInt8]) -> [UInt8] {
        directoryID + originID + SHA256Digest.hash(stored)
    }
}
