import Synchronization

/// Files, by inode, of which something has to be remembered until the whole store is synced, though nobody has them open.
///
/// An inode that is freed and given to another file costs that one a sync, nothing more. So does every file, where there
/// are too many to remember.
final class UnsyncedFiles: Sendable {
    static let mostFiles = 4096
    private static let underWay = UInt64.max

    private struct Notes {
        /// The number of the last note of each.
        var files: [UInt64: UInt64] = [:]
        /// Of the last note that there was no room for; 0: none.
        var lastOther: UInt64 = 0
        var made: UInt64 = 0
    }

    private let notes = Mutex(Notes())

    /// `isUnderWay`: no sync forgets it before `end`. Where there is no room, it is one of those that `contains` says yes to.
    func note(_ inode: UInt64, isUnderWay: Bool = false) {
        notes.withLock { notes in
            notes.made += 1
            if isUnderWay {
                // As many as there are requests.
                notes.files[inode] = UnsyncedFiles.underWay
            } else {
                UnsyncedFiles.note(inode, &notes)
            }
        }
    }

    /// False where there is no room: nothing was noted.
    func noteIfRoom(_ inode: UInt64) -> Bool {
        notes.withLock { notes in
            guard UnsyncedFiles.hasRoom(for: inode, notes) else { return false }
            notes.made += 1
            UnsyncedFiles.note(inode, &notes)
            return true
        }
    }

    /// What was noted as under way was done, or was not.
    func end(_ inode: UInt64) {
        notes.withLock { notes in
            guard notes.files[inode] == UnsyncedFiles.underWay else { return }
            notes.files[inode] = nil
            notes.made += 1
            UnsyncedFiles.note(inode, &notes)
        }
    }

    private static func hasRoom(for inode: UInt64, _ notes: borrowing Notes) -> Bool {
        notes.files[inode] != nil || notes.files.count < mostFiles
    }

    private static func note(_ inode: UInt64, _ notes: inout Notes) {
        if hasRoom(for: inode, notes) {
            notes.files[inode] = notes.made
        } else {
            notes.lastOther = notes.made
        }
    }

    func contains(_ inode: UInt64) -> Bool {
        notes.withLock { $0.lastOther != 0 || $0.files[inode] != nil }
    }

    var notesMade: UInt64 { notes.withLock { $0.made } }

    /// What was noted of this one is synced. Only while nobody notes anything of it.
    func forget(_ inode: UInt64) { notes.withLock { _ = $0.files.removeValue(forKey: inode) } }

    /// What was noted up to then, `notesMade`, is synced.
    func forget(through number: UInt64) {
        notes.withLock { notes in
            if notes.lastOther <= number { notes.lastOther = 0 }
            if notes.files.isEmpty { return }
            notes.files = notes.files.filter { $0.value > number }
        }
    }
}
