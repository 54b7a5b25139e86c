import Foundation
import Testing

extension MountSuite {
    /// Programs that ask the kernel for pages of a locked file endlessly: mlock(2), mlockall(2),
    /// `MAP_POPULATE`.
    @Suite struct RefusedPageTests {
        /// Opens a file, reports that by a FIFO, and goes on at a message by another FIFO.
        private static let program = """
            import ctypes, mmap, os, sys
            path, how, ready, go = sys.argv[1:5]
            libc = ctypes.CDLL(None, use_errno=True)
            file = os.open(path, os.O_RDWR)
            if how != "populate":
                mapping = mmap.mmap(file, 0, flags=mmap.MAP_SHARED)
            open(ready, "w").write("x")
            open(go).read()
            if how == "populate":
                mmap.mmap(file, 0, flags=mmap.MAP_SHARED | 0x8000)
            elif how == "mlock":
                address = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
                libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(len(mapping)))
            else:
                libc.mlockall(1)
            os._exit(0)
            """

        private func readCount(_ volume: MountedVolume) throws -> Int {
            let status = try volume.ward("status", volume.mountPoint, "--json")
            let object = try JSONSerialization.jsonObject(with: Data(status.output.utf8))
            let requests = (object as? [String: Any])?["requests"] as? [[String: Any]] ?? []
            return requests.first { $0["name"] as? String == "READ" }?["count"] as? Int ?? 0
        }

        @Test(
            "They are answered ever later, hold up nobody, and end with the unlock",
            arguments: User.usual)
        func everLater(user: User) throws {
            let environment = TestEnvironment.shared
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            // An ordinary user may not lock as much as a whole program's memory.
            let ways = ["populate", "mlock", user == .root ? "mlockall" : "mlock", "populate"]
            try volume.shell(
                """
                cat >"$OUT/program.py" <<'PYTHON'
                \(Self.program)
                PYTHON
                for i in 0 1 2 3; do
                    head -c 40000 /dev/zero | tr '\\0' x >"$MNT/$i"
                    '\(environment.ward)' class set A "$MNT/$i" -q
                    mkfifo "$OUT/ready$i" "$OUT/go$i"
                done
                echo x >"$MNT/other"; '\(environment.ward)' class set D "$MNT/other" -q
                """)
            var children: [Child] = []
            for (index, how) in ways.enumerated() {
                let out = volume.directory + "/home"
                children.append(
                    try Child(
                        user.prefix + [
                            environment.python, out + "/program.py",
                            "\(volume.mountPoint)/\(index)", how, "\(out)/ready\(index)",
                            "\(out)/go\(index)",
                        ], environment: volume.environment))
                try volume.shell("timeout 30 cat \"$OUT/ready\(index)\" >/dev/null")
            }
            try volume.lockNow()
            for index in ways.indices { try volume.shell("echo x >\"$OUT/go\(index)\"") }
            // Until they are slow: each got a thousand answers at once, and then fifty with growing
            // delays.
            let deadline = Date(timeIntervalSinceNow: 20 * TestEnvironment.patience)
            var rate = Double.infinity
            while rate > 200, Date() < deadline {
                let (before, start) = (try readCount(volume), Date())
                while Date().timeIntervalSince(start) < 0.5 {
                    let asked = Date()
                    #expect(probe.stat("other", "size") == .number(2))
                    #expect(!probe.exists("no such name"))
                    #expect(probe.readFile("other") == .data("x\n"))
                    #expect(
                        Date().timeIntervalSince(asked) < 1 * TestEnvironment.patience,
                        "others wait")
                }
                rate = Double(try readCount(volume) - before) / Date().timeIntervalSince(start)
            }
            // The reads of the probe, which reads all the time, count, too.
            #expect(rate <= 200, "reads a second")
            #expect(children.allSatisfy { $0.wait(seconds: 0) == nil }, "they are in the call")
            let start = Date()
            try volume.unlock()
            #expect(Date().timeIntervalSince(start) < 10 * TestEnvironment.patience)
            for child in children { #expect(child.wait(seconds: 10) == 0, "it ends") }
        }
    }
}
