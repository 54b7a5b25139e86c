import CWardLinux
import Glibc
import WardSystem

/// AES key wrap with the default initial value, RFC 3394 (NIST SP 800-38F KW).
public enum AESKeyWrap {
    /// Bytes by which a wrapped key is longer than the key.
    public static let overheadBytes = 8

    /// Wraps `key` (a multiple of 8 bytes, at least 16) under the 32-byte `kek`.
    public static func wrap(
        _ key: borrowing SecretBytes, using kek: borrowing SecretBytes
    ) -> [UInt8] {
        precondition(kek.count == 32 && key.count >= 16 && key.count % 8 == 0)
        let memory = schedule()
        defer { wipe(memory) }
        kek.withUnsafeBytes {
            _ = CCryptoBoringSSL_AES_set_encrypt_key(
                $0.baseAddress!.assumingMemoryBound(to: UInt8.self), 256, memory)
        }
        var wrapped = [UInt8](repeating: 0, count: key.count + overheadBytes)
        let written = key.withUnsafeBytes { source in
            wrapped.withUnsafeMutableBufferPointer { out in
                CCryptoBoringSSL_AES_wrap_key(
                    memory, nil, out.baseAddress!,
                    source.baseAddress!.assumingMemoryBound(to: UInt8.self), source.count)
            }
        }
        precondition(written == Int32(wrapped.count), "wrapping can't fail")
        return wrapped
    }

    /// Unwraps what `wrap` made; `authenticationFailed` where the key or the bytes are wrong.
    public static func unwrap(
        _ wrapped: UnsafeRawBufferPointer, using kek: borrowing SecretBytes
    ) throws(CryptoError) -> SecretBytes {
        precondition(kek.count == 32)
        guard wrapped.count >= 24, wrapped.count % 8 == 0 else { throw .authenticationFailed }
        guard var key = try? SecretBytes(zeroed: wrapped.count - overheadBytes) else {
            throw .outOfLockedMemory
        }
        let memory = schedule()
        defer { wipe(memory) }
        kek.withUnsafeBytes {
            _ = CCryptoBoringSSL_AES_set_decrypt_key(
                $0.baseAddress!.assumingMemoryBound(to: UInt8.self), 256, memory)
        }
        let written = key.withUnsafeMutableBytes { out in
            CCryptoBoringSSL_AES_unwrap_key(
                memory, nil, out.baseAddress!.assumingMemoryBound(to: UInt8.self),
                wrapped.baseAddress!.assumingMemoryBound(to: UInt8.self), wrapped.count)
        }
        guard written == Int32(wrapped.count - overheadBytes) else { throw .authenticationFailed }
        return key
    }

    /// Room for an expanded key. In the secret heap where that has room; else on the ordinary heap, wiped all the same.
    private static func schedule() -> UnsafeMutablePointer<ward_aes_key> {
        let memory =
            (try? SecretHeap.shared.allocate(MemoryLayout<ward_aes_key>.size))
            ?? { preconditionFailure("no locked memory for a key schedule") }()
        return memory.bindMemory(to: ward_aes_key.self, capacity: 1)
    }

    private static func wipe(_ memory: UnsafeMutablePointer<ward_aes_key>) {
        SecretHeap.shared.deallocate(memory, MemoryLayout<ward_aes_key>.size)
        ward_scrub_stack()
    }
}
