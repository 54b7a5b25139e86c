import WardCrypto
import WardSystem

/// The second authenticator of a class (format 2, docs/format.md §6.2): the beginning of
/// HMAC-SHA-256 under the seal key, which comes from class C's key. The device's files alone do not
/// give that key, but they give the keys of all other authenticators.
///
/// Zeros stand for no seal. Files and directories that are made before the first unlock have none.
public enum ClassSeal {
    /// The seal of a file's header, in bytes.
    public static let fileBytes = 16
    /// The seal of a directory's record, in bytes. A longer record would not lie in the inode.
    public static let directoryBytes = 12
    /// The info of HKDF-Expand (RFC 5869 §2.3) that makes the seal key from class C's key.
    public static let keyInfo = "ward class seals"

    public static let noFileSeal = [UInt8](repeating: 0, count: fileBytes)
    public static let noDirectorySeal = [UInt8](repeating: 0, count: directoryBytes)

    /// Derives the seal key, 32 bytes, from class C's key. Throws `outOfLockedMemory`.
    public static func key(
        from classCKey: borrowing SecretBytes
    ) throws(CryptoError) -> SecretBytes {
        try HMACSHA256.derive(Array(keyInfo.utf8) + [1], key: classCKey)
    }

    /// The first `count` bytes of the seal of `message`.
    public static func make(
        _ message: [UInt8], key: borrowing SecretBytes, count: Int
    ) -> [UInt8] {
        Array(HMACSHA256.authenticate(message, key: key)[0..<count])
    }

    /// Whether `seal` is the beginning of the seal of `message`; in constant time.
    public static func verify(
        _ seal: [UInt8], of message: [UInt8], key: borrowing SecretBytes
    ) -> Bool {
        seal.withUnsafeBytes { seal in
            message.withUnsafeBytes { HMACSHA256.verify(seal[...], of: $0, key: key) }
        }
    }
}

extension FileHeader {
    /// The bytes that the header's seal covers, 111: the class, the file, and the wrapped key with
    /// its length and capsule. In class D zeros stand for the key. The device's files open it
    /// anyway, and a file that is emptied before the first unlock gets another.
    public var sealedPart: [UInt8] {
        let hasKey = protectionClass != .none
        let key = hasKey ? wrappedKey : []
        let padding = [UInt8](repeating: 0, count: FileHeader.mostWrappedKeyBytes - key.count)
        return Array("file".utf8) + [protectionClass.rawValue, UInt8(key.count), 0] + fileID + key
            + padding + (hasKey ? capsuleID : Capsule.noID)
    }

    /// Whether the header has any seal, right or wrong.
    public var hasSeal: Bool { seal != ClassSeal.noFileSeal }
}

extension DirectoryRecord {
    /// The bytes that the record's seal covers: the class, the flags, the directory and its parent.
    public func sealedPart(parentID: [UInt8]) -> [UInt8] {
        Array("directory".utf8) + [protectionClass.rawValue, isSynchronised ? 1 : 0] + directoryID
            + parentID
    }

    /// Whether the record has any seal, right or wrong.
    public var hasSeal: Bool { seal != ClassSeal.noDirectorySeal }
}
