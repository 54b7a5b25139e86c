import CWardLinux
import WardSystem

// This is not beside the type because WardSystem is linked into programs that use DataProtection,
// and those have no BoringSSL.
extension SecretBytes {
    /// Whether both hold the same bytes, in time that depends only on their lengths.
    public static func == (left: borrowing SecretBytes, right: borrowing SecretBytes) -> Bool {
        guard left.count == right.count else { return false }
        return left.withUnsafeBytes { left in
            right.withUnsafeBytes { right in
                CCryptoBoringSSL_CRYPTO_memcmp(
                    left.baseAddress, right.baseAddress, left.count) == 0
            }
        }
    }
}
