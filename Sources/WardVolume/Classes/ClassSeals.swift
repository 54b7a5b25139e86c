import Synchronization
import WardFormat
import WardKeys

/// Makes and judges the seals of classes (format 2, docs/format.md §6.2). A program with the
/// device's files alone can write any class into a header or a record, but no seal.
///
/// A seal is made for a class that this mount gave, or that had its seal. No judgement by
/// surroundings leads to a seal: an attacker chooses the surroundings.
///
/// Before the first unlock there is no seal key: classes count as they are read, and what is made
/// gets no seal. This object remembers what this mount made then, by inode, so that it gets its
/// seal later.
///
/// Concurrency: any thread; `made` guards what is remembered.
package final class ClassSeals: Sendable {
    /// The standing of the class of a file or directory.
    enum Judgement: UInt64, AtomicWord {
        /// It was read, and is not judged yet.
        case open = 0
        /// This mount made the file or directory without the seal key, in its directory's class.
        case inherited = 1
        /// A program chose the class in this mount, without the seal key.
        case chosen = 2
        /// It counts: it had its seal, or this mount gave it.
        case right = 3
        /// A file's class has no seal, and is not weaker than that of its directory.
        case passed = 4
        /// A file's class has no seal, and is weaker than it may be: the content must not change. A
        /// directory's class has no seal: a stronger one may count.
        case weak = 5

        var word: UInt64 { rawValue }
        init(word: UInt64) { self = Judgement(rawValue: word)! }

        /// Whether the class is judged once there is a seal key.
        var isWaiting: Bool { self == .open || self == .inherited || self == .chosen }

        /// Whether the content of a file may change without another look.
        @inline(__always)
        var admitsChanges: Bool { self == .right || self == .passed }
    }

    /// A file or directory of the backing store.
    private struct Key: Hashable {
        let inode: UInt64
        /// The file's or directory's ID.
        let id: [UInt8]
    }

    /// The class of a directory that this mount wrote without the seal key.
    struct MadeDirectory {
        let protectionClass: ProtectionClass
        let isSynchronised: Bool
        /// Whether a program chose the class. Else it is the parent's.
        let isChosen: Bool
    }

    /// The header of a file that this mount wrote without the seal key.
    struct MadeFile {
        let sealedPart: [UInt8]
        /// Whether a program chose the class. Else it is the directory's.
        let isChosen: Bool
    }

    /// The record that a directory had before this mount moved it without the seal key.
    private struct MovedRecord {
        let record: DirectoryRecord
        let parentID: [UInt8]
    }

    private struct Made {
        var moved: [Key: MovedRecord] = [:]
        var directories: [Key: MadeDirectory] = [:]
        var files: [Key: MadeFile] = [:]
        /// Directories for which a program chose a class in this mount.
        var chosen: Set<Key> = []
    }

    private let keyring: ClassKeyring
    /// Whether the volume has seals: format 2.
    let areUsed: Bool
    private let made = Mutex(Made())
    private let isAnyMade = Atomic<Bool>(false)
    /// Files and directories beyond this number are judged like those of an earlier mount.
    static let mostMade = 65_536

    init(_ keyring: ClassKeyring, _ format: VolumeFormat) {
        self.keyring = keyring
        areUsed = format >= .version2
    }

    /// Whether seals can be made and judged now.
    @inline(__always)
    package var areOpen: Bool { areUsed && keyring.hasSealKey }

    /// The judgement of a class that was read just now, without a look at its seal.
    var unjudged: Judgement { areUsed ? .open : .right }

    /// The judgement of a class that is about to be inherited. Asked before the directory's class
    /// is looked at: that one is judged where the seal key is in memory.
    var ofNew: Judgement { !areUsed || keyring.hasSealKey ? .right : .inherited }

    // MARK: Directories

    /// The record with its seal, or without one where there is no seal key.
    func sealed(_ record: DirectoryRecord, parentID: [UInt8]) -> DirectoryRecord {
        var record = record
        record.seal =
            areUsed
            ? keyring.seal(
                record.sealedPart(parentID: parentID), count: ClassSeal.directoryBytes)
                ?? ClassSeal.noDirectorySeal : ClassSeal.noDirectorySeal
        return record
    }

    /// Whether a record has the right seal. False without the seal key.
    package func isRight(_ record: DirectoryRecord, parentID: [UInt8]) -> Bool {
        keyring.isSeal(record.seal, of: record.sealedPart(parentID: parentID))
    }

    /// Remembers a record that this mount wrote without a seal.
    func noteMade(_ record: DirectoryRecord, inode: UInt64, isChosen: Bool) {
        note { made in
            let key = Key(inode: inode, id: record.directoryID)
            made.directories[key] = MadeDirectory(
                protectionClass: record.protectionClass, isSynchronised: record.isSynchronised,
                isChosen: isChosen)
            if isChosen {
                made.chosen.insert(key)
                made.moved[key] = nil
            }
        }
    }

    /// Remembers that a program chose a directory's class. That matters to files that this mount
    /// made in it before the first unlock.
    func noteChosen(directory id: [UInt8], inode: UInt64) {
        guard isAnyMade.load(ordering: .acquiring) else { return }
        note { $0.chosen.insert(Key(inode: inode, id: id)) }
    }

    /// Whether a program chose the directory's class in this mount.
    func isChosen(directory id: [UInt8], inode: UInt64) -> Bool {
        guard isAnyMade.load(ordering: .acquiring) else { return false }
        return made.withLock { $0.chosen.contains(Key(inode: inode, id: id)) }
    }

    /// Remembers the record that a directory has in `parentID`, before a move without the seal key.
    /// Its seal may be found right later.
    func noteMoved(_ record: DirectoryRecord, from parentID: [UInt8], inode: UInt64) {
        let key = Key(inode: inode, id: record.directoryID)
        guard record.hasSeal, madeDirectory(key.id, inode: inode) == nil else { return }
        note { made in
            if made.moved[key] == nil {
                made.moved[key] = MovedRecord(record: record, parentID: parentID)
            }
        }
    }

    /// The record that a directory had before its moves, if that has the right seal.
    func recordBeforeMoves(_ id: [UInt8], inode: UInt64) -> DirectoryRecord? {
        guard isAnyMade.load(ordering: .acquiring),
            let moved = made.withLock({ $0.moved[Key(inode: inode, id: id)] })
        else { return nil }
        return isRight(moved.record, parentID: moved.parentID) ? moved.record : nil
    }

    /// Whether this mount wrote a directory's record without a seal, and it gets one.
    package func hasMade(directory id: [UInt8], inode: UInt64) -> Bool {
        madeDirectory(id, inode: inode) != nil || recordBeforeMoves(id, inode: inode) != nil
    }

    /// The class that this mount gave a directory without a seal; nil where it gave none.
    func madeDirectory(_ id: [UInt8], inode: UInt64) -> MadeDirectory? {
        guard isAnyMade.load(ordering: .acquiring) else { return nil }
        return made.withLock { $0.directories[Key(inode: inode, id: id)] }
    }

    /// Forgets a file or directory that has its seal now.
    func forgetMade(_ id: [UInt8], inode: UInt64) {
        guard isAnyMade.load(ordering: .acquiring) else { return }
        let key = Key(inode: inode, id: id)
        made.withLock { made in
            made.directories[key] = nil
            made.moved[key] = nil
            made.files[key] = nil
        }
    }

    private func note(_ body: (inout Made) -> Void) {
        guard areUsed else { return }
        made.withLock { made in
            let count =
                made.directories.count + made.moved.count + made.files.count + made.chosen.count
            guard count < ClassSeals.mostMade else { return }
            body(&made)
        }
        isAnyMade.store(true, ordering: .releasing)
    }

    // MARK: Files

    /// The header with its seal. `old`: the header that it replaces. Where no seal may be made, a
    /// header that says the same keeps the old one's.
    func sealed(
        _ header: FileHeader, replacing old: FileHeader?, _ judgement: Judgement, inode: UInt64
    ) -> FileHeader {
        guard areUsed else { return header }
        var header = header
        let part = header.sealedPart
        if judgement == .right, let seal = keyring.seal(part, count: ClassSeal.fileBytes) {
            header.seal = seal
            forgetMade(header.fileID, inode: inode)
            return header
        }
        if let old, old.sealedPart == part {
            header.seal = old.seal
            return header
        }
        header.seal = ClassSeal.noFileSeal
        if [.inherited, .chosen, .right].contains(judgement), !areOpen {
            let key = Key(inode: inode, id: header.fileID)
            note {
                $0.files[key] = MadeFile(sealedPart: part, isChosen: judgement != .inherited)
            }
        }
        return header
    }

    /// Remembers the header of a file whose class its owner chose without the seal key.
    func noteChosen(_ header: FileHeader, inode: UInt64) {
        note { made in
            made.files[Key(inode: inode, id: header.fileID)] = MadeFile(
                sealedPart: header.sealedPart, isChosen: true)
        }
    }

    /// Whether a header has the right seal. False without the seal key.
    package func isRight(_ header: FileHeader) -> Bool {
        keyring.isSeal(header.seal, of: header.sealedPart)
    }

    /// The note of a header that this mount wrote without a seal; nil for another header.
    private func madeFile(_ header: FileHeader, inode: UInt64) -> MadeFile? {
        guard isAnyMade.load(ordering: .acquiring) else { return nil }
        let found = made.withLock { $0.files[Key(inode: inode, id: header.fileID)] }
        return found?.sealedPart == header.sealedPart ? found : nil
    }

    /// The directories of a file's names.
    struct Surroundings {
        /// The strongest of their classes, judged; nil where the file has no name.
        var strongest: ProtectionClass?
        /// Whether a program chose each stronger class in this mount, after the file was made.
        var areChosen = true
    }

    /// The judgement of a header that was read, without the right seal.
    func judge(_ header: FileHeader, inode: UInt64, _ surroundings: Surroundings) -> Judgement {
        let own = header.protectionClass
        let isWeaker = surroundings.strongest?.isStronger(than: own) ?? false
        if let made = madeFile(header, inode: inode),
            made.isChosen || !isWeaker || surroundings.areChosen
        {
            return .right
        }
        // A file without a name is lost when it is closed.
        guard surroundings.strongest != nil else { return .right }
        // A person with the device's files can wrap a key for class B, and knows it.
        let isOthersKey = own == .completeUnlessOpen && !header.wrappedKey.isEmpty
        return isWeaker || isOthersKey ? .weak : .passed
    }
}
