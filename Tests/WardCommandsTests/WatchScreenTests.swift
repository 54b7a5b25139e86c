import Glibc
import Testing
import WardControl

@testable import WardCommands

/// `ward watch` as a function of its data and of the terminal's size.
@Suite struct WatchScreenTests {
    init() { setenv("TZ", "UTC", 1) }

    private func status(_ state: String, available: Set<String>) -> VolumeStatus {
        let names = [
            ("A", "complete"), ("B", "completeUnlessOpen"),
            ("C", "completeUntilFirstUserAuthentication"), ("D", "none"),
            ("CX", "completeWhenUserInactive"),
        ]
        var status = VolumeStatus(
            uuid: "u", volume: "/home/anna/.papers", mountpoint: "/home/anna/papers", state: state,
            since: "2026-11-21T14:03:00.000Z", passcodeSet: true, graceSeconds: 10,
            graceRemainingSeconds: nil,
            classes: names.enumerated().map { index, name in
                ClassStatus(
                    letter: name.0, name: name.1, available: available.contains(name.0),
                    openFiles: index * 700)
            }, pid: 1, version: "1", readOnly: false, manualClock: false)
        status.triesLeft = 10
        status.denied = 3
        return status
    }

    private var locking: WatchScene {
        var scene = WatchScene(place: ".")
        scene.clock = "14:03:04"
        scene.status = status("locking", available: ["A", "B", "C", "D", "CX"])
        scene.status?.graceRemainingSeconds = 8.4
        scene.status?.unsyncedBytes = 1_572_864
        scene.status?.userInactiveRemainingSeconds = 86_390
        scene.statusAge = 0.7
        var report = HolderReport()
        report.holders = [
            Holder(
                pid: 812, uid: 1000, program: "vim", path: "/diary/monday", protectionClass: "A",
                use: .readWrite),
            Holder(
                pid: 99, uid: 1000, program: "evil\u{1B}[2J", path: "/diary/a\nb",
                protectionClass: "A", use: .mappedForWriting),
        ]
        scene.holders = report
        var denied = ControlEvent(
            time: "2026-11-21T14:01:00.000Z", kind: .denied, state: "locked",
            path: "/diary/monday", protectionClass: "A", operation: "open", pid: 77, uid: 0,
            program: "cat")
        denied.count = 1200
        denied.lastTime = "2026-11-21T14:02:01.000Z"
        scene.events = [
            denied,
            ControlEvent(
                time: "2026-11-21T14:02:30.000Z", kind: .didBecomeAvailable, state: "unlocked",
                seconds: 0.256),
            ControlEvent(
                time: "2026-11-21T14:03:00.000Z", kind: .willBecomeUnavailable, state: "locking",
                secondsLeft: 10),
        ]
        return scene
    }

    private func text(
        _ scene: WatchScene, _ columns: Int, _ rows: Int, isUnicode: Bool = true
    ) -> String {
        WatchScreen(columns: columns, rows: rows, isUnicode: isUnicode).lines(scene).map { line in
            String(line.text.reversed().drop { $0 == " " }.reversed())
        }.joined(separator: "\n")
    }

    @Test("80 × 24, in the grace period")
    func full() {
        #expect(
            text(locking, 80, 24) == """
                 ward /home/anna/papers                                                14:03:04
                  LOCKING   A and B close in 8 s  ████████████████░░░░
                 10 tries left · grace 10 s · 1.5 MiB not synced · 3 refused

                 class                                       now       open files
                 A   complete                                readable           0
                 B   completeUnlessOpen                      readable         700
                 C   completeUntilFirstUserAuthentication    readable       1,400
                 D   none                                    readable       2,100
                 CX  completeWhenUserInactive                readable       2,800  24 h left

                 files of class A are used by
                   vim 812  /diary/monday  read, write
                   evil\\u{1b}[2J 99  /diary/a\\nb  mapped for writing

                 events
                 14:02:01  refused  cat open A /diary/monday, 1,200 times
                 14:02:30  unlocked  took 256 ms
                 14:03:00  locking  in 10 s




                  q quit  l lock  L lock at once
                """)
    }

    @Test("80 × 5, locked, and open for trusted hosts")
    func heldOpen() {
        var scene = locking
        scene.status = status("lockedWithHost", available: ["A", "B", "C", "D", "CX"])
        scene.status?.hosts = ["laptop", "desk", "laptop"]
        #expect(
            text(scene, 80, 5).split(separator: "\n")[1]
                == "  LOCKED   A and B open for laptop (2), desk")
    }

    @Test("40 × 10, locked")
    func narrow() {
        var scene = locking
        scene.status = status("locked", available: ["C", "D", "CX"])
        scene.status?.lost = 1
        scene.status?.lostPaths = ["/diary/monday"]
        #expect(
            text(scene, 40, 10) == """
                 ward /home/anna/papers        14:03:04
                  LOCKED   since 14:03:00
                 LOST  1: /diary/monday
                 10 tries left · grace 10 s · 3 refused
                 A     closed        0
                 B     closed      700
                 C     readable  1,400
                 D     readable  2,100
                 CX    readable  2,800
                  q quit  l lock  L lock at once
                """)
    }

    @Test("a terminal without UTF-8 gets ASCII alone")
    func ascii() {
        var scene = locking
        scene.status?.mountpoint = "/home/anna/Bücher/日記"
        let shown = text(scene, 80, 24, isUnicode: false)
        #expect(shown.utf8.allSatisfy { $0 < 0x80 })
        #expect(shown.contains("/home/anna/B?cher/??"))
        #expect(shown.contains("################----"))
    }

    @Test("it fits, whatever the size, and nothing in a name drives the terminal")
    func everySize() {
        var scene = locking
        scene.status?.mountpoint = "/日本語/日記/" + String(repeating: "長", count: 50)
        scene.status?.lost = 3
        scene.status?.integrityFailures = 1
        var gone = scene
        gone.problem = "not mounted: ward mount VOLUME MOUNTPOINT"
        let empty = WatchScene(place: "papers")
        for scene in [scene, gone, empty] {
            for columns in [1, 2, 5, 20, 40, 79, 80, 200] {
                for rows in 1...30 {
                    let lines = WatchScreen(columns: columns, rows: rows).lines(scene)
                    #expect(lines.count <= rows)
                    #expect(lines.allSatisfy { $0.width <= columns }, "\(columns) × \(rows)")
                    let controls = lines.contains {
                        $0.text.unicodeScalars.contains { $0.value < 0x20 || $0.value == 0x7F }
                    }
                    #expect(!controls)
                }
            }
        }
    }

    @Test("the state comes first where there is hardly room, and the keys last")
    func tiny() {
        #expect(text(locking, 40, 1).contains("LOCKING"))
        #expect(text(locking, 40, 2).hasSuffix("q quit  l lock  L lock at once"))
    }

    @Test("a daemon that is gone: said so, with the command, and nothing claimed")
    func gone() {
        var scene = locking
        scene.problem = "not mounted: ward mount /home/anna/.papers /home/anna/papers"
        let shown = text(scene, 80, 24)
        #expect(shown.contains("NOT THERE   not mounted: ward mount"))
        #expect(!shown.contains("readable"))
    }

    @Test("the countdown goes on between two answers, and stands with a manual clock")
    func countdown() {
        var scene = locking
        scene.statusAge = 4
        #expect(text(scene, 80, 24).contains("close in 5 s"))
        scene.status?.manualClock = true
        #expect(text(scene, 80, 24).contains("close in 9 s"))
    }

    @Test("NO_COLOR leaves bold and reversed text; colours end where their text ends")
    func colours() {
        let lines = WatchScreen(columns: 80, rows: 24).lines(locking)
        let plain = lines.map { $0.rendered(inColour: false) }.joined()
        for part in plain.split(separator: "\u{1B}[").dropFirst() {
            #expect(["0m", "1m", "1;7m"].contains { part.hasPrefix($0) }, "\(part)")
        }
        let coloured = lines.map { $0.rendered(inColour: true) }.joined()
        #expect(coloured.contains("\u{1B}[1;30;43m LOCKING \u{1B}[0m"))
    }

    @Test("a repeated event moves to the end instead of standing twice")
    func repeated() {
        var events: [ControlEvent] = []
        for sequence in 1...3 {
            var event = ControlEvent(kind: .denied, path: "/\(sequence)")
            event.sequence = sequence
            WatchFeed.add(event, to: &events)
        }
        var again = events[0]
        again.count = 5
        WatchFeed.add(again, to: &events)
        #expect(events.map(\.sequence) == [2, 3, 1])
    }

    @Test("letters inside of what special keys send are no commands")
    func keys() {
        func keys(_ typed: String) -> String {
            String(decoding: WatchCommand.plainKeys(ArraySlice(typed.utf8)), as: UTF8.self)
        }
        #expect(keys("lL") == "lL")
        #expect(keys("\u{1B}[1;5Lq\u{1B}OL\u{1B}[A\u{1B}l") == "q")
        #expect(keys("\u{1B}") == "" && keys("\u{1B}[") == "" && keys("\u{1B}O") == "")
    }
}
