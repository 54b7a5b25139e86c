import Synchronization

/// Which programs the scheduler has just moved to another CPU.
///
/// Each CPU has a queue of its own, and the worker of a queue runs there, so that request and
/// answer need no wake-up across CPUs. But a program that is woken while the worker still runs is
/// put on the CPU it ran on before, where that one has nothing to do (`recent_used_cpu`,
/// kernel/sched/fair.c): one that got two CPUs once goes back and forth between them with each
/// request. A worker that stays awake for a moment after it answered a program that came from
/// elsewhere keeps its CPU from looking idle: the program's next two answers find it where it is,
/// and there it stays.
final class Settling: Sendable {
    /// Longer than a request takes; the worker gives way to whoever has something to do meanwhile.
    static let awakeNanoseconds: UInt64 = 150_000
    /// A request that takes longer waited for a disk, and the next one will: nothing comes
    /// meanwhile.
    static let longestServiceNanoseconds: UInt64 = 50_000
    private static let slots = 256

    /// By the program's number: that, and the queue of its last request.
    private let last: [Slot] = (0..<Settling.slots).map { _ in Slot() }

    private final class Slot: Sendable {
        let value = Atomic<UInt64>(0)
    }

    /// Notes a request of `program`, and says whether the one before came by another queue.
    @inline(__always)
    func hasMoved(_ program: UInt32, to queue: UInt16) -> Bool {
        guard program != 0 else { return false }
        let slot = last[Int(program) & (Settling.slots - 1)]
        let now = UInt64(program) << 16 | UInt64(queue)
        let before = slot.value.load(ordering: .relaxed)
        guard before != now else { return false }
        slot.value.store(now, ordering: .relaxed)
        return before >> 16 == UInt64(program)
    }
}
