import WardCrypto
import WardFormat
import WardSystem

/// The cipher of extended attributes, or of targets of symbolic links: nonce ‖ ciphertext ‖ tag.
///
/// Format 1: AES-256-GCM, nonces of 12 bytes. Format 2: XAES-256-GCM, nonces of 24 bytes, so that
/// one key lasts for all of a volume's changes (docs/format.md §12).
package enum MetadataCipher: ~Copyable, Sendable {
    case plain(AEADContext)
    case extended(XAES256GCM)

    /// Derives the cipher from the volume key. `info`: the use, as docs/format.md §3 has it. Throws
    /// where no memory can be locked.
    init(
        _ volumeKey: borrowing SecretBytes, _ info: String, _ format: VolumeFormat
    ) throws(CryptoError) {
        if format == .version1 {
            self = .plain(
                try AEADContext(
                    .aes256GCM, key: KeyDerivation.derive(from: volumeKey, info: info)))
        } else {
            let info = info + ", extended nonces"
            self = .extended(
                try XAES256GCM(key: KeyDerivation.derive(from: volumeKey, info: info)))
        }
    }

    /// The bytes that sealing adds.
    var overheadBytes: Int {
        switch self {
        case .plain: AEADContext.nonceBytes + AEADContext.tagBytes
        case .extended: XAES256GCM.overheadBytes
        }
    }

    /// Seals bytes under a random nonce. Throws `ENOMEM`.
    borrowing func seal(
        _ bytes: UnsafeRawBufferPointer, associatedData: [UInt8]
    ) throws(Errno) -> [UInt8] {
        switch self {
        case .plain(let cipher):
            return cipher.sealCombined(bytes, associatedData: associatedData)
        case .extended(let cipher):
            do throws(CryptoError) {
                return try cipher.seal(bytes, associatedData: associatedData)
            } catch {
                throw .noMemory
            }
        }
    }

    /// Opens the result of `seal`. Throws `authenticationFailed`, or `outOfLockedMemory`.
    package borrowing func open(
        _ sealed: [UInt8], associatedData: [UInt8]
    ) throws(CryptoError) -> SecretBytes {
        switch self {
        case .plain(let cipher):
            try cipher.openSecret(sealed, associatedData: associatedData)
        case .extended(let cipher): try cipher.open(sealed, associatedData: associatedData)
        }
    }
}
