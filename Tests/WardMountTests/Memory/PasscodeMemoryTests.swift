import Foundation
import Testing

extension MountSuite {
    /// No passcode that the daemon was given stays in its memory.
    @Suite(.enabled(if: ProcessMemory.mayBeRead, "only root reads the memory of the daemon"))
    struct PasscodeMemoryTests {
        enum Script: String, CaseIterable, CustomTestStringConvertible {
            case ascii = "ASCII"
            /// Too long for the inline storage of a `String`, with letters that NFC composes.
            case long = "long, not NFC"
            case short = "fifteen bytes, not ASCII"
            var testDescription: String { rawValue }

            func passcode() -> String {
                let letter = { String(UnicodeScalar(UInt32.random(in: 0x4E00...0x9000))!) }
                switch self {
                case .ascii: return Planted.token(40)
                case .long: return (0..<20).map { _ in letter() + "e\u{301}" }.joined()
                case .short: return (0..<5).map { _ in letter() }.joined()
                }
            }
        }

        @Test(
            "Nothing of a passcode stays, right or wrong, old or new",
            arguments: User.usual, Script.allCases)
        func commands(user: User, script: Script) throws {
            let first = script.passcode()
            let volume = try MountedVolume(as: user, passcode: first)
            let daemon = try #require(volume.daemonProcess())
            let file = volume.directory + "/typed"
            var gone = try VolumeSecrets(volume, passcode: first).ofPasscode
            gone.formUnion(encodings(of: first))
            try expectGone(gone, daemon, "unlock with a file")

            try volume.lockNow()
            let typed = try volume.ward(
                "unlock", volume.mountPoint, "--passcode-fd", "0", input: first + "\n")
            #expect(typed.succeeded, "\(typed.everything)")
            try expectGone(gone, daemon, "unlock with a descriptor")

            // Wrong passcodes. Their tags stay in the attempts file (row L5, docs/decisions/0020);
            // a tag opens nothing.
            for _ in 1...2 {
                let wrong = script.passcode()
                let secrets = try VolumeSecrets(volume, passcode: wrong)
                gone.formUnion(secrets.ofPasscode)
                gone.formUnion(encodings(of: wrong))
                try volume.writePasscode(wrong, to: file)
                let refused = try volume.ward("unlock", volume.mountPoint, "--passcode-file", file)
                #expect(refused.status == 12, "\(refused.everything)")
            }
            try expectGone(gone, daemon, "wrong passcodes")
            try volume.unlock()
            try expectGone(gone, daemon, "the right one after wrong ones")

            // Change, remove and set, each through the daemon.
            let second = script.passcode()
            gone.formUnion(encodings(of: second))
            try volume.writePasscode(second, to: file)
            let changed = try volume.ward(
                "passcode", "change", volume.mountPoint, "--passcode-file", volume.passcodeFile,
                "--new-passcode-file", file)
            #expect(changed.succeeded, "\(changed.everything)")
            let changedSecrets = try VolumeSecrets(volume, passcode: second)
            #expect(changedSecrets.classKeys.count == 5)
            gone.formUnion(changedSecrets.ofPasscode)
            gone.formUnion(changedSecrets.ofDevice)
            try expectGone(gone, daemon, "passcode change")
            let removed = try volume.ward(
                "passcode", "remove", volume.mountPoint, "--passcode-file", file)
            #expect(removed.succeeded, "\(removed.everything)")
            try expectGone(gone, daemon, "passcode remove")
            let third = script.passcode()
            try volume.writePasscode(third, to: file)
            let set = try volume.ward(
                "passcode", "set", volume.mountPoint, "--passcode-file", file)
            #expect(set.succeeded, "\(set.everything)")
            gone.formUnion(encodings(of: third))
            gone.formUnion(try VolumeSecrets(volume, passcode: third).ofPasscode)
            try expectGone(gone, daemon, "passcode set")
        }

        @Test(
            "Nothing of what strange clients send as a passcode stays", arguments: User.usual)
        func clients(user: User) throws {
            let passcode = Planted.token(40)
            let volume = try MountedVolume(as: user, passcode: passcode)
            let daemon = try #require(volume.daemonProcess())
            let socket = try #require(volume.socketPath())
            let unlock = #"{"method":"org.ward.Volume.Unlock","parameters":{"passcode":"#
            let escaped = passcode.unicodeScalars.map {
                #"\u"# + String(format: "%04x", $0.value)
            }.joined()
            var patterns = encodings(of: passcode)
            for start in stride(from: 0, to: escaped.utf8.count - 12, by: 6) {
                patterns.add(exactly: "escaped", Array(Array(escaped.utf8)[start + 2..<start + 10]))
            }
            for (what, message, ends) in [
                ("in plain", "\(unlock)\"\(passcode)\"}}", true),
                ("escaped", "\(unlock)\"\(escaped)\"}}", true),
                (
                    "in one message with others",
                    "\(unlock)\"\(passcode)\"}}\0{}\0\(unlock)\"\(passcode)", false
                ),
                ("half a message", "\(unlock)\"\(passcode)", false),
                ("no JSON any more", "\(unlock)\"\(passcode)\"", true),
                ("of another type", "\(unlock)[\"\(passcode)\"]}}", true),
                ("escaped wrongly", "\(unlock)\"\(passcode)\\x\"}}", true),
                (
                    "for another method",
                    #"{"method":"org.ward.Volume.Status","parameters":{"passcode":"\#(passcode)"}}"#,
                    true
                ),
                ("for no method", #"{"parameters":{"current":"\#(passcode)"}}"#, true),
            ] {
                let sent = try Child.run(
                    user.prefix + [
                        TestEnvironment.shared.python, "-c", Self.sender, socket,
                        ends ? "ends" : "breaks off",
                    ], environment: volume.environment,
                    input: Data(message.utf8).base64EncodedString())
                #expect(sent.succeeded, "\(what): \(sent.everything)")
                try expectGone(patterns, daemon, "a passcode \(what)")
            }
        }

        /// Sends its base64 input decoded, waits a moment for an answer, and closes.
        private static let sender = """
            import base64, socket, sys
            client = socket.socket(socket.AF_UNIX)
            client.connect(sys.argv[1])
            message = base64.b64decode(sys.stdin.read())
            client.sendall(message + (b"\\0" if sys.argv[2] == "ends" else b""))
            client.settimeout(0.3)
            try:
                client.recv(65536)
            except OSError:
                pass
            """

        /// The passcode as typed, in NFC, and as a wide string.
        private func encodings(of passcode: String) -> SecretPatterns {
            var patterns = SecretPatterns()
            patterns.add(text: "passcode as typed", passcode)
            patterns.add(text: "passcode in NFC", passcode.precomposedStringWithCanonicalMapping)
            return patterns
        }

        private func expectGone(
            _ patterns: SecretPatterns, _ daemon: pid_t, _ what: String,
            sourceLocation: SourceLocation = #_sourceLocation
        ) throws {
            // The answer may come before the thread has wiped everything.
            var left: [Finding] = []
            _ = try comesTrue(within: 5) {
                left = try MemoryScan(patterns, of: daemon).findings
                return left.isEmpty
            }
            expectNothing(left, "after \(what)", sourceLocation: sourceLocation)
        }
    }
}
