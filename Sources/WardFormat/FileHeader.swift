import WardCrypto
import WardSystem

/// The first 256 bytes of a file's page 0.
///
/// ```
///   0  magic "WARDFILE"        8
///   8  version                 2   that of the volume's format
///  10  header length (256)     2
///  12  protection class        1   1 A, 2 B, 3 C, 4 D, 5 CX
///  13  flags                   1   bit 0: sparse
///  14  wrapped key length      2   0 (no key: the file is empty), 40, or 72 for class B
///  16  file ID                16
///  32  directory ID           16   format 1: where the file was created, a hint for repair;
///                                 format 2: where the file is (`FilePlaces`)
///  48  wrapped key            72   padded with zeros
/// 120  capsule ID             16   format 2, class B with a key: `Capsule`; else zeros
/// 136  zeros                  72
/// 208  seal                   16   format 2: `ClassSeal`, or zeros; format 1: zeros
/// 224  MAC                    32   HMAC-SHA-256 of bytes 0–223 under the header key
/// ```
public struct FileHeader: Equatable, Sendable {
    public static let bytes = PageLayout.headerBytes
    static let magic: [UInt8] = Array("WARDFILE".utf8)
    static let macOffset = 224
    package static let capsuleOffset = 120
    package static let capsuleEnd = 136
    package static let sealOffset = 208

    public var protectionClass: ProtectionClass
    /// Whether pages of zeros are holes (true) or were wiped (false).
    public var isSparse: Bool
    /// 16 bytes.
    public var fileID: [UInt8]
    /// The ID (16 bytes) of the directory that the file was created in; in format 2, of its
    /// directory.
    public var directoryID: [UInt8]
    /// Empty where the file has no key yet.
    public var wrappedKey: [UInt8]
    /// The ID (16 bytes) of the capsule whose secret is in the wrapped key; `Capsule.noID` where
    /// there is none.
    public var capsuleID: [UInt8]
    /// The seal (16 bytes) of class, flags and file (`sealedPart`); zeros for none.
    public var seal: [UInt8]

    public init(
        protectionClass: ProtectionClass, isSparse: Bool = false, fileID: [UInt8],
        directoryID: [UInt8], wrappedKey: [UInt8] = [], capsuleID: [UInt8] = Capsule.noID,
        seal: [UInt8] = ClassSeal.noFileSeal
    ) {
        precondition(fileID.count == 16 && directoryID.count == 16 && capsuleID.count == 16)
        precondition(seal.count == ClassSeal.fileBytes)
        self.seal = seal
        self.capsuleID = capsuleID
        self.protectionClass = protectionClass
        self.isSparse = isSparse
        self.fileID = fileID
        self.directoryID = directoryID
        self.wrappedKey = wrappedKey
    }

    /// Writes all 256 bytes to `out`, the MAC included. `format`: that of the volume.
    public func write(
        to out: UnsafeMutableRawPointer, macKey: borrowing SecretBytes, format: VolumeFormat
    ) {
        precondition(FileHeader.isPossible(wrappedKey.count, protectionClass))
        precondition(
            capsuleID == Capsule.noID || format >= .version2 && FileHeader.namesCapsule(wrappedKey))
        precondition(!hasSeal || format >= .version2)
        out.initializeMemory(as: UInt8.self, repeating: 0, count: FileHeader.bytes)
        out.copyMemory(from: FileHeader.magic, byteCount: 8)
        out.storeBytes(of: format.rawValue.littleEndian, toByteOffset: 8, as: UInt16.self)
        out.storeBytes(of: UInt16(FileHeader.bytes).littleEndian, toByteOffset: 10, as: UInt16.self)
        out.storeBytes(of: protectionClass.rawValue, toByteOffset: 12, as: UInt8.self)
        out.storeBytes(of: isSparse ? 1 : 0, toByteOffset: 13, as: UInt8.self)
        out.storeBytes(
            of: UInt16(wrappedKey.count).littleEndian, toByteOffset: 14, as: UInt16.self)
        (out + 16).copyMemory(from: fileID, byteCount: 16)
        (out + 32).copyMemory(from: directoryID, byteCount: 16)
        (out + 48).copyMemory(from: wrappedKey, byteCount: wrappedKey.count)
        (out + FileHeader.capsuleOffset).copyMemory(from: capsuleID, byteCount: 16)
        (out + FileHeader.sealOffset).copyMemory(from: seal, byteCount: ClassSeal.fileBytes)
        HMACSHA256.authenticate(
            UnsafeRawBufferPointer(start: out, count: FileHeader.macOffset), key: macKey,
            to: out + FileHeader.macOffset)
    }

    /// Reads 256 bytes and checks the MAC before it uses any other field. `format`: that of the
    /// volume.
    ///
    /// Throws `FormatError` `notRecognised`, `newerVersion`, `authenticationFailed`, `malformed`.
    public init(
        reading source: UnsafeRawPointer, macKey: borrowing SecretBytes, format: VolumeFormat
    ) throws(FormatError) {
        let bytes = UnsafeRawBufferPointer(start: source, count: FileHeader.bytes)
        guard bytes[0..<8].elementsEqual(FileHeader.magic) else {
            throw FormatError(.notRecognised, "file header: no magic")
        }
        let version = UInt16(
            littleEndian: source.loadUnaligned(fromByteOffset: 8, as: UInt16.self))
        guard version <= format.rawValue else {
            throw FormatError(.newerVersion, "file header: version \(version)")
        }
        guard
            HMACSHA256.verify(
                bytes[FileHeader.macOffset..<FileHeader.bytes],
                of: UnsafeRawBufferPointer(rebasing: bytes[0..<FileHeader.macOffset]), key: macKey)
        else { throw FormatError(.authenticationFailed, "file header: MAC does not match") }
        let length = UInt16(
            littleEndian: source.loadUnaligned(fromByteOffset: 10, as: UInt16.self))
        let keyCount = Int(
            UInt16(littleEndian: source.loadUnaligned(fromByteOffset: 14, as: UInt16.self)))
        guard version == format.rawValue, length == FileHeader.bytes,
            let protectionClass = ProtectionClass(rawValue: bytes[12]), bytes[13] & ~1 == 0,
            FileHeader.isPossible(keyCount, protectionClass),
            bytes[(48 + keyCount)..<FileHeader.capsuleOffset].allSatisfy({ $0 == 0 }),
            bytes[FileHeader.capsuleEnd..<FileHeader.sealOffset].allSatisfy({ $0 == 0 })
        else { throw FormatError(.malformed, "file header: impossible field") }
        self.protectionClass = protectionClass
        isSparse = bytes[13] & 1 != 0
        fileID = [UInt8](bytes[16..<32])
        directoryID = [UInt8](bytes[32..<48])
        wrappedKey = [UInt8](bytes[48..<(48 + keyCount)])
        capsuleID = [UInt8](bytes[FileHeader.capsuleOffset..<FileHeader.capsuleEnd])
        guard
            capsuleID == Capsule.noID || format >= .version2 && FileHeader.namesCapsule(wrappedKey)
        else { throw FormatError(.malformed, "file header: a capsule without its key") }
        seal = [UInt8](bytes[FileHeader.sealOffset..<FileHeader.macOffset])
        guard !hasSeal || format >= .version2 else {
            throw FormatError(.malformed, "file header: impossible field")
        }
    }

    /// Whether a header with this wrapped key may name a capsule: one of class B.
    /// The room for a wrapped key, in bytes.
    static let mostWrappedKeyBytes = 72

    private static func namesCapsule(_ wrappedKey: [UInt8]) -> Bool { wrappedKey.count == 72 }

    private static func isPossible(_ keyCount: Int, _ protectionClass: ProtectionClass) -> Bool {
        keyCount == 0 || keyCount == (protectionClass == .completeUnlessOpen ? 72 : 40)
    }
}
