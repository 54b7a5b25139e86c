import CWardLinux
import Glibc
import WardFormat

/// The role of a file for an SQLite database, by its name (sqlite.org/tempfiles.html).
enum SideFile {
    /// `X-wal`, `X-journal`, and `X-mj…`, which holds the names of the journals of one transaction.
    case content
    /// `X-shm`.
    case shared

    /// The class of the side file of a database of this class (row I12). The file `X-shm` holds no
    /// user data and each reader maps it. Its class is C, or D if the database is D.
    func protectionClass(beside database: ProtectionClass) -> ProtectionClass {
        switch self {
        case .content: database
        case .shared: database == .none ? .none : .completeUntilFirstUserAuthentication
        }
    }

    /// Returns the kind and the length of the database's name in bytes; nil if the name is no side
    /// file's.
    static func parse(_ name: UnsafeRawBufferPointer) -> (kind: SideFile, base: Int)? {
        let (kind, suffix): (SideFile, Int)
        if name.ends(with: "-wal") {
            (kind, suffix) = (.content, 4)
        } else if name.ends(with: "-shm") {
            (kind, suffix) = (.shared, 4)
        } else if name.ends(with: "-journal") {
            (kind, suffix) = (.content, 8)
        } else if isSuperJournal(name) {
            (kind, suffix) = (.content, superJournalSuffix)
        } else {
            return nil
        }
        return name.count > suffix ? (kind, name.count - suffix) : nil
    }

    /// Bytes of `-mj` and nine hexadecimal digits (`vdbeCommit`, vdbeaux.c).
    private static let superJournalSuffix = 12

    private static func isSuperJournal(_ name: UnsafeRawBufferPointer) -> Bool {
        guard name.count > superJournalSuffix else { return false }
        let suffix = name.suffix(superJournalSuffix)
        return suffix.prefix(3).elementsEqual("-mj".utf8)
            && suffix.dropFirst(3).allSatisfy { isxdigit(Int32($0)) != 0 }
    }
}

extension UnsafeRawBufferPointer {
    fileprivate func ends(with suffix: StaticString) -> Bool {
        let size = suffix.utf8CodeUnitCount
        return count >= size && memcmp(baseAddress! + (count - size), suffix.utf8Start, size) == 0
    }
}
