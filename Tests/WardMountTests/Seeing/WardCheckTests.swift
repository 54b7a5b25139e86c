import Foundation
import Testing

extension MountSuite {
    /// `ward check`, mounted and not, locked and not, with and without repair. `CheckTests` have
    /// its findings and repairs.
    @Suite struct WardCheckTests {
        private struct Report {
            let status: Int32
            let findings: [[String: Any]]
            let report: [String: Any]
            let everything: String

            /// "kind path outcome", sorted.
            var found: [String] {
                findings.map {
                    "\($0["kind"] ?? "?") \($0["path"] ?? "?") \($0["outcome"] ?? "?")"
                }.sorted()
            }
            /// The classes of unread files, and the number of files.
            var unread: [String: Int] {
                let list = report["unread"] as? [[String: Any]] ?? []
                return Dictionary(
                    uniqueKeysWithValues: list.map {
                        ($0["protectionClass"] as? String ?? "?", $0["files"] as? Int ?? 0)
                    })
            }
        }

        private func check(
            _ volume: MountedVolume, _ place: String, _ arguments: String...
        ) throws -> Report {
            let done = try Child.run(
                volume.user.prefix + [TestEnvironment.shared.ward, "check", place, "--json"]
                    + arguments, environment: volume.environment)
            var findings: [[String: Any]] = []
            var report: [String: Any] = [:]
            for line in done.output.split(separator: "\n") {
                let json = try JSONSerialization.jsonObject(with: Data(line.utf8))
                let object = try #require(json as? [String: Any], "\(done.everything)")
                if let finding = object["finding"] as? [String: Any] { findings.append(finding) }
                if let end = object["report"] as? [String: Any] { report = end }
            }
            return Report(
                status: done.status, findings: findings, report: report,
                everything: done.everything)
        }

        /// Makes files of class A and D. Returns their backing files, found by size.
        private func fill(_ volume: MountedVolume) throws -> (a: String, d: String) {
            let probe = try volume.probe()
            #expect(probe.writeFile("diary", String(repeating: "a", count: 20_000)) == .ok)
            #expect(probe.setClass("diary", "A") == .ok)
            #expect(probe.writeFile("plain", String(repeating: "d", count: 40_000)) == .ok)
            #expect(probe.setClass("plain", "D") == .ok)
            func backing(_ bytes: Int) throws -> String {
                let found = try volume.shell(
                    "find '\(volume.volume)' -type f -size +\(bytes)c -size -\(bytes + 8192)c")
                return found.trimmingCharacters(in: .whitespacesAndNewlines)
            }
            return (try backing(20_000), try backing(40_000))
        }

        private func damage(_ volume: MountedVolume, _ path: String) throws {
            try volume.shell(
                "printf ZZZZ | dd of='\(path)' bs=1 seek=5000 conv=notrunc status=none")
        }

        @Test(
            "mounted: each lock state sees what it can, and a repair under programs",
            arguments: User.usual)
        func mounted(user: User) throws {
            let volume = try MountedVolume(as: user)
            let backing = try fill(volume)
            let clean = try check(volume, volume.mountPoint)
            #expect(clean.status == 0, "\(clean.everything)")
            #expect(clean.report["complete"] as? Bool == true)

            try volume.lockNow()
            try damage(volume, backing.a)
            let locked = try check(volume, volume.mountPoint)
            #expect(locked.status == 1, "\(locked.everything)")
            #expect(locked.unread == ["A": 1])
            #expect(locked.findings.isEmpty)
            try damage(volume, backing.d)
            #expect(
                try check(volume, volume.mountPoint, "--repair").found == [
                    "content /plain repaired"
                ])

            try volume.unlock()
            let found = try check(volume, volume.mountPoint)
            #expect(found.status == 14, "\(found.everything)")
            #expect(found.found == ["content /diary found"])
            #expect(found.findings.first?["protectionClass"] as? String == "A")
            let bytes = found.findings.first?["bytes"] as? [[String: Int]]
            #expect(bytes == [["first": 3804, "last": 7863]])
            let repaired = try check(volume, volume.mountPoint, "--repair")
            #expect(repaired.status == 15, "\(repaired.everything)")
            #expect(repaired.found == ["content /diary repaired"])
            let again = try check(volume, volume.mountPoint, "--repair")
            #expect(again.status == 0, "\(again.everything)")

            let expected =
                String(repeating: "a", count: 3804) + String(repeating: "\0", count: 4060)
                + String(repeating: "a", count: 20_000 - 7864)
            #expect(try volume.probe().readFile("diary") == .data(expected))
            let report = try #require(repaired.report["reportPath"] as? String)
            let text = try volume.shell("cat '\(volume.mountPoint)\(report)'")
            #expect(text.contains("/diary (class A)") && text.contains("3804-7863"), "\(text)")
            try volume.remount()
            #expect(try volume.probe().readFile("diary") == .data(expected))
            let names = try volume.shell("ls -A '\(volume.mountPoint)'")
            #expect(!names.contains("quarantine"))
        }

        @Test("more findings than a client reads at once: it is waited for")
        func slowReader() throws {
            let volume = try MountedVolume(as: User.available[0])
            let name = String(repeating: "x", count: 240)
            try volume.shell(
                "for i in $(seq 3000); do : > '\(volume.volume)'/.ward-$i-\(name); done")
            // Reads only after the daemon has had time to fill every buffer on the way.
            let output = try volume.shell(
                "{ '\(TestEnvironment.shared.ward)' check '\(volume.mountPoint)' --json || true; }"
                    + " | { read -r first; sleep 0.5; cat; }")
            let lines = output.split(separator: "\n")
            #expect(lines.count == 3000, "\(output.suffix(1000))")
            #expect(lines.last?.contains("\"complete\":true") == true)
            let repaired = try check(volume, volume.mountPoint, "--repair")
            #expect(repaired.status == 15, "\(repaired.everything.suffix(2000))")
            #expect(repaired.findings.count == 3000)
        }

        @Test(
            "not mounted: with the passcode, without it, with a wrong one",
            arguments: User.usual)
        func unmounted(user: User) throws {
            let volume = try MountedVolume(as: user)
            let backing = try fill(volume)
            try volume.unmount()
            try damage(volume, backing.a)
            let before = try volume.shell(
                "cd '\(volume.volume)' && find . | sort && cat ward.state | od -c")
            let locked = try check(volume, volume.volume, "--locked")
            #expect(locked.status == 1, "\(locked.everything)")
            #expect(locked.unread == ["A": 1])
            let file = volume.passcodeFile
            let found = try check(volume, volume.volume, "--passcode-file", file)
            #expect(found.status == 14, "\(found.everything)")
            #expect(found.found == ["content /diary found"])
            #expect(
                try volume.shell("cd '\(volume.volume)' && find . | sort && cat ward.state | od -c")
                    == before, "looking changes nothing")
            let asked = try volume.ward("check", volume.volume, "--no-input")
            #expect(asked.status == 64, "\(asked.everything)")
            try volume.writePasscode("wrong", to: volume.directory + "/wrong")
            let wrong = try volume.ward(
                "check", volume.volume, "--passcode-file", volume.directory + "/wrong")
            #expect(wrong.status == 12, "\(wrong.everything)")

            let repaired = try check(
                volume, volume.volume, "--repair", "--passcode-file", file)
            #expect(repaired.status == 15, "\(repaired.everything)")
            let again = try check(volume, volume.volume, "--repair", "--passcode-file", file)
            #expect(again.status == 0, "\(again.everything)")
            try volume.mount()
            try volume.unlock()
            #expect(
                try volume.probe().readFile("plain") == .data(String(repeating: "d", count: 40_000))
            )
        }

        @Test(
            "the keybag's copy, the root's record and the state record", arguments: User.usual)
        func root(user: User) throws {
            let volume = try MountedVolume(as: user)
            _ = try fill(volume)
            try volume.shell("rm '\(volume.volume)/ward.keybag'")
            let mounted = try check(volume, volume.mountPoint)
            #expect(mounted.status == 14, "\(mounted.everything)")
            #expect(mounted.findings.first?["kind"] as? String == "keybag")
            #expect(try check(volume, volume.mountPoint, "--repair").status == 15)
            #expect(try check(volume, volume.mountPoint).status == 0)
            try volume.shell(
                "cmp '\(volume.volume)/ward.keybag' '\(volume.volume)/ward.keybag.copy'")
            try volume.unmount()
            for name in ["ward.state", ".ward"] {
                try volume.shell("rm '\(volume.volume)/\(name)'")
                let file = volume.passcodeFile
                let found = try check(volume, volume.volume, "--passcode-file", file)
                #expect(found.status == 14, "\(name): \(found.everything)")
                let repaired = try check(
                    volume, volume.volume, "--repair", "--passcode-file", file)
                // Nothing vouches for the class of a new record until its owner sets it.
                let isRecord = name == ".ward"
                #expect(
                    repaired.status == (isRecord ? 14 : 15), "\(name): \(repaired.everything)")
                let again = try check(volume, volume.volume, "--passcode-file", file)
                #expect(again.status == (isRecord ? 14 : 0), "\(name): \(again.everything)")
                let kinds = again.findings.map { $0["kind"] as? String }
                #expect(kinds == (isRecord ? ["seal"] : []), "\(name)")
            }
            try volume.mount()
            try volume.unlock()
            #expect(try volume.ward("class", "set", "C", volume.mountPoint).status == 0)
            #expect(try check(volume, volume.mountPoint).status == 0)
            #expect(
                try volume.probe().readFile("diary") == .data(String(repeating: "a", count: 20_000))
            )
        }
    }
}
