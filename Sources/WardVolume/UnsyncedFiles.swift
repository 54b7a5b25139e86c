import Synchronization

/// Files, by inode, of which something has to be remembered until the whole store is synced, though nobody has them open.
///
/// An inode that is freed and given to another file costs that one a sync, nothing more.
final class UnsyncedFiles: Sendable {
    /// Beyond these, whoever notes one syncs it.
    private static let mostFiles = 4096
    private static let underWay = UInt64.max

    private struct Notes {
        /// The number of the last note of each.
        var files: [UInt64: UInt64] = [:]
        var made: UInt64 = 0
    }

    private let notes = Mutex(Notes())

    /// False where there are too many. `isUnderWay`: no sync forgets it before `end`.
    func note(_ inode: UInt64, isUnderWay: Bool = false) -> Bool {
        notes.withLock { notes in
            guard notes.files[inode] != nil || notes.files.count < UnsyncedFiles.mostFiles else {
                return false
            }
            notes.made += 1
            notes.files[inode] = isUnderWay ? UnsyncedFiles.underWay : notes.made
            return true
        }
    }

    /// What was noted as under way was done, or was not.
    func end(_ inode: UInt64) {
        notes.withLock { notes in
            guard notes.files[inode] == UnsyncedFiles.underWay else { return }
            notes.made += 1
            notes.files[inode] = notes.made
        }
    }

    func contains(_ inode: UInt64) -> Bool { notes.withLock { $0.files[inode] != nil } }

    var notesMade: UInt64 { notes.withLock { $0.made } }

    /// What was noted up to then, `notesMade`, is synced.
    func forget(through number: UInt64) {
        notes.withLock { notes in
            if notes.files.isEmpty { return }
            notes.files = notes.files.filter { $0.value > number }
        }
    }
}
