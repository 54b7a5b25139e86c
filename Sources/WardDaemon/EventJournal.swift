import WardControl
import WardSystem

/// The last events of a mount, and how many of each there were. Pure: times are given.
///
/// Denials, files removed unread or weakened, and what concerns synchronised directories have rings
/// of their own, so that programs that are refused again and again push no lock, no removal and no
/// integrity failure out; the same denial within a while is one event with a count; and where
/// different ones come faster than anybody could read, the rest of them is one event as well. So
/// neither memory, nor the log, nor a client's socket is filled by a program in a loop.
struct EventJournal {
    /// Denials remembered, as many removals, and as many events of each other ring.
    static let capacity = 512
    /// The same denial within this time after the last one counts as one event.
    static let mergeInterval = Duration.seconds(10)
    /// A repeated denial is told again this often.
    static let repeatInterval = Duration.seconds(1)
    /// Different denials told one by one in a burst, and each second.
    static let burst = 128.0
    static let perSecond = 32.0
    /// Lost files whose names are kept for the status.
    static let lostPathsKept = 5

    /// What is to be done about an event.
    enum Outcome {
        /// Tell and log it.
        case new(ControlEvent)
        /// Tell it again, under its sequence.
        case again(ControlEvent)
        /// It is counted.
        case counted
    }

    /// Since the mount.
    struct Counts: Equatable {
        var denied = 0
        var integrityFailures = 0
        var lost = 0
        var lostPaths: [String] = []
        /// That of the last event.
        var sequence = 0
    }

    /// Denials that are the same to a person. Not the process: a loop in a shell has a new one each
    /// time.
    private struct Key: Hashable {
        var kind: String
        var program: String?
        var uid: Int?
        var path: String?
        var protectionClass: String?
        var operation: String?
        var state: String?
    }

    private struct Entry {
        var event: ControlEvent
        var key: Key?
        /// Monotonic.
        var lastAt: Duration
        var toldAt: Duration
    }

    /// Slots that are written round and round; a position counts all that were ever written.
    private struct Ring {
        var entries: [Entry] = []
        var written = 0
        /// Where an event is that may come again.
        var positions: [Key: Int] = [:]
        /// What may be told one by one.
        private var budget = EventJournal.burst
        private var budgetAt = Duration.zero

        subscript(position: Int) -> Entry {
            get { entries[position % EventJournal.capacity] }
            set { entries[position % EventJournal.capacity] = newValue }
        }

        func holds(_ position: Int) -> Bool { position >= written - entries.count }

        /// Returns what had to go.
        mutating func append(_ entry: Entry) -> Entry? {
            defer { written += 1 }
            if entries.count < EventJournal.capacity {
                entries.append(entry)
                return nil
            }
            let old = self[written]
            self[written] = entry
            return old
        }

        /// Takes from what may be told one by one; false where it is used up.
        mutating func spend(_ now: Duration) -> Bool {
            let earned = max(0, (now - budgetAt).inSeconds) * EventJournal.perSecond
            budget = min(EventJournal.burst, budget + earned)
            budgetAt = now
            guard budget >= 1 else { return false }
            budget -= 1
            return true
        }
    }

    private(set) var counts = Counts()
    private var denials = Ring()
    private var removals = Ring()
    private var weakenings = Ring()
    /// What concerns synchronised directories.
    private var synchronised = Ring()
    private var others = Ring()
    mutating func record(_ event: ControlEvent, now: Duration) -> Outcome {
        switch ControlEvent.Kind(rawValue: event.kind) {
        case .denied:
            counts.denied += 1
            return record(event, now, in: \.denials)
        case .removedUnread: return record(event, now, in: \.removals)
        case .weakened: return record(event, now, in: \.weakenings)
        case .syncRefused, .syncExposed: return record(event, now, in: \.synchronised)
        case .integrityFailure: counts.integrityFailures += 1
        case .lost:
            counts.lost += 1
            if let path = event.path {
                counts.lostPaths.append(path)
                if counts.lostPaths.count > EventJournal.lostPathsKept {
                    counts.lostPaths.removeFirst()
                }
            }
        default: break
        }
        let numbered = number(event)
        _ = others.append(Entry(event: numbered, key: nil, lastAt: now, toldAt: now))
        return .new(numbered)
    }

    /// The last `count` events, the oldest first.
    func last(_ count: Int) -> [ControlEvent] {
        [denials, removals, weakenings, synchronised, others].flatMap(\.entries).map(\.event)
            .sorted { $0.sequence < $1.sequence }
            .suffix(max(0, count))
    }

    private mutating func number(_ event: ControlEvent) -> ControlEvent {
        counts.sequence += 1
        var numbered = event
        numbered.sequence = counts.sequence
        return numbered
    }

    /// What a program in a loop can cause as often as it likes.
    private mutating func record(
        _ event: ControlEvent, _ now: Duration, in ring: WritableKeyPath<EventJournal, Ring>
    ) -> Outcome {
        let key = Key(
            kind: event.kind, program: event.program, uid: event.uid, path: event.path,
            protectionClass: event.protectionClass, operation: event.operation,
            state: event.state)
        if let outcome = merge(event, key, now, in: ring) { return outcome }
        if self[keyPath: ring].spend(now) { return append(event, key, now, in: ring) }
        // Too many different ones: from here on they are one event, until it is quieter.
        var rest = ControlEvent(time: event.time, kind: .denied, state: event.state)
        rest.kind = event.kind
        rest.detail = "many more, of other files or programs"
        let restKey = Key(kind: event.kind, state: event.state)
        return merge(rest, restKey, now, in: ring) ?? append(rest, restKey, now, in: ring)
    }

    private mutating func append(
        _ event: ControlEvent, _ key: Key, _ now: Duration,
        in ring: WritableKeyPath<EventJournal, Ring>
    ) -> Outcome {
        let numbered = number(event)
        let entry = Entry(event: numbered, key: key, lastAt: now, toldAt: now)
        let written = self[keyPath: ring].written
        self[keyPath: ring].positions[key] = written
        if let gone = self[keyPath: ring].append(entry)?.key,
            self[keyPath: ring].positions[gone] == written - EventJournal.capacity
        {
            self[keyPath: ring].positions[gone] = nil
        }
        return .new(numbered)
    }

    /// Counts an event that is remembered already.
    private mutating func merge(
        _ event: ControlEvent, _ key: Key, _ now: Duration,
        in ring: WritableKeyPath<EventJournal, Ring>
    ) -> Outcome? {
        guard let position = self[keyPath: ring].positions[key], self[keyPath: ring].holds(position)
        else { return nil }
        var entry = self[keyPath: ring][position]
        guard now - entry.lastAt < EventJournal.mergeInterval else { return nil }
        entry.event.count = (entry.event.count ?? 1) + 1
        entry.event.lastTime = event.time
        entry.event.pid = event.pid
        entry.lastAt = now
        let isTold =
            now - entry.toldAt >= EventJournal.repeatInterval && self[keyPath: ring].spend(now)
        if isTold { entry.toldAt = now }
        self[keyPath: ring][position] = entry
        return isTold ? .again(entry.event) : .counted
    }
}
