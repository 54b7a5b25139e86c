import Glibc
import Synchronization
import WardSystem

/// When refused reads of pages are answered.
///
/// The kernel asks for a page that mlock(2), mlockall(2) or `MAP_POPULATE` want again and again, as
/// long as it is refused (`__mm_populate`, mm/gup.c, begins anew where `filemap_fault` had to
/// wait). So once it has asked for one file in a row a thousand times each answer comes a
/// millisecond later than the one before, up to fifty. A change of the gate lets all of them go.
///
/// Concurrency: any thread. Nothing here waits.
public final class Refusals: Sendable {
    /// The refusals of one file. Its numbers may be a little off where several threads refuse at
    /// once.
    struct Count: ~Copyable, Sendable {
        fileprivate let reads = Atomic<UInt64>(0)
        fileprivate let last = Atomic<UInt64>(0)
        fileprivate let generation = Atomic<UInt64>(0)
    }

    static let readsAtOnce: UInt64 = 1000
    static let stepNanoseconds: UInt64 = 1_000_000
    public static let longestNanoseconds: UInt64 = 50_000_000
    /// Reads further apart than this are no row.
    static let pauseNanoseconds: UInt64 = 1_000_000_000

    /// Changes, and wakes who waits for it, when something new waits to be answered, and when all
    /// is to be.
    public let word = FutexWord()
    private let changes = Atomic<UInt64>(0)

    init() {}

    /// How often all that waited was let go: what waits remembers it.
    public var generation: UInt64 { changes.load(ordering: .acquiring) }

    /// Lets everything that waits be answered now.
    func letGo() {
        changes.wrappingAdd(1, ordering: .acquiringAndReleasing)
        wake()
    }

    public func wake() {
        word.increment()
        word.wakeAll()
    }

    /// After how many nanoseconds one more refused read of a file is answered; 0: at once. `now`:
    /// of the monotonic clock.
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
    /// After a read by this handle was refused (`EPERM`): the nanoseconds until it should be
    /// answered.
    public func refusedReadDelay(_ handle: HandleID) -> UInt64 {
        refusals.delay(
            handle.object(as: FileHandle.self).file.refusedReads, now: SystemClock.nanoseconds())
    }
}
