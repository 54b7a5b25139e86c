import Foundation
import Testing

extension MountSuite {
    /// Searches for the secrets of a whole session in everything that was printed and written.
    @Suite struct OutputTests {
        @Test(
            "No log line, event, output, file, argument or environment holds a secret",
            arguments: User.usual)
        func session(user: User) throws {
            let passcode = Planted.token(24)
            let second = Planted.token(24)
            let wrong = Planted.token(24)
            let content = Planted.token(24)
            let volume = try MountedVolume(as: user, passcode: passcode)
            let probe = try volume.probe()
            try StateWalk.makeDirectory(of: .complete, with: probe)
            #expect(probe.writeFile("A/f", content) == .ok)
            #expect(probe.open("A/f", "r", as: "open") == .ok)
            let before = try VolumeSecrets(volume, passcode: passcode)
            let fileKey = try before.fileKey(probe, "A/f", in: volume).key
            let typed = volume.directory + "/typed"
            let secondFile = volume.directory + "/second"
            try volume.writePasscode(wrong, to: typed)
            try volume.writePasscode(second, to: secondFile)

            var said = ""
            var processes = try processes(of: volume)
            func run(_ arguments: String..., input: String = "", expecting status: Int32 = 0) throws
            {
                for form in [["--json"], []] {
                    let done = try Child.run(
                        user.prefix + [TestEnvironment.shared.ward] + arguments + form,
                        environment: volume.environment, input: input)
                    if form == ["--json"] {
                        #expect(done.status == status, "\(arguments): \(done.everything)")
                    }
                    said += done.everything + "\n"
                }
            }
            let mount = volume.mountPoint
            try run("status", mount)
            try run("lock", mount, "--now")
            #expect(probe.readFile("A/f") == .eperm)
            try run("ls", mount)
            try run("unlock", mount, "--passcode-file", typed, expecting: 12)
            try run("unlock", mount, "--passcode-fd", "0", input: passcode)
            try run("status", mount)
            try run("reboot", mount)
            try run("unlock", mount, "--passcode-file", volume.passcodeFile)
            processes += try self.processes(of: volume)
            let refused = try volume.ward(
                "passcode", "change", mount, "--passcode-file", typed, "--new-passcode-file",
                secondFile)
            #expect(refused.status == 12, "\(refused.everything)")
            said += refused.everything
            let changed = try volume.ward(
                "passcode", "change", mount, "--passcode-file", volume.passcodeFile,
                "--new-passcode-file", secondFile)
            #expect(changed.succeeded, "\(changed.everything)")
            said += changed.everything
            let after = try VolumeSecrets(volume, passcode: second)
            // Only the command that makes the kit shows its code, once.
            let kit = try volume.ward(
                "recovery", "create", volume.volume, "--out", volume.directory + "/home/kit",
                "--json",
                "--passcode-file", secondFile)
            #expect(kit.succeeded, "\(kit.everything)")
            let json =
                try JSONSerialization.jsonObject(with: Data(kit.output.utf8)) as? [String: Any]
            let code = try #require(json?["recoveryCode"] as? String)
            #expect(code.utf8.count == 77)
            said += kit.output.replacingOccurrences(of: code, with: "") + kit.errors
            try run("class", "show", mount + "/A/f")
            let events = try volume.ward("events", mount, "--last", "100", "--json")
            #expect(events.output.contains("denied"), "\(events.everything)")
            said += events.everything
            probe.kill()
            let kitPath = volume.directory + "/home/kit"
            let codeFile = volume.directory + "/home/code"
            try code.write(toFile: codeFile, atomically: false, encoding: .utf8)
            chmod(codeFile, 0o644)
            try run("recovery", "show", kitPath)
            try run("recovery", "verify", kitPath, "--code-file", codeFile)
            try run(
                "recovery", "verify", kitPath, "--code-fd", "0",
                input: code.replacingOccurrences(of: "-", with: " "))
            try volume.unmount()
            try run(
                "adopt", volume.volume, "--recovery-kit", kitPath, "--code-file", codeFile,
                "--passcode-file", volume.passcodeFile, "--passcode-cost", "1024", "--replace")
            let log = try String(
                contentsOfFile: volume.deviceDirectory() + "/ward.log", encoding: .utf8)
            #expect(log.contains("/A/f"), "the log tells of the denial")

            var secrets: [(name: String, bytes: [UInt8])] = [
                ("passcode", Array(passcode.utf8)), ("second passcode", Array(second.utf8)),
                ("wrong passcode", Array(wrong.utf8)), ("recovery code", Array(code.utf8)),
                ("group of the recovery code", Array(code.utf8.prefix(11))),
                ("content", Array(content.utf8)), ("file key", fileKey),
                ("stretched passcode", before.stretched), ("entangled passcode", before.entangled),
                ("passcode KEK", before.passcodeKEK), ("new passcode KEK", after.passcodeKEK),
                ("volume key", before.volumeKey),
            ]
            for (fileClass, key) in before.classKeys {
                secrets.append(("class key \(fileClass.letter)", key))
            }
            expectNone(of: secrets, in: Data(said.utf8), "what the commands said")
            expectNone(of: secrets, in: Data(processes), "arguments and environments")
            for directory in [volume.volume, volume.stateDirectory, volume.runtimeDirectory] {
                let all = FileManager.default.enumerator(atPath: directory)
                while let name = all?.nextObject() as? String {
                    expectNone(of: secrets, in: Data(name.utf8), "the name \(directory)/\(name)")
                    if let data = FileManager.default.contents(atPath: directory + "/" + name) {
                        expectNone(of: secrets, in: data, "\(directory)/\(name)")
                    }
                }
            }
            let kitFile = try #require(
                FileManager.default.contents(atPath: volume.directory + "/home/kit"))
            expectNone(of: secrets, in: kitFile, "the recovery kit")
        }

        /// Arguments and environments of the daemon and its helpers, as the kernel shows them.
        private func processes(of volume: MountedVolume) throws -> [UInt8] {
            var all: [UInt8] = []
            for line in TestEnvironment.shared.processes() where line.contains(volume.directory) {
                let process = line.prefix { $0.isNumber }
                for name in ["cmdline", "environ"] {
                    all += (try? ProcessMemory.File("/proc/\(process)/\(name)").contents()) ?? []
                }
            }
            #expect(!all.isEmpty)
            return all
        }

        private func expectNone(
            of secrets: [(name: String, bytes: [UInt8])], in data: Data, _ place: String
        ) {
            for (name, bytes) in secrets {
                let hex = bytes.map { String(format: "%02x", $0) }.joined()
                let base64 = Data(bytes).base64EncodedString().dropLast(4)
                for (form, pattern) in [
                    ("raw", Data(bytes)), ("hex", Data(hex.utf8)),
                    ("HEX", Data(hex.uppercased().utf8)), ("base64", Data(base64.utf8)),
                ] {
                    #expect(data.range(of: pattern) == nil, "\(place): \(name), \(form)")
                }
            }
        }
    }
}
