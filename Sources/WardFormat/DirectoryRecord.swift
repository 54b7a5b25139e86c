import WardCrypto
import WardSystem

/// What a directory knows of itself: the target of the symbolic link `.ward` inside it.
///
/// ```
/// base64url of 36 bytes (48 characters, so that the link lies in the inode):
///   0  version (1)          1
///   1  protection class     1   what new files in it get
///   2  zeros                2
///   4  directory ID        16
///  20  MAC                 16   first half of HMAC-SHA-256 of bytes 0–19 under the record key
/// ```
public struct DirectoryRecord: Equatable, Sendable {
    /// The name of the symbolic link; names of files never have a dot in them.
    public static let linkName = ".ward"
    static let bytes = 36
    static let version: UInt8 = 1

    public var directoryID: [UInt8]
    public var protectionClass: ProtectionClass

    public init(directoryID: [UInt8], protectionClass: ProtectionClass) {
        precondition(directoryID.count == 16)
        self.directoryID = directoryID
        self.protectionClass = protectionClass
    }

    /// The link's target.
    public func linkTarget(macKey: borrowing SecretBytes) -> String {
        var body: [UInt8] = [DirectoryRecord.version, protectionClass.rawValue, 0, 0]
        body += directoryID
        return Base64URL.encode(body + HMACSHA256.authenticate(body, key: macKey)[0..<16])
    }

    public init(linkTarget: String, macKey: borrowing SecretBytes) throws(FormatError) {
        guard let record = Base64URL.decode(linkTarget), record.count == DirectoryRecord.bytes
        else {
            throw FormatError(.notRecognised, "directory record: not 36 bytes of base64url")
        }
        guard record[0] <= DirectoryRecord.version else {
            throw FormatError(.newerVersion, "directory record: version \(record[0])")
        }
        let matches = record.withUnsafeBytes {
            HMACSHA256.verify(
                $0[20..<36], of: UnsafeRawBufferPointer(rebasing: $0[0..<20]), key: macKey)
        }
        guard matches else {
            throw FormatError(.authenticationFailed, "directory record: MAC does not match")
        }
        guard record[0] == DirectoryRecord.version, record[2] == 0, record[3] == 0,
            let protectionClass = ProtectionClass(rawValue: record[1])
        else { throw FormatError(.malformed, "directory record: impossible field") }
        self.protectionClass = protectionClass
        directoryID = [UInt8](record[4..<20])
    }
}
