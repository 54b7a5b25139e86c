import Foundation
import Testing

extension MountSuite {
    /// A program that may connect to the control socket can't delay a lock, nor use up the daemon's
    /// resources.
    @Suite struct ControlAdversaryTests {
        @Test(
            "A lock gets through, whatever other programs do to the socket",
            arguments: [
                ["connections"], ["halves"], ["garbage"], ["flood"], ["monitors"], ["status"],
                ["passcodes"], ["stalls"], ["members"],
                [
                    "connections", "halves", "garbage", "flood", "monitors", "status", "passcodes",
                    "stalls", "members",
                ],
            ])
        func lockGetsThrough(kinds: [String]) throws {
            let user = try #require(User.available.last)
            let volume = try MountedVolume(as: user)
            try StateWalk.makeDirectory(of: .complete, with: volume.probe())
            let daemon = try #require(volume.daemonProcess())
            let before = try residentBytes(of: daemon)
            let attack = try Attack(on: volume, kinds)
            for round in 0..<3 {
                // A new command each time, beside the attackers' connections.
                let began = Date()
                let locked = try volume.ward("lock", volume.mountPoint, "--now", seconds: 60)
                #expect(locked.succeeded, "\(kinds), round \(round): \(locked.everything)")
                #expect(locked.output.contains("locked"), "\(locked.everything)")
                print(
                    "lock through \(kinds.joined(separator: ", ")): \(-began.timeIntervalSinceNow) s"
                )
            }
            #expect(try volume.probe().open("A/f", "r", as: "fd") == .eperm)
            let descriptors = try FileManager.default.contentsOfDirectory(
                atPath: "/proc/\(daemon)/fd")
            #expect(descriptors.count < 200, "\(descriptors.count) descriptors")
            let after = try residentBytes(of: daemon)
            #expect(
                TestEnvironment.isSanitized || after - before < 64 << 20,
                "\(kinds): from \(before) to \(after) bytes")
            let said = attack.end()
            #expect(said.hasSuffix("connections\n"), "\(said)")
            // Calls that were sent before the end are still served, one after the other.
            #expect(
                comesTrue { (try? volume.unlock()) != nil }, "an unlock gets through afterwards")
            #expect(try volume.probe().readFile("A/f") == .data("content of A"))
        }

        @Test("A lock waits for nobody's passcode, and undoes what was being tried")
        func lockWaitsForNoPasscode() throws {
            // A slow passcode: it takes seconds in a debug build.
            let volume = try MountedVolume(
                as: try #require(User.available.last), manualClock: false,
                initArguments: ["--passcode-cost", "65536"])
            try StateWalk.makeDirectory(of: .complete, with: volume.probe())
            try volume.lockNow()
            let daemon = try #require(volume.daemonProcess())
            let idle = try residentBytes(of: daemon)
            // scrypt fills 64 MiB for this cost. The other passcodes wait for the first one.
            func isTryingAPasscode() throws -> Bool {
                try residentBytes(of: daemon) > idle + 24 << 20
            }
            let unlocking = try (0..<8).map { _ in
                try Child(
                    volume.user.prefix + [
                        TestEnvironment.shared.ward, "unlock", volume.mountPoint,
                        "--passcode-file", volume.passcodeFile,
                    ], environment: volume.environment)
            }
            #expect(try comesTrue(isTryingAPasscode), "a passcode is tried before the lock")
            let began = Date()
            try volume.lockNow()
            let took = -began.timeIntervalSinceNow
            let codes = unlocking.map { $0.wait(seconds: 60) }
            print("lock beside 8 unlocks: \(took) s, \(codes)")
            let state = try volume.ward("status", volume.mountPoint, "--json").output
            if codes.allSatisfy({ $0 == 75 }) {
                #expect(state.contains(#""state":"locked""#), "\(state)")
                #expect(try volume.probe().open("A/f", "r", as: "fd") == .eperm)
            }
            #expect(codes.allSatisfy { $0 == 75 || $0 == 0 }, "\(codes)")
            try volume.lockNow()
            #expect(try volume.probe().open("A/f", "r", as: "fd") == .eperm)
            // A signal ends the mount without trying the waiting passcodes.
            let more = try (0..<8).map { _ in
                try Child(
                    volume.user.prefix + [
                        TestEnvironment.shared.ward, "unlock", volume.mountPoint,
                        "--passcode-file", volume.passcodeFile,
                    ], environment: volume.environment)
            }
            #expect(try comesTrue(isTryingAPasscode), "a passcode is tried before the signal")
            kill(daemon, SIGTERM)
            #expect(comesTrue(within: 30) { !MountedVolume.isRunning(daemon) }, "the mount ends")
            for child in more { #expect(child.wait(seconds: 30) != nil) }
        }

        @Test("Whoever reboots in a loop, or gives long reasons, takes no place from an unlock")
        func rebootsInALoop() throws {
            let volume = try MountedVolume(
                as: try #require(User.available.last), manualClock: false,
                initArguments: ["--passcode-cost", "65536"])
            try volume.lockNow()
            let done = try Child.run(
                volume.user.prefix + [
                    TestEnvironment.shared.python, "-c",
                    """
                    import json, socket, sys
                    def opened():
                        channel = socket.socket(socket.AF_UNIX)
                        channel.settimeout(60)
                        channel.connect(sys.argv[1])
                        return channel
                    def send(channel, method, **parameters):
                        text = json.dumps({"method": "org.ward.Volume." + method, "parameters": parameters})
                        channel.sendall(text.encode() + b"\\0")
                    def answer(channel):
                        text = b""
                        while not text.endswith(b"\\0"):
                            text += channel.recv(65536)
                        return text[:-1].decode()
                    channel = opened()
                    send(channel, "Lock", reason="x" + chr(0x301) * 10000)
                    answer(channel)
                    # While one passcode is being tried, everything else in the queue waits.
                    slow = opened()
                    send(slow, "Unlock", passcode="wrong")
                    for _ in range(60):
                        send(channel, "Reboot")
                        answer(channel)
                    owner = opened()
                    send(owner, "Unlock", passcode=sys.argv[2])
                    print(answer(owner))
                    """, try #require(volume.socketPath()), MountedVolume.passcode,
                ], environment: volume.environment)
            #expect(done.output.contains(#""state":"unlocked""#), "\(done.everything)")
            let events = try volume.ward("events", volume.mountPoint, "--json", "--last", "500")
            let reason = try #require(
                events.output.split(separator: "\n").first {
                    $0.contains(#""detail":"lock: "#)
                })
            #expect(reason.utf8.count < 1000, "\(reason.utf8.count) bytes are remembered")
        }

        @Test("Programs that open as many files as they can leave a descriptor for a lock")
        func descriptorsUsedUp() throws {
            let user = try #require(User.available.last)
            let volume = try MountedVolume(directoryOnlyAs: user)
            try volume.initialize()
            try volume.shell(
                "ulimit -n 500; exec '\(TestEnvironment.shared.ward)' mount '\(volume.volume)' "
                    + "\"$MNT\" --manual-clock")
            try volume.unlock()
            let probe = try volume.probe()
            var opened = 0
            while opened < 1000, probe.open("f\(opened)", "rw+c", as: "fd\(opened)") == .ok {
                opened += 1
            }
            #expect((100..<500).contains(opened), "\(opened) files were opened")
            let locked = try volume.ward("lock", volume.mountPoint, "--now", seconds: 60)
            #expect(locked.succeeded, "\(locked.everything)")
            for _ in 0..<3 { try volume.unlock() }
            #expect(probe.open("D", "rw+c", as: "more") == .failure("ENFILE"))
            #expect(probe.write("fd0", "still served") == .number(12))
            probe.kill()
            try volume.unmount()
        }

        @Test(
            "Another user is refused by what the kernel says of them", .enabled(if: geteuid() == 0))
        func otherUser() throws {
            let volume = try MountedVolume(as: .root)
            let socket = try #require(volume.socketPath())
            let attempt = { (path: String) in
                try Child.run(
                    User.ordinaryUser.prefix + [
                        TestEnvironment.shared.python, "-c",
                        """
                        import socket, sys
                        channel = socket.socket(socket.AF_UNIX)
                        channel.settimeout(10)
                        channel.connect(sys.argv[1])
                        try:
                            channel.sendall(b'{"method":"org.ward.Volume.Lock","parameters":{"now":true}}\\0')
                            answer = channel.recv(65536)
                        except OSError as error:
                            answer = str(error).encode()
                        print(answer.decode())
                        """, path,
                    ], environment: volume.environment)
            }
            let closed = try attempt(socket)
            #expect(!closed.succeeded, "the file's mode keeps others out: \(closed.everything)")
            // Also if the modes let the user reach the socket.
            chmod(socket, 0o666)
            for path in [volume.runtimeDirectory, volume.runtimeDirectory + "/ward"] {
                chmod(path, 0o755)
            }
            let refused = try attempt(socket)
            #expect(
                refused.output.contains("org.varlink.service.PermissionDenied")
                    || refused.output.contains("reset") || refused.output.contains("Broken pipe"),
                "\(refused.everything)")
            #expect(!refused.output.contains("state"), "\(refused.everything)")
            let state = try volume.ward("status", volume.mountPoint, "--json").output
            #expect(state.contains(#""state":"unlocked""#), "\(state)")
        }

        private func residentBytes(of process: pid_t) throws -> Int {
            let pages = try String(contentsOfFile: "/proc/\(process)/statm", encoding: .utf8)
                .split(separator: " ")
            return try #require(Int(pages[1])) * 4096
        }
    }
}

/// A running `adversary.py`.
private final class Attack {
    private let child: Child
    private let input: Int32
    private let output: Int32

    /// Returns when each of its processes has begun.
    init(on volume: MountedVolume, _ kinds: [String]) throws {
        let down = try Child.pipe()
        let up = try Child.pipe()
        let environment = TestEnvironment.shared
        child = try Child(
            volume.user.prefix + [
                environment.python, environment.script("adversary.py"),
                try #require(volume.socketPath()),
            ] + kinds, environment: volume.environment, input: down.reading, output: up.writing,
            errors: STDERR_FILENO)
        close(down.reading)
        close(up.writing)
        (input, output) = (down.writing, up.reading)
        var waiting = pollfd(fd: output, events: Int16(POLLIN), revents: 0)
        var byte: UInt8 = 0
        while byte != UInt8(ascii: "\n") {
            guard poll(&waiting, 1, 60_000) > 0, read(output, &byte, 1) == 1 else {
                throw SupportError("the adversary did not begin")
            }
        }
    }

    /// Ends the attack. Returns its last output.
    func end() -> String {
        close(input)
        _ = child.wait(seconds: 60)
        var bytes = [UInt8](repeating: 0, count: 4096)
        let count = read(output, &bytes, bytes.count)
        close(output)
        return String(decoding: bytes[..<max(0, count)], as: UTF8.self)
    }
}
