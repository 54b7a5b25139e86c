import Foundation
import Testing
import WardCrypto
import WardFormat
import WardKeys
import WardSystem

extension MountSuite {
    /// A copy of a volume opens on another machine with a recovery kit, and each restored file has
    /// its class.
    @Suite struct AdoptTests {
        static let newPasscode = "a new one"

        /// Classes, kinds, sizes, names, attributes and modes of every sort.
        private static let fill = """
            cd "$MNT"
            for class in A B C D CX; do
                mkdir "$class"
                setfattr -n user.ward.class -v "$class" "$class"
                mkdir "$class/inner"
                for size in 0 1 3804 3805 100000 1000000; do
                    head -c $size /dev/urandom >"$class/$size"
                    head -c $size /dev/urandom >"$class/inner/$size"
                done
            done
            : >D/stricter
            setfattr -n user.ward.class -v A D/stricter
            echo secret >>D/stricter
            truncate -s 1M C/hole
            printf end | dd of=C/hole bs=1 seek=900000 conv=notrunc status=none
            ln C/100000 C/hard
            ln -s ../A/100000 C/link
            name=$(printf 'long%.0s' {1..60})
            echo long >"C/$name"
            mkdir "C/$name.d"
            echo inside >"C/$name.d/$name"
            setfattr -n user.comment -v 'read me' C/3805
            chmod 0640 C/1
            chmod 0444 C/3804
            chmod 0551 D/inner
            touch -d '2020-02-02 02:02:02' C/1 A/inner
            """

        private func tree(_ volume: MountedVolume) throws -> [String] {
            let output = try volume.shell(
                "\(TestEnvironment.shared.python) '\(TestEnvironment.shared.script("tree.py"))' \"$MNT\""
            )
            return output.split(separator: "\n").map(String.init)
        }

        /// A volume with all of these, a kit for it, and the code in a file.
        private func makeOriginal(_ user: User) throws -> MountedVolume {
            let volume = try MountedVolume(as: user)
            try volume.shell(Self.fill)
            try makeKit(volume, "kit")
            return volume
        }

        private func makeKit(_ volume: MountedVolume, _ name: String) throws {
            try volume.shell(
                """
                ward='\(TestEnvironment.shared.ward)'
                "$ward" recovery create '\(volume.volume)' --out $OUT/\(name) --json \
                    --passcode-file '\(volume.passcodeFile)' >$OUT/\(name).json
                sed 's/.*"recoveryCode":"\\([^"]*\\)".*/\\1/' $OUT/\(name).json >$OUT/\(name).code
                """)
        }

        /// The other machine: another state directory, another runtime directory, another passcode.
        private func makeMachine(
            _ user: User, kitOf original: MountedVolume, _ kit: String = "kit",
            passcode: String? = AdoptTests.newPasscode
        ) throws -> MountedVolume {
            let machine = try MountedVolume(directoryOnlyAs: user, passcode: passcode)
            try machine.shell(
                "cp '\(original.directory)/home/\(kit)' $OUT/kit; "
                    + "cp '\(original.directory)/home/\(kit).code' $OUT/code; rmdir '\(machine.volume)'"
            )
            return machine
        }

        @discardableResult
        private func adopt(
            _ machine: MountedVolume, _ more: String..., passcode: String? = nil
        ) throws -> Finished {
            try adopt(machine, all: more, passcode: passcode)
        }

        private func adopt(
            _ machine: MountedVolume, all more: [String], passcode: String? = nil
        ) throws -> Finished {
            let secret = ["--passcode-file", passcode ?? machine.passcodeFile]
            return try Child.run(
                machine.user.prefix + [
                    TestEnvironment.shared.ward, "adopt", machine.volume, "--recovery-kit",
                    machine.directory + "/home/kit", "--code-file",
                    machine.directory + "/home/code", "--passcode-cost", "1024",
                ] + (more.contains("--no-passcode") ? [] : secret) + more,
                environment: machine.environment)
        }

        enum Tool: String, CaseIterable, Sendable {
            case cp
            case rsync
            case tar

            /// For `MountedVolume.copyStore`.
            var script: String {
                switch self {
                case .cp: MountedVolume.copyingScript
                // Without this option it compares whole seconds, and keeps the new times of
                // directories changed in this second.
                case .rsync: #"rsync -aHX --modify-window=-1 "$FROM/" "$TO""#
                case .tar:
                    #"mkdir "$TO"; tar --xattrs -cf - -C "$FROM" . | tar --xattrs -xpf - -C "$TO""#
                }
            }
        }

        // MARK: Hostile copies

        @Test(
            "A copy that somebody else prepared: what lies in the place of its files is neither waited for nor written to",
            arguments: User.usual)
        func prepared(user: User) throws {
            let original = try MountedVolume(as: user)
            try makeKit(original, "kit")
            let machine = try makeMachine(user, kitOf: original)
            try original.copyStore(to: machine.volume)
            // The state record has the first of these names until it is complete.
            try machine.shell(
                """
                echo precious >$OUT/precious; cd '\(machine.volume)'
                ln $OUT/precious .ward-new-ward.state; mkfifo ward.keybag.new; mkfifo ward.keybag.copy.new
                """)
            let done = try adopt(machine)
            #expect(done.succeeded, "\(done.everything)")
            #expect(try machine.shell("cat $OUT/precious") == "precious\n")
            for place in ["ward.state", ".ward-new-ward.state"] {
                try machine.shell("cd '\(machine.volume)'; rm -f \(place); mkfifo \(place)")
                let again = try adopt(machine, "--replace", "--copied-in-use")
                #expect(!again.timedOut, "\(place): \(again.everything)")
                try machine.shell("rm -f '\(machine.volume)/\(place)'")
            }
        }

        // MARK: Copies

        @Test(
            "Copied unmounted, mounted and locked: every file with its content and its class",
            arguments: User.usual, Tool.allCases)
        func otherMachine(user: User, tool: Tool) throws {
            let original = try makeOriginal(user)
            let before = try tree(original)
            #expect(before.count > 70 && before.contains { $0.contains("user.comment") })
            for state in ["mounted", "locked", "before first unlock", "unmounted"] {
                switch state {
                case "locked": try original.lockNow()
                case "before first unlock": try original.reboot()
                case "unmounted": try original.unmount()
                default: break
                }
                let machine = try makeMachine(user, kitOf: original)
                try original.copyStore(to: machine.volume, by: tool.script)
                let done = try adopt(machine)
                #expect(done.succeeded, "\(state): \(done.everything)")
                #expect(
                    done.errors.contains("while the volume was in use") == (state != "unmounted"),
                    "\(state): \(done.everything)")
                try machine.mount()
                #expect(try machine.probe().open("A/1", "r", as: "early") == .eperm, "\(state)")
                #expect(try machine.probe().open("D/1", "r", as: "open") == .ok, "\(state)")
                let old = try machine.ward(
                    "unlock", machine.mountPoint, "--passcode-file", original.passcodeFile)
                #expect(old.status == 12, "the passcode of before: \(old.everything)")
                try machine.unlock()
                let after = try tree(machine)
                let different = Set(after).symmetricDifference(before).sorted()
                #expect(
                    different.isEmpty && after.count == before.count,
                    "\(state): \(different.map { String($0.suffix(140)) })")
                let status = try machine.ward("status", machine.mountPoint, "--json").output
                #expect(status.contains(#""integrityFailures":0"#), "\(status)")
                #expect(status.contains(#""recoveryKit":"current""#), "\(status)")
                // From now on it is a machine like any other.
                try machine.shell("echo more >$MNT/A/more")
                try machine.remount()
                #expect(try machine.shell("cat $MNT/A/more") == "more\n")
            }
            // The original device is not affected.
            try original.mount()
            try original.unlock()
            #expect(try tree(original) == before)
        }

        @Test(
            "Files of other times than the state record: findings are accepted, told, mended, and over",
            arguments: User.usual)
        func copiedInUse(user: User) throws {
            let original = try makeOriginal(user)
            try original.shell("head -c 40000 /dev/zero | tr '\\0' a >$MNT/C/growing")
            let machine = try makeMachine(user, kitOf: original)
            // The record is copied first; then epochs pass, and a file grows.
            try machine.shell("cp -a '\(original.volume)/ward.state' $OUT/state")
            for _ in 0..<5 {
                try original.shell("head -c 4000 /dev/zero | tr '\\0' b >>$MNT/C/growing")
                try original.lockNow()
                try original.unlock()
            }
            try original.copyStore(to: machine.volume)
            try machine.shell("cp -a $OUT/state '\(machine.volume)/ward.state'")
            // The file ends without its last page, which the tool did not see.
            let inode = try original.shell("stat -c %i $MNT/C/growing")
            let name = try original.shell(
                "cd '\(original.volume)' && find . -inum $(stat -c %i $MNT/C/growing)"
            ).trimmingCharacters(in: .whitespacesAndNewlines)
            #expect(!name.isEmpty, "inode \(inode)")
            try machine.shell("truncate -s 40960 '\(machine.volume)/\(name)'")
            #expect(try adopt(machine).succeeded)
            try machine.mount()
            try machine.unlock()
            let got = try machine.shell("cat $MNT/C/growing")
            #expect(
                got
                    == String(
                        String(repeating: "a", count: 40000)
                            + String(repeating: "b", count: 20000)
                    ).prefix(3804 + 9 * 4060))
            var events = ""
            let isMended = try comesTrue(within: 60) {
                events = try machine.ward("events", machine.mountPoint).everything
                return events.contains("no epoch is in doubt any more")
            }
            #expect(events.contains("growing"), "told: \(events)")
            #expect(isMended, "no event says that no epoch is in doubt any more: \(events)")
            try machine.remount()
            #expect(try machine.shell("cat $MNT/C/growing") == got)
            // Now the same is damage like any other.
            try machine.unmount()
            try machine.shell("truncate -s 36864 '\(machine.volume)/\(name)'")
            try machine.mount()
            try machine.unlock()
            let damaged = try machine.shell("cat $MNT/C/growing >/dev/null 2>&1 || echo refused")
            #expect(damaged == "refused\n")
        }

        @Test(
            "Kits made before and after open any copy; keybags of any age",
            arguments: User.usual)
        func anyKitAnyCopy(user: User) throws {
            let original = try MountedVolume(as: user)
            try StateWalk.makeDirectory(of: .complete, with: original.probe())
            try makeKit(original, "early")
            try original.unmount()
            try original.shell("cp -a '\(original.volume)' $OUT/first")
            try original.writePasscode("changed", to: original.directory + "/changed")
            for (old, new) in [
                (original.passcodeFile, original.directory + "/changed"),
                (original.directory + "/changed", original.passcodeFile),
            ] {
                let done = try original.ward(
                    "passcode", "change", original.volume, "--passcode-file", old,
                    "--new-passcode-file", new)
                #expect(done.succeeded, "\(done.everything)")
            }
            try makeKit(original, "late")
            for (kit, source) in [("late", "home/first"), ("early", "volume")] {
                for damage in ["true", "rm ward.keybag", "rm ward.keybag*", ": >ward.keybag.copy"] {
                    let machine = try makeMachine(user, kitOf: original, kit)
                    try machine.shell(
                        "cp -a '\(original.directory)/\(source)' '\(machine.volume)'; "
                            + "cd '\(machine.volume)'; \(damage)")
                    let done = try adopt(machine)
                    #expect(done.succeeded, "\(kit), \(damage): \(done.everything)")
                    try machine.mount()
                    try machine.unlock()
                    #expect(
                        try machine.probe().readFile("A/f") == .data("content of A"),
                        "\(kit), \(damage)")
                }
            }
        }

        @Test(
            "Extended attributes lost by the tool: files, classes and modes are there all the same",
            arguments: User.usual)
        func withoutAttributes(user: User) throws {
            let original = try makeOriginal(user)
            let before = try tree(original)
            try original.unmount()
            let machine = try makeMachine(user, kitOf: original)
            try machine.shell(
                "rsync -aH --modify-window=-1 '\(original.volume)/' '\(machine.volume)'")
            // Both secrets from one descriptor, line by line.
            let code = try machine.shell("cat $OUT/code")
            let done = try machine.ward(
                "adopt", machine.volume, "--recovery-kit", machine.directory + "/home/kit",
                "--passcode-cost", "1024", "--code-fd", "0", "--passcode-fd", "0",
                input: code + Self.newPasscode + "\n")
            #expect(done.succeeded, "\(done.everything)")
            try machine.mount()
            try machine.unlock()
            let after = try tree(machine)
            let lost = Set(before).subtracting(after)
            // The file with an attribute, and the directory whose mode (0551) was kept in an
            // attribute.
            #expect(
                lost.allSatisfy { $0.hasPrefix("C/3805\t") || $0.hasPrefix("D/inner\t") },
                "\(lost)")
            #expect(lost.contains { $0.contains("user.comment") } && after.count == before.count)
        }

        @Test("Without a passcode, with a policy, and with JSON", arguments: User.usual)
        func options(user: User) throws {
            let original = try MountedVolume(as: user)
            try StateWalk.makeDirectory(of: .complete, with: original.probe())
            try makeKit(original, "kit")
            try original.unmount()
            let machine = try makeMachine(user, kitOf: original, passcode: nil)
            try original.copyStore(to: machine.volume)
            let done = try adopt(machine, "--no-passcode", "--grace", "77s", "--json")
            let json = try #require(
                try JSONSerialization.jsonObject(with: Data(done.output.utf8)) as? [String: Any],
                "\(done.everything)")
            #expect(json["volume"] as? String == machine.volume)
            #expect(json["passcodeSet"] as? Bool == false)
            #expect(json["copiedInUse"] as? Bool == false)
            let state = try #require(json["stateDirectory"] as? String)
            #expect(state.hasPrefix(machine.stateDirectory))
            let mode = try machine.shell(
                "stat -c %a '\(state)' '\(state)/device.key' '\(state)/recovery'")
            #expect(mode == "700\n600\n600\n")
            try machine.mount()
            #expect(try machine.probe().readFile("A/f") == .data("content of A"))
            let policy = try machine.ward("policy", "show", machine.volume).output
            #expect(
                policy.contains("1 h") || policy.contains("77 s") || policy.contains("2 min"),
                "\(policy)")
        }

        // MARK: Formats

        /// Puts a state record of the time of an upgrade into `target`, a copy of the volume.
        private func putUpgradingState(of volume: MountedVolume, in target: String) throws {
            let store = try KeybagStore(
                volumePath: volume.volume, stateRoot: volume.stateDirectory + "/ward")
            let keyring = ClassKeyring(classBPublicKey: store.classBPublicKey)
            let volumeKey = try store.openDeviceSlot(into: keyring)
            let record = VolumeStateRecord(
                format: .version2, isUpgrading: true, isInUse: false, epoch: 1 << 20, doubtful: [])
            let bytes = record.serialized(
                macKey: try KeyDerivation.derive(from: volumeKey, info: "ward volume state"))
            try volume.shell("rm -f '\(target)/ward.state'")
            try Data(bytes).write(to: URL(fileURLWithPath: target + "/ward.state"))
            let owner = "\(volume.user.userID):\(volume.user.groupID)"
            let given = try Child.run(
                ["chown", owner, target + "/ward.state"],
                environment: TestEnvironment.shared.variables)
            #expect(given.succeeded, "\(given.everything)")
        }

        @Test("An older format that a host brings back: only with the owner's word")
        func olderFormat() throws {
            let user = User.available[0]
            let original = try MountedVolume(as: user, initArguments: ["--format", "1"])
            try StateWalk.makeDirectory(of: .complete, with: original.probe())
            try makeKit(original, "early")
            try original.unmount()
            try original.shell("cp -a '\(original.volume)' $OUT/first")
            let upgraded = try original.ward(
                "upgrade", original.volume, "--passcode-file", original.passcodeFile)
            #expect(upgraded.errors.contains("vouch only for format 1"), "\(upgraded.everything)")
            try makeKit(original, "late")
            let out = original.directory + "/home"
            try original.shell(
                "cp -a '\(original.volume)' $OUT/last; cp -a $OUT/last $OUT/back; "
                    + "cp -a $OUT/last $OUT/stateless; rm $OUT/stateless/ward.state")
            try putUpgradingState(of: original, in: out + "/back")
            for kit in ["early", "late"] {
                let verified = try original.ward(
                    "recovery", "verify", "\(out)/\(kit)", "--code-file", "\(out)/\(kit).code",
                    "--volume", out + "/last")
                #expect(
                    verified.errors.contains("vouches only for format 1") == (kit == "early"),
                    "\(verified.everything)")
            }
            // The copy, and its format if the kit alone decides and if the owner does: nil where it
            // is refused. Negative: between the formats.
            for (kit, copy, options, byKit, byOwner) in [
                ("early", "first", [], 1, 1), ("late", "first", [], nil, 1),
                ("early", "back", [], nil, -2), ("late", "back", [], nil, -2),
                ("early", "last", [], 2, 2), ("late", "last", [], 2, 2),
                ("early", "stateless", ["--copied-in-use"], 2, -2),
                ("late", "stateless", ["--copied-in-use"], 2, -2),
            ] as [(String, String, [String], Int?, Int)] {
                for isOlder in [false, true] {
                    let what = "\(kit) kit, \(copy), \(isOlder)"
                    let machine = try makeMachine(user, kitOf: original, kit)
                    try machine.shell("cp -a '\(out)/\(copy)' '\(machine.volume)'")
                    let done = try adopt(
                        machine, all: ["--json"] + options + (isOlder ? ["--older-format"] : []))
                    guard let wanted = isOlder ? byOwner : byKit else {
                        #expect(done.status == 14, "\(what): \(done.everything)")
                        #expect(done.errors.contains("--older-format"), "\(what)")
                        let state = try machine.shell(
                            "ls '\(machine.stateDirectory)/ward' 2>/dev/null || true")
                        #expect(state.isEmpty, "\(what)")
                        continue
                    }
                    let json = try #require(
                        try JSONSerialization.jsonObject(with: Data(done.output.utf8))
                            as? [String: Any], "\(what): \(done.everything)")
                    #expect(json["format"] as? Int == abs(wanted), "\(what)")
                    #expect(json["upgrading"] as? Bool == (wanted < 0), "\(what)")
                    #expect(
                        done.errors.contains("between the formats") == (wanted < 0), "\(what)")
                    // Mounts take time: one of each sort.
                    guard kit == "early", copy != "first", isOlder == (wanted < 0) else { continue }
                    try machine.mount()
                    try machine.unlock()
                    let status = try machine.status()
                    #expect(status["format"] as? Int == abs(wanted), "\(what)")
                    #expect(status["upgrading"] as? Bool == (wanted < 0), "\(what)")
                    #expect(
                        try machine.probe().readFile("A/f") == .data("content of A"), "\(what)")
                }
            }
        }

        // MARK: Ways out

        @Test(
            "The way out: disabled, erased, an old keybag, a lost state directory",
            arguments: User.usual)
        func waysOut(user: User) throws {
            for plight in ["disabled", "erased", "replayed", "lost"] {
                let volume = try MountedVolume(as: user)
                try StateWalk.makeDirectory(of: .complete, with: volume.probe())
                try makeKit(volume, "kit")
                try volume.shell(
                    "cp $OUT/kit.code $OUT/code; cp -a '\(volume.volume)/ward.keybag' $OUT/old")
                switch plight {
                case "disabled":
                    try volume.lockNow()
                    for number in 1...10 {
                        try volume.writePasscode("wrong \(number)", to: volume.directory + "/wrong")
                        let wrong = try volume.ward(
                            "unlock", volume.mountPoint, "--passcode-file",
                            volume.directory + "/wrong")
                        #expect(wrong.status == 12, "\(wrong.everything)")
                        try volume.advance(seconds: 9 * 3600)
                    }
                    let refused = try volume.ward(
                        "unlock", volume.mountPoint, "--passcode-file", volume.passcodeFile)
                    #expect(refused.status == 13)
                    #expect(refused.errors.contains("ward adopt"), "\(refused.everything)")
                    try volume.unmount()
                case "erased":
                    try volume.unmount()
                    try volume.ward("erase", volume.volume, "--yes-really")
                case "replayed":
                    try volume.unmount()
                    try volume.writePasscode("changed", to: volume.directory + "/changed")
                    try volume.ward(
                        "passcode", "change", volume.volume, "--passcode-file", volume.passcodeFile,
                        "--new-passcode-file", volume.directory + "/changed")
                    try volume.shell(
                        "cp $OUT/old '\(volume.volume)/ward.keybag'; "
                            + "cp $OUT/old '\(volume.volume)/ward.keybag.copy'")
                default:
                    try volume.unmount()
                    try volume.shell("rm -r '\(try volume.deviceDirectory())'")
                }
                if plight != "disabled" {
                    let refused = try volume.ward("mount", volume.volume, volume.mountPoint)
                    #expect(!refused.succeeded)
                    #expect(
                        refused.errors.contains("ward adopt \(volume.volume) --recovery-kit FILE"),
                        "\(plight): \(refused.everything)")
                }
                try volume.writePasscode(Self.newPasscode, to: volume.directory + "/new")
                let needsReplace = ["disabled", "replayed"].contains(plight)
                let first = try adopt(volume, passcode: volume.directory + "/new")
                #expect(first.succeeded == !needsReplace, "\(plight): \(first.everything)")
                if needsReplace {
                    #expect(first.status == 73 && first.errors.contains("--replace"))
                    let again = try adopt(
                        volume, "--replace", passcode: volume.directory + "/new")
                    #expect(again.succeeded, "\(plight): \(again.everything)")
                }
                try volume.mount()
                let old = try volume.ward(
                    "unlock", volume.mountPoint, "--passcode-file", volume.passcodeFile)
                #expect(
                    old.status == 12 && old.errors.contains("9 tries left"), "\(old.everything)")
                let new = try volume.ward(
                    "unlock", volume.mountPoint, "--passcode-file", volume.directory + "/new")
                #expect(new.succeeded, "\(plight): \(new.everything)")
                #expect(
                    try volume.probe().readFile("A/f") == .data("content of A"), "\(plight)")
            }
        }

        // MARK: Bad input

        @Test("What is refused: two lines, and nothing is changed", arguments: User.usual)
        func badInput(user: User) throws {
            let original = try MountedVolume(as: user)
            try StateWalk.makeDirectory(of: .complete, with: original.probe())
            try makeKit(original, "kit")
            let other = try MountedVolume(as: user)
            try makeKit(other, "kit")
            try other.unmount()
            let machine = try makeMachine(user, kitOf: original)
            try machine.shell(
                """
                cp -a '\(original.volume)' '\(machine.volume)'
                cp '\(other.directory)/home/kit' $OUT/other-kit
                cp '\(other.directory)/home/kit.code' $OUT/other-code
                echo 11111-11111-11111 >$OUT/short
                : >$OUT/empty
                mkdir $OUT/nothing; echo text >$OUT/text
                sed '/BEGIN/{n;s/^\\(.\\{30\\}\\)A/\\1B/;t;s/^\\(.\\{30\\}\\)./\\1A/}' $OUT/kit >$OUT/garbled
                ward='\(TestEnvironment.shared.python)'
                "$ward" - <<'PYTHON'
                import os
                out = os.environ["OUT"]
                groups = open(out + "/code").read().strip().split("-")
                group = groups[6]
                groups[6] = ("0" if group[0] != "0" else "1") + group[1:]
                open(out + "/mistyped", "w").write("-".join(groups))
                PYTHON
                """)
            func files() throws -> String {
                try machine.shell(
                    "cd '\(machine.volume)'; find . -type f -exec sha256sum {} + | sort; ls -A '\(machine.stateDirectory)'"
                )
            }
            let before = try files()
            let out = machine.directory + "/home"
            var transcript = Transcript(machine)
            let passcode = ["--passcode-file", machine.passcodeFile]
            func refuse(
                _ status: Int32, _ volume: String, kit: String = "kit", code: String = "code",
                _ more: String...
            ) throws {
                try transcript.ward(
                    [
                        "adopt", volume, "--recovery-kit", out + "/" + kit, "--code-file",
                        out + "/" + code,
                    ]
                        + passcode + more, exit: status)
            }
            try refuse(65, machine.volume, code: "mistyped")
            try refuse(65, machine.volume, code: "short")
            try refuse(65, machine.volume, code: "empty")
            try refuse(66, machine.volume, code: "missing")
            try refuse(12, machine.volume, code: "other-code")
            try refuse(65, machine.volume, kit: "other-kit", code: "other-code")
            try refuse(14, machine.volume, kit: "text")
            try refuse(14, machine.volume, kit: "garbled")
            try refuse(66, machine.volume, kit: "missing")
            try refuse(66, out + "/missing")
            try refuse(10, out + "/nothing")
            try refuse(10, out + "/text")
            try refuse(64, machine.volume, "--no-passcode")
            transcript.remark("the volume that is mounted")
            try refuse(75, original.volume)
            try refuse(75, original.volume, "--replace")
            transcript.remark("links were left out")
            try machine.shell(
                "cp -r '\(machine.volume)' $OUT/unlinked; find $OUT/unlinked -type l -delete")
            try refuse(14, out + "/unlinked")
            try machine.shell("echo link >$OUT/unlinked/.ward.rclonelink")
            try refuse(14, out + "/unlinked")
            transcript.remark("the root's record is another's")
            try machine.shell("cp -a '\(other.volume)/.ward' $OUT/unlinked/")
            try refuse(14, out + "/unlinked")
            transcript.remark("the state record is missing")
            try machine.shell(
                "cp -a '\(machine.volume)' $OUT/stateless; rm $OUT/stateless/ward.state")
            try refuse(14, out + "/stateless")
            #expect(try files() == before, "nothing is changed")
            transcript.remark(
                "its owner says that it was copied in use; then this machine has keys")
            try transcript.ward(
                [
                    "adopt", out + "/stateless", "--recovery-kit", out + "/kit", "--code-file",
                    out + "/code",
                    "--passcode-cost", "1024", "--copied-in-use",
                ] + passcode, exit: 0)
            try refuse(73, out + "/stateless")
            try refuse(73, machine.volume)
            transcript.remark("a path in the mount")
            try machine.shell("rm -r '\(machine.volume)'; mv $OUT/stateless '\(machine.volume)'")
            try machine.mount()
            try refuse(64, machine.mountPoint)
            try refuse(64, machine.mountPoint + "/A", "--replace")
            transcript.remark("while another volume of the same UUID is mounted")
            try original.copyStore(to: machine.directory + "/home/third")
            try refuse(75, out + "/third", "--replace")
            try transcript.check("adopt")
            try machine.unlock()
            #expect(try machine.probe().readFile("A/f") == .data("content of A"))
        }

        @Test("Asked at a terminal: the group that was mistyped again, then the passcode twice")
        func terminal() throws {
            let user = try #require(User.available.last)
            let original = try MountedVolume(as: user)
            try StateWalk.makeDirectory(of: .complete, with: original.probe())
            try makeKit(original, "kit")
            try original.unmount()
            let machine = try makeMachine(user, kitOf: original)
            try original.copyStore(to: machine.volume)
            let code = try machine.shell("cat $OUT/code")
                .trimmingCharacters(in: .whitespacesAndNewlines)
            var groups = code.split(separator: "-").map(String.init)
            let right = groups[6]
            groups[6] = (right.hasPrefix("0") ? "1" : "0") + right.dropFirst()
            let terminal = try Terminal(
                machine, columns: 120, "adopt", machine.volume, "--recovery-kit",
                machine.directory + "/home/kit", "--passcode-cost", "1024")
            try terminal.wait(for: "Recovery code of")
            try terminal.type(groups.joined(separator: " ").lowercased() + "\n")
            try terminal.wait(for: "There is a typing mistake in group 7. Group 7 again:")
            try terminal.type(right + "\n")
            try terminal.wait(for: "New passcode:")
            try terminal.type(Self.newPasscode + "\n")
            try terminal.wait(for: "The same again:")
            try terminal.type(Self.newPasscode + "\n")
            let screen = try terminal.end(seconds: 60)
            #expect(screen.status == 0, "\(screen.text)")
            #expect(screen.text.contains("this machine's own now"), "\(screen.text)")
            #expect(!screen.text.contains(right), "the code is not shown: \(screen.text)")
            #expect(!screen.text.contains(Self.newPasscode))
            try machine.mount()
            try machine.unlock()
            #expect(try machine.probe().readFile("A/f") == .data("content of A"))
        }

        // MARK: Kits

        @Test("`ward init` at a terminal: a kit's file is not called no")
        func kitCalledNo() throws {
            let volume = try MountedVolume(directoryOnlyAs: try #require(User.available.last))
            let terminal = try Terminal(
                volume, columns: 140, "init", volume.volume, "--passcode-cost", "1024")
            try terminal.wait(for: "New passcode:")
            try terminal.type(Self.newPasscode + "\n")
            try terminal.wait(for: "The same again:")
            try terminal.type(Self.newPasscode + "\n")
            try terminal.wait(for: "File for a recovery kit")
            try terminal.type("no\n")
            try terminal.wait(for: "the name of a new file")
            try terminal.type("\n")
            let screen = try terminal.end(seconds: 60)
            #expect(screen.status == 0, "\(screen.text)")
            #expect(screen.text.contains("no recovery kit was made"), "\(screen.text)")
            #expect(!screen.text.contains("recovery code:"), "\(screen.text)")
        }

        @Test(
            "`ward status` says when there is no kit, or none was verified for a year",
            arguments: User.usual)
        func reminder(user: User) throws {
            let volume = try MountedVolume(as: user)
            #expect(try volume.status()["recoveryKit"] as? String == "none")
            let text = try volume.ward("status", volume.mountPoint).output
            #expect(text.contains("no kit is known: ward recovery create "), "\(text)")
            try makeKit(volume, "kit")
            var now = try volume.status()
            #expect(now["recoveryKit"] as? String == "current")
            #expect((now["recoveryKitMade"] as? String)?.hasSuffix("Z") == true)
            #expect(now["recoveryKitVerified"] == nil)
            #expect(try !volume.ward("status", volume.mountPoint).output.contains("recovery"))
            let kit = volume.directory + "/home/kit"
            let shown = try volume.ward("recovery", "show", kit, "--json").output
            let uuid = try #require(now["uuid"] as? String)
            #expect(shown.contains(#""uuid":"\#(uuid)""#), "\(shown)")
            #expect(shown.contains(#""volume":"\#(volume.volume)""#), "\(shown)")
            #expect(try volume.ward("recovery", "show", kit).output.contains(uuid))

            // Without `--volume` it finds the volume, because it is mounted.
            let done = try volume.ward("recovery", "verify", kit, "--code-file", kit + ".code")
            #expect(done.succeeded && done.output.contains("the kit's keys are the volume's"))
            now = try volume.status()
            #expect((now["recoveryKitVerified"] as? String)?.hasSuffix("Z") == true)
            try volume.advance(seconds: 364 * 86400)
            #expect(try volume.status()["recoveryKit"] as? String == "current")
            try volume.advance(seconds: 2 * 86400)
            #expect(try volume.status()["recoveryKit"] as? String == "unverified")
            let late = try volume.ward("status", volume.mountPoint).output
            #expect(
                late.contains("no kit was verified for a year: ward recovery verify KIT"), "\(late)"
            )
            try volume.unmount()
            let unmounted = try volume.ward("status", volume.volume, "--json")
            #expect(
                unmounted.output.contains(#""recoveryKit":"current""#), "\(unmounted.everything)")

            let offered = try MountedVolume(directoryOnlyAs: user)
            try offered.initialize(["--recovery-kit", offered.directory + "/home/kit"])
            try offered.mount()
            #expect(try offered.status()["recoveryKit"] as? String == "current", "init counts")
        }

        @Test(
            "`ward recovery verify`: the volume, a copy elsewhere, another volume, a wrong code",
            arguments: User.usual)
        func verify(user: User) throws {
            let volume = try MountedVolume(as: user)
            try makeKit(volume, "kit")
            try volume.unmount()
            let other = try MountedVolume(as: user)
            try makeKit(other, "kit")
            try other.unmount()
            let out = volume.directory + "/home"
            try volume.shell(
                """
                cp '\(other.directory)/home/kit' $OUT/other; cp '\(other.directory)/home/kit.code' $OUT/other.code
                cp -a '\(volume.volume)' $OUT/copy; mkdir $OUT/nothing
                sed 's/^...../ABCDE/' $OUT/kit.code >$OUT/mistyped
                cp -r '\(volume.volume)' $OUT/unlinked; find $OUT/unlinked -type l -delete
                """)
            var transcript = Transcript(volume)
            try transcript.ward(
                "recovery", "verify", out + "/kit", "--code-file", out + "/kit.code", exit: 0)
            for path in [volume.volume, out + "/copy"] {
                try transcript.ward(
                    "recovery", "verify", out + "/kit", "--code-file", out + "/kit.code",
                    "--volume",
                    path, exit: 0)
            }
            transcript.remark("mistakes")
            try transcript.ward(
                "recovery", "verify", out + "/kit", "--code-file", out + "/mistyped", exit: 65)
            try transcript.ward(
                "recovery", "verify", out + "/kit", "--code-file", out + "/other.code", exit: 12)
            try transcript.ward(
                "recovery", "verify", out + "/other", "--code-file", out + "/other.code",
                "--volume",
                volume.volume, exit: 65)
            try transcript.ward(
                "recovery", "verify", out + "/kit", "--code-file", out + "/kit.code", "--volume",
                out + "/nothing", exit: 10)
            try transcript.ward(
                "recovery", "verify", out + "/kit", "--code-file", out + "/kit.code", "--volume",
                out + "/unlinked", exit: 14)
            try transcript.ward("recovery", "verify", out + "/kit", "--no-input", exit: 64)
            try transcript.ward("recovery", "show", out + "/kit.code", exit: 14)
            try transcript.check("recovery-kit")
            // A machine without keys of the volume can compare, too, and remembers nothing.
            let machine = try makeMachine(user, kitOf: volume)
            try volume.copyStore(to: machine.volume)
            let done = try machine.ward(
                "recovery", "verify", machine.directory + "/home/kit", "--code-file",
                machine.directory + "/home/code", "--volume", machine.volume, "--json")
            #expect(done.output.contains(#""opens":true"#), "\(done.everything)")
            #expect(done.output.contains(#""noted":false"#), "\(done.everything)")
            #expect(try machine.shell("ls -A '\(machine.stateDirectory)'") == "")
        }
    }
}
