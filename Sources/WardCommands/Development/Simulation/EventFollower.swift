import Synchronization
import WardControl
import WardSystem

/// Keeps every event of one daemon, even after the daemon's end. The daemon itself remembers only
/// the last ones.
final class EventFollower: Sendable {
    /// Keyed by sequence: an event that comes again replaces the earlier one.
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

    /// All events so far, the oldest first. `latest`: the events that the daemon remembers now.
    /// These have newer counts, and events that this thread has not received yet.
    func events(with latest: [ControlEvent]) -> [ControlEvent] {
        for event in latest { keep(event) }
        return events.withLock { $0.values.sorted { $0.sequence < $1.sequence } }
    }

    private func keep(_ event: ControlEvent) {
        events.withLock { events in
            // The thread may be behind, so keep the higher count.
            let known = events[event.sequence]?.count ?? 0
            if event.count ?? 1 >= known { events[event.sequence] = event }
        }
    }
}
