import Glibc
import Synchronization
import WardFormat
import WardKeys
import WardSystem

/// Knows which changes of a volume are durable: epochs, doubt, and syncs of the whole backing
/// store.
///
/// Concurrency: any thread. `pointLock` guards the durable point, `syncLock` a sync of the backing
/// store; the rest is atomic or a part with a lock of its own.
final class Durability: Sendable {
    private let store: BackingStore
    private let keys: VolumeKeys
    private let reporter: Reporter

    /// The epoch for pages that are written now.
    let epoch: Atomic<UInt32>
    /// The epoch of the state record in the backing store. Changes under `pointLock`.
    private let recorded: Atomic<UInt32>
    let doubt: Doubt
    let unsynced = UnsyncedNotes()
    let moved = MovedFiles()
    /// Names that were made before this epoch are durable.
    private let namesDurable = Atomic<UInt32>(1)
    /// Writes since the last durable point.
    let dirt = Dirt()
    /// Counts failed syncs, of files and of the backing store.
    private let failures = Atomic<UInt64>(0)
    /// True after a failed sync of the backing store: the volume stays "in use", as its state
    /// record says, until the end of this mount.
    private let hasFailed = Atomic<Bool>(false)
    private let pointLock = Lock(.durablePoint)
    /// Held from a sync of the backing store until its failure is noted. The kernel reports each
    /// failure to only one of the threads that share the descriptor.
    private let syncLock = Lock(.storeSync)

    init(
        _ store: BackingStore, _ keys: VolumeKeys, _ reporter: Reporter, epoch: UInt32,
        doubtful: [ClosedRange<UInt32>]
    ) {
        self.store = store
        self.keys = keys
        self.reporter = reporter
        self.epoch = Atomic(epoch)
        recorded = Atomic(epoch)
        doubt = Doubt(doubtful)
    }

    /// The epoch of the state record in the backing store.
    var recordedEpoch: UInt32 { recorded.load(ordering: .acquiring) }

    /// Names that were made before this epoch are durable.
    var namesDurableBefore: UInt32 { namesDurable.load(ordering: .acquiring) }

    /// How many syncs failed, of files and of the backing store.
    var syncFailures: UInt64 { failures.load(ordering: .acquiring) }

    /// Whether a sync of the backing store has failed: nothing counts as durable any more.
    var hasFailedSync: Bool { hasFailed.load(ordering: .relaxed) }

    func noteSyncFailure() { failures.add(1, ordering: .acquiringAndReleasing) }

    /// The epoch of the write under way; 0 where the context writes nothing.
    @inline(__always)
    func epochInUse(by context: WorkerContext) -> UInt32 {
        context.epochInUse.load(ordering: .relaxed)
    }

    /// Announces the epoch that the pages of this request will carry. A durable point waits for
    /// `endWrite`. A write within another one has that one's epoch.
    @inline(__always)
    func beginWrite(_ context: WorkerContext) -> UInt32 {
        let outer = epochInUse(by: context)
        if outer != 0 { return outer }
        while true {
            let now = epoch.load(ordering: .sequentiallyConsistent)
            context.epochInUse.store(now, ordering: .sequentiallyConsistent)
            if epoch.load(ordering: .sequentiallyConsistent) == now { return now }
        }
    }

    /// Ends a write, begun or not. `outer`: the epoch that was in use before.
    @inline(__always)
    func endWrite(_ context: WorkerContext, backTo outer: UInt32) {
        context.epochInUse.store(outer, ordering: .releasing)
    }

    // MARK: Doubt

    /// Puts the epochs from the one before the current through `last` in doubt. Requests that still
    /// run may have begun in the one before. Returns false if they were in doubt already.
    @discardableResult
    func doubt(through last: UInt32? = nil) -> Bool {
        let now = epoch.load(ordering: .sequentiallyConsistent)
        return doubt.add(max(1, now) - 1...max(now, last ?? now))
    }

    // MARK: Durable points

    /// Makes everything written so far durable, advances the epoch and writes the state record.
    /// While a backup holds the epoch, it syncs only.
    ///
    /// - `closing`: marks the volume clean, and ends a held epoch.
    /// - `endsUpgrade`: the state record says that no structure of format 1 is left.
    /// - `awaitWrites`: waits until no request and no page of an earlier epoch is under way.
    func advance(
        closing: Bool, endsUpgrade: Bool = false, awaitWrites: (_ before: UInt32) -> Void
    ) throws(Errno) {
        try pointLock.withLock { () throws(Errno) in
            if !closing, dirt.isEpochHeld {
                try dirt.clean(reporter) { () throws(Errno) in try sync() }
                // The state record has to follow when the epoch advances.
                return dirt.noteEpochDue(true)
            }
            dirt.noteEpochDue(false)
            try dirt.clean(reporter) { () throws(Errno) in
                // After a failure the epoch has advanced already. Only the record's epoch and one
                // more are excused after a power cut. At the end of the numbers the last epoch
                // stays in use, and its pages stay in doubt.
                let now = min(recordedEpoch, VolumeStateRecord.lastEpoch - 1) + 1
                epoch.store(now, ordering: .sequentiallyConsistent)
                // Requests that began under the old epoch have to end: the sync below must cover
                // their writes. No lock of a request is held, because the backing store may hang
                // and a lock must not wait for it.
                awaitWrites(now)
                try sync()
                guard !hasFailed.load(ordering: .relaxed) else {
                    if closing {
                        reporter.report(.note("the volume stays marked as in use: a sync failed"))
                    }
                    return
                }
                namesDurable.store(now, ordering: .releasing)
                try VolumeRoot.writeState(
                    VolumeStateRecord(
                        format: keys.format, isUpgrading: keys.readsVersion1 && !endsUpgrade,
                        isInUse: !closing, epoch: now, doubtful: doubt.intervals),
                    store.root, keys, store.storage)
                recorded.store(now, ordering: .releasing)
                if endsUpgrade { keys.endVersion1() }
            }
        }
    }

    /// Makes all earlier writes and names durable, syncfs(2). Throws `EIO` if another sync failed
    /// since `earlier` (a value of `syncFailures`). That sync may have lost earlier writes, and the
    /// kernel reported the failure only to its caller.
    func sync(since earlier: UInt64? = nil) throws(Errno) {
        let failuresBefore = earlier ?? syncFailures
        let notes = unsynced.snapshot()
        try syncLock.withLock { () throws(Errno) in
            do throws(Errno) {
                store.removedFiles.noteSync()
                try store.storage.syncfs(store.root)
                // A backing file system that shut itself down reports it only here
                // (`Syscall.syncFileSystem`).
                try store.storage.fsync(store.root)
            } catch {
                noteFailedSync()
                throw error
            }
            store.streaming.settle()
            guard syncFailures == failuresBefore else { throw .ioError }
            guard !hasFailed.load(ordering: .relaxed) else { return }
            unsynced.noteSync(of: notes)
        }
    }

    /// Notes a failed sync of the whole backing store. In this mount no epoch counts as durable
    /// from now on. Lost pages show only when memory drops them, in any file. They are excused
    /// until the next pass, as after a power cut.
    func noteFailedSync() {
        noteSyncFailure()
        hasFailed.store(true, ordering: .relaxed)
        doubt(through: recordedEpoch &+ 1)
    }

    /// Returns the fault of the state record, as it is on disk; nil if it has none.
    func stateProblem() throws(VolumeOpenError) -> String? {
        try pointLock.withLock { () throws(VolumeOpenError) in
            try VolumeRoot.stateProblem(store.root, store.path, keys, store.storage)
        }
    }

    /// Advances past an epoch that pages carry although the state record is older. The next durable
    /// point records it.
    func skipEpochs(through seen: UInt32) {
        pointLock.withLock {
            guard seen < .max - 2, recordedEpoch <= seen else { return }
            recorded.store(seen, ordering: .releasing)
        }
    }
}

/// The changes since the last durable point. Concurrency: any thread; all of it is atomic.
final class Dirt: Sendable {
    private let isDirty = Atomic<Bool>(false)
    private let bytes = Atomic<Int>(0)
    /// True while a backup is made: durable points then leave the epoch as it is.
    private let isHeld = Atomic<Bool>(false)
    /// True if a durable point ran while the epoch was held: the state record has to follow.
    private let isDue = Atomic<Bool>(false)

    /// Whether a durable point is due.
    var needsPoint: Bool {
        isDirty.load(ordering: .relaxed) || (isDue.load(ordering: .relaxed) && !isEpochHeld)
    }

    /// About how many bytes were written. Includes bytes that a program synced itself.
    var unsyncedBytes: Int { max(0, bytes.load(ordering: .relaxed)) }

    /// Notes a change, of content or of names.
    @inline(__always)
    func noteChange() { isDirty.store(true, ordering: .relaxed) }

    @inline(__always)
    func noteBytes(_ count: Int) { bytes.wrappingAdd(count, ordering: .relaxed) }

    var isEpochHeld: Bool { isHeld.load(ordering: .relaxed) }

    func holdEpoch(_ isHeld: Bool) { self.isHeld.store(isHeld, ordering: .relaxed) }

    func noteEpochDue(_ isDue: Bool) { self.isDue.store(isDue, ordering: .relaxed) }

    /// Runs `body`, after which nothing is unsynced. After a failure all is unsynced again.
    func clean(_ reporter: Reporter, _ body: () throws(Errno) -> Void) throws(Errno) {
        isDirty.store(false, ordering: .relaxed)
        let covered = bytes.exchange(0, ordering: .relaxed)
        do throws(Errno) {
            try body()
        } catch {
            isDirty.store(true, ordering: .relaxed)
            bytes.wrappingAdd(covered, ordering: .relaxed)
            reporter.report(.note("a durable point failed: \(error)"))
            throw error
        }
    }
}
