import Foundation
import Testing

extension MountSuite {
    /// `ward events`, the Monitor stream and its signals.
    @Suite struct EventTests {
        private func events(_ volume: MountedVolume, _ more: String...) throws -> [[String: Any]] {
            let done = try Child.run(
                volume.user.prefix + [
                    TestEnvironment.shared.ward, "events", volume.mountPoint, "--json",
                ] + more, environment: volume.environment)
            #expect(done.succeeded, "\(done.everything)")
            return try parse(done.output)
        }

        private func parse(_ output: String) throws -> [[String: Any]] {
            try output.split(separator: "\n").map {
                try #require(
                    try JSONSerialization.jsonObject(with: Data($0.utf8)) as? [String: Any])
            }
        }

        @Test(
            "a denial has program, path, class, state; the same again is one, with a count",
            arguments: User.usual)
        func denials(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            try StateWalk.makeDirectory(of: .complete, with: probe)
            #expect(probe.writeFile("A/a\nb\u{1B}[2J", "x") == .ok)
            try volume.lockNow()
            // No client listens now.
            try volume.shell(
                """
                for i in 1 2 3 4 5; do ! cat "$MNT/A/f" 2>/dev/null; done
                ! head -c1 "$MNT/A/"$'a\\nb\\033[2J' 2>/dev/null
                """)
            let denied = try events(volume).filter { $0["kind"] as? String == "denied" }
            #expect(denied.count == 2, "\(denied)")
            let first = try #require(denied.first)
            #expect(first["program"] as? String == "cat")
            #expect(first["path"] as? String == "/A/f")
            #expect(first["protectionClass"] as? String == "A")
            #expect(first["operation"] as? String == "open")
            #expect(first["state"] as? String == "locked")
            #expect(first["uid"] as? Int == Int(user.userID))
            #expect(first["count"] as? Int == 5)
            #expect(first["lastTime"] as? String ?? "" > first["time"] as? String ?? "~")
            #expect(denied[1]["path"] as? String == "/A/a\nb\u{1B}[2J")
            #expect(denied[1]["program"] as? String == "head")
            let text = try volume.ward("events", volume.mountPoint).output
            #expect(text.contains("/A/a\\nb\\u{1b}[2J, class A, open, head (pid "), "\(text)")
            #expect(!text.contains("\u{1B}"))
        }

        @Test("the last N, exactly, and with --class what concerns it", arguments: User.usual)
        func last(user: User) throws {
            let volume = try MountedVolume(as: user)
            try volume.lockNow()
            try volume.unlock()
            let all = try events(volume)
            #expect(all.map { $0["sequence"] as? Int } == Array(1...all.count))
            for count in [0, 1, 3, 1000] {
                let some = try events(volume, "--last", "\(count)")
                #expect(
                    some.map { $0["sequence"] as? Int }
                        == all.suffix(count).map { $0["sequence"] as? Int })
            }
            #expect(
                try events(volume, "--class", "A").map { $0["kind"] as? String } == ["firstUnlock"])
            let wrong = try volume.ward("events", volume.mountPoint, "--signals")
            #expect(wrong.status == 64)
        }

        @Test("locks and unlocks say how long they took", arguments: User.usual)
        func durations(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            try StateWalk.makeDirectory(of: .complete, with: probe)
            #expect(probe.readFile("A/f") == .data("content of A"))
            try volume.enter(.locked)
            try volume.unlock()
            let all = try events(volume)
            let locked = try #require(all.last { $0["kind"] as? String == "locked" })
            #expect(locked["seconds"] as? Double ?? -1 > 0 && locked["files"] as? Int ?? 0 >= 1)
            let unlocked = try #require(all.last { $0["kind"] as? String == "didBecomeAvailable" })
            // The time includes the stretching of the passcode.
            #expect(unlocked["seconds"] as? Double ?? -1 > 0.0001)
        }

        @Test(
            "one class can be followed through lock, cancelled lock, reboot and CX's expiry",
            arguments: User.usual, ["A", "C", "CX"])
        func signals(user: User, letter: String) throws {
            let volume = try MountedVolume(as: user)
            let path = volume.directory + "/home/stream"
            let output = open(path, O_WRONLY | O_CREAT, 0o600)
            let listener = try Child(
                user.prefix + [
                    TestEnvironment.shared.ward, "events", volume.mountPoint, "--json", "--follow",
                    "--signals", "--class", letter, "--last", "1",
                ], environment: volume.environment, output: output)
            close(output)
            // When the first event is in the file, the command listens.
            let hasBegun = comesTrue(within: 30) {
                (try? Data(contentsOf: URL(filePath: path)))?.isEmpty == false
            }
            try #require(hasBegun, "the command prints the first event")
            try volume.lock()
            try volume.unlock()
            try volume.lock()
            try volume.advance(seconds: 10)
            try volume.advance(seconds: 25 * 3600)
            try volume.unlock()
            try volume.reboot()
            try volume.unlock()
            try volume.unmount()
            #expect(listener.wait(seconds: 20) == 0, "it ends with the mount")
            let told = try parse(String(contentsOfFile: path, encoding: .utf8)).dropFirst()
            let kinds = told.map { event in
                let left = event["secondsLeft"].map { " \($0)" } ?? ""
                return "\(event["kind"] ?? "?")\(left)"
            }
            let common = ["firstUnlock", "didBecomeAvailable", "unmounting"]
            let expected =
                switch letter {
                case "A":
                    [
                        "willBecomeUnavailable 10.0", "didBecomeAvailable",
                        "willBecomeUnavailable 10.0", "didBecomeUnavailable", "didBecomeAvailable",
                        "reboot", "didBecomeUnavailable",
                    ]
                case "C": ["reboot", "didBecomeUnavailable"]
                default:
                    [
                        "didBecomeUnavailable", "didBecomeAvailable", "reboot",
                        "didBecomeUnavailable",
                    ]
                }
            #expect(kinds == expected + common)
        }

        @Test(
            "who begins to follow while states change knows the truth in the end",
            arguments: User.usual)
        func consistentStart(user: User) throws {
            let volume = try MountedVolume(as: user)
            let environment = TestEnvironment.shared
            let socket = try #require(volume.socketPath())
            let done = try Child.run(
                user.prefix + [
                    environment.python, environment.script("signals.py"), socket,
                    volume.passcodeFile, "30", "8",
                ], environment: volume.environment)
            #expect(done.output == "30 followers, 0 wrong, some signals\n", "\(done.everything)")
        }

        @Test(
            "a storm of refused opens delays no lock, fills no memory, hides no event",
            arguments: User.usual)
        func storm(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            try StateWalk.makeDirectory(of: .complete, with: probe)
            for number in 0..<300 { #expect(probe.writeFile("A/\(number)", "x") == .ok) }
            try volume.lockNow()
            let before = try memory(of: volume)
            let environment = TestEnvironment.shared
            let start = try Child.pipe()
            let hammers = try (0..<8).map { _ in
                try Child(
                    user.prefix + [
                        environment.python, environment.script("hammer.py"),
                        volume.mountPoint + "/A", "300",
                    ], environment: volume.environment, input: start.reading)
            }
            close(start.reading)
            for _ in 0..<5 {
                try volume.unlock()
                try volume.lockNow()
            }
            close(start.writing)
            for hammer in hammers { #expect(hammer.wait(seconds: 30) == 0) }
            let after = try memory(of: volume)
            #expect(TestEnvironment.isSanitized || after - before < 40_000, "KiB more")
            let all = try events(volume, "--last", "2000")
            let locks = all.filter { $0["kind"] as? String == "locked" }
            let others = all.filter { $0["kind"] as? String != "denied" }
            #expect(locks.count == 6, "denials pushed none out: \(others)")
            #expect(locks.allSatisfy { $0["seconds"] as? Double ?? 9 < 3 }, "\(locks)")
            #expect(all.count < 1100)
            let denied = all.filter { $0["kind"] as? String == "denied" }
            #expect(denied.contains { ($0["program"] as? String)?.hasPrefix("python") == true })
        }

        /// Resident memory of the daemon, KiB.
        private func memory(of volume: MountedVolume) throws -> Int {
            let daemon = try #require(volume.daemonProcess())
            let text = try String(contentsOfFile: "/proc/\(daemon)/status", encoding: .utf8)
            let line = text.split(separator: "\n").first { $0.hasPrefix("VmRSS:") }
            return try #require(line.flatMap { Int($0.filter(\.isNumber)) })
        }
    }
}
