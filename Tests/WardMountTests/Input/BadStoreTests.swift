import Foundation
import Testing

extension MountSuite {
    /// A backing store that another program changed, that becomes read-only, or that another daemon
    /// wants. A daemon that is killed while programs write, or that may have few threads,
    /// descriptors or locked pages.
    @Suite struct BadStoreTests {
        private static let size = 20_000
        private static let content = String(
            (0..<size).map { Character(UnicodeScalar(UInt8(97 + $0 % 26))) })

        /// Runs `body` in Python with `store`, the backing directory, and `file`, its only backing
        /// file.
        private func tamper(_ volume: MountedVolume, _ body: String) throws {
            try volume.shell(
                """
                \(TestEnvironment.shared.python) - '\(volume.volume)' $OUT <<'PYTHON'
                import os, sys
                store, out = sys.argv[1:3]
                names = [n for n in os.listdir(store) if "." not in n and n != "README"]
                assert len(names) == 1, names
                file = store + "/" + names[0]
                def flip(offset):
                    with open(file, "r+b") as f:
                        f.seek(offset)
                        byte = f.read(1)[0]
                        f.seek(offset)
                        f.write(bytes([byte ^ 4]))
                \(body)
                PYTHON
                """)
        }

        private func damage(_ volume: MountedVolume) throws -> [ControlEvent] {
            try ControlEvent.latest(of: volume).filter { $0.kind == "integrityFailure" }
        }

        @Test(
            "A byte is changed, while the volume is mounted and while it is not: EIO for its page, and an event",
            arguments: User.usual)
        func changedByte(user: User) throws {
            let volume = try MountedVolume(as: user)
            #expect(try volume.probe().writeFile("file", Self.content) == .ok)
            for isMounted in [true, false] {
                // The kernel has none of its pages.
                try volume.unmount()
                if isMounted {
                    try volume.mount()
                    try volume.unlock()
                }
                try tamper(volume, "flip(8192 + 100)")
                if !isMounted {
                    try volume.mount()
                    try volume.unlock()
                }
                let probe = try volume.probe()
                #expect(probe.open("file", "r", as: "f") == .ok)
                #expect(probe.pread("f", 100, at: 9000) == .failure("EIO"), "mounted: \(isMounted)")
                #expect(
                    probe.pread("f", 100) == .data(String(Self.content.prefix(100))),
                    "the page before it")
                #expect(
                    probe.pread("f", 100, at: 14_000)
                        == .data(String(Self.content.dropFirst(14_000).prefix(100))),
                    "a page after it")
                #expect(probe.readFile("file") == .failure("EIO"))
                #expect(probe.stat("file", "size") == .number(Self.size))
                let told = try damage(volume)
                #expect(
                    !told.isEmpty && told.allSatisfy { $0.fields["path"] == "/file" }, "\(told)")
                let events = try volume.ward("events", volume.mountPoint)
                #expect(events.succeeded && events.output.contains("/file"), "\(events.everything)")
                // With the damage undone, the file is good again in the same mount.
                try tamper(volume, "flip(8192 + 100)")
                #expect(probe.readFile("file") == .data(Self.content))
                #expect(probe.close("f") == .ok)
            }
        }

        @Test(
            "Cut off, zeroed, removed while a program has it open: never other bytes",
            arguments: User.usual)
        func openFile(user: User) throws {
            for (how, change) in [
                ("cut off", "os.truncate(file, 4096)"), ("emptied", "os.truncate(file, 0)"),
                ("zeroed", "open(file, 'r+b').write(bytes(os.path.getsize(file)))"),
            ] {
                let volume = try MountedVolume(as: user)
                #expect(try volume.probe().writeFile("file", Self.content) == .ok)
                try volume.remount()
                let probe = try volume.probe()
                #expect(probe.open("file", "rw", as: "f") == .ok)
                try tamper(
                    volume, "open(out + '/copy', 'wb').write(open(file, 'rb').read())\n\(change)")
                #expect(probe.pread("f", 100, at: 9000) == .failure("EIO"), "\(how)")
                #expect(probe.pread("f", 100, at: 19_000) == .failure("EIO"), "\(how)")
                let told = try damage(volume)
                #expect(
                    !told.isEmpty && told.allSatisfy { $0.fields["path"] == "/file" }, "\(told)")
                // Other files are served.
                #expect(probe.writeFile("other", "other") == .ok)
                #expect(probe.readFile("other") == .data("other"))
                #expect(probe.unlink("other") == .ok)
                try tamper(volume, "open(file, 'r+b').write(open(out + '/copy', 'rb').read())")
                #expect(
                    probe.pread("f", 100, at: 9000)
                        == .data(String(Self.content.dropFirst(9000).prefix(100))), "\(how)")
                #expect(probe.close("f") == .ok)
                try volume.remount()
                #expect(try volume.probe().readFile("file") == .data(Self.content), "\(how)")
            }
        }

        @Test(
            "A daemon killed while programs write: what was acknowledged is there, and the next mount is clean",
            arguments: User.usual)
        func killedWhileWriting(user: User) throws {
            let environment = TestEnvironment.shared
            let volume = try MountedVolume(as: user)
            for round in 0..<5 {
                let writers = try Writers(
                    on: volume, ["append", "write"].map { ("\(round)-\($0)", $0) })
                // The instant of the kill differs from round to round.
                usleep(UInt32(round * 37_000))
                try volume.kill()
                for writer in writers.programs {
                    #expect(writer.wait(seconds: 20) != nil, "a writer hangs")
                }
                let acknowledged = writers.results().map { $0?.acknowledged ?? -1 }
                try volume.mount()
                try volume.unlock()
                for (how, count) in zip(["append", "write"], acknowledged) {
                    #expect(count > 0, "\(how) in round \(round)")
                    // One more line may have been under way, or a part of it.
                    try volume.shell(
                        """
                        \(environment.python) - "$MNT/\(round)-\(how)" \(count) <<'PYTHON'
                        import sys
                        data = open(sys.argv[1], "rb").read()
                        count = int(sys.argv[2])
                        lines = b"".join(b"%09d\\n" % i for i in range(count // 10 + 2))
                        assert count <= len(data) <= count + 10, (len(data), count)
                        assert lines.startswith(data)
                        PYTHON
                        """)
                }
                let damage = try damage(volume)
                #expect(damage.isEmpty, "\(damage)")
                let status = try volume.ward("status", volume.mountPoint)
                #expect(status.succeeded, "\(status.everything)")
            }
            try volume.remount()
            let notes = try ControlEvent.latest(of: volume).filter {
                $0.description.contains("cleanly")
            }
            #expect(notes.isEmpty, "\(notes)")
        }

        @Test(
            "A store that becomes read-only, and writable again", .enabled(if: geteuid() == 0),
            arguments: User.usual)
        func readOnlyForAWhile(user: User) throws {
            let store = try TestEnvironment.shared.makeDirectory("store")
            let environment = TestEnvironment.shared.variables
            func run(_ script: String) throws {
                let done = try Child.run(["sh", "-euc", script], environment: environment)
                try #require(done.succeeded, "\(script): \(done.everything)")
            }
            try run("mount -t tmpfs -o size=16M,mode=755 none \(store)")
            defer {
                _ = try? Child.run(["umount", "-l", store], environment: environment)
                _ = try? Child.run(["rm", "-rf", store], environment: environment)
            }
            try run("mkdir \(store)/volume; chown \(user.userID) \(store)/volume")
            let volume = try MountedVolume(as: user, backing: store + "/volume")
            let probe = try volume.probe()
            #expect(probe.mkdir("A") == .ok && probe.setClass("A", "A") == .ok)
            #expect(probe.writeFile("A/f", Self.content) == .ok)
            // A close reaches the daemon after the program went on. Until then the file is open for
            // writing.
            try run(
                """
                n=0
                until mount -o remount,ro \(store); do n=$((n + 1)); test $n -lt 200; sleep 0.1; done
                """)
            #expect(probe.readFile("A/f") == .data(Self.content))
            #expect(probe.writeFile("A/f", "other") == .failure("EROFS"))
            #expect(probe.writeFile("new", "new") == .failure("EROFS"))
            #expect(probe.mkdir("directory") == .failure("EROFS"))
            #expect(probe.unlink("A/f") == .failure("EROFS"))
            #expect(probe.setClass("A/f", "D") == .failure("EROFS"))
            try volume.lockNow()
            #expect(probe.readFile("A/f") == .failure("EPERM"))
            try volume.unlock()
            #expect(probe.readFile("A/f") == .data(Self.content))
            try run("mount -o remount,rw \(store)")
            #expect(probe.writeFile("A/f", "other") == .ok)
            #expect(probe.writeFile("new", "new") == .ok)
            try volume.remount()
            let again = try volume.probe()
            #expect(again.readFile("A/f") == .data("other"))
            #expect(again.readFile("new") == .data("new"))
            #expect(try damage(volume).isEmpty)
        }

        @Test(
            "A second daemon on a volume is refused, from a container too",
            .enabled(if: geteuid() == 0), arguments: User.usual)
        func secondDaemon(user: User) throws {
            let volume = try MountedVolume(as: user)
            #expect(try volume.probe().writeFile("file", "content") == .ok)
            try volume.shell("mkdir $OUT/mnt $OUT/run")
            let mount = [
                TestEnvironment.shared.ward, "mount", volume.volume, volume.directory + "/home/mnt",
            ]
            let container = ["unshare", "--mount", "--pid", "--fork", "--mount-proc"]
            var elsewhere = volume.environment
            elsewhere["XDG_RUNTIME_DIR"] = volume.directory + "/home/run"
            for (what, prefix, environment, hint) in [
                ("the same user", [], volume.environment, "ward unmount"),
                ("another runtime directory", [], elsewhere, "ward unmount"),
                ("a container", container, elsewhere, "ward unmount"),
                (
                    "a container with the same runtime directory", container, volume.environment,
                    "ward unmount"
                ),
            ] {
                let done = try Child.run(
                    prefix + user.prefix + mount, environment: environment)
                #expect(done.status == 75, "\(what): \(done.everything)")
                #expect(
                    done.errors.contains("ward: error: cannot mount \(volume.volume)"), "\(what)")
                #expect(done.errors.contains("ward: hint: "), "\(what): \(done.everything)")
                #expect(done.errors.contains(hint), "\(what): \(done.everything)")
                #expect(volume.record() != nil, "\(what): the first daemon's record is gone")
            }
            #expect(try volume.probe().readFile("file") == .data("content"))
            let status = try volume.ward("status", volume.mountPoint)
            #expect(status.succeeded, "\(status.everything)")
        }

        @Test(
            "Few descriptors, pages to lock or threads: the daemon works, or says what it lacks",
            .enabled(if: geteuid() == 0), .serialized,
            arguments: [
                "-n 12", "-n 159", "-n 200", "-l 0", "-l 64", "-l 1024", "-u 12", "-u 60",
            ])
        func limits(limit: String) throws {
            // A user without other processes: threads are counted for all programs of a user.
            let user = ["setpriv", "--reuid=news", "--regid=news", "--clear-groups", "--"]
            let volume = try MountedVolume(directoryOnlyAs: .ordinaryUser)
            try volume.initialize()
            func run(_ command: String) throws -> Finished {
                var environment = volume.environment
                environment["WARD"] = TestEnvironment.shared.ward
                environment["STORE"] = volume.volume
                environment["MNT"] = volume.mountPoint
                environment["PASSCODE"] = volume.passcodeFile
                return try Child.run(user + ["bash", "-c", command], environment: environment)
            }
            let owned = try Child.run(
                ["chown", "-R", "news:news", volume.directory], environment: volume.environment)
            #expect(owned.succeeded)
            let done = try run(
                "ulimit \(limit) && exec \"$WARD\" mount \"$STORE\" \"$MNT\" --manual-clock")
            if done.succeeded {
                let used = try run(
                    """
                    set -eu
                    "$WARD" unlock "$MNT" --passcode-file "$PASSCODE"
                    printf content > "$MNT/file"
                    for n in $(seq 40); do eval "exec $((n + 10))> '$MNT/f$n'"; done
                    test "$(cat "$MNT/file")" = content
                    "$WARD" lock "$MNT" --now
                    for n in $(seq 40); do eval "exec $((n + 10))>&-"; done
                    "$WARD" unmount "$MNT"
                    """)
                #expect(used.succeeded, "\(limit): \(used.everything)")
            } else {
                #expect([69, 75].contains(done.status), "\(limit): \(done.everything)")
                #expect(done.errors.contains("ward: error: "), "\(limit): \(done.everything)")
                #expect(done.errors.contains("ward: hint: "), "\(limit): \(done.everything)")
            }
            // Too low limits fail, sufficient ones succeed. Sanitizers lock no pages: mlock(2) does
            // nothing there.
            if limit == "-l 0", TestEnvironment.isSanitized { return }
            if ["-n 12", "-l 0", "-u 12"].contains(limit) { #expect(!done.succeeded) }
            if ["-n 200", "-l 1024", "-u 60"].contains(limit) {
                #expect(done.succeeded, "\(limit): \(done.everything)")
            }
            let left = TestEnvironment.shared.mounts().filter { $0.hasPrefix(volume.directory) }
            #expect(left.isEmpty, "\(limit): \(left)")
        }
    }
}
