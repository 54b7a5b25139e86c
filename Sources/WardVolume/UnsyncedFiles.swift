import Synchronization

/// Files, by inode, of which something has to be remembered until the whole store is synced, though
/// nobody has them open.
///
/// An inode that is freed and given to another file costs that one a sync, nothing more. So does
/// every file, where there are too many to remember.
final class UnsyncedFiles: Sendable {
    static let mostFiles = 4096

    private struct Notes {
        /// The number of the last note of each.
        var files: [UInt64: UInt64] = [:]
        /// By who is at it.
        var underWay: [ObjectIdentifier: [UInt64]] = [:]
        /// Of the last note that there was no room for; 0: none.
        var lastOther: UInt64 = 0
        var made: UInt64 = 0
    }

    private let notes = Mutex(Notes())
    private let areUnderWay = Atomic(0)

    /// Where there is no room, it is one of those that `contains` says yes to.
    func note(_ inode: UInt64) {
        notes.withLock { notes in
            notes.made += 1
            UnsyncedFiles.note(inode, &notes)
        }
    }

    /// No sync forgets it before `end`.
    func note(_ inode: UInt64, by owner: AnyObject) {
        areUnderWay.add(1, ordering: .relaxed)
        notes.withLock { $0.underWay[ObjectIdentifier(owner), default: []].append(inode) }
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

    /// What this one noted as under way was done, or was not.
    func end(by owner: AnyObject) {
        // Those that it noted itself it sees.
        guard areUnderWay.load(ordering: .relaxed) > 0 else { return }
        notes.withLock { notes in
            guard let inodes = notes.underWay.removeValue(forKey: ObjectIdentifier(owner)) else {
                return
            }
            areUnderWay.subtract(inodes.count, ordering: .relaxed)
            notes.made += 1
            for inode in inodes { UnsyncedFiles.note(inode, &notes) }
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
        notes.withLock { notes in
            notes.lastOther != 0 || notes.files[inode] != nil
                || notes.underWay.contains { $0.value.contains(inode) }
        }
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
