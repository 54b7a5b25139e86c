import Foundation
import Testing

extension MountSuite {
    /// `ward status` and `ward ls`.
    @Suite struct StatusTests {
        @Test(
            "L8: protected data is available exactly while A and B can be opened; what is left",
            arguments: User.usual)
        func states(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            try StateWalk.makeDirectories(with: probe)
            for state in LockState.walk {
                try volume.enter(state)
                let status = try volume.status()
                let opens = [FileClass.complete, .completeUnlessOpen].allSatisfy {
                    let key = "\(state.rawValue) \($0.letter)"
                    let outcome = probe.open("\($0.letter)/f", "r", as: key)
                    return outcome == .ok && probe.close(key) == .ok
                }
                #expect(status["protectedDataAvailable"] as? Bool == opens, "\(state)")
                #expect(
                    status["firstUnlockHappened"] as? Bool
                        == state.opens(
                            .completeUntilFirstUserAuthentication))
                #expect(
                    status["graceRemainingSeconds"] as? Double == (state == .locking ? 10 : nil))
                // A day from the unlock; in S4 the lock's ten seconds have passed.
                let inactive: Double? =
                    switch state {
                    case .unlocked, .locking: 86_400
                    case .locked: 86_390
                    default: nil
                    }
                #expect(status["userInactiveRemainingSeconds"] as? Double == inactive, "\(state)")
                let classes = try #require(status["classes"] as? [[String: Any]])
                for (fileClass, entry) in zip(
                    [
                        FileClass.complete, .completeUnlessOpen,
                        .completeUntilFirstUserAuthentication, .none, .completeWhenUserInactive,
                    ], classes)
                {
                    #expect(entry["available"] as? Bool == state.opens(fileClass), "\(state)")
                }
            }
        }

        @Test("L6: tries left, and when the next may be", arguments: User.usual)
        func tries(user: User) throws {
            let volume = try MountedVolume(as: user)
            #expect(try volume.status()["triesLeft"] as? Int == 10)
            for (index, wrong) in ["1", "2", "3", "4"].enumerated() {
                #expect(try volume.status()["retrySeconds"] == nil)
                try volume.writePasscode(wrong, to: volume.passcodeFile)
                try volume.ward("unlock", volume.mountPoint, "--passcode-file", volume.passcodeFile)
                #expect(try volume.status()["triesLeft"] as? Int == 9 - index)
            }
            #expect(try volume.status()["retrySeconds"] as? Double == 60)
            try volume.advance(seconds: 45)
            #expect(try volume.status()["retrySeconds"] as? Double == 15)
            let text = try volume.ward("status", volume.mountPoint).output
            #expect(text.contains("6 tries left, then it is disabled, the next in 15 s"), "\(text)")
        }

        @Test("a damaged file and refused opens are counted", arguments: User.usual)
        func counts(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            #expect(probe.writeFile("f", String(repeating: "x", count: 20_000)) == .ok)
            try volume.unmount()
            try volume.shell(
                """
                file=$(find '\(volume.volume)' -type f -size +3 ! -name 'ward.*' ! -name README)
                printf 'not what was there' | dd of="$file" bs=1 seek=9000 conv=notrunc 2>/dev/null
                """)
            try volume.mount()
            try volume.unlock()
            let after = try volume.probe()
            #expect(after.readFile("f") == .failure("EIO"))
            try StateWalk.makeDirectory(of: .complete, with: after)
            try volume.lockNow()
            #expect(after.readFile("A/f") == .eperm)
            #expect(after.readFile("A/f") == .eperm)
            let status = try volume.status()
            #expect(status["integrityFailures"] as? Int ?? 0 > 0)
            #expect(status["denied"] as? Int == 2)
            #expect(status["lost"] as? Int == 0)
        }

        @Test("what is written and not yet durable is counted", arguments: User.usual)
        func unsynced(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            #expect(try volume.status()["pendingStoreBytes"] as? Int == 0)
            let before = try #require(try volume.status()["unsyncedBytes"] as? Int)
            #expect(probe.writeFile("f", String(repeating: "x", count: 100_000)) == .ok)
            #expect(try #require(try volume.status()["unsyncedBytes"] as? Int) >= before + 100_000)
        }

        @Test(
            "a volume that is not mounted says so, with the next command", arguments: User.usual
        )
        func unmounted(user: User) throws {
            let volume = try MountedVolume(as: user)
            try volume.unmount()
            let text = try volume.ward("status", volume.volume)
            #expect(text.status == 69)
            #expect(text.output.contains("not mounted"), "\(text.everything)")
            #expect(text.output.contains("ward mount \(volume.volume) MOUNTPOINT"))
            let json = try volume.ward("status", volume.volume, "--json")
            #expect(
                json.output
                    == "{\"volume\":\"\(volume.volume)\",\"state\":\"unmounted\",\"recoveryKit\":\"none\"}\n"
            )
            try volume.mount()
            #expect(try volume.ward("status", volume.volume).succeeded, "mounted, by its directory")
        }

        @Test(
            "ls: classes and what can be read now, while locked, whatever is in a name",
            arguments: User.usual)
        func list(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            for fileClass in [FileClass.complete, .none] {
                try StateWalk.makeDirectory(of: fileClass, with: probe)
            }
            #expect(probe.writeFile("A/a\nb\u{1B}[2J", "12345") == .ok)
            #expect(probe.call("symlink", "f", "A/link") == .ok)
            try volume.lockNow()
            let top = try volume.ward("ls", volume.mountPoint).output
            #expect(top == "A   -    A/\nD   -    D/\n")
            let inside = try volume.ward("ls", "-l", volume.mountPoint + "/A").output
            let lines = inside.split(separator: "\n")
            #expect(lines.count == 3, "\(inside)")
            #expect(lines[0].hasPrefix("A   no   -rw-r--r--  "))
            #expect(lines[0].hasSuffix("  a\\nb\\u{1b}[2J"))
            #expect(lines[2].hasPrefix("-   -    lrwxrwxrwx  ") && lines[2].hasSuffix("link -> f"))
            let json = try volume.ward("ls", "--json", volume.mountPoint + "/A").output
            let first = try JSONSerialization.jsonObject(
                with: Data(json.split(separator: "\n")[0].utf8))
            let entry = try #require(first as? [String: Any])
            #expect(entry["name"] as? String == "a\nb\u{1B}[2J")
            #expect(entry["readable"] as? Bool == false && entry["sizeBytes"] as? Int == 5)
            let itself = try volume.ward("ls", "-d", volume.mountPoint + "/D").output
            #expect(itself.hasPrefix("D   -    "), "\(itself)")
        }

        @Test("ls -R lists every directory, and goes on after one that can't be read")
        func recursiveList() throws {
            let user = User.available.last!
            let volume = try MountedVolume(as: user)
            try volume.shell(
                """
                cd "$MNT"; mkdir -p a/in b c; touch a/in/f b/g; seq 200 | sed s,^,c/, | xargs touch
                ln -s a link
                """)
            let list = try volume.ward("ls", "-R", volume.mountPoint)
            #expect(list.succeeded)
            let wanted: [String] = ["", "/a", "/a/in", "/b", "/c"].map {
                volume.mountPoint + $0 + ":"
            }
            let headings: [String] = list.output.split(separator: "\n").map { String($0) }
                .filter { $0.hasSuffix(":") }
            #expect(headings == wanted)
            // Names, headings, and an empty line between two directories.
            #expect(list.output.split(separator: "\n").count == 4 + 1 + 1 + 1 + 200 + 5)
            let json = try volume.ward("ls", "-R", "--json", volume.mountPoint).output
            let paths = try json.split(separator: "\n").map { line in
                let object = try JSONSerialization.jsonObject(with: Data(line.utf8))
                return try #require((object as? [String: Any])?["path"] as? String)
            }
            #expect(paths.count == 207)
            #expect(paths.contains(volume.mountPoint + "/a/in/f"))
            guard user != .root else { return }
            try volume.shell("chmod 0 \"$MNT/b\"")
            let partly = try volume.ward("ls", "-R", volume.mountPoint)
            #expect(!partly.succeeded)
            #expect(partly.everything.contains("cannot list \(volume.mountPoint)/b"))
            #expect(partly.output.contains(volume.mountPoint + "/c:"))
            try volume.shell("chmod 700 \"$MNT/b\"")
        }
    }
}
