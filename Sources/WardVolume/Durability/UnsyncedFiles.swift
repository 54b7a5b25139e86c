import Synchronization

/// Remembers files, by inode, after their last close, until the whole backing store is synced.
///
/// An inode number that is reused for another file costs that file a sync. Where there are too many
/// files to remember, every file costs one.
final class UnsyncedFiles: Sendable {
    static let mostFiles = 4096

    private struct Notes {
        /// The number of the last note of each inode.
        var files: [UInt64: UInt64] = [:]
        /// Inodes of changes under way, by the owner of the change.
        var underWay: [ObjectIdentifier: [UInt64]] = [:]
        /// The number of the last note without room; 0: none.
        var lastOther: UInt64 = 0
        var made: UInt64 = 0
    }

    private let notes = Mutex(Notes())
    private let areUnderWay = Atomic(0)

    /// Notes a file. Where there is no room, `contains` says yes to every file.
    func note(_ inode: UInt64) {
        notes.withLock { notes in
            notes.made += 1
            UnsyncedFiles.note(inode, &notes)
        }
    }

    /// Notes a file for a change under way. No sync forgets it before `end`.
    func note(_ inode: UInt64, by owner: AnyObject) {
        areUnderWay.add(1, ordering: .relaxed)
        notes.withLock { $0.underWay[ObjectIdentifier(owner), default: []].append(inode) }
    }

    /// Notes a file; false where there was no room.
    func noteIfRoom(_ inode: UInt64) -> Bool {
        notes.withLock { notes in
            guard UnsyncedFiles.hasRoom(for: inode, notes) else { return false }
            notes.made += 1
            UnsyncedFiles.note(inode, &notes)
            return true
        }
    }

    /// Ends the owner's change, done or failed: its files stay noted until a later sync.
    func end(by owner: AnyObject) {
        // The owner's own notes are always seen: the same thread made them.
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

    /// Forgets a file that was synced. No other thread may note it meanwhile.
    func forget(_ inode: UInt64) { notes.withLock { _ = $0.files.removeValue(forKey: inode) } }

    /// Forgets the notes up to `number` (`notesMade` before a sync).
    func forget(through number: UInt64) {
        notes.withLock { notes in
            if notes.lastOther <= number { notes.lastOther = 0 }
            if notes.files.isEmpty { return }
            notes.files = notes.files.filter { $0.value > number }
        }
    }
}
