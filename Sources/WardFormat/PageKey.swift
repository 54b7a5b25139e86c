import WardCrypto
import WardSystem

/// The key of a file's pages in one epoch: HKDF-Expand (RFC 5869 §2.3) of the file key, with the
/// info `ward pages` ‖ epoch 4, little-endian.
///
/// A key seals the page writes of one file between two durable points. So no key comes near the
/// 2^32 random nonces that NIST SP 800-38D §8.3 allows (docs/format.md §12).
public enum PageKey {
    /// Derives 32 bytes. Throws `outOfLockedMemory`.
    public static func derive(
        from fileKey: borrowing SecretBytes, epoch: UInt32
    ) throws(CryptoError) -> SecretBytes {
        precondition(fileKey.count == 32)
        let info = Array("ward pages".utf8) + withUnsafeBytes(of: epoch.littleEndian, Array.init)
        return try HMACSHA256.derive(info + [1], key: fileKey)
    }
}
