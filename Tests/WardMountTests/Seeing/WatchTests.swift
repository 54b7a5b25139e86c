import Foundation
import Testing

extension MountSuite {
    /// `ward watch` on a terminal.
    @Suite struct WatchTests {
        @Test(
            "80 × 24: state, countdown, holders and events, live; small; and gone with q",
            arguments: User.usual)
        func live(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            try StateWalk.makeDirectory(of: .complete, with: probe)
            #expect(probe.open("A/f", "rw", as: "fd") == .ok)
            let terminal = try Terminal(volume, "watch", volume.mountPoint)
            try terminal.wait(for: "UNLOCKED")
            try terminal.wait(for: "/A/f  read, write")
            try volume.lock()
            try terminal.wait(for: "A and B close in 10 s")
            try volume.advance(seconds: 3)
            try terminal.wait(for: "A and B close in 7 s")
            try volume.advance(seconds: 7)
            let locked = try terminal.wait(for: " LOCKED ")
            #expect(locked.lines.count == 24)
            try terminal.wait(for: "A   complete                                closed")
            #expect(probe.open("A/f", "r", as: "other") == .eperm)
            try terminal.wait(for: "refused  python3 open A /A/f")
            // Unchanged lines are not drawn again; only the line with the clock is.
            var still = try terminal.wait(for: " LOCKED ").bytes
            // The first piece may be the rest of what was drawn before; the second is the clock.
            for _ in 0..<2 {
                let again = try terminal.output(beyond: still)
                #expect(again.bytes - still < 1000)
                still = again.bytes
            }

            try terminal.resize(columns: 40, rows: 10)
            let small = try terminal.wait(for: " A     closed")
            #expect(small.lines.count == 10 && small.lines[9].contains("q quit"))
            try terminal.resize(columns: 100, rows: 30)
            try terminal.wait(for: " A   complete")
            try terminal.type("q")
            let end = try terminal.end()
            #expect(end.status == 0 && end.restored == true)
            #expect(end.alternate == false && end.cursor == true)
        }

        @Test("l locks with the grace period, L at once", arguments: User.usual)
        func keys(user: User) throws {
            let volume = try MountedVolume(as: user)
            let terminal = try Terminal(volume, "watch", volume.mountPoint)
            try terminal.wait(for: "UNLOCKED")
            // An arrow key is no command, although it sends letters.
            try terminal.type("\u{1B}OL")
            try terminal.type("l")
            try terminal.wait(for: "LOCKING")
            try terminal.type("L")
            try terminal.wait(for: " LOCKED ")
        }

        @Test(
            "it outlives the mount, and every signal leaves the terminal as it was",
            arguments: User.usual, [SIGINT, SIGTERM, SIGHUP, SIGQUIT])
        func signals(user: User, number: Int32) throws {
            let volume = try MountedVolume(as: user)
            let terminal = try Terminal(volume, "watch", volume.mountPoint)
            try terminal.wait(for: "UNLOCKED")
            if number == SIGTERM {
                try volume.unmount()
                try terminal.wait(for: "not mounted: ward mount \(volume.volume.prefix(20))")
                try volume.mount()
                try terminal.wait(for: "before the first unlock")
                try volume.kill()
                try terminal.wait(for: "NOT THERE")
            }
            try terminal.signal(number)
            let end = try terminal.end()
            #expect(end.status == -number, "it ended by the signal")
            #expect(end.restored == true && end.alternate == false && end.cursor == true)
        }

        @Test("without UTF-8 it is ASCII; stopped and continued it is there again")
        func plain() throws {
            let volume = try MountedVolume(as: User.available[0])
            let terminal = try Terminal(
                volume, environment: ["LC_ALL": "C"], "watch", volume.mountPoint)
            let screen = try terminal.wait(for: "UNLOCKED")
            #expect(screen.text.utf8.allSatisfy { $0 < 0x80 })
            try terminal.signal(SIGTSTP)
            try terminal.resize(columns: 60, rows: 12)
            try terminal.signal(SIGCONT)
            try terminal.wait(for: "UNLOCKED")
            try terminal.type("q")
            #expect(try terminal.end().restored == true)
        }

        @Test("not on a terminal: the command that fits is named")
        func notATerminal() throws {
            let volume = try MountedVolume(as: User.available[0])
            let done = try volume.ward("watch", volume.mountPoint)
            #expect(done.status == 64)
            #expect(done.errors.contains("ward: hint: ward events --follow"), "\(done.errors)")
            #expect(done.output.isEmpty)
            let dumb = try Terminal(
                volume, environment: ["TERM": "dumb"], "watch", volume.mountPoint)
            try dumb.wait(for: "ward: hint: ward events --follow")
        }
    }
}
