import WardCrypto
import WardSystem

/// The record of a directory: the target of the symbolic link `.ward` inside it.
///
/// ```
/// base64url of 36 bytes, in format 2 of 44 (48 and 59 characters: the link lies in the inode):
///   0  version              1   format 1: 1, or 2 where a flag is set; format 2: 3
///   1  protection class     1   what new files in it get
///   2  flags                1   bit 0: synchronised; the others zero
///   3  zero                 1
///   4  directory ID        16
/// format 1:
///  20  MAC                 16   first half of HMAC-SHA-256 under the record key, of bytes 0–19
/// format 2:
///  20  seal                12   `ClassSeal`, or zeros
///  32  MAC                 12   first 12 bytes of HMAC-SHA-256 under the record key, of the
///                               parent's ID ‖ bytes 0–31
/// ```
public struct DirectoryRecord: Equatable, Sendable {
    /// The name of the symbolic link. Encrypted names have no dot, so no file can have this name.
    public static let linkName = ".ward"
    /// The name of a second record, for the directory that a rename moves this one to.
    public static let nextLinkName = ".ward.to"
    /// The parent's ID in the record of the root, which has no parent: 16 zeros.
    public static let noParent = [UInt8](repeating: 0, count: 16)
    static let plainBytes = 36
    static let boundBytes = 44
    /// The version of records without a flag. Every reader knows it, so every reader can read a
    /// volume without marks.
    static let plainVersion: UInt8 = 1
    /// The version of records with a flag. A reader that does not know the flag must refuse the
    /// record: it would create what the mark forbids.
    static let flaggedVersion: UInt8 = 2
    /// The version of records that are bound to the parent.
    static let boundVersion: UInt8 = 3
    static let synchronisedFlag: UInt8 = 1

    /// 16 bytes.
    public var directoryID: [UInt8]
    /// The class of new files in the directory.
    public var protectionClass: ProtectionClass
    /// Whether the directory is marked as synchronised: in it and below, no file gets a class above
    /// C.
    public var isSynchronised: Bool
    /// The seal (12 bytes) of class, flags, directory and parent (`sealedPart`); zeros for none.
    /// Format 1 has none.
    public var seal: [UInt8]

    public init(
        directoryID: [UInt8], protectionClass: ProtectionClass, isSynchronised: Bool = false,
        seal: [UInt8] = ClassSeal.noDirectorySeal
    ) {
        precondition(directoryID.count == 16 && seal.count == ClassSeal.directoryBytes)
        self.seal = seal
        self.directoryID = directoryID
        self.protectionClass = protectionClass
        self.isSynchronised = isSynchronised
    }

    /// The link's target: 48 characters, in format 2 59, the MAC included. `parentID`: the ID (16
    /// bytes) of the directory that this one is in, `noParent` for the root; nil in a volume of
    /// format 1.
    public func linkTarget(macKey: borrowing SecretBytes, parentID: [UInt8]?) -> String {
        let flags = isSynchronised ? DirectoryRecord.synchronisedFlag : 0
        let version =
            parentID != nil
            ? DirectoryRecord.boundVersion
            : isSynchronised ? DirectoryRecord.flaggedVersion : DirectoryRecord.plainVersion
        let body =
            [version, protectionClass.rawValue, flags, 0] + directoryID
            + (parentID == nil ? [] : seal)
        let mac = HMACSHA256.authenticate((parentID ?? []) + body, key: macKey)
        return Base64URL.encode(body + mac[0..<DirectoryRecord.macBytes(of: version)])
    }

    /// Whether a link's target has the shape of a record. Nothing is authenticated.
    public static func isRecord(_ linkTarget: String) -> Bool {
        Base64URL.decode(linkTarget).map { $0.count >= plainBytes } ?? false
    }

    /// Reads a link's target and checks its MAC. `parentID` as in `linkTarget`.
    ///
    /// Throws `FormatError` `notRecognised`, `newerVersion`, `authenticationFailed`, `malformed`.
    public init(
        linkTarget: String, macKey: borrowing SecretBytes, parentID: [UInt8]?
    ) throws(FormatError) {
        guard let record = Base64URL.decode(linkTarget), record.count >= DirectoryRecord.plainBytes
        else {
            throw FormatError(.notRecognised, "directory record: not 36 bytes of base64url")
        }
        guard record[0] <= DirectoryRecord.boundVersion else {
            throw FormatError(.newerVersion, "directory record: version \(record[0])")
        }
        let isBound = record[0] == DirectoryRecord.boundVersion
        guard
            record.count == (isBound ? DirectoryRecord.boundBytes : DirectoryRecord.plainBytes)
        else { throw FormatError(.notRecognised, "directory record: \(record.count) bytes") }
        let macBytes = DirectoryRecord.macBytes(of: record[0])
        let matches = ((isBound ? parentID ?? [] : []) + record).withUnsafeBytes {
            HMACSHA256.verify(
                $0[($0.count - macBytes)...],
                of: UnsafeRawBufferPointer(rebasing: $0.dropLast(macBytes)), key: macKey)
        }
        guard matches else {
            throw FormatError(.authenticationFailed, "directory record: MAC does not match")
        }
        let flags = record[2]
        guard record[0] > 0, record[3] == 0, isBound == (parentID != nil),
            isBound
                // Zeros stand for "no parent" in the records below.
                ? flags & ~DirectoryRecord.synchronisedFlag == 0
                    && record[4..<20].contains(where: { $0 != 0 })
                : flags == record[0] - DirectoryRecord.plainVersion,
            let protectionClass = ProtectionClass(rawValue: record[1])
        else { throw FormatError(.malformed, "directory record: impossible field") }
        self.protectionClass = protectionClass
        isSynchronised = flags & DirectoryRecord.synchronisedFlag != 0
        directoryID = [UInt8](record[4..<20])
        seal = isBound ? [UInt8](record[20..<32]) : ClassSeal.noDirectorySeal
    }

    /// The directory's ID that a link's target names, without a look at its MAC; nil where it has
    /// not the form of a record.
    public static func claimedID(_ linkTarget: String) -> [UInt8]? {
        guard let record = Base64URL.decode(linkTarget), record.count == boundBytes,
            record[0] == boundVersion
        else { return nil }
        return [UInt8](record[4..<20])
    }

    private static func macBytes(of version: UInt8) -> Int {
        version == boundVersion ? HMACSHA256.fewestBytes : HMACSHA256.bytes / 2
    }

    /// The format of the volume whose root has this target of `.ward`, by its version alone. A
    /// target that can't be decoded belongs to format 1, under which it is refused.
    public static func format(ofRoot linkTarget: String) -> VolumeFormat {
        let version = Base64URL.decode(linkTarget)?.first
        return version == boundVersion ? .version2 : .version1
    }
}
