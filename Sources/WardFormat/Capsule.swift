import WardCrypto

/// A ciphertext of ML-KEM-768 for the owner of class B's keys: a file of `ward.kem` (docs/format.md
/// §3.1). Its secret goes into the key of every class B file that names it.
public struct Capsule: Equatable, Sendable {
    /// The directory of the capsules, in the root of a volume.
    public static let directoryName = "ward.kem"
    /// The file of the public key to which capsules are made.
    public static let publicKeyName = "public"
    /// The ID that a class B file without a capsule names.
    public static let noID = [UInt8](repeating: 0, count: 16)

    /// The first 16 bytes of the ciphertext's SHA-256.
    public let id: [UInt8]
    /// 1,088 bytes.
    public let ciphertext: [UInt8]

    public init(_ ciphertext: [UInt8]) {
        id = Array(SHA256Digest.hash(ciphertext)[..<16])
        self.ciphertext = ciphertext
    }

    /// The bytes of a capsule's file. Throws `FormatError` `malformed` for another length, and
    /// `authenticationFailed` for another capsule than the one named `id`.
    public init(reading bytes: [UInt8], id: [UInt8]) throws(FormatError) {
        guard bytes.count == MLKEM768.ciphertextBytes else {
            throw FormatError(.malformed, "capsule: \(bytes.count) bytes")
        }
        self.init(bytes)
        guard self.id == id else {
            throw FormatError(.authenticationFailed, "capsule: the content is not its name's")
        }
    }

    /// The name of a capsule's file.
    public static func fileName(_ id: [UInt8]) -> String { Base64URL.encode(id) }
}
