import Synchronization
import WardControl
import WardSystem

/// Keeps every event of one daemon, which itself remembers the last ones only, also beyond its
/// death.
final class EventFollower: Sendable {
    /// By sequence: an event that is told again replaces the earlier.
    private let events = Mutex<[Int: ControlEvent]>([:])

    /// Follows until the daemon ends.
    static func start(socketPath: String) -> EventFollower {
        let follower = EventFollower()
        SystemThread.start("ward-events") {
            try? ControlClient(socketPath: socketPath).monitor(last: .max) { notice in
                if case .event(let event) = notice { follower.keep(event) }
                return true
            }
        }.detach()
        return follower
    }

    /// All so far, the oldest first. `latest`: what the daemon remembers now. It has counts that
    /// were not told, and what this thread has not got yet.
    func events(with latest: [ControlEvent]) -> [ControlEvent] {
        for event in latest { keep(event) }
        return events.withLock { $0.values.sorted { $0.sequence < $1.sequence } }
    }

    private func keep(_ event: ControlEvent) {
        events.withLock { events in
            // The thread may be behind.
            let known = events[event.sequence]?.count ?? 0
            if event.count ?? 1 >= known { events[event.sequence] = event }
        }
    }
}
