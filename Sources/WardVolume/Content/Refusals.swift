import Glibc
import Synchronization
import WardSystem

/// Says when refused reads of pages are answered.
///
/// For mlock(2), mlockall(2) and `MAP_POPULATE` the kernel asks for a refused page again and again
/// (`__mm_populate`, mm/gup.c, begins anew where `filemap_fault` had to wait). After a thousand
/// refused reads of one file in a row, each answer comes a millisecond later than the one before,
/// up to fifty. A change of the gate releases all answers.
///
/// Concurrency: any thread. Nothing here waits.
public final class Refusals: Sendable {
    /// The refusals of one file. The numbers may be slightly wrong where several threads refuse at
    /// once.
    struct Count: ~Copyable, Sendable {
        fileprivate let reads = Atomic<UInt64>(0)
        /// When the last one was, monotonic nanoseconds.
        fileprivate let last = Atomic<UInt64>(0)
        /// The number of changes of the gate that this count belongs to.
        fileprivate let generation = Atomic<UInt64>(0)
    }

    static let readsAtOnce: UInt64 = 1000
    static let stepNanoseconds: UInt64 = 1_000_000
    public static let longestNanoseconds: UInt64 = 50_000_000
    /// Reads further apart than this are not in a row.
    static let pauseNanoseconds: UInt64 = 1_000_000_000

    /// Changes when an answer is delayed and when all answers are released. The thread of
    /// `DelayedReplies` waits on it.
    public let word = FutexWord()
    private let changes = Atomic<UInt64>(0)

    init() {}

    /// Counts the releases of all answers. A delayed answer remembers it.
    public var generation: UInt64 { changes.load(ordering: .acquiring) }

    /// Releases all delayed answers.
    func letGo() {
        changes.wrappingAdd(1, ordering: .acquiringAndReleasing)
        wake()
    }

    /// Wakes the waiters of `word`.
    public func wake() {
        word.increment()
        word.wakeAll()
    }

    /// Returns the delay of one more refused read of a file, nanoseconds; 0: at once. `now`:
    /// nanoseconds of the monotonic clock.
    func delay(_ count: borrowing Count, now: UInt64) -> UInt64 {
        let generation = self.generation
        let last = count.last.exchange(now, ordering: .relaxed)
        let isRow =
            count.generation.exchange(generation, ordering: .relaxed) == generation
            && now &- last < Refusals.pauseNanoseconds
        guard isRow else {
            count.reads.store(1, ordering: .relaxed)
            return 0
        }
        let reads = count.reads.wrappingAdd(1, ordering: .relaxed).newValue
        guard reads > Refusals.readsAtOnce else { return 0 }
        let steps = min(
            reads - Refusals.readsAtOnce, Refusals.longestNanoseconds / Refusals.stepNanoseconds)
        return steps * Refusals.stepNanoseconds
    }
}

extension Volume {
    /// Returns the delay of the answer to a refused read (`EPERM`) of this handle, nanoseconds.
    public func refusedReadDelay(_ handle: HandleID) -> UInt64 {
        refusals.delay(
            handle.object(as: FileHandle.self).file.notes.refusedReads,
            now: SystemClock.nanoseconds())
    }
}
