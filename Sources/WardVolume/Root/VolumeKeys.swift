import WardCrypto
import WardFormat
import WardSystem

/// The keys of names and metadata, all derived from the volume key (HKDF-SHA-256, one info string
/// each). They stay in memory while the volume is mounted: listing works before the first unlock.
package final class VolumeKeys: Sendable {
    /// The format of the structures that are written.
    package let format: VolumeFormat
    /// The ciphers of format 1 while the volume is between the formats; else nil.
    let version1Remains: Version1Remains?
    /// AES-256-GCM-SIV for names.
    package let names: NameCipher
    let links: MetadataCipher
    let attributes: MetadataCipher
    /// HMAC key for the stored names of extended attributes.
    let attributeNames: SecretBytes
    /// HMAC key of file headers.
    package let headers: SecretBytes
    /// HMAC key of directory records.
    package let records: SecretBytes
    /// HMAC key of the lists of a file's directories (`FilePlaces`).
    let places: SecretBytes
    /// HMAC key of permits for symbolic links (`LinkPermit`).
    let linkPermits: SecretBytes
    /// HMAC key of the public key to which capsules are made.
    let capsules: SecretBytes
    /// The volume's part of the keys that wrap class B's file keys.
    let classB: SecretBytes
    /// HMAC key of the state record.
    let state: SecretBytes
    /// The directory ID of the root.
    package let rootID: [UInt8]

    /// Derives all keys. Throws where no memory can be locked. `isUpgrading`: structures of format
    /// 1 are read in a volume of format 2.
    package init(
        volumeKey: borrowing SecretBytes, format: VolumeFormat, isUpgrading: Bool = false
    ) throws(CryptoError) {
        precondition(format >= .version2 || !isUpgrading)
        self.format = format
        version1Remains = isUpgrading ? try Version1Remains(volumeKey) : nil
        names = NameCipher(
            try AEADContext(
                .aes256GCMSIV, key: KeyDerivation.derive(from: volumeKey, info: "ward names")))
        links = try MetadataCipher(volumeKey, "ward symbolic links", format)
        attributes = try MetadataCipher(volumeKey, "ward extended attributes", format)
        attributeNames = try KeyDerivation.derive(
            from: volumeKey, info: "ward extended attribute names")
        headers = try KeyDerivation.derive(from: volumeKey, info: "ward file headers")
        records = try KeyDerivation.derive(from: volumeKey, info: "ward directory records")
        places = try KeyDerivation.derive(from: volumeKey, info: "ward file places")
        linkPermits = try KeyDerivation.derive(from: volumeKey, info: "ward link permits")
        capsules = try KeyDerivation.derive(from: volumeKey, info: "ward capsules")
        classB = try KeyDerivation.derive(from: volumeKey, info: "ward class B")
        state = try KeyDerivation.derive(from: volumeKey, info: "ward volume state")
        let root = try KeyDerivation.derive(
            from: volumeKey, info: "ward root directory", count: 16)
        rootID = root.withUnsafeBytes { [UInt8]($0) }
    }
}

extension VolumeKeys {
    /// The parent's ID as directory records take it: nil in format 1, which binds to no parent.
    package func parentID(_ id: [UInt8]) -> [UInt8]? { format == .version1 ? nil : id }

    /// The names of a directory that are no file's.
    package var ownNames: OwnName { OwnName(format) }

    /// The names under which a directory's record is looked for, in this order. The second one is
    /// there while the directory moves, and where a power cut came into a move.
    package var recordNames: [String] {
        format == .version1
            ? [DirectoryRecord.linkName] : [DirectoryRecord.linkName, DirectoryRecord.nextLinkName]
    }
}
