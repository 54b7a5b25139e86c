import Synchronization

/// Finds programs that the scheduler has just moved to another CPU.
///
/// Each CPU has a queue of its own, whose worker runs there. So request and answer need no wake-up
/// across CPUs. If a program is woken while the worker still runs, the scheduler may put it on the
/// CPU that it ran on before (`recent_used_cpu`, kernel/sched/fair.c). It does so where that CPU is
/// idle: a program that once got two CPUs then goes back and forth with each request.
///
/// So a worker stays awake for a moment after it answered a program from elsewhere, and its CPU
/// does not look idle. The program's next two answers find the program where it is, and there it
/// stays.
final class Settling: Sendable {
    /// Longer than a request takes. The worker leaves the CPU to any thread that needs it
    /// meanwhile.
    static let awakeNanoseconds: UInt64 = 150_000
    /// A request that takes longer waited for a disk, and so will the next: no request comes
    /// meanwhile.
    static let longestServiceNanoseconds: UInt64 = 50_000
    private static let slots = 256

    /// A program's number and the queue of its last request, by that number.
    private let last: [Slot] = (0..<Settling.slots).map { _ in Slot() }

    private final class Slot: Sendable {
        let value = Atomic<UInt64>(0)
    }

    /// Notes a request of `program`, and returns whether the one before came by another queue.
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
