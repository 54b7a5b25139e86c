import CWardLinux
import Glibc
import WardSystem

/// Diffie-Hellman on Curve25519, RFC 7748. Keys and shared secrets have 32 bytes.
public enum X25519 {
    /// The public half of a private key (32 random bytes, clamped where it is used).
    public static func publicKey(of privateKey: borrowing SecretBytes) -> [UInt8] {
        precondition(privateKey.count == 32)
        var publicKey = [UInt8](repeating: 0, count: 32)
        privateKey.withUnsafeBytes { secret in
            publicKey.withUnsafeMutableBufferPointer {
                CCryptoBoringSSL_X25519_public_from_private(
                    $0.baseAddress!, secret.baseAddress!.assumingMemoryBound(to: UInt8.self))
            }
        }
        ward_scrub_stack()
        return publicKey
    }

    /// The shared secret. An all-zero one (a public key of small order) is refused.
    public static func sharedSecret(
        _ privateKey: borrowing SecretBytes, _ publicKey: [UInt8]
    ) throws(CryptoError) -> SecretBytes {
        precondition(privateKey.count == 32 && publicKey.count == 32)
        guard var shared = try? SecretBytes(zeroed: 32) else { throw .outOfLockedMemory }
        let ok = privateKey.withUnsafeBytes { secret in
            publicKey.withUnsafeBufferPointer { peer in
                shared.withUnsafeMutableBytes { out in
                    CCryptoBoringSSL_X25519(
                        out.baseAddress!.assumingMemoryBound(to: UInt8.self),
                        secret.baseAddress!.assumingMemoryBound(to: UInt8.self), peer.baseAddress!)
                }
            }
        }
        ward_scrub_stack()
        guard ok == 1 else { throw .invalidPublicKey }
        return shared
    }
}

/// The key that wraps a class B file key: one-pass Diffie-Hellman, NIST SP 800-56A.
public enum OnePassDiffieHellman {
    /// SHA-256(00000001 ‖ Z ‖ ephemeral public ‖ class public): the single-step concatenation KDF
    /// of SP 800-56A rev. 1 §5.8.1 with AlgorithmID left out, PartyUInfo the ephemeral and
    /// PartyVInfo the static public key.
    public static func wrappingKey(
        sharedSecret: borrowing SecretBytes, ephemeralPublicKey: [UInt8], classPublicKey: [UInt8]
    ) throws(CryptoError) -> SecretBytes {
        precondition(ephemeralPublicKey.count == 32 && classPublicKey.count == 32)
        return try ConcatenationKDF.derive(
            from: sharedSecret, otherInfo: ephemeralPublicKey + classPublicKey)
    }
}

extension OnePassDiffieHellman {
    /// The key of format 2: the same KDF of Z ‖ `capsuleSecret` ‖ `volumeSecret`, 32 bytes each,
    /// with ephemeral public ‖ class public ‖ `capsuleID` behind. All three secrets are needed for
    /// the key.
    public static func wrappingKey(
        sharedSecret: borrowing SecretBytes, capsuleSecret: borrowing SecretBytes,
        volumeSecret: borrowing SecretBytes, ephemeralPublicKey: [UInt8], classPublicKey: [UInt8],
        capsuleID: [UInt8]
    ) throws(CryptoError) -> SecretBytes {
        precondition(ephemeralPublicKey.count == 32 && classPublicKey.count == 32)
        precondition(capsuleSecret.count == 32 && volumeSecret.count == 32 && capsuleID.count == 16)
        guard var secrets = try? SecretBytes(zeroed: 96) else { throw .outOfLockedMemory }
        secrets.withUnsafeMutableBytes { out in
            sharedSecret.withUnsafeBytes { out[0..<32].copyBytes(from: $0) }
            capsuleSecret.withUnsafeBytes { out[32..<64].copyBytes(from: $0) }
            volumeSecret.withUnsafeBytes { out[64..<96].copyBytes(from: $0) }
        }
        return try ConcatenationKDF.derive(
            from: secrets, otherInfo: ephemeralPublicKey + classPublicKey + capsuleID)
    }
}

/// The single-step concatenation KDF with SHA-256, NIST SP 800-56A rev. 1 §5.8.1, one block of 32
/// bytes.
public enum ConcatenationKDF {
    /// SHA-256(00000001 ‖ `secret` ‖ `otherInfo`).
    public static func derive(
        from secret: borrowing SecretBytes, otherInfo: [UInt8]
    ) throws(CryptoError) -> SecretBytes {
        let secretEnd = 4 + secret.count
        guard var message = try? SecretBytes(zeroed: secretEnd + otherInfo.count),
            var key = try? SecretBytes(zeroed: SHA256Digest.bytes)
        else { throw .outOfLockedMemory }
        message.withUnsafeMutableBytes { out in
            out[3] = 1
            secret.withUnsafeBytes { out[4..<secretEnd].copyBytes(from: $0) }
            out[secretEnd...].copyBytes(from: otherInfo)
        }
        message.withUnsafeBytes { message in
            key.withUnsafeMutableBytes { out in
                _ = CCryptoBoringSSL_SHA256(
                    message.baseAddress!.assumingMemoryBound(to: UInt8.self), message.count,
                    out.baseAddress!.assumingMemoryBound(to: UInt8.self))
            }
        }
        ward_scrub_stack()
        return key
    }
}
