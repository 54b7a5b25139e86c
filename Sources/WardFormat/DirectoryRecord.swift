import WardCrypto
import WardSystem

/// The record of a directory: the target of the symbolic link `.ward` inside it.
///
/// ```
/// base64url of 36 bytes (48 characters, so that the link lies in the inode):
///   0  version              1   1; 2 where a flag is set
///   1  protection class     1   what new files in it get
///   2  flags                1   bit 0: synchronised; the others zero
///   3  zero                 1
///   4  directory ID        16
///  20  MAC                 16   first half of HMAC-SHA-256 of bytes 0–19 under the record key
/// ```
public struct DirectoryRecord: Equatable, Sendable {
    /// The name of the symbolic link. Encrypted names have no dot, so no file can have this name.
    public static let linkName = ".ward"
    static let bytes = 36
    /// The version of records without a flag. Every reader knows it, so every reader can read a
    /// volume without marks.
    static let plainVersion: UInt8 = 1
    /// The version of records with a flag. A reader that does not know the flag must refuse the
    /// record: it would create what the mark forbids.
    static let flaggedVersion: UInt8 = 2
    static let synchronisedFlag: UInt8 = 1

    /// 16 bytes.
    public var directoryID: [UInt8]
    /// The class of new files in the directory.
    public var protectionClass: ProtectionClass
    /// Whether the directory is marked as synchronised: in it and below, no file gets a class above
    /// C.
    public var isSynchronised: Bool

    public init(
        directoryID: [UInt8], protectionClass: ProtectionClass, isSynchronised: Bool = false
    ) {
        precondition(directoryID.count == 16)
        self.directoryID = directoryID
        self.protectionClass = protectionClass
        self.isSynchronised = isSynchronised
    }

    /// The link's target: 48 characters, the MAC included.
    public func linkTarget(macKey: borrowing SecretBytes) -> String {
        var body: [UInt8] = [
            isSynchronised ? DirectoryRecord.flaggedVersion : DirectoryRecord.plainVersion,
            protectionClass.rawValue, isSynchronised ? DirectoryRecord.synchronisedFlag : 0, 0,
        ]
        body += directoryID
        return Base64URL.encode(body + HMACSHA256.authenticate(body, key: macKey)[0..<16])
    }

    /// Reads a link's target and checks its MAC.
    ///
    /// Throws `FormatError` `notRecognised`, `newerVersion`, `authenticationFailed`, `malformed`.
    public init(linkTarget: String, macKey: borrowing SecretBytes) throws(FormatError) {
        guard let record = Base64URL.decode(linkTarget), record.count == DirectoryRecord.bytes
        else {
            throw FormatError(.notRecognised, "directory record: not 36 bytes of base64url")
        }
        guard record[0] <= DirectoryRecord.flaggedVersion else {
            throw FormatError(.newerVersion, "directory record: version \(record[0])")
        }
        let matches = record.withUnsafeBytes {
            HMACSHA256.verify(
                $0[20..<36], of: UnsafeRawBufferPointer(rebasing: $0[0..<20]), key: macKey)
        }
        guard matches else {
            throw FormatError(.authenticationFailed, "directory record: MAC does not match")
        }
        let isSynchronised = record[0] == DirectoryRecord.flaggedVersion
        guard record[0] > 0, record[3] == 0,
            record[2] == (isSynchronised ? DirectoryRecord.synchronisedFlag : 0),
            let protectionClass = ProtectionClass(rawValue: record[1])
        else { throw FormatError(.malformed, "directory record: impossible field") }
        self.protectionClass = protectionClass
        self.isSynchronised = isSynchronised
        directoryID = [UInt8](record[4..<20])
    }
}
