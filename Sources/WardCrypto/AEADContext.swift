import CWardLinux
import Glibc
import WardSystem

/// An AEAD with an expanded key, for any number of messages. The expanded key lives in locked
/// memory and is wiped with its owner. No call leaves round keys in registers.
///
/// Two threads must not use it while it is being created or destroyed. Sealing and opening only
/// read the context. AES-256-GCM: NIST SP 800-38D. AES-256-GCM-SIV: RFC 8452. Key 32, nonce 12, tag
/// 16 bytes.
public struct AEADContext: ~Copyable, @unchecked Sendable {
    public enum Algorithm: Sendable {
        case aes256GCM
        /// Misuse-resistant: with a fixed nonce the encryption is deterministic, which names need.
        case aes256GCMSIV
    }

    public static let keyBytes = 32
    public static let nonceBytes = 12
    public static let tagBytes = 16

    private let context: UnsafeMutablePointer<ward_aead_ctx>

    /// Expands `key`, 32 bytes. Throws `outOfLockedMemory`.
    public init(_ algorithm: Algorithm, key: borrowing SecretBytes) throws(CryptoError) {
        precondition(key.count == AEADContext.keyBytes, "AES-256 keys have 32 bytes")
        guard let memory = try? SecretHeap.shared.allocate(MemoryLayout<ward_aead_ctx>.size) else {
            throw .outOfLockedMemory
        }
        context = memory.bindMemory(to: ward_aead_ctx.self, capacity: 1)
        let aead =
            switch algorithm {
            case .aes256GCM: CCryptoBoringSSL_EVP_aead_aes_256_gcm()
            case .aes256GCMSIV: CCryptoBoringSSL_EVP_aead_aes_256_gcm_siv()
            }
        let ok = key.withUnsafeBytes {
            CCryptoBoringSSL_EVP_AEAD_CTX_init(
                context, aead, $0.baseAddress, $0.count, AEADContext.tagBytes, nil)
        }
        ward_scrub_stack()
        precondition(ok == 1, "BoringSSL takes every 32-byte key")
    }

    /// Encrypts `count` bytes from `plaintext` to `ciphertext` (the same place is allowed). Writes
    /// 16 bytes to `tag`.
    @inline(__always)
    public borrowing func seal(
        _ plaintext: UnsafeRawPointer, count: Int, to ciphertext: UnsafeMutableRawPointer,
        tag: UnsafeMutableRawPointer, nonce: UnsafeRawPointer, associatedData: UnsafeRawPointer?,
        associatedDataBytes: Int
    ) {
        var tagBytes = 0
        let ok = CCryptoBoringSSL_EVP_AEAD_CTX_seal_scatter(
            context, ciphertext.assumingMemoryBound(to: UInt8.self),
            tag.assumingMemoryBound(to: UInt8.self), &tagBytes, AEADContext.tagBytes,
            nonce.assumingMemoryBound(to: UInt8.self), AEADContext.nonceBytes,
            plaintext.assumingMemoryBound(to: UInt8.self), count, nil, 0,
            associatedData?.assumingMemoryBound(to: UInt8.self), associatedDataBytes)
        ward_scrub_registers()
        precondition(ok == 1 && tagBytes == AEADContext.tagBytes, "sealing can't fail")
    }

    /// Decrypts `count` bytes from `ciphertext` to `plaintext` (the same place is allowed). False
    /// where the tag does not match: then the bytes at `plaintext` must not be used.
    @inline(__always)
    public borrowing func open(
        _ ciphertext: UnsafeRawPointer, count: Int, to plaintext: UnsafeMutableRawPointer,
        tag: UnsafeRawPointer, nonce: UnsafeRawPointer, associatedData: UnsafeRawPointer?,
        associatedDataBytes: Int
    ) -> Bool {
        let ok = CCryptoBoringSSL_EVP_AEAD_CTX_open_gather(
            context, plaintext.assumingMemoryBound(to: UInt8.self),
            nonce.assumingMemoryBound(to: UInt8.self), AEADContext.nonceBytes,
            ciphertext.assumingMemoryBound(to: UInt8.self), count,
            tag.assumingMemoryBound(to: UInt8.self), AEADContext.tagBytes,
            associatedData?.assumingMemoryBound(to: UInt8.self), associatedDataBytes)
        ward_scrub_registers()
        return ok == 1
    }

    deinit {
        CCryptoBoringSSL_EVP_AEAD_CTX_cleanup(context)
        SecretHeap.shared.deallocate(context, MemoryLayout<ward_aead_ctx>.size)
    }
}

extension AEADContext {
    /// Seals a secret: nonce 12 (random) ‖ ciphertext ‖ tag 16. For slots and other small data.
    public borrowing func sealSecret(
        _ secret: borrowing SecretBytes, associatedData: [UInt8]
    ) -> [UInt8] {
        secret.withUnsafeBytes { sealCombined($0, associatedData: associatedData) }
    }

    /// Seals bytes: nonce 12 (random) ‖ ciphertext ‖ tag 16.
    public borrowing func sealCombined(
        _ plaintext: UnsafeRawBufferPointer, associatedData: [UInt8]
    ) -> [UInt8] {
        var result = SystemRandom.bytes(AEADContext.nonceBytes)
        result.append(contentsOf: repeatElement(0, count: plaintext.count + AEADContext.tagBytes))
        result.withUnsafeMutableBytes { out in
            associatedData.withUnsafeBytes { data in
                seal(
                    plaintext.baseAddress ?? UnsafeRawPointer(out.baseAddress!),
                    count: plaintext.count, to: out.baseAddress! + 12,
                    tag: out.baseAddress! + 12 + plaintext.count, nonce: out.baseAddress!,
                    associatedData: data.baseAddress, associatedDataBytes: data.count)
            }
        }
        return result
    }

    /// Opens the result of `sealSecret` or `sealCombined`. Throws `authenticationFailed` or
    /// `outOfLockedMemory`.
    public borrowing func openSecret(
        _ combined: [UInt8], associatedData: [UInt8]
    ) throws(CryptoError) -> SecretBytes {
        let count = combined.count - AEADContext.nonceBytes - AEADContext.tagBytes
        guard count >= 0 else { throw .authenticationFailed }
        guard var secret = try? SecretBytes(zeroed: count) else { throw .outOfLockedMemory }
        let ok = combined.withUnsafeBytes { sealed in
            associatedData.withUnsafeBytes { data in
                secret.withUnsafeMutableBytes { out in
                    open(
                        sealed.baseAddress! + 12, count: count, to: out.baseAddress!,
                        tag: sealed.baseAddress! + 12 + count, nonce: sealed.baseAddress!,
                        associatedData: data.baseAddress, associatedDataBytes: data.count)
                }
            }
        }
        guard ok else { throw .authenticationFailed }
        return secret
    }
}
