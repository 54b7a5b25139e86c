import Foundation
import Testing

extension MountSuite {
    /// `ward holders` lists programs that have files open, and delays nothing.
    @Suite struct HolderTests {
        private func holders(
            _ volume: MountedVolume, _ more: String...
        ) throws -> [[String: Any]] {
            let done = try Child.run(
                volume.user.prefix + [
                    TestEnvironment.shared.ward, "holders", volume.mountPoint, "--json",
                ] + more, environment: volume.environment)
            #expect(done.succeeded, "\(done.everything)")
            return try done.output.split(separator: "\n").map {
                let object = try JSONSerialization.jsonObject(with: Data($0.utf8))
                return try #require(object as? [String: Any])
            }
        }

        /// "A /A/f readWrite", sorted.
        private func lines(_ holders: [[String: Any]], of process: pid_t) -> [String] {
            holders.filter { $0["pid"] as? Int == Int(process) }.map {
                "\($0["protectionClass"] ?? "-") \($0["path"] ?? "?") \($0["use"] ?? "?")"
            }.sorted()
        }

        /// Runs Python with the mount point as its working directory. Returns when the script says
        /// that it is ready.
        private func python(
            _ volume: MountedVolume, _ script: String, wrapper: [String] = []
        ) throws -> Child {
            let output = try Child.pipe()
            let child = try Child(
                wrapper + volume.user.prefix + [
                    TestEnvironment.shared.python, "-c",
                    """
                    import mmap, os, sys, time
                    os.chdir(sys.argv[1])
                    \(script)
                    print("ready", flush=True)
                    time.sleep(120)
                    """, volume.mountPoint,
                ], environment: volume.environment, output: output.writing, errors: STDERR_FILENO)
            close(output.writing)
            defer { close(output.reading) }
            var byte: UInt8 = 0
            try #require(read(output.reading, &byte, 1) == 1, "the program has ended")
            return child
        }

        @Test(
            "descriptors, mappings, directories, unlinked files, odd names, a stopped process",
            arguments: User.usual)
        func uses(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            for fileClass in [FileClass.complete, .none] {
                try StateWalk.makeDirectory(of: fileClass, with: probe)
            }
            let holder = try python(
                volume,
                """
                a = open("A/f", "r+b"); m = mmap.mmap(a.fileno(), 0)
                q = open("D/f", "rb"); p = mmap.mmap(q.fileno(), 0, prot=mmap.PROT_READ)
                b = open("A/a\\nb\\033[2J", "w")
                u = open("A/unlinked", "w"); os.unlink("A/unlinked")
                d = os.open("A", os.O_RDONLY); n = os.open("D/f", os.O_PATH)
                os.chdir("D")
                """)
            kill(holder.process, SIGSTOP)
            let expected = [
                "- /D workingDirectory", "A /A read", "A /A/a\nb\u{1B}[2J write",
                "A /A/f mappedForWriting", "A /A/f readWrite", "A /A/unlinked (deleted) write",
                "D /D/f mapped", "D /D/f path", "D /D/f read",
            ]
            for state in [LockState.unlocked, .locked] {
                try volume.enter(state)
                let seen = try holders(volume)
                #expect(lines(seen, of: holder.process) == expected, "\(state)")
                #expect(seen.allSatisfy { $0["uid"] as? Int == Int(user.userID) })
                #expect(seen.first?["program"] as? String == "python3")
            }
            let ofA = try holders(volume, "--class", "A")
            #expect(lines(ofA, of: holder.process) == expected.filter { $0.hasPrefix("A") })
            let text = try volume.ward("holders", volume.mountPoint)
            #expect(text.output.split(separator: "\n").count == 1 + expected.count)
            #expect(!text.errors.contains("belong"), "\(text.errors)")
            holder.kill()
            #expect(try holders(volume).isEmpty)
        }

        @Test("a child that is about to run another program holds nothing; one that works on does")
        func forks() throws {
            let volume = try MountedVolume(as: User.available[0])
            let probe = try volume.probe()
            try StateWalk.makeDirectory(of: .complete, with: probe)
            // A child that runs no program of its own within a second, `ProcessDirectory.newFor`,
            // counts as a holder. A busy machine may take that long: then try again.
            var counts: [Int] = []
            for _ in 0..<5 where counts != [2, 2] {
                let starter = try python(
                    volume,
                    """
                    f = open("A/f")
                    if os.fork() == 0:
                        os.chdir("/")
                        time.sleep(0.3)
                        os.execvp("sleep", ["sleep", "120"])
                    """)
                let seen = try holders(volume)
                counts = [lines(seen, of: starter.process).count, seen.count]
                starter.kill()
            }
            #expect(counts == [2, 2], "of the starter, of all")
            let worker = try python(
                volume,
                """
                f = open("A/f")
                if os.fork() == 0: time.sleep(120)
                f.close()
                """)
            let open = try holders(volume).filter { $0["path"] as? String == "/A/f" }
            #expect(open.count == 1 && open[0]["pid"] as? Int != Int(worker.process))
            worker.kill()
        }

        @Test("a process in another mount namespace, by another path", .enabled(if: geteuid() == 0))
        func namespace() throws {
            let volume = try MountedVolume(as: .root)
            let probe = try volume.probe()
            try StateWalk.makeDirectory(of: .complete, with: probe)
            let other = volume.directory + "/home/elsewhere"
            Glibc.mkdir(other, 0o700)
            let holder = try python(
                volume,
                """
                os.chdir("\(other)/A")
                f = open("f")
                """,
                wrapper: [
                    "unshare", "-m", "sh", "-c",
                    "mount --bind '\(volume.mountPoint)' '\(other)' && exec \"$@\"", "sh",
                ])
            #expect(
                lines(try holders(volume), of: holder.process) == [
                    "- /A workingDirectory", "A /A/f read",
                ])
            // A holder does not prevent the lock.
            try volume.lockNow()
            holder.kill()
        }

        @Test(
            "what can't be seen is counted: processes of others, and their open files",
            .enabled(if: geteuid() == 0))
        func ofOthers() throws {
            let volume = try MountedVolume(as: .ordinaryUser)
            let probe = try volume.probe()
            #expect(probe.writeFile("f", "x") == .ok)
            #expect(probe.open("f", "r", as: "fd") == .ok)
            // A descriptor that is on its way through a socket belongs to no visible process.
            let sender = try python(
                volume,
                """
                import socket
                left, right = socket.socketpair()
                f = open("f")
                g = open("g", "w")
                socket.send_fds(left, [b"x"], [g.fileno()])
                g.close()
                """)
            let text = try volume.ward("holders", volume.mountPoint)
            #expect(text.errors.contains("could not be looked at"), "\(text.everything)")
            #expect(text.errors.contains("1 open file belongs to no process"), "\(text.everything)")
            sender.kill()
        }
    }
}
