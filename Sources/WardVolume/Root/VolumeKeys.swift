import WardCrypto
import WardFormat
import WardSystem

/// The keys of names and metadata, all derived from the volume key (HKDF-SHA-256, one info string
/// each). They stay in memory while the volume is mounted: listing works before the first unlock.
package final class VolumeKeys: Sendable {
    /// AES-256-GCM-SIV for names.
    package let names: NameCipher
    /// AES-256-GCM for targets of symbolic links.
    let links: AEADContext
    /// AES-256-GCM for extended attributes.
    let attributes: AEADContext
    /// HMAC key for the stored names of extended attributes.
    let attributeNames: SecretBytes
    /// HMAC key of file headers.
    package let headers: SecretBytes
    /// HMAC key of directory records.
    package let records: SecretBytes
    /// HMAC key of the state record.
    let state: SecretBytes
    /// The directory ID of the root.
    package let rootID: [UInt8]

    /// Derives all keys. Throws where no memory can be locked.
    package init(volumeKey: borrowing SecretBytes) throws(CryptoError) {
        names = NameCipher(
            try AEADContext(
                .aes256GCMSIV, key: KeyDerivation.derive(from: volumeKey, info: "ward names")))
        links = try AEADContext(
            .aes256GCM, key: KeyDerivation.derive(from: volumeKey, info: "ward symbolic links"))
        attributes = try AEADContext(
            .aes256GCM,
            key: KeyDerivation.derive(from: volumeKey, info: "ward extended attributes"))
        attributeNames = try KeyDerivation.derive(
            from: volumeKey, info: "ward extended attribute names")
        headers = try KeyDerivation.derive(from: volumeKey, info: "ward file headers")
        records = try KeyDerivation.derive(from: volumeKey, info: "ward directory records")
        state = try KeyDerivation.derive(from: volumeKey, info: "ward volume state")
        let root = try KeyDerivation.derive(
            from: volumeKey, info: "ward root directory", count: 16)
        rootID = root.withUnsafeBytes { [UInt8]($0) }
    }
}
