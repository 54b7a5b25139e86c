import CWardLinux
import Glibc
import WardSystem

/// AES key wrap with the default initial value, RFC 3394 (NIST SP 800-38F KW).
public enum AESKeyWrap {
    /// The bytes by which a wrapped key is longer than the key.
    public static let overheadBytes = 8

    /// Wraps `key` (a multiple of 8 bytes, at least 16) under the 32-byte `kek`.
    public static func wrap(
        _ key: borrowing SecretBytes, using kek: borrowing SecretBytes
    ) -> [UInt8] {
        precondition(kek.count == 32 && key.count >= 16 && key.count % 8 == 0)
        let schedule = schedule()
        defer { schedule.wipe() }
        kek.withUnsafeBytes {
            _ = CCryptoBoringSSL_AES_set_encrypt_key(
                $0.baseAddress!.assumingMemoryBound(to: UInt8.self), 256, schedule.key)
        }
        var wrapped = [UInt8](repeating: 0, count: key.count + overheadBytes)
        let written = key.withUnsafeBytes { source in
            wrapped.withUnsafeMutableBufferPointer { out in
                CCryptoBoringSSL_AES_wrap_key(
                    schedule.key, nil, out.baseAddress!,
                    source.baseAddress!.assumingMemoryBound(to: UInt8.self), source.count)
            }
        }
        precondition(written == Int32(wrapped.count), "wrapping can't fail")
        return wrapped
    }

    /// Unwraps the result of `wrap`. Throws `authenticationFailed` where the key or the bytes are
    /// wrong, and `outOfLockedMemory`.
    public static func unwrap(
        _ wrapped: UnsafeRawBufferPointer, using kek: borrowing SecretBytes
    ) throws(CryptoError) -> SecretBytes {
        precondition(kek.count == 32)
        guard wrapped.count >= 24, wrapped.count % 8 == 0 else { throw .authenticationFailed }
        guard var key = try? SecretBytes(zeroed: wrapped.count - overheadBytes) else {
            throw .outOfLockedMemory
        }
        let schedule = schedule()
        defer { schedule.wipe() }
        kek.withUnsafeBytes {
            _ = CCryptoBoringSSL_AES_set_decrypt_key(
                $0.baseAddress!.assumingMemoryBound(to: UInt8.self), 256, schedule.key)
        }
        let written = key.withUnsafeMutableBytes { out in
            CCryptoBoringSSL_AES_unwrap_key(
                schedule.key, nil, out.baseAddress!.assumingMemoryBound(to: UInt8.self),
                wrapped.baseAddress!.assumingMemoryBound(to: UInt8.self), wrapped.count)
        }
        guard written == Int32(wrapped.count - overheadBytes) else { throw .authenticationFailed }
        return key
    }

    /// Returns room for an expanded key in the secret heap. If that is full, the room is on the
    /// ordinary heap for a microsecond, and is wiped, too. An error would lose a write because 256
    /// locked bytes are missing.
    private static func schedule() -> Schedule {
        if let locked = try? SecretHeap.shared.allocate(MemoryLayout<ward_aes_key>.size) {
            return Schedule(memory: locked, isLocked: true)
        }
        return Schedule(
            memory: .allocate(byteCount: MemoryLayout<ward_aes_key>.size, alignment: 16),
            isLocked: false)
    }

    private struct Schedule {
        let memory: UnsafeMutableRawPointer
        let isLocked: Bool

        var key: UnsafeMutablePointer<ward_aes_key> {
            memory.assumingMemoryBound(to: ward_aes_key.self)
        }

        func wipe() {
            if isLocked {
                SecretHeap.shared.deallocate(memory, MemoryLayout<ward_aes_key>.size)
            } else {
                explicit_bzero(memory, MemoryLayout<ward_aes_key>.size)
                memory.deallocate()
            }
            ward_scrub_stack()
        }
    }
}
