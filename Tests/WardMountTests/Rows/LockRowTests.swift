import Foundation
import Testing

extension MountSuite {
    /// Rows L1 to L4 of semantics.md: lock and unlock.
    @Suite struct LockRowTests {
        @Test(
            "L1: announced at once; after the grace period stored, wiped, and no page left",
            arguments: User.usual)
        func l1(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            try StateWalk.makeDirectory(of: .complete, with: probe)
            let marker = String(repeating: "stored through a mapping ", count: 150)
            #expect(probe.writeFile("A/big", String(repeating: ".", count: 200_000)) == .ok)
            #expect(probe.open("A/big", "rw", as: "fd") == .ok)
            #expect(probe.mmap("fd", 200_000, "rw", as: "map") == .ok)
            #expect(probe.touch("map", at: 100_000, 1) == .data("."))
            #expect(probe.poke("map", at: 8192, marker) == .ok)

            try volume.lock()
            #expect(try state(volume) == "locking")
            let announced = try events(volume).last { $0.kind == "willBecomeUnavailable" }
            #expect(announced != nil, "announced before the grace period is over")
            #expect(try events(volume).allSatisfy { $0.kind != "locked" })
            #expect(probe.pread("fd", 1) == .data("."), "still open in the grace period")
            try volume.advance(seconds: 9)
            #expect(try state(volume) == "locking")
            try volume.advance(seconds: 1)
            #expect(try state(volume) == "locked")
            #expect(try events(volume).contains { $0.kind == "locked" })

            // No program gets a cached page, at any offset or by any call.
            let other = try Probe(as: user, base: volume.mountPoint)
            for offset in stride(from: 0, to: 200_000, by: 4096) {
                #expect(probe.pread("fd", 1, at: offset) == .eperm)
            }
            for offset in [0, 8192, 100_000] {
                #expect(probe.touch("map", at: offset, 1) == .sigbus)
                #expect(probe.call("splice", "fd", 10, offset) == .eperm)
            }
            #expect(other.open("A/big", "r", as: "fd") == .eperm)

            // The stored data reached the backing files: it survives the daemon.
            try volume.kill()
            probe.kill()
            try volume.mount()
            try volume.unlock()
            let after = try volume.probe()
            #expect(after.open("A/big", "r", as: "fd") == .ok)
            #expect(after.pread("fd", marker.count, at: 8192) == .data(marker))
        }

        @Test("L1: an unlock in the grace period cancels the lock", arguments: User.usual)
        func cancelled(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            try StateWalk.makeDirectory(of: .complete, with: probe)
            try volume.lock()
            try volume.advance(seconds: 9)
            try volume.unlock()
            #expect(try state(volume) == "unlocked")
            try volume.advance(seconds: 100)
            #expect(try state(volume) == "unlocked")
            #expect(probe.readFile("A/f") == .data("content of A"))
        }

        @Test("L1: a grace period of zero and `lock --now` lock at once", arguments: User.usual)
        func atOnce(user: User) throws {
            let now = try MountedVolume(as: user)
            try now.lockNow()
            #expect(try state(now) == "locked")
            let zero = try MountedVolume(as: user, grace: 0)
            try zero.lock()
            try zero.advance(seconds: 0)
            #expect(try state(zero) == "locked")
        }

        @Test(
            "L1: nothing that waits for the state directory holds up a lock",
            arguments: User.usual)
        func notHeldUp(user: User) throws {
            let volume = try MountedVolume(as: user)
            // Starts the delay after wrong passcodes, which a reboot starts again.
            for wrong in ["1", "2", "3", "4"] {
                try volume.writePasscode(wrong, to: volume.passcodeFile)
                try volume.ward("unlock", volume.mountPoint, "--passcode-file", volume.passcodeFile)
            }
            let holder = try StateLockHolder(volume)
            defer { holder.release() }
            let rebooted = try volume.ward("reboot", volume.mountPoint, seconds: 8)
            #expect(rebooted.succeeded, "\(rebooted.everything)")
            let locked = try volume.ward("lock", volume.mountPoint, "--now", seconds: 8)
            #expect(locked.succeeded, "\(locked.everything)")
        }

        @Test(
            "L2: a write is stored or fails with EPERM; no acknowledged write is lost",
            arguments: User.usual, ["write", "append"])
        func l2(user: User, how: String) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            try StateWalk.makeDirectory(of: .complete, with: probe)
            let writers = try Writers(on: volume, [("A/log", how)])
            #expect(
                comesTrue(within: 30) { Int(probe.stat("A/log", "size").text) ?? 0 > 40_960 },
                "ten pages are written, a line of ten bytes with each call")
            try volume.lockNow()
            #expect(writers.programs[0].wait(seconds: 20) == 0)
            let result = try #require(writers.results()[0])
            #expect(result.error == "EPERM")
            let acknowledged = result.acknowledged
            #expect(acknowledged > 0)

            try volume.kill()
            try volume.mount()
            try volume.unlock()
            let after = try volume.probe()
            #expect(after.stat("A/log", "size") == .number(acknowledged))
            let content = after.readFile("A/log").text
            let expected = (0...max(0, acknowledged) / 10).map {
                let digits = String($0)
                return String(repeating: "0", count: 9 - digits.count) + digits + "\n"
            }.joined()
            #expect(
                content == String(expected.prefix(max(0, acknowledged))),
                "what was acknowledged is not what is stored")
        }

        @Test(
            "L2: a daemon killed in the middle of a lock leaves nothing that can't be killed",
            arguments: User.usual)
        func killedWhileLocking(user: User) throws {
            let volume = try MountedVolume(as: user)
            try StateWalk.makeDirectory(of: .complete, with: volume.probe())
            let environment = TestEnvironment.shared
            for (round, delay) in [UInt32(0), 10_000, 30_000, 60_000].enumerated() {
                if round > 0 {
                    try volume.mount()
                    try volume.unlock()
                }
                let writers = try Writers(
                    on: volume, [("A/0", "mapped"), ("A/1", "mapped"), ("A/2", "append")])
                let locking = try Child(
                    user.prefix + [environment.ward, "lock", volume.mountPoint, "--now"],
                    environment: volume.environment)
                // The instant of the kill.
                usleep(delay)
                let daemon = try #require(volume.daemonProcess())
                try volume.kill()
                #expect(locking.wait(seconds: 10) != nil, "`ward lock` hangs")
                writers.kill()
                for writer in writers.programs {
                    #expect(writer.wait(seconds: 10) != nil, "a writer can't be killed")
                }
                #expect(!MountedVolume.isRunning(daemon), "the daemon can't be killed")
            }
            try volume.mount()
            try volume.unlock()
            let after = try volume.probe()
            #expect(after.readFile("A/f") == .data("content of A"))
            #expect(after.call("digest", "A/0").succeeded)
            #expect(after.call("digest", "A/2").succeeded)
        }

        @Test(
            "L3: keys of open B files stay until the last close, then are gone at once",
            arguments: User.usual)
        func l3(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            try StateWalk.makeDirectory(of: .completeUnlessOpen, with: probe)
            #expect(probe.open("B/f", "rw", as: "one") == .ok)
            #expect(probe.open("B/f", "r", as: "two") == .ok)
            #expect(probe.mmap("two", 4096, "r", as: "map") == .ok)
            try volume.enter(.locked)
            #expect(probe.pwrite("one", "CONTENT") == .number(7))
            #expect(probe.close("one") == .ok)
            #expect(probe.open("B/f", "r", as: "late") == .eperm)
            #expect(probe.pread("two", 7) == .data("CONTENT"))
            #expect(probe.close("two") == .ok)
            // Only the mapping keeps the file open now.
            #expect(probe.touch("map", 7) == .data("CONTENT"))
            #expect(probe.open("B/f", "r", as: "late") == .eperm)
            #expect(probe.call("munmap", "map") == .ok)
            #expect(probe.open("B/f", "r", as: "late") == .eperm)

            // A file made while locked is usable for its maker until the last close.
            #expect(probe.open("B/new", "rw+c+x", as: "new") == .ok)
            #expect(probe.write("new", "while locked") == .number(12))
            #expect(probe.fsync("new") == .ok)
            #expect(probe.pread("new", 12) == .data("while locked"))
            #expect(probe.open("B/new", "r", as: "late") == .eperm)
            #expect(probe.close("new") == .ok)
            #expect(probe.open("B/new", "rw", as: "late") == .eperm)
            try volume.unlock()
            #expect(probe.readFile("B/f") == .data("CONTENT of B"))
            #expect(probe.readFile("B/new") == .data("while locked"))
        }

        @Test("L4: unlock announces that data is available, once it is", arguments: User.usual)
        func l4(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            try StateWalk.makeDirectory(of: .complete, with: probe)
            #expect(try events(volume).contains { $0.kind == "firstUnlock" })
            try volume.enter(.locked)
            let before = try events(volume).count { $0.kind == "didBecomeAvailable" }
            try volume.unlock()
            let after = try events(volume)
            #expect(after.count { $0.kind == "didBecomeAvailable" } == before + 1)
            #expect(try state(volume) == "unlocked")
            #expect(probe.readFile("A/f") == .data("content of A"))
            let kinds = after.map(\.kind).filter {
                ["willBecomeUnavailable", "locked", "didBecomeAvailable"].contains($0)
            }
            #expect(
                kinds.suffix(3) == ["willBecomeUnavailable", "locked", "didBecomeAvailable"],
                "\(kinds)")
        }

        @Test(
            "L4: a denial is an event that names who, what, class and file",
            arguments: User.usual)
        func denials(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            try StateWalk.makeDirectory(of: .complete, with: probe)
            try volume.enter(.locked)
            #expect(probe.open("A/f", "r", as: "fd") == .eperm)
            let denied = try #require(try events(volume).last { $0.kind == "denied" })
            #expect(denied.fields["path"]?.hasSuffix("A/f") == true, "\(denied)")
            #expect(denied.fields["uid"] == String(user.userID), "\(denied)")
        }

        private func state(_ volume: MountedVolume) throws -> String {
            let status = try volume.ward("status", volume.mountPoint, "--json")
            let object = try JSONSerialization.jsonObject(with: Data(status.output.utf8))
            return ((object as? [String: Any])?["state"] as? String) ?? status.everything
        }

        private func events(_ volume: MountedVolume) throws -> [ControlEvent] {
            try ControlEvent.latest(of: volume)
        }
    }
}
