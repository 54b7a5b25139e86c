import WardControl

/// The events known at one moment, which tells later events from them.
struct SeenEvents {
    /// The key of an event. Each daemon counts sequence numbers from the beginning, so the time is
    /// part of the key.
    private struct Key: Hashable {
        var sequence: Int
        var time: String
    }

    private var counts: [Key: Int] = [:]

    init(_ events: [ControlEvent]) {
        for event in events {
            counts[Key(sequence: event.sequence, time: event.time)] = event.count ?? 1
        }
    }

    /// The events that came since, and the repeated ones with the count since.
    func new(in events: [ControlEvent]) -> [ControlEvent] {
        events.compactMap { event in
            let seen = counts[Key(sequence: event.sequence, time: event.time)] ?? 0
            let count = (event.count ?? 1) - seen
            guard count > 0 else { return nil }
            var new = event
            new.count = count
            return new
        }
    }
}
