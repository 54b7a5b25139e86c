import Synchronization
import WardCrypto
import WardFormat
import WardSystem

/// The ciphers of links and attributes that an upgrade has not carried over yet.
final class Version1Remains: Sendable {
    /// Whether structures of format 1 are read. The end of the upgrade ends that.
    fileprivate let areRead = Atomic(true)
    let links: MetadataCipher
    let attributes: MetadataCipher

    init(_ volumeKey: borrowing SecretBytes) throws(CryptoError) {
        links = try MetadataCipher(volumeKey, "ward symbolic links", .version1)
        attributes = try MetadataCipher(volumeKey, "ward extended attributes", .version1)
    }
}

// Reading structures in a volume that is being upgraded (docs/format.md §10.1). All that is written
// is format 2, except headers that are of format 1 already. Both formats are read.
extension VolumeKeys {
    /// Whether structures of format 1 are read, too: the volume is between the formats.
    package var readsVersion1: Bool {
        version1Remains.map { $0.areRead.load(ordering: .acquiring) } ?? false
    }

    /// Structures of format 1 are damaged from now on.
    func endVersion1() { version1Remains?.areRead.store(false, ordering: .releasing) }

    /// The ciphers of format 1; nil where its structures are damaged.
    var version1: Version1Remains? { readsVersion1 ? version1Remains : nil }

    /// The format of the header at `page`, by its version field. Only while the volume is upgraded
    /// can it be another one than the volume's.
    func headerFormat(_ page: UnsafeRawPointer) -> VolumeFormat {
        guard readsVersion1 else { return format }
        let version = UInt16(
            littleEndian: page.loadUnaligned(fromByteOffset: 8, as: UInt16.self))
        return version == VolumeFormat.version1.rawValue ? .version1 : format
    }

    /// Reads a file's header, and checks it.
    package func header(reading page: UnsafeRawPointer) throws(FormatError) -> FileHeader {
        try FileHeader(reading: page, macKey: headers, format: headerFormat(page))
    }

    /// Reads a directory's record, and checks it. `parentID`: the ID of the directory that it is
    /// in. A record of format 1 knows no parent.
    package func directoryRecord(
        _ linkTarget: String, parentID: [UInt8]
    ) throws(FormatError) -> DirectoryRecord {
        do throws(FormatError) {
            return try boundRecord(linkTarget, parentID: parentID)
        } catch {
            guard readsVersion1, error.code != .newerVersion,
                let record = try? DirectoryRecord(
                    linkTarget: linkTarget, macKey: records, parentID: nil)
            else { throw error }
            return record
        }
    }

    /// Like `directoryRecord`, but only of the format that is written.
    func boundRecord(
        _ linkTarget: String, parentID: [UInt8]
    ) throws(FormatError) -> DirectoryRecord {
        try DirectoryRecord(
            linkTarget: linkTarget, macKey: records, parentID: self.parentID(parentID))
    }

    /// Returns the plaintext of a stored attribute: name length 2 ‖ name ‖ value. `owner`: the ID
    /// of the file or directory.
    func openAttributeBytes(
        _ sealed: [UInt8], _ owner: [UInt8], _ stored: String
    ) throws(CryptoError) -> SecretBytes {
        let associatedData = owner + Array(stored.utf8)
        do throws(CryptoError) {
            return try attributes.open(sealed, associatedData: associatedData)
        } catch {
            guard error == .authenticationFailed, let version1 else { throw error }
            return try version1.attributes.open(sealed, associatedData: associatedData)
        }
    }
}
