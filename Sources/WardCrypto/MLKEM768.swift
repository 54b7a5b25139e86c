import CWardLinux
import WardSystem

/// A key encapsulation that a quantum computer does not break as far as is known: ML-KEM-768, FIPS
/// 203. A private key is its seed, 64 bytes (d ‖ z).
public enum MLKEM768 {
    public static let seedBytes = 64
    public static let publicKeyBytes = 1184
    public static let ciphertextBytes = 1088

    /// The public key of a seed: 1,184 bytes. Throws `outOfLockedMemory`.
    public static func publicKey(
        ofSeed seed: borrowing SecretBytes
    ) throws(CryptoError) -> [UInt8] {
        let publicKey = UnsafeMutablePointer<ward_mlkem768_public_key>.allocate(capacity: 1)
        defer { publicKey.deallocate() }
        try withPrivateKey(ofSeed: seed) {
            CCryptoBoringSSL_MLKEM768_public_from_private(publicKey, $0)
        }
        var bytes = [UInt8](repeating: 0, count: publicKeyBytes)
        var builder = ward_cbb()
        var written = 0
        let ok = bytes.withUnsafeMutableBufferPointer { out in
            CCryptoBoringSSL_CBB_init_fixed(&builder, out.baseAddress!, out.count) == 1
                && CCryptoBoringSSL_MLKEM768_marshal_public_key(&builder, publicKey) == 1
                && CCryptoBoringSSL_CBB_finish(&builder, nil, &written) == 1
        }
        precondition(ok && written == publicKeyBytes, "every public key has 1,184 bytes")
        return bytes
    }

    /// Makes a fresh secret of 32 bytes, which the owner of a public key finds in the ciphertext.
    /// The ciphertext has 1,088 bytes and is not secret. Throws `invalidPublicKey` for bytes that
    /// are none (FIPS 203 §7.2), and `outOfLockedMemory`.
    public static func encapsulate(
        to publicKey: [UInt8], ciphertext: inout [UInt8]
    ) throws(CryptoError) -> SecretBytes {
        guard var secret = try? SecretBytes(zeroed: 32) else { throw .outOfLockedMemory }
        let parsed = UnsafeMutablePointer<ward_mlkem768_public_key>.allocate(capacity: 1)
        defer { parsed.deallocate() }
        let isValid = publicKey.withUnsafeBufferPointer { bytes in
            var input = ward_cbs(data: bytes.baseAddress, len: bytes.count)
            return CCryptoBoringSSL_MLKEM768_parse_public_key(parsed, &input) == 1
                && input.len == 0
        }
        guard isValid else { throw .invalidPublicKey }
        ciphertext = [UInt8](repeating: 0, count: ciphertextBytes)
        secret.withUnsafeMutableBytes { secret in
            ciphertext.withUnsafeMutableBufferPointer {
                CCryptoBoringSSL_MLKEM768_encap(
                    $0.baseAddress!, secret.baseAddress!.assumingMemoryBound(to: UInt8.self),
                    parsed)
            }
        }
        ward_scrub_stack()
        return secret
    }

    /// Finds the shared secret of a ciphertext: 32 bytes. A ciphertext that was made for another
    /// key, or changed, gives another secret and no error (implicit rejection, FIPS 203 §6.3).
    /// Throws `invalidParameters` for another length, and `outOfLockedMemory`.
    public static func decapsulate(
        _ ciphertext: [UInt8], seed: borrowing SecretBytes
    ) throws(CryptoError) -> SecretBytes {
        guard ciphertext.count == ciphertextBytes else { throw .invalidParameters }
        guard var secret = try? SecretBytes(zeroed: 32) else { throw .outOfLockedMemory }
        try withPrivateKey(ofSeed: seed) { key in
            secret.withUnsafeMutableBytes { secret in
                _ = CCryptoBoringSSL_MLKEM768_decap(
                    secret.baseAddress!.assumingMemoryBound(to: UInt8.self), ciphertext,
                    ciphertext.count, key)
            }
        }
        return secret
    }

    /// Expands a private key in locked memory, and wipes it afterwards.
    private static func withPrivateKey(
        ofSeed seed: borrowing SecretBytes,
        _ body: (UnsafePointer<ward_mlkem768_private_key>) -> Void
    ) throws(CryptoError) {
        precondition(seed.count == seedBytes, "seeds of ML-KEM have 64 bytes")
        let size = MemoryLayout<ward_mlkem768_private_key>.size
        guard let memory = try? SecretHeap.shared.allocate(size) else { throw .outOfLockedMemory }
        defer {
            SecretHeap.shared.deallocate(memory, size)
            ward_scrub_stack()
        }
        let key = memory.bindMemory(to: ward_mlkem768_private_key.self, capacity: 1)
        let ok = seed.withUnsafeBytes {
            CCryptoBoringSSL_MLKEM768_private_key_from_seed(
                key, $0.baseAddress!.assumingMemoryBound(to: UInt8.self), $0.count)
        }
        precondition(ok == 1, "every seed of 64 bytes is a key")
        body(key)
    }
}
