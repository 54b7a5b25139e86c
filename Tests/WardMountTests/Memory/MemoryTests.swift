import Foundation
import Testing

extension MountSuite {
    /// The secrets in the daemon's memory in each state, as root sees them.
    ///
    /// Every scan covers all writable pages (heap, stacks, thread-local storage, freed pages,
    /// buffers) and the saved registers of every thread.
    @Suite(.enabled(if: ProcessMemory.mayBeRead, "only root reads the memory of the daemon"))
    struct MemoryTests {
        @Test("Keys and plaintext go with their class", arguments: User.usual)
        func classes(user: User) throws {
            let passcode = Planted.token(40)
            let volume = try MountedVolume(as: user, passcode: passcode)
            let probe = try volume.probe()
            try StateWalk.makeDirectories(with: probe)
            let secrets = try VolumeSecrets(volume, passcode: passcode)
            try #require(secrets.classKeys.count == 5, "the test knows all class keys")
            let daemon = try #require(volume.daemonProcess())

            let a = Planted(.complete, with: probe, keepsOpen: true)
            let b = Planted(.completeUnlessOpen, with: probe, keepsOpen: false)
            let c = Planted(.completeUntilFirstUserAuthentication, with: probe, keepsOpen: true)
            let cx = Planted(.completeWhenUserInactive, with: probe, keepsOpen: true)
            #expect(a.failures + b.failures + c.failures + cx.failures == [])
            #expect(probe.open("B/f", "rw", as: "open B") == .ok)
            #expect(probe.pread("open B", 100) == .data("content of B"))

            var openA = SecretPatterns()
            for name in ["small", "mapped", "direct", "appended"] {
                try secrets.fileKey(probe, "A/\(name)", in: volume).add(to: &openA, as: "A \(name)")
            }
            var closed = SecretPatterns()
            for path in ["A/f", "A/huge", "B/small", "B/huge"] {
                try secrets.fileKey(probe, path, in: volume).add(to: &closed, as: path)
            }
            let openBKey = try secrets.fileKey(probe, "B/f", in: volume)
            var openB = SecretPatterns()
            openB.add(aes: "key of open B", openBKey.key)
            var pathToB = SecretPatterns()
            pathToB.add(curve: "shared secret of open B", openBKey.sharedSecret!)
            var openC = SecretPatterns()
            try secrets.fileKey(probe, "C/small", in: volume).add(to: &openC, as: "C small")
            try secrets.fileKey(probe, "CX/small", in: volume).add(to: &openC, as: "CX small")
            var volumeKey = SecretPatterns()
            volumeKey.add("volume key", secrets.volumeKey)

            let content = a.patterns.union(b.patterns)
            let keysOfA = secrets.ofClasses([.complete, .completeUnlessOpen]).union(openA)
                .union(closed)
            let everything = keysOfA.union(openB).union(pathToB).union(openC).union(content)
                .union(secrets.ofClasses([.completeUntilFirstUserAuthentication]))
                .union(secrets.ofClasses([.completeWhenUserInactive, .none]))
                .union(secrets.ofPasscode).union(secrets.ofDevice).union(volumeKey)
                .union(c.patterns).union(cx.patterns)

            // Unlocked: keys are only in secret memory. The secrets that they were derived from are
            // gone, and no sleeping thread holds content.
            #expect(probe.pread("A small", 96).succeeded)
            var scan = try MemoryScan.settled(everything, of: daemon) { !$0.isInSecretMemory }
            var inSecret = scan.namesInSecretMemory
            for name in [
                "class key A", "class key B", "class key C", "class key CX", "class key D",
                "key of A small", "key of open B", "key of A appended",
            ] {
                #expect(inSecret.contains(name), "the scan finds what is there: \(name)")
            }
            expectNothing(scan.inOrdinaryMemory, "in ordinary memory while unlocked")
            expectNothing(
                scan.findings.filter {
                    isGone($0.name, in: [secrets.ofPasscode, secrets.ofDevice, pathToB])
                },
                "anywhere after the unlock")

            // Locked: A is gone, and of B the files that are not open.
            try volume.lock()
            try volume.advance(seconds: 10)
            scan = try MemoryScan(everything, of: daemon)
            inSecret = scan.namesInSecretMemory
            expectNothing(scan.inOrdinaryMemory, "in ordinary memory while locked")
            expectNothing(
                scan.findings.filter { isGone($0.name, in: [keysOfA, content, pathToB]) },
                "anywhere after the lock")
            for name in [
                "class key C", "class key CX", "class key D", "key of open B", "key of C small",
            ] {
                #expect(inSecret.contains(name), "stays while locked: \(name)")
            }
            // Row L3: the last close of a B file wipes its key. The kernel reports the close a
            // moment later.
            #expect(probe.pread("open B", 100) == .data("content of B"))
            #expect(probe.close("open B") == .ok)
            try eventuallyNothing(openB, daemon, "after the last close of a B file")

            // CX expires.
            try volume.advance(seconds: 25 * 3600)
            scan = try MemoryScan(everything, of: daemon)
            expectNothing(
                scan.findings.filter {
                    isGone(
                        $0.name,
                        in: [
                            secrets.ofClasses([.completeWhenUserInactive]), keysOfA, content, openB,
                        ])
                        || $0.name.contains("CX")
                }, "anywhere after the expiry of CX")
            #expect(scan.namesInSecretMemory.contains("class key C"))

            // A reboot while unlocked, with descriptors in use: everything but D is gone.
            try volume.unlock()
            #expect(probe.pread("A small", 96).succeeded)
            #expect(probe.open("B/f", "rw", as: "open B") == .ok)
            #expect(probe.pread("open B", 100) == .data("content of B"))
            #expect(probe.pread("C small", 96).succeeded)
            scan = try MemoryScan(everything, of: daemon)
            #expect(
                scan.namesInSecretMemory.isSuperset(of: [
                    "class key A", "class key CX", "key of open B",
                ]))
            try volume.reboot()
            scan = try MemoryScan(everything, of: daemon)
            expectNothing(scan.inOrdinaryMemory, "in ordinary memory before the first unlock")
            expectNothing(
                scan.findings.filter {
                    $0.name != "volume key" && !$0.name.hasPrefix("class key D")
                        && !$0.name.hasPrefix("volume key")
                }, "anywhere before the first unlock")
            #expect(scan.namesInSecretMemory.contains("class key D"))
        }

        /// Whether a finding's name is in one of these sets.
        private func isGone(_ name: String, in sets: [SecretPatterns]) -> Bool {
            sets.contains { $0.names.contains(name) }
        }

        private func eventuallyNothing(
            _ patterns: SecretPatterns, _ daemon: pid_t, _ what: String
        ) throws {
            var left: [Finding] = []
            _ = try comesTrue(within: 5) {
                left = try MemoryScan(patterns, of: daemon).findings
                return left.isEmpty
            }
            expectNothing(left, what)
        }

        @Test("The scan finds what is there: heap, other shapes, registers' pieces")
        func finds() throws {
            var patterns = SecretPatterns()
            let key = (0..<32).map { _ in UInt8.random(in: 0...255) }
            patterns.add(aes: "the key", key)
            let hex = key.map { String(format: "%02x", $0) }.joined()
            let program = """
                import sys
                key = bytes.fromhex(sys.stdin.readline())
                pad = bytes(b ^ 0x5c for b in key)
                kept = [key[3:] + b"x", b"x" + pad[8:16] + b"y"]
                del key, pad
                print("ready", flush=True)
                sys.stdin.readline()
                """
            let environment = TestEnvironment.shared
            let down = try Child.pipe()
            let up = try Child.pipe()
            defer {
                for end in [down.reading, down.writing, up.reading, up.writing] { close(end) }
            }
            let child = try Child(
                [environment.python, "-c", program], environment: environment.variables,
                input: down.reading, output: up.writing)
            _ = (hex + "\n").withCString { write(down.writing, $0, strlen($0)) }
            var answer = [UInt8](repeating: 0, count: 6)
            #expect(read(up.reading, &answer, 6) == 6)
            let scan = try MemoryScan(patterns, of: child.process)
            let names = Set(scan.findings.map(\.name))
            #expect(names.contains("the key"))
            #expect(names.contains("the key ^ outer pad"))
            #expect(scan.scannedBytes > 1 << 20)
            child.kill()
        }
    }
}

/// Fails with the list of findings.
func expectNothing(
    _ findings: [Finding], _ what: String, sourceLocation: SourceLocation = #_sourceLocation
) {
    #expect(
        findings.isEmpty, "\(what): \(MemoryScan.text(findings))", sourceLocation: sourceLocation)
}
