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
    /// A file or directory of the backing store.
    private struct Key: Hashable {
        let inode: UInt64
        /// The file's or directory's ID.
        let id: [UInt8]
    }

    /// The record of a directory.
    struct Directory {
        let protectionClass: ProtectionClass
        let isSynchronised: Bool
        let vouch: Vouch
        /// The directory that it is in.
        let parentID: [UInt8]
    }

    private struct File {
        let sealedPart: [UInt8]
        let vouch: Vouch
    }

    private struct Notes {
        var directories: [Key: Directory] = [:]
        var files: [Key: File] = [:]
    }

    private let notes = Mutex(Notes())
    private let isAny = Atomic<Bool>(false)
    /// Files and directories beyond this number are judged like those of an earlier mount.
    private static let most = 65_536

    private func note(_ body: (inout Notes) -> Void) {
        notes.withLock { notes in
            guard notes.directories.count + notes.files.count < ClassNotes.most else { return }
            body(&notes)
        }
        isAny.store(true, ordering: .releasing)
    }

    // MARK: Directories

    /// Notes a record that is in `parentID`.
    func note(
        _ record: DirectoryRecord, inode: UInt64, in parentID: [UInt8], _ vouch: Vouch
    ) {
        note {
            $0.directories[Key(inode: inode, id: record.directoryID)] = Directory(
                protectionClass: record.protectionClass, isSynchronised: record.isSynchronised,
                vouch: vouch, parentID: parentID)
        }
    }

    /// The note of a directory in `parentID`; nil where there is none.
    func directory(_ id: [UInt8], inode: UInt64, in parentID: [UInt8]) -> Directory? {
        guard isAny.load(ordering: .acquiring) else { return nil }
        let found = notes.withLock { $0.directories[Key(inode: inode, id: id)] }
        return found?.parentID == parentID ? found : nil
    }

    // MARK: Files

    func note(_ header: FileHeader, inode: UInt64, _ vouch: Vouch) {
        note {
            $0.files[Key(inode: inode, id: header.fileID)] = File(
                sealedPart: header.sealedPart, vouch: vouch)
        }
    }

    /// The reason why the class of this header counts; nil for a header without a note.
    func vouch(of header: FileHeader, inode: UInt64) -> Vouch? {
        guard isAny.load(ordering: .acquiring) else { return nil }
        let found = notes.withLock { $0.files[Key(inode: inode, id: header.fileID)] }
        return found?.sealedPart == header.sealedPart ? found?.vouch : nil
    }

    /// Forgets a file or directory that has its seal now.
    func forget(_ id: [UInt8], inode: UInt64) {
        guard isAny.load(ordering: .acquiring) else { return }
        let key = Key(inode: inode, id: id)
        notes.withLock { notes in
            notes.directories[key] = nil
            notes.files[key] = nil
        }
    }
}
