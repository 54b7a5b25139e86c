import Glibc
import Testing
import WardConsole
import WardControl

@testable import WardCommands

/// Text that users read.
@Suite struct TextTests {
    private let plain = Style(descriptor: -1)

    @Test(arguments: [
        (0, "0 bytes"), (1, "1 byte"), (1023, "1,023 bytes"), (1024, "1.0 KiB"),
        (1_572_864, "1.5 MiB"), (1 << 30, "1.0 GiB"), (52_428_800, "50 MiB"),
    ])
    func sizes(bytes: Int, text: String) { #expect(Text.size(bytes: bytes) == text) }

    @Test(arguments: [
        (0.0003, "0.3 ms"), (0.0456, "46 ms"), (1.256, "1.26 s"), (90, "2 min"),
    ])
    func durations(seconds: Double, text: String) {
        #expect(Text.preciseDuration(seconds: seconds) == text)
    }

    @Test("a number that another program says may be any")
    func farNumbers() {
        #expect(Text.grouped(.min) == "-9,223,372,036,854,775,808")
        for seconds in [1e300, -1e300, .infinity, .nan] {
            #expect(Text.duration(seconds: seconds).last != " ")
            #expect(Text.preciseDuration(seconds: seconds).last != " ")
        }
        #expect(Text.duration(seconds: 1e300) == "153722867280912930 h 7 min")
        #expect(Text.size(bytes: .max).hasSuffix(" TiB"))
    }

    @Test(
        "names can't drive the terminal, nor look like others",
        arguments: [
            ("a\u{1B}[2Jb", "a\\u{1b}[2Jb"), ("a\u{9B}2Jb", "a\\u{9b}2Jb"),
            ("a\u{7F}", "a\\u{7f}"), ("txt\u{202E}gpj.exe", "txt\\u{202e}gpj.exe"),
            ("a\u{2028}b", "a\\u{2028}b"), ("\u{2066}a\u{2069}", "\\u{2066}a\\u{2069}"),
            ("grüße 日本 👩‍👧", "grüße 日本 👩‍👧"),
        ])
    func printable(text: String, shown: String) {
        #expect(Text.printable(text) == shown)
        let isOneLine = !text.contains(where: \.isNewline)
        #expect(Text.oneLine("no \(text)") == (isOneLine ? "no \(shown)" : "no a; b"))
    }

    @Test(
        "a path that is shown to be pasted is quoted, and can't drive the terminal",
        arguments: [
            ("/a/b", "/a/b"), ("/a b", "'/a b'"), ("/it's", "\"/it's\""),
            ("/a\u{1B}[2J'\\\u{9B}\n", #"$'/a\x1b[2J\'\\\xc2\x9b\x0a'"#),
        ])
    func shellQuoted(path: String, quoted: String) {
        #expect(Text.shellQuoted(path) == quoted)
    }

    @Test("a file's time may be of any year")
    func farTime() {
        // The last year that `struct tm` holds.
        let time = timespec(tv_sec: 67_768_036_190_000_000, tv_nsec: 0)
        #expect(LocalTime.minute(time).hasPrefix("2147485547-"))
        #expect(Timestamp.text(.milliseconds(-1500)) == "1969-12-31T23:59:58.500Z")
    }

    @Test("a denial says who, what, which class, in which state, how often, until when")
    func denial() {
        var event = ControlEvent(
            time: "2026-11-21T14:01:00.000Z", kind: .denied, state: "locked", path: "/a\nb",
            protectionClass: "A", operation: "open", pid: 77, uid: 1000, program: "c\u{1B}at")
        event.count = 1200
        event.lastTime = "2026-11-21T14:02:01.000Z"
        #expect(
            EventText.render(event, plain)
                == "2026-11-21T14:01:00.000Z  denied                 /a\\nb, class A, open, "
                + "c\\u{1b}at (pid 77, uid 1000), locked, 1,200 times, the last at 14:02:01")
    }

    @Test("a lock and an unlock say how long they took")
    func lockDurations() {
        let locked = ControlEvent(
            time: "T", kind: .locked, state: "locked", seconds: 0.0214, files: 1)
        #expect(EventText.details(locked) == "took 21 ms, 1 file dropped")
        let unlocked = ControlEvent(kind: .didBecomeAvailable, state: "unlocked", seconds: 0.31)
        #expect(EventText.details(unlocked) == "took 310 ms")
    }

    @Test("status: what is left, what is lost, and the next command")
    func status() {
        var status = VolumeStatus(
            uuid: "u", volume: "/v", mountpoint: "/m", state: "locked", since: "s",
            passcodeSet: true, graceSeconds: 10, graceRemainingSeconds: nil,
            classes: [
                ClassStatus(letter: "A", name: "complete", available: false, openFiles: 0),
                ClassStatus(
                    letter: "CX", name: "completeWhenUserInactive", available: true, openFiles: 2),
            ], pid: 1, version: "1", readOnly: false, manualClock: false)
        status.userInactiveRemainingSeconds = 7200
        status.triesLeft = 5
        status.retrySeconds = 290
        status.eraseAfterTries = true
        status.pendingStoreBytes = 4096
        status.lost = 2
        status.lostPaths = ["/a\nb"]
        status.integrityFailures = 1
        status.denied = 12
        #expect(
            StatusText.render(status, plain) == """
                /m  locked
                  volume     /v
                  uuid       u
                  since      s
                  passcode   set, 5 tries left, then it is erased, the next in 5 min
                  grace      10 s
                  daemon     pid 1, version 1
                  to store   4.0 KiB accepted
                  lost       2: /a\\nb
                  damaged    1 failure (ward events)
                  refused    12 times (ward events)
                  class                            readable  open files
                  A      complete                  no        0
                  CX     completeWhenUserInactive  yes       2  closes in 2 h without an unlock
                """, "no next command while the next try has to wait")
        status.retrySeconds = nil
        #expect(StatusText.render(status, plain).hasSuffix("\n  next       ward unlock /m"))
    }

    @Test("holders: class A first, and what could not be seen")
    func holders() {
        var report = HolderReport()
        report.holders = [
            Holder(
                pid: 7, uid: 0, program: "vim", path: "/a\nb", protectionClass: "A",
                use: .mappedForWriting)
        ]
        report.unreadable = 1200
        report.unattributed = 1
        report.isComplete = false
        #expect(
            HolderText.lines(report, Console()) == [
                "class      pid  program  use                 path",
                "A            7  vim      mapped for writing  /a\\nb",
            ])
        #expect(
            HolderText.notes(report) == [
                "1 open file belongs to no process that was seen",
                "1,200 processes could not be looked at",
                "not everything could be looked at in time",
            ])
    }
}
