import Foundation
import Testing

extension MountSuite {
    /// `ward test -- COMMAND`, for programs in any language.
    @Suite struct WardTestTests {
        /// A directory for a test's results, which is also the parent of simulated devices.
        private final class Place {
            let user: User
            let path: String

            init(_ user: User) throws {
                try TestEnvironment.shared.requireMounts()
                self.user = user
                path = try TestEnvironment.shared.makeDirectory("t")
                chown(path, user.userID, user.groupID)
            }

            deinit { try? FileManager.default.removeItem(atPath: path) }

            var variables: [String: String] {
                TestEnvironment.shared.variables.merging(["TMPDIR": path, "HOME": path]) { $1 }
            }

            func command(_ arguments: [String]) -> [String] {
                user.prefix + [TestEnvironment.shared.ward, "test"] + arguments
            }

            /// Runs `ward test` with these arguments to its end.
            func run(_ arguments: String...) throws -> Finished {
                try Child.run(command(arguments), environment: variables, seconds: 60)
            }

            /// Parts of simulated devices that are still there: directories, mounts, processes.
            func devices() -> [String] {
                let names = (try? FileManager.default.contentsOfDirectory(atPath: path)) ?? []
                let mounts = TestEnvironment.shared.mounts().filter { $0.hasPrefix(path) }
                let processes = TestEnvironment.shared.processes().filter { $0.contains(path) }
                return names.filter { $0.hasPrefix("ward-test.") } + mounts + processes
            }

            /// Waits until they are gone.
            func expectNothingLeft(sourceLocation: SourceLocation = #_sourceLocation) {
                var left: [String] = []
                _ = comesTrue(within: 10) {
                    left = devices()
                    return left.isEmpty
                }
                #expect(left.isEmpty, sourceLocation: sourceLocation)
            }

            /// Waits for a file that a command under test makes. Returns it when it is complete.
            func wait(for name: String) throws -> String {
                var text = ""
                let isComplete = comesTrue {
                    text = (try? String(contentsOfFile: path + "/" + name, encoding: .utf8)) ?? ""
                    return text.hasSuffix("\n")
                }
                guard isComplete else { throw SupportError("no \(name) in \(path)") }
                return String(text.dropLast())
            }
        }

        @Test("the command's exit code, and nothing is left", arguments: User.usual)
        func exitCodes(user: User) throws {
            let place = try Place(user)
            for (script, code) in [("exit 0", Int32(0)), ("exit 7", 7), ("kill -9 $$", 137)] {
                let done = try place.run("--", "sh", "-c", script)
                #expect(done.status == code, "\(done.everything)")
                #expect(done.errors == "ward: audit: 0 files\n")
                #expect(place.devices().isEmpty)
            }
            #expect(try place.run("--", "/nonexistent").status == 127)
            #expect(try place.run("--", "/etc/passwd").status == 126)
            #expect(try place.run().status == 64)
            #expect(try place.run("--grace", "-1", "--", "true").status == 64)
            #expect(try place.run("--allow", "anything", "--", "true").status == 64)
            #expect(place.devices().isEmpty)
        }

        @Test("the command steps the clock, locks, reboots and unlocks", arguments: User.usual)
        func steps(user: User) throws {
            let place = try Place(user)
            let done = try place.run(
                "--", "bash", "-euc",
                """
                cd "$WARD_TEST_VOLUME"
                mkdir A; ward class set A A --quiet; echo secret >A/f
                ward lock --quiet; ward advance 9s --quiet; cat A/f
                ward advance 1s --quiet; ! cat A/f
                ward unlock --quiet; cat A/f
                ward lock --now --quiet; ! cat A/f
                ward reboot --quiet; ward status --json | tr , '\\n' | grep '"state"'
                ward unlock --quiet
                ward fill --quiet; ! echo full >new; ward fill --undo --quiet; echo room >new
                test "$(cat "$WARD_TEST_PASSCODE_FILE")" = 1234
                cd /
                """)
            #expect(done.status == 0, "\(done.everything)")
            #expect(done.output == "secret\nsecret\n\"state\":\"beforeFirstUnlock\"\n")
            #expect(done.errors.contains("No space left on device"))
            #expect(done.errors.contains("ward: audit: 2 files: 1 of class A, 1 of class C\n"))
            #expect(done.errors.contains("ward: audit: denial: cat (pid "))
            #expect(place.devices().isEmpty)
        }

        @Test("findings end it with 15, where the command succeeded", arguments: User.usual)
        func findings(user: User) throws {
            let place = try Place(user)
            let script = """
                cd "$WARD_TEST_VOLUME"
                mkdir A; ward class set A A --quiet; echo the secret >A/f; cp A/f copy
                printf 'SQLite format 3\\0' >A/base; echo wal >A/base-wal
                ward class set D A/base-wal --quiet
                ward class set C copy --quiet; echo x >A/gone
                ward lock --now --quiet; rm A/gone; cat A/f || true
                cd /
                """
            let done = try place.run("--", "bash", "-euc", script)
            #expect(done.status == 15, "\(done.everything)")
            for line in [
                "ward: finding: side-file-class: /A/base-wal is class D, but belongs to the database "
                    + "/A/base of class A: it should be class A",
                "ward: finding: readable-copy: /copy of class C holds the content of /A/f, class A: "
                    + "it stays readable while locked",
                "ward: finding: removed-unread: a file was deleted while it could not be read: rm",
                "ward: audit: denial: cat (pid",
            ] {
                #expect(done.errors.contains(line), "\(line) in \(done.errors)")
            }
            let allowed = try place.run(
                "--allow", "side-file-class", "--allow", "readable-copy", "--allow",
                "removed-unread", "--", "bash", "-euc", script)
            #expect(allowed.status == 0, "\(allowed.everything)")
            let denials = try place.run(
                "--allow", "side-file-class", "--allow", "readable-copy", "--allow",
                "removed-unread", "--no-denials", "--quiet", "--", "bash", "-euc", script)
            #expect(denials.status == 15, "\(denials.everything)")
            #expect(denials.errors.contains("ward: finding: denial: cat"))
            // The command's own failure takes precedence.
            #expect(try place.run("--", "bash", "-euc", script + "\nexit 3").status == 3)

            let json = try place.run("--json", "--", "bash", "-euc", script + "\necho its own line")
            let lines = json.output.split(separator: "\n")
            #expect(lines.first == "its own line")
            let last = try #require(lines.last)
            let object = try #require(
                try JSONSerialization.jsonObject(with: Data(last.utf8)) as? [String: Any])
            #expect(object["clean"] as? Bool == false)
            #expect(object["exitCode"] as? Int == 0)
            let found = try #require(object["findings"] as? [[String: Any]])
            #expect(
                found.map { $0["kind"] as? String }
                    == ["side-file-class", "readable-copy", "removed-unread"])
            #expect((object["files"] as? [Any])?.count == 4)
            #expect((object["denials"] as? [[String: Any]])?.first?["path"] as? String == "/A/f")
        }

        @Test("its options: passcode, none, first state, class, grace", arguments: User.usual)
        func options(user: User) throws {
            let place = try Place(user)
            let state = #"ward status --json | tr , '\n' | grep '"state"'"#
            let first = try place.run("--before-first-unlock", "--", "sh", "-c", state)
            #expect(first.output == "\"state\":\"beforeFirstUnlock\"\n", "\(first.everything)")
            let none = try place.run("--no-passcode", "--", "sh", "-c", state)
            #expect(none.output == "\"state\":\"noPasscode\"\n")
            try "other\n".write(
                toFile: place.path + "/passcode", atomically: false, encoding: .utf8)
            chmod(place.path + "/passcode", 0o644)
            let own = try place.run(
                "--passcode-file", place.path + "/passcode", "--class", "A", "--grace", "3", "--",
                "sh", "-euc",
                """
                cat "$WARD_TEST_PASSCODE_FILE"; echo; echo x >"$WARD_TEST_VOLUME/f"
                ward lock --quiet; ward advance 3s --quiet; ! cat "$WARD_TEST_VOLUME/f" 2>&-
                ward unlock --quiet; cat "$WARD_TEST_VOLUME/f"
                """)
            #expect(own.output == "other\nx\n", "\(own.everything)")
            #expect(own.errors.contains("1 file: 1 of class A"))
        }

        @Test("descriptors and standard streams are the caller's", arguments: User.usual)
        func streams(user: User) throws {
            let place = try Place(user)
            let count = "ls /proc/self/fd | wc -l"
            let words = place.command(["--quiet", "--", "sh", "-c", "cat; cat <&7; \(count)"])
            let done = try Child.run(
                ["bash", "-c", "exec 7< <(echo seven); \(count); exec \"$@\"", "bash"] + words,
                environment: place.variables, input: "zero\n")
            let lines = done.output.split(separator: "\n")
            #expect(lines.dropFirst().prefix(2) == ["zero", "seven"], "\(done.everything)")
            #expect(lines.first == lines.last, "\(done.everything)")
            #expect(done.errors.isEmpty)
        }

        @Test("signals go to the command, and everything is removed", arguments: User.usual)
        func signals(user: User) throws {
            let place = try Place(user)
            for signal in [SIGTERM, SIGINT, SIGHUP] {
                let child = try Child(
                    place.command([
                        "--", "bash", "-c",
                        """
                        trap 'echo caught >"$HOME/caught"; exit 9' TERM INT HUP
                        echo $$ >"$HOME/pid"; while :; do sleep 0.02; done
                        """,
                    ]), environment: place.variables)
                _ = try place.wait(for: "pid")
                kill(child.process, signal)
                #expect(child.wait(seconds: 20) == 9)
                #expect(try place.wait(for: "caught") == "caught")
                #expect(place.devices().isEmpty)
                unlink(place.path + "/pid")
                unlink(place.path + "/caught")
            }
        }

        @Test(
            "after SIGKILL of ward test nothing is left, the command included",
            arguments: User.usual)
        func killed(user: User) throws {
            let place = try Place(user)
            let child = try Child(
                place.command([
                    "--", "bash", "-c",
                    """
                    cd "$WARD_TEST_VOLUME"; exec 5>held; echo $$ >"$HOME/pid"
                    while :; do read -t 0.02 <>/dev/zero || true; done
                    """,
                ]), environment: place.variables)
            let command = try #require(pid_t(try place.wait(for: "pid")))
            #expect(!place.devices().isEmpty)
            kill(child.process, SIGKILL)
            #expect(child.wait(seconds: 20) == 137)
            place.expectNothingLeft()
            try MountedVolume.waitForEnd(of: command)
        }

        @Test("the examples: a Python and a C program", arguments: User.usual)
        func examples(user: User) throws {
            let place = try Place(user)
            let source = URL(fileURLWithPath: #filePath)
                .appendingPathComponent("../../../../Examples/ward-test").standardizedFileURL.path
            for name in ["diary.py", "test_diary.py", "settings.c", "test_settings.sh"] {
                try FileManager.default.copyItem(
                    atPath: source + "/" + name, toPath: place.path + "/" + name)
            }
            let python = try place.run(
                "--", TestEnvironment.shared.python, place.path + "/test_diary.py")
            #expect(python.status == 0, "\(python.everything)")
            #expect(python.errors.contains("Ran 4 tests"))

            for (name, flags, code) in [("settings", [], 0), ("careless", ["-DCARELESS"], 15)]
                as [(String, [String], Int32)]
            {
                let built = try Child.run(
                    ["cc", "-Wall", "-Werror", "-o", "\(place.path)/\(name)"] + flags
                        + [place.path + "/settings.c"], environment: place.variables)
                try #require(built.succeeded, "\(built.everything)")
                let done = try place.run(
                    "--", "sh", place.path + "/test_settings.sh", "\(place.path)/\(name)")
                #expect(done.status == code, "\(done.everything)")
                #expect(done.output == (code == 0 ? "blue\n" : "none\nnone\n"))
                #expect(done.errors.contains("removed-unread") == (code == 15))
            }
        }

        @Test("no /dev/fuse: said at once", .enabled(if: geteuid() == 0), arguments: User.usual)
        func noFUSE(user: User) throws {
            let place = try Place(user)
            let prepare = """
                mount -t tmpfs -o mode=755 none /dev
                mknod -m 666 /dev/null c 1 3; mknod -m 666 /dev/zero c 1 5
                mknod -m 666 /dev/urandom c 1 9; mknod -m 666 /dev/random c 1 8
                """
            let done = try Child.run(
                ["unshare", "--mount", "sh", "-euc", prepare + "\nexec \"$@\"", "sh"]
                    + place.command(["--", "true"]), environment: place.variables, seconds: 20)
            #expect(done.status == 69, "\(done.everything)")
            #expect(done.errors.contains("this machine has no /dev/fuse\n"))
            #expect(done.errors.contains("--device /dev/fuse --cap-add SYS_ADMIN\n"))
            #expect(place.devices().isEmpty)
        }
    }
}
