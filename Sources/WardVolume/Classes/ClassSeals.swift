import Synchronization
import WardFormat
import WardKeys

/// Makes and judges the seals of classes (format 2, docs/format.md §6.2). A program with the
/// device's files alone can write any class into a header or a record, but no seal.
///
/// Before the first unlock there is no seal key: classes count as they are read, and what is made
/// gets no seal. This object remembers what this mount made then, so that it gets its seal later.
///
/// Concurrency: any thread; `made` guards what is remembered.
package final class ClassSeals: Sendable {
    /// The judgement of a class that was read.
    enum Judgement: UInt64, AtomicWord {
        /// It is not judged yet.
        case open = 0
        /// This mount made it, or it was judged right.
        case right = 1
        /// There is no seal, and the class is weaker than it may be: the content must not change.
        case weak = 2

        var word: UInt64 { rawValue }
        init(word: UInt64) { self = Judgement(rawValue: word)! }
    }

    /// A class that this mount gave before the first unlock.
    struct Made {
        let protectionClass: ProtectionClass
        /// The origin of the class.
        let origin: Origin
    }

    /// The origin of the class of a directory's record.
    package enum Origin {
        /// A program chose it in this mount.
        case chosen
        /// The directory was made in this mount, in its parent's class.
        case inherited
        /// It was read.
        case read
    }

    private let keyring: ClassKeyring
    /// Whether the volume has seals: format 2.
    let areUsed: Bool
    private let made = Mutex<[[UInt8]: Made]>([:])
    /// Files and directories beyond this number are judged like those of an earlier mount.
    static let mostMade = 65_536

    init(_ keyring: ClassKeyring, _ format: VolumeFormat) {
        self.keyring = keyring
        areUsed = format >= .version2
    }

    /// Whether seals can be made and judged now.
    @inline(__always)
    package var areOpen: Bool { areUsed && keyring.hasSealKey }

    /// The judgement of what is made or was read just now, without a look at its seal.
    var unjudged: Judgement { areUsed ? .open : .right }

    // MARK: Made before the first unlock

    /// Remembers the class of a file or directory (its ID, 16 bytes) that gets no seal now.
    func noteMade(
        _ id: [UInt8], _ protectionClass: ProtectionClass, _ origin: Origin = .chosen
    ) {
        guard areUsed else { return }
        made.withLock { made in
            guard made.count < ClassSeals.mostMade || made[id] != nil else { return }
            made[id] = Made(protectionClass: protectionClass, origin: origin)
        }
    }

    /// The class that this mount gave a file or directory before the first unlock; nil where it
    /// gave none.
    func classMade(_ id: [UInt8]) -> Made? { made.withLock { $0[id] } }

    /// Whether this mount gave the file or directory its class before the first unlock.
    package func isMadeHere(_ id: [UInt8]) -> Bool { classMade(id) != nil }

    // MARK: Records of directories

    /// The record with its seal. Without the seal key it gets none, and a class that was not read
    /// is remembered.
    package func sealed(
        _ record: DirectoryRecord, parentID: [UInt8], _ origin: Origin
    ) -> DirectoryRecord {
        guard areUsed else { return record }
        var record = record
        let message = record.sealedPart(parentID: parentID)
        if let seal = keyring.seal(message, count: ClassSeal.directoryBytes) {
            record.seal = seal
        } else {
            record.seal = ClassSeal.noDirectorySeal
            if origin != .read { noteMade(record.directoryID, record.protectionClass, origin) }
        }
        return record
    }

    /// Whether a record has the right seal. False without the seal key.
    package func isRight(_ record: DirectoryRecord, parentID: [UInt8]) -> Bool {
        keyring.isSeal(record.seal, of: record.sealedPart(parentID: parentID))
    }

    // MARK: Headers of files

    /// The header with its seal. `old`: the header that it replaces. Without the seal key, or
    /// where the class was not judged right, a header that says the same keeps its seal.
    func sealed(
        _ header: FileHeader, replacing old: FileHeader?, _ judgement: Judgement
    ) -> FileHeader {
        guard areUsed else { return header }
        var header = header
        let message = header.sealedPart
        // The class of a file without a header is its directory's.
        let counts = judgement == .right || old == nil && areOpen
        if counts, let seal = keyring.seal(message, count: ClassSeal.fileBytes) {
            header.seal = seal
        } else if let old, old.sealedPart == message {
            header.seal = old.seal
        } else {
            header.seal = ClassSeal.noFileSeal
            if judgement == .right { noteMade(header.fileID, header.protectionClass) }
        }
        return header
    }

    /// Whether a header has the right seal. False without the seal key.
    package func isRight(_ header: FileHeader) -> Bool {
        keyring.isSeal(header.seal, of: header.sealedPart)
    }

    /// The judgement of a header that was read. `directoryClass`: the class of new files in its
    /// directory, judged right.
    func judge(_ header: FileHeader, in directoryClass: ProtectionClass) -> Judgement {
        if isRight(header) || classMade(header.fileID)?.protectionClass == header.protectionClass {
            return .right
        }
        return directoryClass.isStronger(than: header.protectionClass) ? .weak : .right
    }
}
