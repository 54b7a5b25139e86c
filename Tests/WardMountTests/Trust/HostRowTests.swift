import Foundation
import Testing

extension MountSuite {
    /// The powers of a trusted host, and their limits: the table of docs/trusted-hosts.md.
    @Suite struct HostRowTests {
        /// An unlocked volume with files of class A, B and C, and a host that it trusts.
        private func trusting(
            _ user: User, grace: Int = 10
        ) throws -> (MountedVolume, Probe, TrustedHost) {
            let volume = try MountedVolume(as: user, grace: grace)
            let probe = try volume.probe()
            for fileClass in [
                FileClass.complete, .completeUnlessOpen, .completeUntilFirstUserAuthentication,
            ] {
                try StateWalk.makeDirectory(of: fileClass, with: probe)
            }
            return (volume, probe, try TrustedHost(volume))
        }

        private func expectOpen(
            _ probe: Probe, _ isOpen: Bool, _ comment: String,
            sourceLocation: SourceLocation = #_sourceLocation
        ) {
            for name in ["A", "B"] {
                #expect(
                    probe.readFile("\(name)/f") == .allowed(isOpen, .data("content of \(name)")),
                    "\(name), \(comment)", sourceLocation: sourceLocation)
            }
        }

        private func hostEvents(_ volume: MountedVolume) throws -> [String] {
            try ControlEvent.latest(of: volume).filter { $0.kind == "trustedHost" }
                .map { $0.fields["operation"] ?? "" }
        }

        @Test(
            "connected before the lock: A and B stay open, and close at once when the host is killed",
            arguments: User.usual)
        func holds(user: User) throws {
            let (volume, probe, host) = try trusting(user)
            let connection = try host.connect()
            #expect(try volume.state() == "unlocked")
            #expect(try volume.status()["hosts"] as? [String] == ["laptop"])
            let locked = try volume.ward("lock", volume.mountPoint, "--now")
            #expect(locked.output.contains("open for a trusted host"), "\(locked.everything)")
            let status = try volume.status()
            #expect(status["state"] as? String == "lockedWithHost")
            #expect(status["protectedDataAvailable"] as? Bool == true, "L8")
            expectOpen(probe, true, "while the host is connected")
            try volume.advance(seconds: 3600)
            expectOpen(probe, true, "an hour later")
            #expect(probe.writeFile("A/new", "written meanwhile") == .ok)
            let text = try volume.ward("status", volume.mountPoint).output
            #expect(text.contains("hosts      laptop connected"), "\(text)")

            connection.signal(SIGKILL)
            #expect(probe.secondsUntilRefused("A/f") != nil)
            expectOpen(probe, false, "the host is gone")
            #expect(probe.readFile("C/f") == .data("content of C"))
            #expect(try volume.reaches("locked"))
            #expect(try volume.status()["protectedDataAvailable"] as? Bool == false)
            #expect(try hostEvents(volume) == ["add", "connect", "hold", "end"])
            // Programs that opened a file in between were refused, which is an event too.
            let kinds = try ControlEvent.latest(of: volume).map(\.kind).filter { $0 != "denied" }
            let hold = try #require(kinds.lastIndex(of: "trustedHost"))
            #expect(
                kinds[hold...].prefix(3) == ["trustedHost", "willBecomeUnavailable", "locked"],
                "\(kinds)")
            try volume.unlock()
            #expect(probe.readFile("A/new") == .data("written meanwhile"))
        }

        @Test(
            "connected while locked: A and B open, for everybody; SIGTERM ends it like any end",
            arguments: User.usual)
        func opensLocked(user: User) throws {
            let (volume, probe, host) = try trusting(user)
            #expect(probe.open("A/f", "rw", as: "before") == .ok)
            try volume.lockNow()
            expectOpen(probe, false, "locked")
            let connection = try host.connect()
            expectOpen(probe, true, "the host is there")
            #expect(probe.pread("before", 100) == .data("content of A"), "row O13")
            let last = try #require(
                try ControlEvent.latest(of: volume).last { $0.kind == "didBecomeAvailable" })
            #expect(last.fields["detail"] == "for a trusted host")
            connection.signal(SIGTERM)
            #expect(probe.secondsUntilRefused("A/f") != nil)
            // New opens are refused first. The kernel's pages of open files are gone before the
            // state changes.
            #expect(try volume.reaches("locked"))
            #expect(probe.pread("before", 100) == .eperm)
            #expect(connection.end() == 128 + SIGTERM)
        }

        @Test(
            "connected in the grace period: it ends there, and the lock comes with the host's end",
            arguments: User.usual)
        func inTheGracePeriod(user: User) throws {
            let (volume, probe, host) = try trusting(user)
            try volume.lock()
            #expect(try volume.state() == "locking")
            let connection = try host.connect()
            #expect(try volume.state() == "lockedWithHost")
            try volume.advance(seconds: 60)
            expectOpen(probe, true, "long after the grace period")
            connection.signal(SIGINT)
            #expect(probe.secondsUntilRefused("A/f") != nil)
        }

        @Test(
            "locked with a grace period while a host is there, which goes at once: no grace",
            arguments: User.usual)
        func noGrace(user: User) throws {
            let (volume, probe, host) = try trusting(user, grace: 3600)
            let connection = try host.connect()
            try volume.lock()
            #expect(try volume.state() == "lockedWithHost")
            connection.signal(SIGKILL)
            #expect(probe.secondsUntilRefused("A/f") != nil)
        }

        @Test("two hosts, and one twice: the last one locks", arguments: User.usual)
        func several(user: User) throws {
            let (volume, probe, host) = try trusting(user)
            let desk = try TrustedHost(volume, "desk")
            let connections = [try host.connect(), try desk.connect(), try host.connect()]
            #expect(
                (try volume.status()["hosts"] as? [String])?.sorted()
                    == ["desk", "laptop", "laptop"])
            #expect(try volume.trusted()["laptop"]?["connected"] as? Int == 2)
            try volume.lockNow()
            for connection in connections.dropLast() {
                connection.signal(SIGKILL)
                _ = connection.end()
                expectOpen(probe, true, "others are there")
            }
            #expect(try volume.state() == "lockedWithHost")
            connections.last?.signal(SIGKILL)
            #expect(probe.secondsUntilRefused("A/f") != nil)
        }

        @Test("unlocked while a host holds it: its end changes nothing", arguments: User.usual)
        func unlockedMeanwhile(user: User) throws {
            let (volume, probe, host) = try trusting(user)
            let connection = try host.connect()
            try volume.lockNow()
            try volume.unlock()
            #expect(try volume.state() == "unlocked")
            connection.signal(SIGKILL)
            #expect(
                try comesTrue { try hostEvents(volume).contains("end") }, "the host's end is told")
            expectOpen(probe, true, "unlocked")
            #expect(try volume.state() == "unlocked")
            // The next lock has its grace period again.
            try volume.lock()
            #expect(try volume.state() == "locking")
        }

        @Test(
            "before the first unlock: refused with the reason, after a reboot and after a mount; a reboot ends who is there",
            arguments: User.usual)
        func beforeFirstUnlock(user: User) throws {
            let (volume, probe, host) = try trusting(user)
            let connection = try host.connect()
            try volume.lockNow()
            try volume.reboot()
            expectOpen(probe, false, "rebooted")
            #expect(probe.readFile("C/f") == .eperm, "nor class C")
            #expect(connection.end() == 11)
            #expect(connection.complaints.contains("rebooted"), "\(connection.complaints)")
            for round in ["rebooted", "mounted"] {
                let refused = try host.refused()
                #expect(refused.status == 11, "\(round): \(refused.everything)")
                #expect(
                    refused.errors.contains("not unlocked since it was mounted or rebooted"),
                    "\(refused.everything)")
                #expect(try volume.state() == "beforeFirstUnlock")
                expectOpen(probe, false, round)
                try volume.unmount()
                try volume.mount()
            }
            try volume.unlock()
            try volume.lockNow()
            let again = try host.connect()
            expectOpen(probe, true, "after the first unlock")
            again.signal(SIGKILL)
        }

        @Test(
            "removed: at once, with its connection and the lock, and its copy is worthless",
            arguments: User.usual)
        func removed(user: User) throws {
            let (volume, probe, host) = try trusting(user)
            let desk = try TrustedHost(volume, "desk")
            let connections = [try host.connect(), try host.connect()]
            try volume.lockNow()
            let removed = try volume.ward("trust", "remove", volume.mountPoint, "laptop")
            #expect(removed.succeeded, "\(removed.everything)")
            expectOpen(probe, false, "when the command returns")
            for connection in connections {
                #expect(connection.end() == 11)
                #expect(connection.complaints.contains("removed"), "\(connection.complaints)")
            }
            #expect(try host.refused().status == 77)
            #expect(try volume.trusted().keys.sorted() == ["desk"])
            let other = try desk.connect()
            expectOpen(probe, true, "the other host is still trusted")
            other.signal(SIGKILL)
            _ = other.end()
            try volume.remount()
            #expect(try host.refused().status == 77)
            // It also works without a mount.
            try volume.unmount()
            #expect(try volume.ward("trust", "remove", volume.volume, "desk").succeeded)
            try volume.mount()
            try volume.unlock()
            #expect(try desk.refused().status == 77)
        }

        @Test("ward lock --end-hosts, and an unmount, end them first", arguments: User.usual)
        func endHosts(user: User) throws {
            let (volume, probe, host) = try trusting(user)
            var connection = try host.connect()
            let locked = try volume.ward("lock", volume.mountPoint, "--now", "--end-hosts")
            #expect(locked.succeeded, "\(locked.everything)")
            #expect(try volume.state() == "locked")
            expectOpen(probe, false, "locked for everybody")
            #expect(connection.end() == 11)
            // It is still trusted, but not at once.
            #expect(try host.refused().status == 75)
            try volume.advance(seconds: 30)
            connection = try host.connect()
            let unmounted = try volume.ward("unmount", volume.mountPoint, "--force")
            #expect(unmounted.succeeded, "\(unmounted.everything)")
            let status = connection.end()
            #expect(status == 11 || status == 69, "\(connection.complaints)")
        }

        @Test("sleep and shutdown end them: the keys go as ever", arguments: User.usual)
        func sleep(user: User) throws {
            let volume = try MountedVolume(directoryOnlyAs: user)
            let manager = try LoginManager(as: user, in: volume.directory + "/home")
            volume.variables["DBUS_SYSTEM_BUS_ADDRESS"] = manager.address
            try volume.initialize()
            try volume.mount()
            try volume.unlock()
            let probe = try volume.probe()
            for fileClass in [FileClass.complete, .completeUnlessOpen] {
                try StateWalk.makeDirectory(of: fileClass, with: probe)
            }
            let host = try TrustedHost(volume)
            #expect(try manager.tell("wait") == "taken", "a delay lock is held")
            let connection = try host.connect()
            #expect(try manager.tell("sleep") == "released")
            #expect(try volume.state() == "locked", "locked before the machine may sleep")
            expectOpen(probe, false, "asleep")
            #expect(connection.end() == 11)
            // A host that connects repeatedly does not come back before the machine sleeps.
            let early = try host.refused()
            #expect(early.status == 75, "\(early.everything)")
            #expect(early.errors.contains("locked for everybody"), "\(early.everything)")
            expectOpen(probe, false, "falling asleep")
            #expect(try volume.state() == "locked")
            try volume.advance(seconds: 30)
            let awake = try host.connect()
            expectOpen(probe, true, "awake")
            #expect(try manager.tell("sleep") == "released")
            #expect(awake.end() == 11)
            // After an unlock the host may connect at once.
            try volume.unlock()
            try host.connect().signal(SIGKILL)
        }

        @Test(
            "30 days without use: expired, also with the clock set back; use renews it",
            arguments: User.usual)
        func expiry(user: User) throws {
            let (volume, probe, host) = try trusting(user)
            let idle = try TrustedHost(volume, "idle")
            let day = 86_400
            // In use all the time, for longer than 30 days.
            var connection = try host.connect()
            try volume.advance(seconds: 40 * day)
            let listed = try volume.trusted()
            #expect(listed["laptop"]?["expired"] as? Bool == false)
            #expect(listed["idle"]?["expired"] as? Bool == true)
            let refused = try idle.refused()
            #expect(refused.status == 77, "\(refused.everything)")
            #expect(refused.errors.contains("30 days"), "\(refused.everything)")
            connection.signal(SIGKILL)
            _ = connection.end()
            #expect(
                try comesTrue { try hostEvents(volume).contains("end") }, "the host's end is told")
            // A mount begins at the machine's time, 40 days earlier; the device has stored the
            // later time.
            try volume.remount()
            #expect(try idle.refused().status == 77, "set back")
            try volume.advance(seconds: 29 * day)
            connection = try host.connect()
            connection.signal(SIGKILL)
            _ = connection.end()
            try volume.remount()
            try volume.advance(seconds: 31 * day)
            #expect(try host.refused().status == 77)
            let text = try volume.ward("trust", "list", volume.mountPoint).output
            #expect(text.components(separatedBy: "expired").count == 3, "\(text)")
            // Trusted again under the same name; the old record stays worthless.
            try volume.shell("rm '\(host.record)'")
            let again = try TrustedHost(volume)
            try volume.lockNow()
            let last = try again.connect()
            expectOpen(probe, true, "trusted again")
            last.signal(SIGKILL)
        }

        @Test(
            "a change of the passcode: no host is trusted any more, and it is said; of the policy: they stay",
            arguments: User.usual)
        func passcodeChanged(user: User) throws {
            let (volume, probe, host) = try trusting(user)
            let policy = try volume.ward(
                "policy", "set", volume.mountPoint, "--cx-period", "2d", "--passcode-file",
                volume.passcodeFile)
            #expect(policy.succeeded, "\(policy.everything)")
            try volume.remount()
            let connection = try host.connect()
            try volume.lockNow()
            expectOpen(probe, true, "the policy was changed")

            let new = volume.directory + "/new"
            try volume.writePasscode("the new one", to: new)
            let changed = try volume.ward(
                "passcode", "change", volume.mountPoint, "--passcode-file", volume.passcodeFile,
                "--new-passcode-file", new)
            #expect(changed.succeeded, "\(changed.everything)")
            #expect(
                changed.errors.contains("no host is trusted any more (until now laptop)"),
                "\(changed.everything)")
            expectOpen(probe, false, "when the command returns")
            #expect(connection.end() == 11)
            #expect(try host.refused().status == 77)
            #expect(try hostEvents(volume).contains("remove"))
            #expect(try volume.trusted().isEmpty)

            // The same for a volume that is not mounted.
            try volume.writePasscode("the new one", to: volume.passcodeFile)
            try volume.unlock()
            try volume.shell("rm '\(host.record)'")
            let again = try TrustedHost(volume)
            try volume.unmount()
            try volume.writePasscode("another one", to: new)
            let unmounted = try volume.ward(
                "passcode", "change", volume.volume, "--passcode-file", volume.passcodeFile,
                "--new-passcode-file", new)
            #expect(unmounted.errors.contains("until now laptop"), "\(unmounted.everything)")
            try volume.mount()
            try volume.writePasscode("another one", to: volume.passcodeFile)
            try volume.unlock()
            #expect(try again.refused().status == 77)
        }

        @Test("the passcode removed: no host, and nothing is withheld", arguments: User.usual)
        func passcodeRemoved(user: User) throws {
            let (volume, probe, host) = try trusting(user)
            let connection = try host.connect()
            try volume.lockNow()
            let removed = try volume.ward(
                "passcode", "remove", volume.mountPoint, "--passcode-file", volume.passcodeFile)
            #expect(removed.succeeded, "\(removed.everything)")
            #expect(removed.errors.contains("until now laptop"), "\(removed.everything)")
            #expect(connection.end() == 11)
            expectOpen(probe, true, "S0")
            #expect(try volume.state() == "noPasscode")
            #expect(try !host.refused().succeeded)
        }

        @Test("erased: the connection ends with the volume", arguments: User.usual)
        func erased(user: User) throws {
            let (volume, _, host) = try trusting(user)
            let connection = try host.connect()
            try volume.lockNow()
            let device = try volume.deviceDirectory()
            let erased = try volume.ward(
                "erase", volume.volume, "--yes-really", "--passcode-file", volume.passcodeFile)
            #expect(erased.succeeded, "\(erased.everything)")
            let status = connection.end()
            #expect(status == 11 || status == 69, "\(connection.complaints)")
            #expect(access(device + "/trusted-hosts", F_OK) != 0)
        }

        @Test(
            "the state directory hangs: the lock at the host's end does not wait",
            arguments: User.usual)
        func hangingState(user: User) throws {
            let (volume, probe, host) = try trusting(user)
            let connection = try host.connect()
            try volume.lockNow()
            let holder = try StateLockHolder(volume)
            connection.signal(SIGKILL)
            #expect(probe.secondsUntilRefused("A/f") != nil)
            holder.release()
        }

        @Test(
            "the state directory hangs when the hosts' time is due: the volume can be unmounted",
            arguments: User.usual)
        func hangingStateAtTheEnd(user: User) throws {
            let (volume, _, _) = try trusting(user)
            let holder = try StateLockHolder(volume)
            try volume.advance(seconds: 7200)
            // The lock makes a durable point, and the time is stored with it.
            try volume.lockNow()
            #expect(comesTrue { holder.isWaitedFor }, "the daemon waits for the state directory")
            _ = try volume.ward("unmount", volume.mountPoint, seconds: 30)
            #expect(comesTrue(within: 30) { volume.record() == nil }, "the daemon has ended")
            holder.release()
        }

        @Test("stderr that nobody reads does not keep it open", arguments: User.usual)
        func stuckErrors(user: User) throws {
            let (volume, probe, host) = try trusting(user)
            let (output, errors) = (try Child.pipe(), try Child.pipe())
            defer { close(errors.reading) }
            // Full, like the pipe of a stopped terminal.
            let byte = [UInt8](repeating: 0, count: 4096)
            _ = fcntl(errors.writing, F_SETFL, O_NONBLOCK)
            while write(errors.writing, byte, byte.count) > 0 {}
            _ = fcntl(errors.writing, F_SETFL, 0)
            let child = try Child(
                user.prefix + [
                    TestEnvironment.shared.ward, "trust", "connect", volume.mountPoint,
                    "--trust-file", host.record,
                ], environment: volume.environment, output: output.writing, errors: errors.writing)
            close(output.writing)
            close(errors.writing)
            #expect(reachesHosts(volume, 1), "the host is connected")
            try volume.lockNow()
            expectOpen(probe, true, "connected")
            close(output.reading)
            #expect(probe.secondsUntilRefused("A/f") != nil)
            child.kill()
        }

        @Test(
            "a host that was connecting when the volume was unmounted by force is too late, also where the mount lingers",
            arguments: User.usual)
        func connectingAtTheEnd(user: User) throws {
            let (volume, _, host) = try trusting(user)
            // A program has a file open, so the mount is cut off half a second later.
            let program = try Child(
                user.prefix + ["sh", "-c", "exec 3>\"$0/open\"; sleep 60", volume.mountPoint],
                environment: volume.environment)
            try volume.wait(for: "the file") {
                try volume.shell("ls \"$MNT\"").contains("open")
            }
            try volume.lockNow()
            // The connection must store the time, and waits for the state directory.
            let holder = try StateLockHolder(volume)
            try volume.advance(seconds: 7200)
            let output = try Child.pipe()
            defer { close(output.reading) }
            let child = try Child(
                user.prefix + [
                    TestEnvironment.shared.ward, "trust", "connect", volume.mountPoint,
                    "--trust-file", host.record,
                ], environment: volume.environment, output: output.writing)
            close(output.writing)
            #expect(comesTrue { holder.isWaitedFor }, "the daemon waits for the state directory")
            #expect(child.wait(seconds: 0) == nil, "it waits")
            let unmounted = try volume.ward("unmount", volume.mountPoint, "--force")
            holder.release()
            #expect(unmounted.succeeded, "\(unmounted.everything)")
            let status = child.wait(seconds: 30)
            #expect(status == 75 || status == 69, "\(String(describing: status))")
            var said = [UInt8](repeating: 0, count: 4096)
            let count = read(output.reading, &said, said.count)
            #expect(count == 0, "\(String(decoding: said.prefix(max(0, count)), as: UTF8.self))")
            program.kill()
        }

        @Test(
            "a stopped client holds on, as its connection does; killed, it is gone",
            arguments: User.usual)
        func stopped(user: User) throws {
            let (volume, probe, host) = try trusting(user)
            let connection = try host.connect()
            try volume.lockNow()
            connection.signal(SIGSTOP)
            #expect(
                comesTrue { processState(connection.child.process) == "T" },
                "the client is stopped")
            // The daemon has an answer for another client, so it would know of the end.
            #expect(try volume.status()["hosts"] as? [String] == ["laptop"])
            expectOpen(probe, true, "stopped")
            connection.signal(SIGKILL)
            #expect(probe.secondsUntilRefused("A/f") != nil)
        }

        @Test("eight connections, and no more; a lock gets through", arguments: User.usual)
        func crowd(user: User) throws {
            let (volume, probe, host) = try trusting(user)
            var connections = try (0..<8).map { _ in try host.connect() }
            let ninth = try host.refused()
            #expect(ninth.status == 75, "\(ninth.everything)")
            try volume.lockNow()
            #expect(try volume.state() == "lockedWithHost")
            connections.forEach { $0.signal(SIGKILL) }
            #expect(probe.secondsUntilRefused("A/f") != nil)
            connections = []
            #expect(try volume.reaches("locked"))
            let again = try host.connect()
            expectOpen(probe, true, "there is room again")
            again.signal(SIGKILL)
        }

        @Test(
            "stdout that nobody reads, or a watched descriptor's end, ends it",
            arguments: User.usual)
        func watched(user: User) throws {
            let (volume, probe, host) = try trusting(user)
            for watch in [false, true] {
                let output = try Child.pipe()
                let input = try Child.pipe()
                let child = try Child(
                    user.prefix + [
                        TestEnvironment.shared.ward, "trust", "connect", volume.mountPoint,
                        "--trust-file", host.record,
                    ] + (watch ? ["--watch-fd", "0"] : []), environment: volume.environment,
                    input: input.reading, output: output.writing)
                close(output.writing)
                close(input.reading)
                #expect(reachesHosts(volume, 1), "the host is connected")
                try volume.lockNow()
                expectOpen(probe, true, "watched: \(watch)")
                close(watch ? input.writing : output.reading)
                #expect(probe.secondsUntilRefused("A/f") != nil, "\(watch)")
                #expect(child.wait(seconds: 10) == 0)
                close(watch ? output.reading : input.writing)
                try volume.unlock()
            }
        }

        private func reachesHosts(_ volume: MountedVolume, _ count: Int) -> Bool {
            comesTrue { (try? volume.status()["hosts"] as? [String])?.count == count }
        }

        @Test(
            "the secret is in no memory while the host is connected; A's key goes with it",
            .enabled(if: ProcessMemory.mayBeRead, "only root reads the memory of the daemon"),
            arguments: User.usual)
        func memory(user: User) throws {
            let passcode = Planted.token(40)
            let volume = try MountedVolume(as: user, passcode: passcode)
            let probe = try volume.probe()
            try StateWalk.makeDirectory(of: .complete, with: probe)
            let secrets = try VolumeSecrets(volume, passcode: passcode)
            let daemon = try #require(volume.daemonProcess())
            let host = try TrustedHost(volume)
            let record = [UInt8](try Data(contentsOf: URL(fileURLWithPath: host.record)))
            let secret = Array(record[48..<80])
            let digits = secret.map { String($0 >> 4, radix: 16) + String($0 & 15, radix: 16) }
            var ofHost = SecretPatterns()
            ofHost.add("host secret", secret)
            ofHost.add("host secret in digits", Array(digits.joined().utf8))
            let keysOfA = secrets.ofClasses([.complete])
            let all = ofHost.union(keysOfA).union(secrets.ofPasscode)

            let connection = try host.connect()
            try volume.lockNow()
            #expect(probe.readFile("A/f") == .data("content of A"))
            let scan = try MemoryScan.settled(all, of: daemon) {
                $0.name.hasPrefix("host secret") || !$0.isInSecretMemory
            }
            #expect(
                scan.findings.contains { $0.name == "class key A" && $0.isInSecretMemory },
                "the scan finds what is there")
            expectNone(scan.findings.filter { $0.name.hasPrefix("host secret") })
            expectNone(scan.inOrdinaryMemory)
            expectNone(try MemoryScan(all, of: connection.child.process).findings)

            connection.signal(SIGKILL)
            #expect(probe.secondsUntilRefused("A/f") != nil)
            #expect(try volume.reaches("locked"))
            expectNone(try MemoryScan.settled(all, of: daemon) { _ in true }.findings)
        }

        private func expectNone(
            _ findings: [Finding], sourceLocation: SourceLocation = #_sourceLocation
        ) {
            #expect(
                findings.isEmpty, "\(findings.map { "\($0)" }.joined(separator: "\n"))",
                sourceLocation: sourceLocation)
        }
    }
}
