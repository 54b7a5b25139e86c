import Foundation
import Testing

extension MountSuite {
    /// Neither the store nor a program holds a lock up, and nothing is lost silently.
    @Suite struct LockBoundTests {
        @Test(
            "L2: a store that hangs does not hold up a lock, and what was accepted is stored when it is back",
            .enabled(if: geteuid() == 0), arguments: User.available)
        func frozenStore(user: User) throws {
            let store = try LoopStore(owner: user)
            let volume = try MountedVolume(as: user, backing: store.path + "/volume")
            let probe = try volume.probe()
            try StateWalk.makeDirectory(of: .complete, with: probe)
            let old = String(repeating: "old ", count: 50_000)
            #expect(probe.writeFile("A/mapped", old) == .ok)
            #expect(probe.writeFile("c", "class C") == .ok)
            #expect(probe.open("A/mapped", "rw", as: "fd") == .ok)
            #expect(probe.mmap("fd", old.count, "rw", as: "map") == .ok)
            let new = String(repeating: "stored through a mapping ", count: 4000)
            #expect(probe.call("pokeHere", "map", 5000, new) == .ok)

            let connection = connectionNumber(probe)
            try store.freeze(true)
            // A program that writes with write(2) to a file of class C hangs with the store. It
            // must not matter.
            let writer = try Child(
                user.prefix + ["sh", "-c", "echo more >> \(volume.mountPoint)/c"],
                environment: volume.environment)
            try #require(hasHangingRequest(connection), "no write hangs")
            let locked = try volume.ward("lock", volume.mountPoint, "--now", seconds: 20)
            #expect(locked.succeeded, "\(locked.everything)")
            let events = try ControlEvent.latest(of: volume)
            #expect(events.contains { $0.kind == "locked" })
            #expect(
                events.allSatisfy { $0.kind != "lost" }, "\(events.filter { $0.kind == "lost" })")
            #expect(probe.pread("fd", 1) == .eperm)
            #expect(probe.touch("map", at: 5000, 1) == .sigbus)

            try store.freeze(false)
            #expect(writer.wait(seconds: 20) != nil)
            try volume.unlock()
            #expect(probe.pread("fd", new.count, at: 5000) == .data(new))
            #expect(probe.fsync("fd") == .ok)
            // The data is in the backing files, not only in the daemon's memory.
            try volume.kill()
            probe.kill()
            try volume.mount()
            try volume.unlock()
            let after = try volume.probe()
            let expected = old.prefix(5000) + new + old.dropFirst(5000 + new.count)
            #expect(after.readFile("A/mapped") == .data(String(expected)))
        }

        @Test(
            "L2: a write(2) of class A that hangs in the store: at the deadline the keys go and the mount is cut off",
            .enabled(if: geteuid() == 0), arguments: User.available)
        func hangingWrite(user: User) throws {
            let store = try LoopStore(owner: user)
            let volume = try MountedVolume(as: user, backing: store.path + "/volume")
            let probe = try volume.probe()
            try StateWalk.makeDirectory(of: .complete, with: probe)
            let connection = connectionNumber(probe)
            // Waits for late requests of the calls before: they must not be mistaken for the write.
            try #require(
                comesTrue(within: 30) { requestsWaiting(connection) == 0 },
                "the requests of earlier calls end")
            try store.freeze(true)
            let writer = try Child(
                user.prefix + ["sh", "-c", "echo more >> \(volume.mountPoint)/A/f"],
                environment: volume.environment)
            try #require(hasHangingRequest(connection), "no write hangs")
            let locked = try volume.ward("lock", volume.mountPoint, "--now", seconds: 30)
            #expect(!locked.timedOut, "\(locked.everything)")
            // The mount gives no data, and programs that wait for it can be ended.
            #expect(!probe.readFile("A/f").succeeded)
            #expect(writer.wait(seconds: 10) != nil, "the writer still waits")
            try store.freeze(false)
            let daemon = volume.daemonProcess()
            #expect(
                comesTrue(within: 30) { daemon.map(MountedVolume.isRunning) != true },
                "the daemon ends")
            probe.kill()
            try volume.mount()
            try volume.unlock()
            let content = try volume.probe().readFile("A/f").text
            #expect(content.hasPrefix("content of A"), "\(content)")
        }

        /// The name of the mount's directory below `/sys/fs/fuse/connections`: the minor number of
        /// its device.
        private func connectionNumber(_ probe: Probe) -> UInt64 {
            let device = UInt64(probe.stat("", "dev").text) ?? 0
            return device & 0xff | (device >> 12) & ~0xff
        }

        /// Requests that the daemon has not answered yet; only the mount's user and root may read
        /// it.
        private func requestsWaiting(_ connection: UInt64) -> Int? {
            let path = "/sys/fs/fuse/connections/\(connection)/waiting"
            return Int(TestEnvironment.contents(ofKernelFile: path).filter { !$0.isWhitespace })
        }

        /// Whether a request comes to hang in the store. Only a write that has reached the store
        /// could hold up a lock. Requests before it are answered, so the request that is there at
        /// each of ten looks, a quarter of a second together, is the write.
        private func hasHangingRequest(_ connection: UInt64) -> Bool {
            var looks = 0
            return comesTrue(within: 30) {
                looks = requestsWaiting(connection) ?? 0 > 0 ? looks + 1 : 0
                return looks == 10
            }
        }

        @Test(
            "L2: a full store does not hold up a lock; the event and the log name the file",
            .enabled(if: geteuid() == 0), arguments: User.available)
        func fullStore(user: User) throws {
            let store = try TestEnvironment.shared.makeDirectory("store")
            let environment = TestEnvironment.shared.variables
            defer {
                _ = try? Child.run(["umount", "-l", store], environment: environment)
                _ = try? Child.run(["rm", "-rf", store], environment: environment)
            }
            let made = try Child.run(
                ["mount", "-t", "tmpfs", "-o", "size=4M,mode=777", "none", store],
                environment: environment)
            try #require(made.succeeded, "\(made.everything)")
            mkdir(store + "/volume", 0o700)
            chown(store + "/volume", user.userID, user.groupID)
            let volume = try MountedVolume(as: user, backing: store + "/volume")
            let probe = try volume.probe()
            try StateWalk.makeDirectory(of: .complete, with: probe)
            #expect(probe.writeFile("A/kept", "kept") == .ok)
            // Holes: storing into them needs space.
            #expect(probe.open("A/mapped", "rw+c", as: "fd") == .ok)
            #expect(probe.ftruncate("fd", 3_000_000) == .ok)
            #expect(probe.mmap("fd", 3_000_000, "rw", as: "map") == .ok)
            try volume.shell("head -c 10M /dev/zero > '\(store)/ballast' 2>/dev/null || true")
            #expect(
                probe.call("pokeHere", "map", 100_000, String(repeating: "lost", count: 50_000))
                    == .ok)
            let locked = try volume.ward("lock", volume.mountPoint, "--now", seconds: 20)
            #expect(locked.succeeded, "\(locked.everything)")
            let lost = try ControlEvent.latest(of: volume).filter { $0.kind == "lost" }
            #expect(!lost.isEmpty)
            #expect(lost.allSatisfy { $0.fields["path"] == "/A/mapped" }, "\(lost)")
            #expect(probe.pread("fd", 1) == .eperm)

            unlink(store + "/ballast")
            try volume.unlock()
            #expect(probe.readFile("A/kept") == .data("kept"))
            #expect(probe.fsync("fd") == .failure("ENOSPC"), "a sync tells")
            #expect(probe.pread("fd", 4, at: 2_000_000) == .data("\0\0\0\0"))
            #expect(probe.pwrite("fd", "again", at: 100_000) == .number(5))
            #expect(probe.fsync("fd") == .ok)
            probe.kill()
            try volume.remount()
            let after = try volume.probe()
            #expect(after.open("A/mapped", "r", as: "fd") == .ok)
            #expect(after.pread("fd", 5, at: 100_000) == .data("again"))
        }

        @Test(
            "Mapped pages are written back during the grace period, and programs keep them",
            arguments: User.available)
        func graceFlush(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            try StateWalk.makeDirectory(of: .complete, with: probe)
            #expect(probe.writeFile("A/mapped", String(repeating: ".", count: 400_000)) == .ok)
            #expect(probe.open("A/mapped", "rw", as: "fd") == .ok)
            #expect(probe.mmap("fd", 400_000, "rw", as: "map") == .ok)
            let before = try backingState(volume)
            #expect(
                probe.call("pokeHere", "map", 8192, String(repeating: "dirty", count: 60_000))
                    == .ok)
            #expect(try backingState(volume) == before, "the test means pages that are dirty")
            try volume.lock()
            // The kernel by itself would wait for half a minute.
            #expect(
                try comesTrue { try backingState(volume) != before },
                "nothing was written back in the grace period")
            #expect(probe.touch("map", at: 8192, 5) == .data("dirty"))
            #expect(probe.call("pokeHere", "map", 20, "later") == .ok)
            try volume.advance(seconds: 10)
            #expect(probe.touch("map", at: 8192, 5) == .sigbus)
            try volume.unlock()
            #expect(probe.pread("fd", 5, at: 20) == .data("later"))
            #expect(probe.pread("fd", 5, at: 300_000 + 8187) == .data("dirty"))
        }

        /// A digest of all backing files except the volume's own, which a durable point may write
        /// at any time.
        private func backingState(_ volume: MountedVolume) throws -> String {
            let done = try Child.run(
                [
                    "sh", "-c",
                    "find '\(volume.volume)' -type f ! -name 'ward.*' ! -name '.ward-new-*' "
                        + "-exec cat {} + | sha256sum",
                ],
                environment: volume.environment)
            #expect(done.succeeded, "\(done.everything)")
            return done.output
        }

        @Test(
            "A daemon killed at any instant of a lock leaves nothing that can't be killed, and the next mount is clean",
            arguments: User.available)
        func killedAtAnyInstant(user: User) throws {
            let kills =
                ProcessInfo.processInfo.environment["WARD_TEST_KILLS"].flatMap { Int($0) } ?? 10
            let volume = try MountedVolume(as: user)
            try StateWalk.makeDirectory(of: .complete, with: volume.probe())
            let environment = TestEnvironment.shared
            var synced: [String: String] = [:]
            for round in 0..<kills {
                if round > 0 {
                    try volume.mount()
                    try volume.unlock()
                }
                let probe = try volume.probe()
                for (name, content) in synced {
                    #expect(probe.readFile(name) == .data(content), "\(name) in round \(round)")
                }
                let (name, content) = ("A/synced-\(round)", "synced in round \(round)")
                #expect(probe.open(name, "rw+c+x", as: "synced") == .ok)
                #expect(probe.write("synced", content) == .number(content.count))
                #expect(probe.fsync("synced") == .ok)
                synced[name] = content
                let writers = try Writers(
                    on: volume, [("A/0", "mapped"), ("A/1", "mapped"), ("A/2", "append")])
                let locking = try Child(
                    user.prefix + [environment.ward, "lock", volume.mountPoint, "--now"],
                    environment: volume.environment)
                // The instant of the kill: from before the request arrives to well after the lock.
                usleep(UInt32(round * 120_000 / max(kills, 1)))
                let daemon = try #require(volume.daemonProcess())
                try volume.kill()
                #expect(locking.wait(seconds: 10) != nil, "`ward lock` hangs, round \(round)")
                writers.kill()
                for writer in writers.programs {
                    #expect(
                        writer.wait(seconds: 10) != nil, "a writer can't be killed, round \(round)")
                }
                probe.kill()
                #expect(
                    !MountedVolume.isRunning(daemon), "the daemon can't be killed, round \(round)")
            }
            try volume.mount()
            try volume.unlock()
            let after = try volume.probe()
            for (name, content) in synced {
                #expect(after.readFile(name) == .data(content), "\(name)")
            }
            for name in ["A/0", "A/1", "A/2", "A/f"] {
                #expect(after.call("digest", name).succeeded, "\(name) can't be read")
            }
            let damage = try ControlEvent.latest(of: volume).filter {
                $0.kind == "integrityFailure"
            }
            #expect(damage.isEmpty, "\(damage)")
        }

        @Test(
            "The watchdog cuts off a mount that was detached already",
            .enabled(if: geteuid() == 0), arguments: User.available)
        func watchdogAfterDetach(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            #expect(probe.writeFile("f", "content") == .ok)
            #expect(probe.open("f", "r", as: "fd") == .ok)
            let number = connectionNumber(probe)
            let daemon = try #require(volume.daemonProcess())
            let pipe = try Child.pipe()
            let watchdog = try Child(
                [
                    "sh", "-c",
                    """
                    exec "$0" watchdog --connection \(number) --mount-point '\(volume.mountPoint)' \
                        --volume '\(volume.volume)' --daemon \(daemon) --fd 0 --abort-fd 4 \
                        4>/sys/fs/fuse/connections/\(number)/abort
                    """, TestEnvironment.shared.ward,
                ], environment: volume.environment, input: pipe.reading)
            close(pipe.reading)
            #expect(
                comesTrue { watchesSignals(watchdog.process) }, "the watchdog waits for the end")
            umount2(volume.mountPoint, Int32(MNT_DETACH))
            // A stopped daemon answers no request and can't end, like one that waits for its own
            // mount.
            Glibc.kill(daemon, SIGSTOP)
            defer {
                Glibc.kill(daemon, SIGKILL)
                Glibc.kill(daemon, SIGCONT)
            }
            close(pipe.writing)
            #expect(watchdog.wait(seconds: 20) == 0)
            let answer = probe.pread("fd", 1)
            #expect(
                [.failure("ENOTCONN"), .failure("ECONNABORTED")].contains(answer), "\(answer)")
        }

        /// Whether a process has a signalfd(2), as a watchdog has from before its first wait.
        private func watchesSignals(_ process: pid_t) -> Bool {
            let place = "/proc/\(process)/fd"
            let files = (try? FileManager.default.contentsOfDirectory(atPath: place)) ?? []
            return files.contains {
                let target = try? FileManager.default.destinationOfSymbolicLink(
                    atPath: place + "/" + $0)
                return target == "anon_inode:[signalfd]"
            }
        }

        @Test("A daemon that a program of its user has stopped goes on", arguments: User.available)
        func stoppedDaemon(user: User) throws {
            let volume = try MountedVolume(as: user)
            let daemon = try #require(volume.daemonProcess())
            Glibc.kill(daemon, SIGSTOP)
            defer { Glibc.kill(daemon, SIGCONT) }
            // The watchdog looks once a second.
            let lock = try volume.ward("lock", volume.mountPoint, seconds: 30)
            #expect(lock.succeeded, "\(lock.everything)")
        }

        @Test(
            "A watchdog that somebody has stopped goes on, one that was killed is replaced",
            arguments: User.available)
        func keptWatchdog(user: User) throws {
            let volume = try MountedVolume(as: user)
            let first = try #require(volume.helper("watchdog"))
            Glibc.kill(first, SIGSTOP)
            #expect(comesTrue { processState(first) != "T" }, "it goes on")
            Glibc.kill(first, SIGKILL)
            #expect(
                comesTrue(within: 30) { volume.helper("watchdog").map { $0 != first } ?? false },
                "there is a second watchdog")
            // The second watchdog works.
            let daemon = try #require(volume.daemonProcess())
            Glibc.kill(daemon, SIGKILL)
            #expect(
                comesTrue(within: 30) { volume.helper("watchdog") == nil },
                "it has cut the mount off and ended")
        }

        @Test(
            "The grace period runs on CLOCK_BOOTTIME: through suspend, whatever the wall clock does",
            .enabled(if: geteuid() == 0), arguments: User.available)
        func clock(user: User) throws {
            let volume = try MountedVolume(as: user)
            try volume.unmount()
            let mounted = try volume.ward("mount", volume.volume, volume.mountPoint)
            #expect(mounted.succeeded, "\(mounted.everything)")
            defer { _ = try? volume.ward("unmount", volume.mountPoint) }
            let daemon = try #require(volume.daemonProcess())
            let directory = "/proc/\(daemon)/fdinfo"
            let clocks = try FileManager.default.contentsOfDirectory(atPath: directory)
                .compactMap { try? String(contentsOfFile: directory + "/" + $0, encoding: .utf8) }
                .flatMap { $0.split(separator: "\n").map(String.init) }
                .filter { $0.hasPrefix("clockid:") }
            // CLOCK_BOOTTIME is 7, linux/time.h.
            #expect(clocks == ["clockid: 7"], "\(clocks)")
        }
    }
}
