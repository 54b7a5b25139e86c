import WardControl
import WardSystem

/// The last events of a mount, and their numbers by kind. Pure: callers pass the time.
///
/// Events that a program can cause in a loop have rings of their own: denials, files removed unread
/// or weakened, and events in synchronised directories. So they push no lock and no integrity
/// failure out. The same denial within a while is one event with a count. Where different ones come
/// too fast, the rest of them is one event as well. So a program in a loop fills neither memory,
/// nor the log, nor a client's socket.
struct EventJournal {
    /// The number of events in each ring.
    static let capacity = 512
    /// The same denial within this time after the last one counts as one event.
    static let mergeInterval = Duration.seconds(10)
    /// A repeated denial is sent again this often.
    static let repeatInterval = Duration.seconds(1)
    /// The number of different denials sent one by one: in a burst, and each second.
    static let burst = 128.0
    static let perSecond = 32.0
    /// The number of lost files whose names are kept for the status.
    static let lostPathsKept = 5

    /// The handling of an event.
    enum Outcome {
        /// Send and log it.
        case new(ControlEvent)
        /// Send it again, under its earlier number.
        case again(ControlEvent)
        /// It was only counted.
        case counted
    }

    /// The numbers of events since the mount.
    struct Counts: Equatable {
        var denied = 0
        var integrityFailures = 0
        var lost = 0
        var lostPaths: [String] = []
        /// The number of the last event.
        var sequence = 0
    }

    /// Denials that look the same to a user. Without the process number: a shell's loop has a new
    /// one each time.
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
        /// Monotonic time.
        var lastAt: Duration
        var toldAt: Duration
    }

    /// A ring buffer of entries. A position counts all entries ever written.
    private struct Ring {
        var entries: [Entry] = []
        var written = 0
        /// The position of an event that may be repeated.
        var positions: [Key: Int] = [:]
        /// The number of events that may be sent one by one now.
        private var budget = EventJournal.burst
        private var budgetAt = Duration.zero

        subscript(position: Int) -> Entry {
            get { entries[position % EventJournal.capacity] }
            set { entries[position % EventJournal.capacity] = newValue }
        }

        func holds(_ position: Int) -> Bool { position >= written - entries.count }

        /// Adds an entry. Returns the entry that it replaced.
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

        /// Takes one from the budget; false where it is used up.
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
    /// Events of synchronised directories.
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

    /// Records an event that a program can cause in a loop.
    private mutating func record(
        _ event: ControlEvent, _ now: Duration, in ring: WritableKeyPath<EventJournal, Ring>
    ) -> Outcome {
        let key = Key(
            kind: event.kind, program: event.program, uid: event.uid, path: event.path,
            protectionClass: event.protectionClass, operation: event.operation,
            state: event.state)
        if let outcome = merge(event, key, now, in: ring) { return outcome }
        if self[keyPath: ring].spend(now) { return append(event, key, now, in: ring) }
        // Too many different ones: until fewer come, the rest is one event.
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

    /// Counts an event into the same earlier one; nil where there is none.
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
