import Synchronization

/// The queue of each program's last request: finds programs that the scheduler has just moved to
/// another CPU (`RingPolicy`).
final class RecentQueues: Sendable {
    private static let slots = 256

    /// A program's number and the queue of its last request, by that number.
    private let last: [Slot] = (0..<RecentQueues.slots).map { _ in Slot() }

    private final class Slot: Sendable {
        let value = Atomic<UInt64>(0)
    }

    /// Notes a request of `program`, and returns whether the one before came by another queue.
    @inline(__always)
    func hasMoved(_ program: UInt32, to queue: UInt16) -> Bool {
        guard program != 0 else { return false }
        let slot = last[Int(program) & (RecentQueues.slots - 1)]
        let now = UInt64(program) << 16 | UInt64(queue)
        let before = slot.value.load(ordering: .relaxed)
        guard before != now else { return false }
        slot.value.store(now, ordering: .relaxed)
        return before >> 16 == UInt64(program)
    }
}
