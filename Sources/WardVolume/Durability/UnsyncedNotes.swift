import Synchronization

/// Notes of changes beside content that a sync of the whole backing store makes durable. They are
/// names, classes, headers, and files that were closed with something unsynced.
///
/// Concurrency: any thread; each part guards itself.
final class UnsyncedNotes: Sendable {
    /// Files that were closed with `SyncState.isKeyUnsynced`.
    let keys = UnsyncedFiles()
    /// Files that were closed with `SyncState.isCutUnsynced`, because a sync failed.
    let cuts = UnsyncedFiles()
    /// Files that were moved from a directory of another class. After a power cut the backing store
    /// may still have them there.
    let movedFiles = UnsyncedFiles()
    /// Classes that a program set without a sync, to sync once after many changes
    /// (`unsyncedClassName`). While there are any, a durable set of the class that the file already
    /// has needs a sync.
    let classes = UnsyncedChanges()
    /// Headers of files that had none before. If a power cut takes such a header, the file is empty
    /// and has its directory's class. Starts as unknown: a program may just have copied files to
    /// the backing store.
    let headers = UnsyncedChanges(isKnown: false)
    private let namesMade = Atomic<UInt64>(0)
    private let namesSynced = Atomic<UInt64>(0)

    /// Notes that a name was made.
    func noteName() { namesMade.wrappingAdd(1, ordering: .releasing) }

    /// True if a name was made since the last sync of the whole backing store began.
    var hasNames: Bool {
        namesMade.load(ordering: .acquiring) != namesSynced.load(ordering: .acquiring)
    }

    /// All notes at one moment.
    struct Snapshot {
        fileprivate let names: UInt64
        fileprivate let classes: UInt64
        fileprivate let headers: UInt64
        fileprivate let keys: UInt64
        fileprivate let cuts: UInt64
        fileprivate let movedFiles: UInt64
    }

    /// Returns the notes that a sync covers which begins after this call.
    func snapshot() -> Snapshot {
        Snapshot(
            names: namesMade.load(ordering: .acquiring), classes: classes.made,
            headers: headers.made, keys: keys.notesMade, cuts: cuts.notesMade,
            movedFiles: movedFiles.notesMade)
    }

    /// Forgets the notes of `snapshot`, after the sync that covers them.
    func noteSync(of snapshot: Snapshot) {
        keys.forget(through: snapshot.keys)
        cuts.forget(through: snapshot.cuts)
        movedFiles.forget(through: snapshot.movedFiles)
        classes.noteSync(of: snapshot.classes)
        headers.noteSync(of: snapshot.headers)
        namesSynced.store(snapshot.names, ordering: .releasing)
    }
}
