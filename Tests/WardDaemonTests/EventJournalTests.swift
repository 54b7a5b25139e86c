import Testing
import WardControl

@testable import WardDaemon

/// Past events are kept up to a bound, whether a client listens or not.
@Suite struct EventJournalTests {
    private func denial(
        _ path: String, program: String? = "cat", pid: Int = 1, state: String = "locked",
        time: String = "first"
    ) -> ControlEvent {
        ControlEvent(
            time: time, kind: .denied, state: state, path: path, protectionClass: "A",
            operation: "open", pid: pid, uid: 0, program: program)
    }

    @Test("the same denial is one event with a count, its first and its last time")
    func merged() throws {
        var journal = EventJournal()
        for (index, time) in ["first", "second", "third"].enumerated() {
            _ = journal.record(
                denial("/f", pid: 10 + index, time: time), now: .milliseconds(index * 300))
        }
        let event = try #require(journal.last(10).first)
        #expect(journal.last(10).count == 1)
        #expect(event.time == "first")
        #expect(event.count == 3)
        #expect(event.lastTime == "third")
        #expect(event.pid == 12, "the last process")
        #expect(journal.counts.denied == 3)
    }

    @Test("another program, path or state, or a long pause, is another event")
    func apart() {
        var journal = EventJournal()
        for event in [
            denial("/f"), denial("/g"), denial("/f", program: "less"),
            denial("/f", state: "beforeFirstUnlock"),
        ] {
            _ = journal.record(event, now: .zero)
        }
        _ = journal.record(denial("/f"), now: EventJournal.mergeInterval)
        #expect(journal.last(10).count == 5)
        #expect(journal.last(10).allSatisfy { $0.count == nil })
    }

    @Test("a file removed unread keeps its name, however many denials there are")
    func removals() {
        var journal = EventJournal()
        var removal = denial("/deleted")
        removal.kind = ControlEvent.Kind.removedUnread.rawValue
        _ = journal.record(removal, now: .zero)
        // A second apart, else they would be merged into one event.
        for number in 0..<(EventJournal.capacity * 2) {
            _ = journal.record(denial("/\(number)"), now: .seconds(number))
        }
        for number in 0..<1000 {
            _ = journal.record(denial("/more/\(number)"), now: .seconds(2000))
        }
        removal.path = "/deleted later"
        _ = journal.record(removal, now: .seconds(2000))
        let removed = journal.last(.max).filter { $0.kind == removal.kind }
        #expect(removed.map(\.path) == ["/deleted", "/deleted later"])
        #expect(journal.counts.denied == EventJournal.capacity * 2 + 1000)
    }

    @Test("one that goes on is told again once a second, under its sequence")
    func toldAgain() {
        var journal = EventJournal()
        var told: [ControlEvent] = []
        for tick in 0..<50 {
            switch journal.record(denial("/f"), now: .milliseconds(tick * 100)) {
            case .new(let event), .again(let event): told.append(event)
            case .counted: break
            }
        }
        #expect(told.count == 5)
        #expect(Set(told.map(\.sequence)) == [1])
        #expect(told.last?.count == 41)
    }

    @Test("a storm of denials pushes nothing else out, and is told a bounded number of times")
    func storm() throws {
        var journal = EventJournal()
        _ = journal.record(ControlEvent(kind: .locked, state: "locked"), now: .zero)
        _ = journal.record(ControlEvent(kind: .integrityFailure, path: "/bad"), now: .zero)
        var told = 0
        for number in 0..<100_000 {
            // A hundred thousand files within a second.
            let outcome = journal.record(denial("/\(number)"), now: .microseconds(number * 10))
            if case .counted = outcome { continue }
            told += 1
        }
        #expect(told <= Int(EventJournal.burst + EventJournal.perSecond) + 3, "\(told)")
        #expect(journal.counts.denied == 100_000)
        let kept = journal.last(.max)
        #expect(kept.contains { $0.kind == "locked" } && kept.contains { $0.path == "/bad" })
        #expect(kept.reduce(0) { $0 + ($1.kind == "denied" ? $1.count ?? 1 : 0) } == 100_000)
    }

    @Test("memory is bounded, the latest stay, and sequences go up by one")
    func bounded() {
        var journal = EventJournal()
        let count = EventJournal.capacity * 3
        for number in 0..<count {
            // Slowly enough for each to be an event of its own.
            _ = journal.record(denial("/\(number)"), now: .seconds(number))
            _ = journal.record(ControlEvent(kind: .note, detail: "\(number)"), now: .zero)
        }
        let kept = journal.last(.max)
        #expect(kept.count == EventJournal.capacity * 2)
        #expect(kept.map(\.sequence) == Array((kept[0].sequence)...(count * 2)))
        #expect(journal.last(2).map(\.detail) == [nil, "\(count - 1)"])
        // A denial that was pushed out is not merged into the event that took its place.
        _ = journal.record(denial("/0"), now: .seconds(1))
        #expect(journal.last(1)[0].path == "/0")
    }

    @Test("what was lost is counted, and the last names are kept")
    func lost() {
        var journal = EventJournal()
        for number in 0..<8 {
            _ = journal.record(ControlEvent(kind: .lost, path: "/\(number)"), now: .zero)
        }
        _ = journal.record(ControlEvent(kind: .lost, detail: "something"), now: .zero)
        #expect(journal.counts.lost == 9)
        #expect(journal.counts.lostPaths == ["/3", "/4", "/5", "/6", "/7"])
    }
}
