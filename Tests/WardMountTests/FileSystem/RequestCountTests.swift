import Foundation
import Testing

extension MountSuite {
    /// The requests that the kernel sends for each common operation. A request costs more than the
    /// work to answer it, so a higher number costs every program time.
    @Suite struct RequestCountTests {
        private static let files = 100

        /// The number of requests since the mount, by name.
        private func requests(_ volume: MountedVolume) throws -> [String: Int] {
            let done = try volume.ward("status", volume.mountPoint, "--json")
            let object = try JSONSerialization.jsonObject(with: Data(done.output.utf8))
            let status = try #require(object as? [String: Any], "\(done.everything)")
            let counts = try #require(status["requests"] as? [[String: Any]])
            var result: [String: Int] = [:]
            for count in counts {
                result[try #require(count["name"] as? String)] = count["count"] as? Int
            }
            return result
        }

        /// Runs a Python script in the mount and returns the requests that came too often. Each
        /// request of `wanted` may come that often for each file and a few times more, for
        /// directories above. Other requests may come a few times; FORGET as often as the kernel
        /// likes.
        private func excess(
            _ wanted: [String: Int], _ volume: MountedVolume, _ script: String
        ) throws -> [String] {
            let before = try requests(volume)
            try volume.shell(
                "cd \"$MNT\"; python3 -Sc 'import os; n = \(Self.files)\n\(script)'; cd /")
            return try requests(volume).compactMap { name, count in
                guard name != "FORGET", name != "BATCH_FORGET" else { return nil }
                let made = count - (before[name] ?? 0)
                return made > (wanted[name] ?? 0) * Self.files + 6 ? "\(made) \(name)" : nil
            }
        }

        /// No request comes too often.
        private func expect(
            _ what: Comment, _ wanted: [String: Int], _ volume: MountedVolume, _ script: String,
            location: SourceLocation = #_sourceLocation
        ) throws {
            #expect(try excess(wanted, volume, script) == [], what, sourceLocation: location)
        }

        @Test("requests per operation")
        func operations() throws {
            let volume = try MountedVolume(as: User.available[0])
            guard !TestEnvironment.shared.isPlain else { return }
            let each = "for i in range(n): "
            try volume.shell("mkdir \"$MNT/d\"")
            // GETATTR: the directory has changed and its permissions are checked. GETXATTR:
            // capabilities are read before the first write (decision 0062).
            try expect(
                "create, write, close",
                [
                    "LOOKUP": 1, "CREATE": 1, "WRITE": 1, "RELEASE": 1, "GETATTR": 1,
                    "GETXATTR": 1,
                ],
                volume,
                """
                \(each)
                    f = os.open("d/%d" % i, os.O_CREAT | os.O_WRONLY)
                    os.write(f, bytes(4096))
                    os.close(f)
                """)
            try expect(
                "stat, after the write", ["GETATTR": 1], volume, each + "os.stat(\"d/%d\" % i)")
            try expect("stat", [:], volume, each + "os.stat(\"d/%d\" % i)")
            try expect(
                "stat of what is not there", ["LOOKUP": 1], volume,
                each + "os.path.exists(\"d/no%d\" % i)")
            try expect("the same again", [:], volume, each + "os.path.exists(\"d/no%d\" % i)")
            let read = """
                \(each)
                    f = os.open("d/%d" % i, os.O_RDONLY)
                    os.read(f, 4096)
                    os.close(f)
                """
            try expect("open, read, close, cached", ["OPEN": 1, "RELEASE": 1], volume, read)
            try expect("a listing", [:], volume, "os.listdir(\"d\")")
            try expect("a kept listing", [:], volume, "os.listdir(\"d\")")
            try expect(
                "rename", ["RENAME": 1, "LOOKUP": 1, "GETATTR": 1], volume,
                each + "os.rename(\"d/%d\" % i, \"d/r%d\" % i)")
            try expect(
                "unlink", ["UNLINK": 1, "GETATTR": 1], volume, each + "os.unlink(\"d/r%d\" % i)")
            try volume.remount()
            try expect(
                "1 MiB written, in one request each", ["WRITE": 1], volume,
                // The buffer was touched before: at a page that is not in memory the kernel would
                // send what it has.
                "f = os.open(\"large\", os.O_CREAT | os.O_WRONLY)\nb = b\"x\" * (1 << 20)\n"
                    + each + "os.write(f, b)")
            // A kernel may free pages at any time. Some machines free all pages that no process
            // used for a minute. Then both readings are done again. Where the second open made the
            // kernel drop its pages, each second reading has all the requests of the first.
            let reading =
                "f = os.open(\"large\", os.O_RDONLY)\n" + each + "os.read(f, 1 << 20)"
            var again: [String] = []
            for _ in 0..<5 {
                try volume.remount()
                try expect("1 MiB read", ["READ": 1], volume, reading)
                again = try excess([:], volume, reading)
                if again.isEmpty { break }
            }
            #expect(again == [], "the same again, by a second open")
        }

        @Test(
            "a listing that is kept by the kernel: READDIR is not sent again until a name changes")
        func keptListing() throws {
            let volume = try MountedVolume(as: User.available[0])
            guard !TestEnvironment.shared.isPlain else { return }
            try volume.shell("mkdir \"$MNT/d\"; cd \"$MNT/d\"; seq 1000 | xargs touch")
            func readings() throws -> Int {
                let counts = try requests(volume)
                return (counts["READDIR"] ?? 0) + (counts["READDIRPLUS"] ?? 0)
            }
            func list() throws -> String { try volume.shell("ls \"$MNT/d\" | wc -l") }
            _ = try list()
            let before = try readings()
            #expect(try list().contains("1000"))
            #expect(try readings() == before)
            try volume.shell("rm \"$MNT/d/7\"")
            #expect(try list().contains("999"))
            #expect(try readings() > before)
        }

        @Test("ls -l asks for a SELinux label once, not for each file; one that is there is told")
        func labels() throws {
            let volume = try MountedVolume(as: User.available[0])
            guard !TestEnvironment.shared.isPlain else { return }
            try volume.shell("mkdir \"$MNT/d\"; cd \"$MNT/d\"; seq 100 | xargs touch; ls -l")
            let before = try requests(volume)["GETXATTR"] ?? 0
            try volume.shell("ls -l \"$MNT/d\"")
            let after = try requests(volume)["GETXATTR"] ?? 0
            #expect(after <= before + 20, "\(after - before) requests")
            let label = "security.selinux"
            let get = "import os; print(os.getxattr(\"'$MNT'/d/7\", \"\(label)\"))"
            #expect(try volume.shell("python3 -Sc '\(get)' 2>&1 || true").contains("Errno 95"))
            guard geteuid() == 0, volume.user == .root else { return }
            try volume.shell(
                "python3 -Sc 'import os; os.setxattr(\"'$MNT'/d/7\", \"\(label)\", b\"u:r:t:s0\")'")
            #expect(try volume.shell("python3 -Sc '\(get)'").contains("u:r:t:s0"))
        }

        @Test("names are neither left out nor listed twice where each is removed as it is read")
        func removalWhileListing() throws {
            let volume = try MountedVolume(as: User.available[0])
            try volume.shell(
                """
                mkdir "$MNT/d"; cd "$MNT/d"; seq 3000 | xargs touch; ls >/dev/null
                python3 -Sc '
                import os
                seen = []
                for entry in os.scandir("."):
                    seen.append(entry.name)
                    os.unlink(entry.name)
                assert sorted(seen, key=int) == [str(n) for n in range(1, 3001)], len(seen)
                assert os.listdir(".") == []
                '
                """)
        }
    }
}
