import Synchronization
import WardFormat
import WardKeys
import WardSystem

/// Makes and judges the seals of classes (format 2, docs/format.md §6.2). A program with the
/// device's files alone can write any class into a header or a record, but no seal.
///
/// A seal is made for a class that this mount gave, or that had its seal. No judgement by
/// surroundings leads to a seal: an attacker chooses the surroundings.
///
/// Before the first unlock there is no seal key: classes count as they are read, and what is made
/// gets no seal. The notes remember it, so that it gets its seal later.
///
/// Concurrency: any thread.
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
        /// A file's class has no seal, and is not weaker than that of its directory. It has no key
        /// that another person may know, or class D.
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

    private let keyring: ClassKeyring
    /// Whether the volume has seals: format 2.
    let areUsed: Bool
    let notes = ClassNotes()

    init(_ keyring: ClassKeyring, _ format: VolumeFormat) {
        self.keyring = keyring
        areUsed = format >= .version2
    }

    /// Whether seals can be made and judged now.
    @inline(__always)
    package var areOpen: Bool { areUsed && keyring.hasSealKey }

    /// The number of times that the seal key has come: at the first unlock, and at the first one
    /// after each `ward reboot`.
    package var arrivals: UInt64 { keyring.sealKeyArrivals }

    /// Runs `body`, which judges. Nil where the seal key was away, or went meanwhile: no seal is
    /// right without it.
    package func whileOpen<R>(_ body: () throws(Errno) -> R) throws(Errno) -> R? {
        let before = arrivals
        guard areOpen else { return nil }
        let result = try body()
        return areOpen && arrivals == before ? result : nil
    }

    /// The judgement of a class that was read just now, without a look at its seal.
    var unjudged: Judgement { areUsed ? .open : .right }

    /// The judgement of a class that is about to be inherited. Asked before the directory's class
    /// is looked at: that one is judged where the seal key is in memory.
    var ofNew: Judgement { !areUsed || keyring.hasSealKey ? .right : .inherited }

    /// Whether a reason for a class holds. That of a seal does not without the seal key.
    func isRight(_ vouch: Vouch) -> Bool {
        switch vouch {
        case .nothing: false
        case .mount: true
        case .seal(let part, let seal): keyring.isSeal(seal, of: part)
        }
    }

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

    /// Whether this mount wrote a directory's record in `parentID` without a seal, and its class
    /// counts. The directory gets a seal.
    package func isGiven(_ record: DirectoryRecord, inode: UInt64, in parentID: [UInt8]) -> Bool {
        !record.hasSeal
            && notes.directory(record.directoryID, inode: inode, in: parentID) != nil
            && isRight(vouch(of: record, inode: inode, in: parentID))
    }

    /// The reason why the class in the record of a directory in `parentID` counts.
    func vouch(
        of record: DirectoryRecord, inode: UInt64, in parentID: [UInt8]
    ) -> Vouch {
        if !record.hasSeal,
            let made = notes.directory(record.directoryID, inode: inode, in: parentID),
            made.protectionClass == record.protectionClass,
            made.isSynchronised == record.isSynchronised
        {
            return made.vouch
        }
        return Vouch(record, parentID: parentID)
    }

    // MARK: Files

    /// The header with its seal. `old`: the header that it replaces. `origin`: the reason why the
    /// class of a file without a header counts. Where no seal may be made, a header that says the
    /// same keeps the old one's.
    func sealed(
        _ header: FileHeader, replacing old: FileHeader?, _ judgement: Judgement, inode: UInt64,
        origin: Vouch
    ) -> FileHeader {
        guard areUsed else { return header }
        var header = header
        let part = header.sealedPart
        if judgement == .right, let seal = keyring.seal(part, count: ClassSeal.fileBytes) {
            header.seal = seal
            notes.forget(inode: inode)
            return header
        }
        if let old, old.sealedPart == part {
            header.seal = old.seal
            return header
        }
        header.seal = ClassSeal.noFileSeal
        if judgement != .passed, judgement != .weak {
            note(header, replacing: old, judgement, inode: inode, origin: origin)
        }
        return header
    }

    private func note(
        _ header: FileHeader, replacing old: FileHeader?, _ judgement: Judgement, inode: UInt64,
        origin: Vouch
    ) {
        let vouch: Vouch =
            switch judgement {
            case .right: .mount
            case .chosen: old.map { chosenVouch(of: $0, inode: inode) } ?? .mount
            default: old.map { self.vouch(of: $0, inode: inode) } ?? origin
            }
        notes.note(
            header, inode: inode, vouch,
            hasOwnKey: old.map { hasOwnKey($0, inode: inode) } ?? true)
    }

    /// Whether no other person knows the key of this header, or of one that replaces it.
    private func hasOwnKey(_ header: FileHeader, inode: UInt64) -> Bool {
        header.wrappedKey.isEmpty || notes.file(header, inode: inode)?.hasOwnKey == true
    }

    /// Notes a class that the owner chose again, without the seal key.
    func noteChosen(_ header: FileHeader, inode: UInt64) {
        notes.note(
            header, inode: inode, chosenVouch(of: header, inode: inode),
            hasOwnKey: hasOwnKey(header, inode: inode))
    }

    /// The reason why a class counts that the owner chose for a file with this header. Another
    /// person may know the key that the file has.
    private func chosenVouch(of header: FileHeader, inode: UInt64) -> Vouch {
        header.wrappedKey.isEmpty ? .mount : vouch(of: header, inode: inode)
    }

    /// The reason why the class in a header counts.
    func vouch(of header: FileHeader, inode: UInt64) -> Vouch {
        notes.file(header, inode: inode)?.vouch ?? Vouch(header)
    }

    /// Whether a header has the right seal. False without the seal key.
    package func isRight(_ header: FileHeader) -> Bool {
        keyring.isSeal(header.seal, of: header.sealedPart)
    }

    /// The judgement of a header that was read, without the right seal. `strongest`: the strongest
    /// class of the directories of its names, judged; nil for a file without a name.
    func judge(
        _ header: FileHeader, inode: UInt64, in strongest: ProtectionClass?
    ) -> Judgement {
        if let noted = notes.file(header, inode: inode), isRight(noted.vouch) { return .right }
        let own = header.protectionClass
        // A person with the device's files may know the key. Class B needs no secret to wrap one,
        // and a file of another class may have had class D before.
        let isOthersKey = own != .none && !hasOwnKey(header, inode: inode)
        let isWeaker = strongest?.isStronger(than: own) ?? false
        return isWeaker || isOthersKey ? .weak : .passed
    }
}
