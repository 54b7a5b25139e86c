import Synchronization
import WardFormat

/// The reason why a class counts that was written without its seal.
enum Vouch: Equatable, Sendable {
    /// There is none.
    case nothing
    /// This mount gave the class: a program chose it, or it was judged right before.
    case mount
    /// It is the class in a header or record that had this seal. It counts if the seal is right.
    case seal(part: [UInt8], seal: [UInt8])

    init(_ header: FileHeader) {
        self = header.hasSeal ? .seal(part: header.sealedPart, seal: header.seal) : .nothing
    }

    init(_ record: DirectoryRecord, parentID: [UInt8]) {
        self =
            record.hasSeal
            ? .seal(part: record.sealedPart(parentID: parentID), seal: record.seal) : .nothing
    }
}

/// The headers and records that this mount wrote without their seals, so that they get them after
/// the first unlock. A program at the backing store can give another inode the same ID, and move an
/// inode. So a note holds for one inode, and that of a directory in one place alone.
///
/// Concurrency: any thread; `notes` guards all.
final class ClassNotes: Sendable {
    /// The record of a directory.
    struct Directory {
        let id: [UInt8]
        let protectionClass: ProtectionClass
        let isSynchronised: Bool
        let vouch: Vouch
        /// The directory that it is in.
        let parentID: [UInt8]
    }

    /// The header of a file.
    struct File {
        /// It names the file's ID.
        let sealedPart: [UInt8]
        let vouch: Vouch
        /// Whether this mount made the key, so that no other person knows it.
        let hasOwnKey: Bool
    }

    private enum Entry {
        case directory(Directory)
        case file(File)
    }

    /// By inode number.
    private let notes = Mutex<[UInt64: Entry]>([:])
    private let isAny = Atomic<Bool>(false)
    /// Files and directories beyond this number are judged like those of an earlier mount.
    private static let most = 65_536

    /// Whether there are notes.
    var areAny: Bool { isAny.load(ordering: .acquiring) }

    /// Replaces the note of an inode. An older note of it goes, also where there is no room.
    private func put(_ entry: Entry?, _ inode: UInt64) {
        notes.withLock { notes in
            notes[inode] = notes.count < ClassNotes.most || notes[inode] != nil ? entry : nil
            isAny.store(!notes.isEmpty, ordering: .releasing)
        }
    }

    private func entry(_ inode: UInt64) -> Entry? {
        guard areAny else { return nil }
        return notes.withLock { $0[inode] }
    }

    /// Forgets an inode that was removed, or that has its seal now.
    func forget(inode: UInt64) {
        if areAny { put(nil, inode) }
    }

    // MARK: Directories

    /// Notes a record that is in `parentID`.
    func note(
        _ record: DirectoryRecord, inode: UInt64, in parentID: [UInt8], _ vouch: Vouch
    ) {
        let note = Directory(
            id: record.directoryID, protectionClass: record.protectionClass,
            isSynchronised: record.isSynchronised, vouch: vouch, parentID: parentID)
        put(.directory(note), inode)
    }

    /// The note of a directory in `parentID`; nil where there is none.
    func directory(_ id: [UInt8], inode: UInt64, in parentID: [UInt8]) -> Directory? {
        guard case .directory(let found) = entry(inode), found.id == id,
            found.parentID == parentID
        else { return nil }
        return found
    }

    // MARK: Files

    func note(_ header: FileHeader, inode: UInt64, _ vouch: Vouch, hasOwnKey: Bool) {
        let note = File(sealedPart: header.sealedPart, vouch: vouch, hasOwnKey: hasOwnKey)
        put(.file(note), inode)
    }

    /// The note of this header; nil where there is none.
    func file(_ header: FileHeader, inode: UInt64) -> File? {
        guard case .file(let found) = entry(inode), found.sealedPart == header.sealedPart else {
            return nil
        }
        return found
    }
}
