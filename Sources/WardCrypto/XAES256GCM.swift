import CWardLinux
import Glibc
import WardSystem

/// AES-256-GCM with nonces of 24 bytes, C2SP XAES-256-GCM. Each message has a key of its own,
/// derived by CMAC (NIST SP 800-108r1) from the first half of its nonce. So one key seals 2^80
/// messages with random nonces, at a collision probability of 2^-32.
///
/// The expanded key lives in locked memory and is wiped with its owner. Threads share it: sealing
/// and opening only read it.
public struct XAES256GCM: ~Copyable, @unchecked Sendable {
    public static let nonceBytes = 24
    /// The bytes by which a sealed message is longer: nonce 24 ‖ tag 16.
    public static let overheadBytes = nonceBytes + AEADContext.tagBytes

    private let schedule: UnsafeMutablePointer<ward_aes_key>
    /// CMAC's first subkey, NIST SP 800-38B §6.1, for messages of one whole block.
    private let subkey: SecretBytes

    /// Expands `key`, 32 bytes. Throws `outOfLockedMemory`.
    public init(key: borrowing SecretBytes) throws(CryptoError) {
        precondition(key.count == 32, "AES-256 keys have 32 bytes")
        guard let memory = try? SecretHeap.shared.allocate(MemoryLayout<ward_aes_key>.size) else {
            throw .outOfLockedMemory
        }
        let schedule = memory.bindMemory(to: ward_aes_key.self, capacity: 1)
        key.withUnsafeBytes {
            _ = CCryptoBoringSSL_AES_set_encrypt_key(
                $0.baseAddress!.assumingMemoryBound(to: UInt8.self), 256, schedule)
        }
        guard var subkey = try? SecretBytes(zeroed: 16) else {
            SecretHeap.shared.deallocate(memory, MemoryLayout<ward_aes_key>.size)
            ward_scrub_stack()
            throw .outOfLockedMemory
        }
        subkey.withUnsafeMutableBytes {
            let block = $0.baseAddress!.assumingMemoryBound(to: UInt8.self)
            CCryptoBoringSSL_AES_encrypt(block, block, schedule)
            XAES256GCM.double(block)
        }
        ward_scrub_stack()
        self.schedule = schedule
        self.subkey = subkey
    }

    /// Doubles a block in GF(2^128), in place and in constant time.
    private static func double(_ block: UnsafeMutablePointer<UInt8>) {
        let carry = block[0] >> 7
        for index in 0..<15 { block[index] = block[index] << 1 | block[index + 1] >> 7 }
        block[15] = block[15] << 1 ^ 0x87 &* carry
    }

    /// The cipher of the messages whose nonce begins with these 12 bytes.
    private borrowing func cipher(_ nonce: ArraySlice<UInt8>) throws(CryptoError) -> AEADContext {
        guard var key = try? SecretBytes(zeroed: 32) else { throw .outOfLockedMemory }
        key.withUnsafeMutableBytes { key in
            subkey.withUnsafeBytes { subkey in
                for half in 0..<2 {
                    // SP 800-108r1 in counter mode: counter 2 ‖ label ‖ zero ‖ context 12.
                    let block = [0, UInt8(half + 1), UInt8(ascii: "X"), 0] + nonce
                    let out = key.baseAddress!.assumingMemoryBound(to: UInt8.self) + 16 * half
                    for index in 0..<16 { out[index] = block[index] ^ subkey[index] }
                    CCryptoBoringSSL_AES_encrypt(out, out, schedule)
                }
            }
        }
        ward_scrub_stack()
        return try AEADContext(.aes256GCM, key: key)
    }

    /// Seals bytes under a random nonce: nonce 24 ‖ ciphertext ‖ tag 16. Throws
    /// `outOfLockedMemory`.
    public borrowing func seal(
        _ plaintext: UnsafeRawBufferPointer, associatedData: [UInt8]
    ) throws(CryptoError) -> [UInt8] {
        try seal(
            plaintext, nonce: SystemRandom.bytes(XAES256GCM.nonceBytes),
            associatedData: associatedData)
    }

    /// Seals bytes under a given nonce of 24 bytes, for known-answer tests.
    package borrowing func seal(
        _ plaintext: UnsafeRawBufferPointer, nonce: [UInt8], associatedData: [UInt8]
    ) throws(CryptoError) -> [UInt8] {
        precondition(nonce.count == XAES256GCM.nonceBytes)
        let count = plaintext.count
        var result = nonce + [UInt8](repeating: 0, count: count + AEADContext.tagBytes)
        let cipher = try cipher(nonce.prefix(12))
        result.withUnsafeMutableBytes { out in
            associatedData.withUnsafeBytes { data in
                let body = out.baseAddress! + XAES256GCM.nonceBytes
                cipher.seal(
                    plaintext.baseAddress ?? UnsafeRawPointer(body), count: count, to: body,
                    tag: body + count, nonce: out.baseAddress! + 12,
                    associatedData: data.baseAddress, associatedDataBytes: data.count)
            }
        }
        return result
    }

    /// Opens the result of `seal`. Throws `authenticationFailed`, or `outOfLockedMemory`.
    public borrowing func open(
        _ sealed: [UInt8], associatedData: [UInt8]
    ) throws(CryptoError) -> SecretBytes {
        let count = sealed.count - XAES256GCM.overheadBytes
        guard count >= 0 else { throw .authenticationFailed }
        guard var plain = try? SecretBytes(zeroed: count) else { throw .outOfLockedMemory }
        let cipher = try cipher(sealed.prefix(12))
        let ok = sealed.withUnsafeBytes { sealed in
            associatedData.withUnsafeBytes { data in
                plain.withUnsafeMutableBytes { out in
                    let body = sealed.baseAddress! + XAES256GCM.nonceBytes
                    return cipher.open(
                        body, count: count, to: out.baseAddress!, tag: body + count,
                        nonce: sealed.baseAddress! + 12, associatedData: data.baseAddress,
                        associatedDataBytes: data.count)
                }
            }
        }
        guard ok else { throw .authenticationFailed }
        return plain
    }

    deinit {
        SecretHeap.shared.deallocate(schedule, MemoryLayout<ward_aes_key>.size)
    }
}
