import WardControl

/// The events that were there at one moment, so that those of later can be told from them.
struct SeenEvents {
    /// Sequences begin anew with each daemon; its times do not.
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

    /// Those that came since, and those that came again: with the count of since.
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
