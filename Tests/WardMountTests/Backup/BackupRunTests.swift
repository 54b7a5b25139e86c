import Foundation
import Testing

extension MountSuite {
    /// `ward backup run`: the states that it holds, for how long, and its report.
    @Suite struct BackupRunTests {
        @Test(
            "The command's exit code, its environment, and what changed meanwhile",
            arguments: User.usual)
        func report(user: User) throws {
            let volume = try MountedVolume(as: user)
            let long = String(repeating: "long", count: 50)
            try volume.backupShell(
                #"""
                cd "$MNT"; mkdir -p quiet busy/inner classes; echo 1 >quiet/file; echo 1 >busy/written; echo 1 >busy/gone
                echo 1 >busy/replaced; echo 1 >busy/attributes; echo 1 >busy/from; mkdir busy/empty; echo 1 >downloads
                "$WARD" backup exclude downloads
                set +e
                "$WARD" backup run "$MNT" -- sh -c 'exit 7' 2>"$OUT/errors"; test $? = 7
                "$WARD" backup run "$MNT" -- sh -c 'kill -TERM $$' 2>/dev/null; test $? = 143
                set -e
                grep -qx 'ward: backup: 6 files in 6 directories, 1 left out, nothing changed meanwhile' "$OUT/errors"
                test "$(tail -n 1 "$OUT/errors")" = \
                    'ward: backup: failed: sh ended with exit code 7, so there may be no backup, or half of one'
                "$WARD" backup run "$MNT" -- true 2>"$OUT/errors"; ! grep failed "$OUT/errors"
                "$WARD" backup run "$MNT" --json -- sh -c '
                    test "$WARD_BACKUP_SOURCE" = "$VOL"
                    test "$(wc -l <"$WARD_BACKUP_EXCLUDES")" = 1
                    test -f "$(cat "$WARD_BACKUP_EXCLUDES")"
                    while read -r path; do test -L "$path" || test -f "$path"; done <"$WARD_BACKUP_FILES"
                    echo "$WARD_BACKUP_FILES" >"$OUT/where"
                    cd "$MNT/busy"; echo 2 >>written; rm gone; echo 2 >staged; mv staged replaced; rmdir empty
                    setfattr -n user.note -v 1 attributes; mv from inner/to; mkdir made; echo 1 >made/\#(long)
                    "$WARD" class set A "$MNT/classes" -q; echo 2 >>"$MNT/downloads"; echo said
                    ' >"$OUT/report"
                test "$(head -n 1 "$OUT/report")" = said
                test ! -e "$(cat "$OUT/where")"
                """#)
            let report = try Self.lastObject(volume.directory + "/home/report")
            let changed = (report["changed"] as? [[String: String]] ?? []).map {
                ($0["change"] ?? "") + " " + ($0["path"] ?? "")
            }
            #expect(
                changed == [
                    "modified /busy/attributes", "removed /busy/empty", "removed /busy/from",
                    "removed /busy/gone", "created /busy/inner/to", "created /busy/made",
                    "created /busy/made/" + long, "modified /busy/replaced",
                    "modified /busy/written", "modified /classes",
                ])
            #expect(report["exitCode"] as? Int == 0)
            #expect(report["held"] as? Bool == true)
            #expect(report["keybagChanged"] as? Bool == false)
            // Without a mount there is nothing to hold, and nothing changes.
            try volume.unmount()
            try volume.backupShell(
                "\"$WARD\" backup run \"$VOL\" --json -- true | grep -q '\"mounted\":false,\"changed\":\\[\\]'"
            )
        }

        private static func lastObject(_ path: String) throws -> [String: Any] {
            let text = try String(contentsOfFile: path, encoding: .utf8)
            let line = text.split(separator: "\n").last ?? ""
            return try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any] ?? [:]
        }

        /// A backup that says when it began, and ends when the test tells it to.
        private struct Running {
            let child: Child
            let volume: MountedVolume
            private var place: String { volume.directory + "/home" }

            init(_ volume: MountedVolume) throws {
                self.volume = volume
                let home = volume.directory + "/home"
                volume.variables["TMPDIR"] = home
                for name in ["began", "end", "report"] { unlink(home + "/" + name) }
                child = try volume.start([
                    "sh", "-c",
                    """
                    '\(TestEnvironment.shared.ward)' backup run '\(volume.mountPoint)' --json -- sh -c '
                        touch "\(home)/began"; until test -e "\(home)/end"; do sleep 0.05; done; exit 5
                        ' >'\(home)/report'
                    """,
                ])
                try volume.wait(for: "the backup begins") {
                    access(home + "/began", F_OK) == 0
                }
            }

            func end(_ sourceLocation: SourceLocation = #_sourceLocation) throws -> [String: Any] {
                try Data().write(to: URL(fileURLWithPath: place + "/end"))
                #expect(child.wait(seconds: 60) == 5, sourceLocation: sourceLocation)
                return try BackupRunTests.lastObject(place + "/report")
            }
        }

        private func keybag(_ volume: MountedVolume) throws -> Data {
            try Data(contentsOf: URL(fileURLWithPath: volume.volume + "/ward.keybag"))
        }

        /// Changes the passcode to `new`, in the background.
        private func changePasscode(_ volume: MountedVolume, to new: String) throws -> Child {
            let path = volume.directory + "/home/new-passcode"
            try volume.writePasscode(new, to: path)
            return try volume.start([
                TestEnvironment.shared.ward, "passcode", "change", volume.mountPoint,
                "--passcode-file", volume.passcodeFile, "--new-passcode-file", path,
            ])
        }

        @Test(
            "A change of the passcode waits for the backup's end; locks and unlocks do not",
            arguments: User.usual)
        func keybagIsHeld(user: User) throws {
            let volume = try MountedVolume(as: user)
            let before = try keybag(volume)
            let running = try Running(volume)
            let change = try changePasscode(volume, to: "another")
            let policy = try volume.start([
                TestEnvironment.shared.ward, "policy", "set", volume.mountPoint, "--grace", "20s",
                "--passcode-file", volume.passcodeFile,
            ])
            // Calls that come after the two waiting ones are served before them.
            for _ in 0..<3 {
                try volume.lockNow()
                #expect(try volume.probe().readFile("nothing") == .enoent)
                try volume.unlock()
            }
            #expect(change.wait(seconds: 0.1) == nil && policy.wait(seconds: 0.1) == nil)
            #expect(try keybag(volume) == before)
            let report = try running.end()
            #expect(report["keybagChanged"] as? Bool == false)
            #expect(change.wait(seconds: 60) == 0)
            _ = policy.wait(seconds: 60)
            #expect(try keybag(volume) != before)
            try volume.writePasscode("another", to: volume.passcodeFile)
            try volume.lockNow()
            try volume.unlock()
        }

        @Test(
            "A backup that hangs holds up a change of the passcode for half a minute, no longer",
            arguments: User.usual)
        func boundedForKeybag(user: User) throws {
            let volume = try MountedVolume(as: user)
            let before = try keybag(volume)
            let running = try Running(volume)
            let change = try changePasscode(volume, to: "another")
            // The test moves the mount's clock. After half a second the call has arrived and waits.
            #expect(change.wait(seconds: 0.5) == nil)
            try volume.advance(seconds: 29)
            #expect(change.wait(seconds: 0.5) == nil)
            #expect(try keybag(volume) == before)
            try volume.advance(seconds: 2)
            // On a busy machine the call may have arrived only after an advance: then its half
            // minute begins there.
            if change.wait(seconds: 30) == nil { try volume.advance(seconds: 31) }
            #expect(change.wait(seconds: 60) == 0)
            #expect(try keybag(volume) != before)
            let report = try running.end()
            #expect(report["keybagChanged"] as? Bool == true)
            #expect(report["held"] as? Bool == true)
        }

        @Test("A client that is killed holds nothing any more", arguments: User.usual)
        func clientDies(user: User) throws {
            let volume = try MountedVolume(as: user)
            let running = try Running(volume)
            let change = try changePasscode(volume, to: "another")
            #expect(change.wait(seconds: 0.3) == nil)
            // Kills the whole group: ward, its command, and the shell around them.
            running.child.kill()
            #expect(change.wait(seconds: 60) == 0)
        }

        @Test(
            "The epoch stays while a backup runs, whatever is locked and synced, and an hour at the most",
            arguments: User.usual)
        func epochIsHeld(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            #expect(probe.writeFile("file", "before") == .ok)
            let before = try volume.recordedEpoch()
            let running = try Running(volume)
            let held = try volume.recordedEpoch()
            #expect(held > before, "a backup begins with a durable point")
            for round in 0..<3 {
                #expect(probe.writeFile("file \(round)", "while it runs") == .ok)
                // Each lock makes a durable point.
                try volume.lockNow()
                try volume.unlock()
            }
            // A second backup begins with a durable point, after those of the locks.
            let beside = try Running(volume)
            #expect(try volume.recordedEpoch() == held)
            _ = try beside.end()
            _ = try running.end()
            try volume.wait(for: "the epoch goes on") { try volume.recordedEpoch() > held }

            let hanging = try Running(volume)
            let again = try volume.recordedEpoch()
            try volume.advance(seconds: 3601)
            try volume.wait(for: "the epoch goes on beside a backup that hangs") {
                #expect(probe.writeFile("later", "content") == .ok)
                try volume.lockNow()
                try volume.unlock()
                return try volume.recordedEpoch() > again
            }
            _ = try hanging.end()
            try volume.wait(for: "nobody holds it") {
                #expect(probe.writeFile("between", "content") == .ok)
                let before = try volume.recordedEpoch()
                try volume.lockNow()
                try volume.unlock()
                // The durable point follows the lock.
                return try comesTrue(within: 1) { try volume.recordedEpoch() > before }
            }

            // Backups one after the other, without a gap, hold the epoch no longer than one.
            let first = try Running(volume)
            let together = try volume.recordedEpoch()
            try volume.advance(seconds: 1900)
            let second = try Running(volume)
            first.child.kill()
            try volume.advance(seconds: 1900)
            try volume.wait(for: "the epoch goes on beside the second") {
                #expect(probe.writeFile("later", "content") == .ok)
                try volume.lockNow()
                try volume.unlock()
                return try volume.recordedEpoch() > together
            }
            _ = try second.end()
        }

        @Test(
            "A daemon that dies in a backup: what was synced is there, held epoch or not",
            arguments: User.usual)
        func crash(user: User) throws {
            let volume = try MountedVolume(as: user)
            let running = try Running(volume)
            try volume.backupShell(
                """
                cd "$MNT"; for i in $(seq 50); do seq $i >file-$i; done; sync file-*; "$WARD" lock --now "$MNT" -q
                """)
            try volume.kill()
            volume.detach()
            running.child.kill()
            try volume.mount()
            try volume.unlock()
            try volume.shell(
                "cd \"$MNT\"; for i in $(seq 50); do test \"$(wc -l <file-$i)\" = $i; done")
        }

        @Test(
            "The volume may be unmounted meanwhile, and more than one backup may run",
            arguments: User.usual)
        func unmounted(user: User) throws {
            let volume = try MountedVolume(as: user)
            let first = try Running(volume)
            try volume.backupShell("\"$WARD\" backup run \"$MNT\" -q -- true")
            try volume.unmount()
            let report = try first.end()
            #expect(report["held"] as? Bool == false)
            try volume.mount()
        }
    }
}
