import CWardLinux
import Glibc
import WardSystem

/// SHA-256, FIPS 180-4.
public enum SHA256Digest {
    public static let bytes = 32

    /// Returns the 32-byte digest.
    public static func hash(_ data: UnsafeRawBufferPointer) -> [UInt8] {
        var digest = [UInt8](repeating: 0, count: bytes)
        digest.withUnsafeMutableBufferPointer {
            _ = CCryptoBoringSSL_SHA256(
                data.baseAddress?.assumingMemoryBound(to: UInt8.self), data.count, $0.baseAddress!)
        }
        return digest
    }

    public static func hash(_ data: [UInt8]) -> [UInt8] { data.withUnsafeBytes(hash) }
}

/// HMAC-SHA-256, RFC 2104.
public enum HMACSHA256 {
    public static let bytes = 32

    /// Writes the 32-byte tag of a message that is not secret to `tag`.
    public static func authenticate(
        _ message: UnsafeRawBufferPointer, key: borrowing SecretBytes,
        to tag: UnsafeMutableRawPointer
    ) {
        var count: UInt32 = 0
        key.withUnsafeBytes { key in
            _ = CCryptoBoringSSL_HMAC(
                CCryptoBoringSSL_EVP_sha256(), key.baseAddress, key.count,
                message.baseAddress?.assumingMemoryBound(to: UInt8.self), message.count,
                tag.assumingMemoryBound(to: UInt8.self), &count)
        }
        precondition(count == 32)
    }

    public static func authenticate(
        _ message: [UInt8], key: borrowing SecretBytes
    ) -> [UInt8] {
        var tag = [UInt8](repeating: 0, count: bytes)
        tag.withUnsafeMutableBytes { out in
            message.withUnsafeBytes { authenticate($0, key: key, to: out.baseAddress!) }
        }
        return tag
    }

    /// The fewest bytes of a tag that authenticate: 96 bits, as in HMAC-SHA-1-96, RFC 2404.
    public static let fewestBytes = 12

    /// Whether `tag` (the whole tag, or its first 12 bytes or more) belongs to `message`; in
    /// constant time.
    public static func verify(
        _ tag: Slice<UnsafeRawBufferPointer>, of message: UnsafeRawBufferPointer,
        key: borrowing SecretBytes
    ) -> Bool {
        precondition((fewestBytes...bytes).contains(tag.count))
        return withUnsafeTemporaryAllocation(byteCount: bytes, alignment: 8) { expected in
            authenticate(message, key: key, to: expected.baseAddress!)
            return CCryptoBoringSSL_CRYPTO_memcmp(
                expected.baseAddress!, UnsafeRawBufferPointer(rebasing: tag).baseAddress!, tag.count
            )
                == 0
        }
    }

    /// Derives a key by HMAC of a message that is not secret. Throws `outOfLockedMemory`.
    public static func derive(
        _ message: [UInt8], key: borrowing SecretBytes
    ) throws(CryptoError) -> SecretBytes {
        try secretTag { out in
            message.withUnsafeBytes { authenticate($0, key: key, to: out) }
        }
    }

    /// Derives a key by HMAC: the message and the result are secret. Throws `outOfLockedMemory`.
    public static func derive(
        _ message: borrowing SecretBytes, key: borrowing SecretBytes
    ) throws(CryptoError) -> SecretBytes {
        try secretTag { out in
            message.withUnsafeBytes { authenticate($0, key: key, to: out) }
        }
    }

    /// The 32 bytes that `write` puts there, in locked memory.
    private static func secretTag(
        _ write: (UnsafeMutableRawPointer) -> Void
    ) throws(CryptoError) -> SecretBytes {
        guard var result = try? SecretBytes(zeroed: bytes) else { throw .outOfLockedMemory }
        result.withUnsafeMutableBytes { write($0.baseAddress!) }
        ward_scrub_stack()
        return result
    }
}

/// HKDF-SHA-256, RFC 5869.
public enum KeyDerivation {
    /// Derives `count` bytes. Throws `outOfLockedMemory`, and `invalidParameters` for too large a
    /// `count`.
    public static func derive(
        from secret: borrowing SecretBytes, salt: [UInt8] = [], info: String, count: Int = 32
    ) throws(CryptoError) -> SecretBytes {
        try derive(from: secret, salt: salt, info: Array(info.utf8), count: count)
    }

    /// The same, with `info` as bytes.
    public static func derive(
        from secret: borrowing SecretBytes, salt: [UInt8] = [], info: [UInt8], count: Int = 32
    ) throws(CryptoError) -> SecretBytes {
        guard var result = try? SecretBytes(zeroed: count) else { throw .outOfLockedMemory }
        let ok = info.withUnsafeBufferPointer { info in
            salt.withUnsafeBufferPointer { salt in
                secret.withUnsafeBytes { secret in
                    result.withUnsafeMutableBytes { out in
                        CCryptoBoringSSL_HKDF(
                            out.baseAddress!.assumingMemoryBound(to: UInt8.self), out.count,
                            CCryptoBoringSSL_EVP_sha256(),
                            secret.baseAddress!.assumingMemoryBound(to: UInt8.self), secret.count,
                            salt.baseAddress, salt.count, info.baseAddress, info.count)
                    }
                }
            }
        }
        ward_scrub_stack()
        guard ok == 1 else { throw .invalidParameters }
        return result
    }
}

/// scrypt, RFC 7914.
public enum Scrypt {
    /// `n` is a power of two. The derivation needs 128 · n · r bytes of memory.
    public struct Parameters: Equatable, Sendable {
        public var n: UInt64
        public var r: UInt64
        public var p: UInt64

        public init(n: UInt64, r: UInt64, p: UInt64) {
            self.n = n
            self.r = r
            self.p = p
        }
    }

    /// Derives `count` bytes. Throws `outOfLockedMemory`, and `invalidParameters` for costs that
    /// the library refuses.
    public static func derive(
        from passcode: borrowing SecretBytes, salt: [UInt8], parameters: Parameters, count: Int = 32
    ) throws(CryptoError) -> SecretBytes {
        guard var result = try? SecretBytes(zeroed: count) else { throw .outOfLockedMemory }
        let memoryBytes = 128 * parameters.r * (parameters.n + parameters.p) + (1 << 20)
        let ok = passcode.withUnsafeBytes { passcode in
            salt.withUnsafeBufferPointer { salt in
                result.withUnsafeMutableBytes { out in
                    CCryptoBoringSSL_EVP_PBE_scrypt(
                        passcode.baseAddress!.assumingMemoryBound(to: CChar.self), passcode.count,
                        salt.baseAddress, salt.count, parameters.n, parameters.r, parameters.p,
                        Int(memoryBytes), out.baseAddress!.assumingMemoryBound(to: UInt8.self),
                        out.count)
                }
            }
        }
        ward_scrub_stack()
        guard ok == 1 else { throw .invalidParameters }
        return result
    }
}
