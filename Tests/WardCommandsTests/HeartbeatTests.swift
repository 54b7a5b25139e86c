import Testing
import WardConsole
import WardControl

@testable import WardCommands

/// The lines that a trusted host sends back.
@Suite struct HeartbeatTests {
    /// A host with a clock that the test moves; sent lines wait for their answer.
    private final class Wire {
        var beats = Heartbeat(patience: .milliseconds(700))
        var sent: [[UInt8]] = []
        var isThere = true

        func beat(at milliseconds: Int64) -> String? {
            beats.beat(at: .milliseconds(milliseconds)) { line in
                if isThere { sent.append(line) }
                return isThere
            }
        }
    }

    @Test("ten a second, each another number")
    func pace() {
        let wire = Wire()
        for time in stride(from: Int64(1000), to: 1600, by: 10) {
            #expect(wire.beat(at: time) == nil)
        }
        #expect(wire.sent.count == 6)
        #expect(Set(wire.sent).count == 6)
        #expect(wire.sent.allSatisfy { $0.count == 17 && $0.last == 10 })
        #expect(wire.beats.timeout(at: .milliseconds(1590)) == 10)
    }

    @Test(
        "answered in time it goes on; unanswered it ends after its patience, whatever else is answered"
    )
    func patience() {
        let wire = Wire()
        for time in stride(from: Int64(0), to: 5000, by: 100) {
            #expect(wire.beat(at: time) == nil, "\(time)")
            // Half a second late, and in pieces.
            if wire.sent.count > 5 {
                let answer = wire.sent.removeFirst()
                wire.beats.take(Array(answer.prefix(3)))
                wire.beats.take(Array(answer.dropFirst(3)))
            }
        }
        let oldest = 4500
        wire.beats.take(Array("nonsense\n0123456789abcdef\n".utf8))
        #expect(wire.beat(at: Int64(oldest + 699)) == nil)
        #expect(wire.beat(at: Int64(oldest + 700)) == "the host does not answer any more")
    }

    @Test("an answer to one is an answer to those before it")
    func lateAnswers() {
        let wire = Wire()
        for time in stride(from: Int64(0), to: 600, by: 100) { _ = wire.beat(at: time) }
        wire.beats.take(wire.sent[5])
        #expect(wire.beat(at: 1199) == nil)
        #expect(wire.beat(at: 1899) != nil, "since then nothing was answered")
    }

    @Test("a reader who is gone ends it")
    func gone() {
        let wire = Wire()
        wire.isThere = false
        #expect(wire.beat(at: 0) != nil)
    }

    @Test("an endless line of somebody's is no memory")
    func endless() {
        let wire = Wire()
        for _ in 0..<1000 { wire.beats.take([UInt8](repeating: 65, count: 4096)) }
        #expect(wire.beat(at: 0) == nil)
        wire.beats.take([10])
        wire.beats.take(wire.sent[0])
        #expect(wire.beat(at: 650) == nil)
    }

    @Test("the list of hosts, in columns")
    func list() {
        func host(_ name: String, expired: Bool, connected: Int) -> HostStatus {
            HostStatus(
                name: name, made: "2026-11-01T10:00:00.000Z",
                lastUsed: "2026-11-20T10:00:00.000Z", expires: "2026-12-20T10:00:00.000Z",
                expired: expired, connected: connected)
        }
        let lines = TrustText.lines(
            [
                host("laptop\u{1B}", expired: false, connected: 1),
                host("desk", expired: true, connected: 0),
                host("nas", expired: false, connected: 2),
            ], Style(descriptor: -1))
        #expect(
            lines == [
                "name          made        last used   expires     connected",
                "laptop\\u{1b}  2026-11-01  2026-11-20  2026-12-20  yes",
                "desk          2026-11-01  2026-11-20  expired     no",
                "nas           2026-11-01  2026-11-20  2026-12-20  2 times",
            ])
        #expect(TrustText.lines([], Style(descriptor: -1)).isEmpty)
    }
}
