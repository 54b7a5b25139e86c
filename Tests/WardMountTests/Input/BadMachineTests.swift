import Foundation
import Testing

extension MountSuite {
    /// ward's messages and actions where the machine has no FUSE, or where the backing store is
    /// read-only, full, or holds other files.
    @Suite struct BadMachineTests {
        /// Runs commands in a mount namespace of their own, prepared by a script. Only root can
        /// make one on every machine.
        private func namespace(_ script: String) -> [String] {
            ["unshare", "--mount", "sh", "-euc", script + "\nexec \"$@\"", "sh"]
        }

        @Test("No /dev/fuse", .enabled(if: geteuid() == 0), arguments: User.usual)
        func noFUSE(user: User) throws {
            let volume = try MountedVolume(as: user)
            try volume.unmount()
            var transcript = Transcript(volume)
            try transcript.ward(
                "mount", volume.volume, volume.mountPoint, exit: 69,
                wrapper: namespace(
                    """
                    mount -t tmpfs -o mode=755 none /dev
                    mknod -m 666 /dev/null c 1 3; mknod -m 666 /dev/zero c 1 5
                    mknod -m 666 /dev/urandom c 1 9; mknod -m 666 /dev/random c 1 8
                    """))
            try transcript.check("no-fuse")
        }

        @Test("A read-only backing store", .enabled(if: geteuid() == 0), arguments: User.usual)
        func readOnlyStore(user: User) throws {
            let volume = try MountedVolume(as: user)
            try StateWalk.makeDirectory(of: .complete, with: volume.probe())
            try volume.unmount()
            var transcript = Transcript(volume)
            let readOnly = namespace(
                "mount --bind '\(volume.volume)' '\(volume.volume)'\n"
                    + "mount -o remount,bind,ro '\(volume.volume)'")
            try transcript.ward(
                "mount", volume.volume, volume.mountPoint, exit: 73, wrapper: readOnly)
            try transcript.ward(
                "init", volume.volume + "/new", "--passcode-file", volume.passcodeFile, exit: 73,
                wrapper: readOnly)
            try transcript.check("read-only-store")
            // With the option for it the store is served: mounted, unlocked and read in one
            // namespace.
            let script = """
                ward=$1; dir=$2; shift 2
                "$ward" mount --read-only "$dir/volume" "$dir/mnt" --manual-clock
                "$ward" unlock "$dir/mnt" --passcode-file "$dir/passcode"
                cat "$dir/mnt/A/f"
                ! touch "$dir/mnt/g"
                "$ward" unmount "$dir/mnt"
                """
            let served = try Child.run(
                readOnly + user.prefix + [
                    "sh", "-euc", script, "sh", TestEnvironment.shared.ward, volume.directory,
                ], environment: volume.environment)
            #expect(
                served.succeeded && served.output.contains("content of A"), "\(served.everything)")
        }

        @Test(
            "Another mount namespace still shows the mount: an unmount ends the daemon all the same",
            .enabled(if: geteuid() == 0), arguments: User.usual, [false, true])
        func copiedMount(user: User, isForced: Bool) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            #expect(probe.writeFile("f", "content") == .ok)
            let copy = try Child(
                ["unshare", "--mount", "--propagation", "private", "sleep", "60"],
                environment: volume.environment)
            defer { copy.kill() }
            func namespace(_ process: String) -> String? {
                try? FileManager.default.destinationOfSymbolicLink(
                    atPath: "/proc/\(process)/ns/mnt")
            }
            #expect(
                comesTrue { namespace("\(copy.process)").map { $0 != namespace("self") } ?? false },
                "there is another mount namespace")
            let done = try volume.ward(
                "unmount", volume.mountPoint, isForced ? "--force" : "--quiet", seconds: 20)
            #expect(done.succeeded, "\(done.everything)")
            try volume.mount()
            try volume.unlock()
            #expect(try volume.probe().readFile("f") == .data("content"))
        }

        @Test("A log that nobody reads does not keep the daemon alive", arguments: User.usual)
        func unreadLog(user: User) throws {
            let volume = try MountedVolume(as: user)
            try volume.unmount()
            let log = try Child.pipe()
            defer { close(log.reading) }
            // The pipe is full from the start.
            _ = fcntl(log.writing, F_SETFL, O_NONBLOCK)
            while write(log.writing, [UInt8](repeating: 10, count: 4096), 4096) > 0 {}
            _ = fcntl(log.writing, F_SETFL, 0)
            let daemon = try Child(
                user.prefix + [
                    TestEnvironment.shared.ward, "mount", "--foreground", volume.volume,
                    volume.mountPoint,
                ], environment: volume.environment, errors: log.writing)
            close(log.writing)
            #expect(comesTrue(within: 30) { volume.record() != nil }, "the volume is mounted")
            let done = try volume.ward("unmount", volume.mountPoint, seconds: 20)
            #expect(done.succeeded, "\(done.everything)")
            #expect(daemon.wait(seconds: 10) == 0)
        }

        @Test(
            "A full backing store: ENOSPC, nothing acknowledged is lost, and it goes on",
            .enabled(if: geteuid() == 0), arguments: User.usual)
        func fullStore(user: User) throws {
            let store = try TestEnvironment.shared.makeDirectory("store")
            let environment = TestEnvironment.shared.variables
            defer {
                _ = try? Child.run(["umount", "-l", store], environment: environment)
                _ = try? Child.run(
                    ["rm", "-rf", store, store + ".image"], environment: environment)
            }
            let made = try Child.run(
                [
                    "sh", "-euc",
                    """
                    truncate -s 24M \(store).image
                    mkfs.ext4 -q -b 4096 -O ^has_journal -m 0 \(store).image
                    mount -o loop \(store).image \(store)
                    mkdir \(store)/volume; chown \(user.userID) \(store)/volume
                    """,
                ], environment: environment)
            try #require(made.succeeded, "\(made.everything)")
            do {
                let volume = try MountedVolume(as: user, backing: store + "/volume")
                let probe = try volume.probe()
                #expect(probe.writeFile("before", "written before") == .ok)
                // Fills everything but a megabyte.
                try volume.shell(
                    """
                    free=$(($(stat -f -c '%a * %S' "$MNT")))
                    head -c $((free - 1000000)) /dev/zero > "$MNT/ballast"
                    """)
                let output = try volume.shell(
                    "\(TestEnvironment.shared.python) \(TestEnvironment.shared.script("writer.py")) \"$MNT/log\" append"
                )
                let said = output.split(whereSeparator: \.isWhitespace)
                #expect(said.last == "ENOSPC", "\(said)")
                let acknowledged = said.count == 3 ? Int(said[1]) ?? -1 : -1
                let check = """
                    \(TestEnvironment.shared.python) - "$MNT/log" \(acknowledged) <<'PYTHON'
                    import sys
                    data = open(sys.argv[1], "rb").read()
                    count = int(sys.argv[2])
                    assert len(data) == count, (len(data), count)
                    assert data == b"".join(b"%09d\\n" % i for i in range(count // 10 + 1))[:count]
                    PYTHON
                    """
                try volume.shell(check)
                #expect(probe.readFile("before") == .data("written before"))
                // Everything that needs no space works: reading, stat, deleting.
                #expect(probe.stat("log", "size") == .number(acknowledged))
                #expect(probe.unlink("ballast") == .ok)
                #expect(probe.writeFile("after", String(repeating: "a", count: 100_000)) == .ok)
                try volume.shell("printf more >> \"$MNT/log\"; truncate -s -4 \"$MNT/log\"")
                try volume.remount()
                try volume.shell(check)
                #expect(probe.readFile("before") == .data("written before"))
                #expect(probe.stat("after", "size") == .number(100_000))
            }
        }

        @Test("Files in the backing directory that are not ours", arguments: User.usual)
        func foreignFiles(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            try StateWalk.makeDirectory(of: .complete, with: probe)
            #expect(probe.writeFile("own", "own") == .ok)
            try volume.unmount()
            // A stray file, one with an encrypted-looking name, a name of ward at a wrong place, a
            // directory.
            try volume.shell(
                """
                cd '\(volume.volume)'
                echo stray > stray.txt
                echo stray > QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo
                mkdir stray.d; echo inner > stray.d/inner
                own=$(find . -maxdepth 1 -type f ! -name 'ward.*' ! -name README ! -name 'stray*' ! -name 'QUJ*' | head -n 1)
                directory=$(find . -mindepth 1 -maxdepth 1 -type d ! -name 'stray*' ! -name 'ward*' ! -name '.ward*' | head -n 1)
                cp "$own" "$directory/"
                """)
            try volume.mount()
            try volume.unlock()
            let again = try volume.probe()
            #expect(again.list("") == .data("A own"))
            #expect(again.list("A") == .data("f"))
            #expect(again.readFile("own") == .data("own"))
            let told = try ControlEvent.latest(of: volume).filter { $0.kind == "foreignFile" }
            for name in ["stray.txt", "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo", "stray.d"] {
                let named = told.filter { $0.description.contains(name) }
                #expect(named.count == 1, "\(name) is told of once: \(told)")
            }
            // A name in the mount may be the same as the stranger's.
            #expect(again.writeFile("stray.txt", "ours") == .ok)
            #expect(again.readFile("stray.txt") == .data("ours"))
            try volume.shell(
                "grep -qx stray '\(volume.volume)/stray.txt'; test -f '\(volume.volume)/stray.d/inner'"
            )
        }
    }
}
