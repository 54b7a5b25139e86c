import Synchronization

/// The epochs of which pages may be missing (zeros), or a file's end. They come from an unclean
/// end, and from changes that failed half-way. A torn page is never excused.
///
/// Concurrency: any thread. `lock` guards `epochs` and `halfDone`; the rest is atomic.
final class Doubt: @unchecked Sendable {
    // Sendable: each stored property is constant or atomic, or `lock` guards it.
    private let lock = Lock(.memory)
    /// Always replaced as a whole.
    private var epochs: [ClosedRange<UInt32>]
    private var halfDone = 0
    /// True while `epochs` is not empty. Hot paths read this instead of the array.
    private let exists: Atomic<Bool>
    /// True while a pass over files in doubt is due: none has run yet, or the backing store failed
    /// during the last one.
    private let isMendingDue = Atomic<Bool>(false)

    init(_ epochs: [ClosedRange<UInt32>]) {
        self.epochs = epochs
        exists = Atomic(!epochs.isEmpty)
    }

    /// True until the last unclean end is mended: findings may be excused.
    var isOpen: Bool { exists.load(ordering: .acquiring) }

    /// The epochs in doubt, oldest first.
    var intervals: [ClosedRange<UInt32>] { lock.withLock { epochs } }

    /// Whether a page of this epoch excuses a finding beside it.
    func contains(_ epoch: UInt32) -> Bool { isOpen && intervals.contains { $0.contains(epoch) } }

    /// Changes the epochs in one step, because another thread may add an interval meanwhile.
    func change<R>(_ body: (inout [ClosedRange<UInt32>]) -> R) -> R {
        lock.withLock {
            defer { exists.store(!epochs.isEmpty, ordering: .releasing) }
            return body(&epochs)
        }
    }

    /// Adds an interval for a change that failed half-way. Returns false if it was in doubt
    /// already.
    func add(_ interval: ClosedRange<UInt32>) -> Bool {
        defer { noteMendingDue(true) }
        return lock.withLock {
            halfDone += 1
            exists.store(true, ordering: .releasing)
            guard !epochs.contains(interval) else { return false }
            epochs.append(interval)
            return true
        }
    }

    /// How many changes failed half-way so far. A walk over all files compares the count before and
    /// after, to notice failures behind it.
    var halfDoneChanges: Int { lock.withLock { halfDone } }

    /// Takes `ended` away, unless a change failed half-way since `before` (`halfDoneChanges`).
    /// Returns whether it did.
    func end(_ ended: [ClosedRange<UInt32>], ifHalfDoneIs before: Int) -> Bool {
        change { epochs in
            guard halfDone == before else { return false }
            epochs.removeAll { ended.contains($0) }
            return true
        }
    }

    /// Whether a pass over files in doubt is worth starting: a file may have become readable since
    /// the last pass.
    var needsMending: Bool { isOpen && isMendingDue.load(ordering: .acquiring) }

    func noteMendingDue(_ isDue: Bool) { isMendingDue.store(isDue, ordering: .releasing) }
}
