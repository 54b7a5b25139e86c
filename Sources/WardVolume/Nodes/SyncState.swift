import Glibc
import Synchronization
import WardSystem

/// Changes of an open file that a power cut may undo, and that later changes have to wait for.
///
/// A value with a transition for each event. The file's lock guards it.
struct SyncState: Equatable {
    /// The durability of cuts.
    enum Cut: Equatable {
        /// No power cut brings pages back.
        case durable
        /// A power cut may bring pages back. The file's key opens them, so they do no harm until
        /// the file is emptied and gets another key.
        case uncommitted
        /// A power cut may bring pages back that the file's next key does not open. The cut is made
        /// durable before the file gets a key.
        case unsynced
    }

    private(set) var cut = Cut.durable
    /// Page 0 was emptied in place. On the disk it may still be the old page, with another key,
    /// which opens no later page. It is made durable before pages are written behind it.
    private(set) var isKeyUnsynced = false

    var isCutUnsynced: Bool { cut == .unsynced }

    /// The file was closed before its emptied page 0 was durable.
    mutating func openedWithUnsyncedKey() { isKeyUnsynced = true }

    /// Pages of the file's present key are cut off or about to be, or an earlier mount may have cut
    /// them off.
    mutating func cutMade() { if cut == .durable { cut = .uncommitted } }

    /// Pages that the file's next key does not open are cut off, or about to be.
    mutating func foreignPagesCut() { cut = .unsynced }

    /// Page 0 was emptied in place. `hadPage`: the backing file had a whole page, and `hadPages`:
    /// more than one.
    mutating func emptiedInPlace(hadPage: Bool, hadPages: Bool) {
        if hadPage { isKeyUnsynced = true }
        if hadPages || cut == .uncommitted { cut = .unsynced }
    }

    /// A sync of the file succeeded.
    mutating func synced() { isKeyUnsynced = false }

    /// A sync of the file succeeded, and nothing is left to be cut off.
    mutating func cutSynced() {
        synced()
        cut = .durable
    }
}

/// The syncs of an open file and their failures. Needs no lock.
struct FileSyncs: ~Copyable, Sendable {
    /// Every sync of the descriptor goes through this.
    let group = SyncGroup()
    private let failureCount = Atomic<UInt64>(0)
    private let lastError = Atomic<Int32>(EIO)
    /// The volume's `syncFailures` when the file's first and last page were last written again.
    let mendedFailures = AtomicValue<UInt64>(0)

    /// Counts failed syncs of the backing file. Handles compare it with the failures that they
    /// reported.
    var failures: UInt64 { failureCount.load(ordering: .acquiring) }
    var lastFailure: Errno { Errno(rawValue: lastError.load(ordering: .acquiring)) }

    func noteFailure(_ error: Errno) {
        lastError.store(error.rawValue, ordering: .releasing)
        failureCount.add(1, ordering: .releasing)
    }
}
