import Foundation
import Testing

extension MountSuite {
    /// ward's messages about hosts that can't be trusted and records that can't be used.
    @Suite struct HostInputTests {
        @Test(
            "trust add: what is refused, and that nothing is left behind", arguments: User.usual
        )
        func add(user: User) throws {
            let volume = try MountedVolume(as: user)
            let home = volume.directory + "/home"
            var transcript = Transcript(volume)
            let wrong = volume.directory + "/wrong"
            try volume.writePasscode("wrong horse", to: wrong)
            func add(_ name: String, _ out: String, _ passcode: String, exit: Int32) throws {
                try transcript.ward(
                    "trust", "add", volume.mountPoint, name, "--out", out, "--passcode-file",
                    passcode, exit: exit)
            }
            transcript.remark("a wrong passcode, which counts")
            try add("laptop", home + "/record", wrong, exit: 12)
            transcript.remark("a name that is none")
            try add("", home + "/record", volume.passcodeFile, exit: 64)
            try add(
                String(repeating: "x", count: 65), home + "/record", volume.passcodeFile, exit: 64)
            transcript.remark("places where no record can be")
            try add("laptop", home + "/missing/record", volume.passcodeFile, exit: 73)
            try add("laptop", volume.passcodeFile, volume.passcodeFile, exit: 73)
            try add("laptop", volume.mountPoint + "/record", volume.passcodeFile, exit: 64)
            try add("laptop", volume.volume + "/record", volume.passcodeFile, exit: 64)
            transcript.remark("locked")
            try volume.lockNow()
            try add("laptop", home + "/record", volume.passcodeFile, exit: 11)
            try volume.reboot()
            try add("laptop", home + "/record", volume.passcodeFile, exit: 11)
            try volume.unlock()
            transcript.remark("a name that is taken, with a wrong passcode: no try is spent")
            try add("laptop", home + "/record", volume.passcodeFile, exit: 0)
            try add("laptop", home + "/second", wrong, exit: 73)
            try transcript.ward("trust", "remove", volume.mountPoint, "phone", exit: 66)
            try transcript.check("trust-add")
            #expect(try volume.status()["triesLeft"] as? Int == 10)
            // Only the new record is there.
            let left = try FileManager.default.contentsOfDirectory(atPath: home)
            #expect(left.filter { $0.contains("record") || $0.contains("second") } == ["record"])
            let attributes = try FileManager.default.attributesOfItem(atPath: home + "/record")
            #expect(attributes[.posixPermissions] as? Int == 0o600)
            #expect(try volume.trusted().keys.sorted() == ["laptop"])
        }

        @Test("without a passcode there is nobody to trust", arguments: User.usual)
        func noPasscode(user: User) throws {
            let volume = try MountedVolume(as: user, passcode: nil)
            let refused = try volume.ward(
                "trust", "add", volume.mountPoint, "laptop", "--out", "-", "--passcode-file",
                volume.passcodeFile)
            #expect(refused.status == 64 && refused.output.isEmpty, "\(refused.everything)")
            #expect(refused.errors.contains("no passcode is set"), "\(refused.everything)")
        }

        @Test(
            "trust connect: a damaged, cut off, empty, foreign, removed, expired record; before first unlock",
            arguments: User.usual)
        func connect(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            try StateWalk.makeDirectory(of: .complete, with: probe)
            let host = try TrustedHost(volume)
            let other = try TrustedHost(try MountedVolume(as: user))
            let good = try Data(contentsOf: URL(fileURLWithPath: host.record))
            try volume.lockNow()
            var transcript = Transcript(volume)
            let file = volume.directory + "/home/bad"
            func connect(_ path: String, exit: Int32) throws {
                try transcript.ward(
                    "trust", "connect", volume.mountPoint, "--trust-file", path, exit: exit)
                #expect(probe.readFile("A/f") == .eperm)
            }
            func put(_ bytes: Data) throws {
                try bytes.write(to: URL(fileURLWithPath: file))
                chown(file, user.userID, user.groupID)
            }
            var damaged = good
            damaged[60] ^= 1
            var secret = good
            secret.replaceSubrange(48..<112, with: Data(count: 64))
            for (what, bytes) in [
                ("one bit of the secret is flipped", damaged), ("cut off", good.prefix(100)),
                ("empty", Data()), ("another kind of file", Data("passcode\n".utf8)),
                ("something follows", good + Data([0])), ("the secret is zeros", secret),
            ] {
                transcript.remark(what)
                try put(bytes)
                try connect(file, exit: 65)
            }
            transcript.remark("missing, and a directory")
            try connect(file + "-missing", exit: 66)
            try connect(volume.directory + "/home", exit: 66)
            transcript.remark("for another volume")
            try put(try Data(contentsOf: URL(fileURLWithPath: other.record)))
            try connect(file, exit: 65)
            transcript.remark("removed")
            try volume.ward("trust", "remove", volume.mountPoint, "laptop")
            try connect(host.record, exit: 77)
            transcript.remark("expired")
            try volume.unlock()
            try volume.shell("rm '\(host.record)'")
            let idle = try TrustedHost(volume)
            try volume.advance(seconds: 30 * 86_400)
            try volume.lockNow()
            try connect(idle.record, exit: 77)
            transcript.remark("before the first unlock")
            try volume.reboot()
            try connect(idle.record, exit: 11)
            transcript.remark("neither a file nor a descriptor")
            try transcript.ward("trust", "connect", volume.mountPoint, exit: 64)
            try transcript.check("trust-connect")
        }

        @Test(
            "a descriptor that ends too early, and what follows the record stays there",
            arguments: User.usual)
        func descriptor(user: User) throws {
            let volume = try MountedVolume(as: user)
            let host = try TrustedHost(volume)
            let short = try volume.shell(
                "head -c 50 '\(host.record)' | '\(TestEnvironment.shared.ward)' trust connect $MNT "
                    + "--trust-fd 0 2>&1 || echo \"exit $?\"")
            #expect(short.contains("exit 65"), "\(short)")
            // A record, then a line for another program. It ends when its output has no reader any
            // more.
            let rest = try volume.shell(
                """
                (cat '\(host.record)'; echo rest) | (
                    timeout 60 '\(TestEnvironment.shared.ward)' trust connect $MNT --trust-fd 0 |
                        grep -q 'A and B stay open'
                    cat)
                """)
            #expect(rest == "rest\n")
        }

        @Test("--out - is refused on a terminal", arguments: User.usual)
        func terminal(user: User) throws {
            let volume = try MountedVolume(as: user)
            let terminal = try Terminal(
                volume, "trust", "add", volume.mountPoint, "laptop", "--out", "-",
                "--passcode-file", volume.passcodeFile)
            let screen = try terminal.end()
            #expect(screen.text.contains("cannot show the record of a host"), "\(screen.text)")
            #expect(try volume.trusted().isEmpty)
        }

        @Test("a full disk, or a reader who is gone: nobody is trusted", arguments: User.usual)
        func unwritable(user: User) throws {
            let volume = try MountedVolume(as: user)
            let done = try volume.shell(
                "'\(TestEnvironment.shared.ward)' trust add $MNT laptop --out - --passcode-file "
                    + "'\(volume.passcodeFile)' >/dev/full 2>&1 || echo refused")
            #expect(done == "refused\n")
            #expect(try volume.trusted().isEmpty)
        }
    }
}
