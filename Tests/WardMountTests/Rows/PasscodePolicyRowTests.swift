import Foundation
import Testing

extension MountSuite {
    /// Rows L5, L6 and L9 of semantics.md through the commands: attempts, delays, disabling and
    /// erasing.
    @Suite struct PasscodePolicyRowTests {
        /// Runs `ward unlock` with this passcode.
        private func unlock(_ volume: MountedVolume, _ passcode: String) throws -> Finished {
            let file = volume.directory + "/attempt"
            try volume.writePasscode(passcode, to: file)
            return try volume.ward("unlock", volume.mountPoint, "--passcode-file", file)
        }

        /// Tries the wrong passcodes number `range`, each after its delay.
        private func spend(_ range: ClosedRange<Int>, _ volume: MountedVolume) throws {
            for number in range {
                let wrong = try unlock(volume, "wrong \(number)")
                #expect(wrong.status == 12, "number \(number): \(wrong.everything)")
                let left = 10 - number
                #expect(
                    wrong.errors.contains("\(left) \(left == 1 ? "try" : "tries") left"),
                    "\(wrong.everything)")
                try volume.advance(seconds: 8 * 3600)
            }
        }

        @Test("L5: a volume in use is not served without syncing the count of wrong passcodes")
        func volatileMount() throws {
            for (cost, status) in [("32768", Int32(64)), ("1024", 0)] {
                let volume = try MountedVolume(as: User.available[0])
                try volume.unmount()
                let real = volume.directory + "/real"
                let made = try volume.ward(
                    "init", real, "--passcode-cost", cost, "--passcode-file", volume.passcodeFile)
                #expect(made.succeeded, "\(made.everything)")
                let done = try volume.ward("mount", real, volume.mountPoint, "--volatile")
                #expect(done.status == status, "\(done.everything)")
                if status == 0 {
                    #expect(try volume.ward("unmount", volume.mountPoint).succeeded)
                } else {
                    #expect(done.errors.contains("for volumes of tests only"))
                }
            }
        }

        @Test(
            "L6: each delay, to the second, and what is said meanwhile", arguments: User.usual)
        func delays(user: User) throws {
            let volume = try MountedVolume(as: user)
            try StateWalk.makeDirectory(of: .complete, with: volume.probe())
            try volume.lockNow()
            for number in 1...3 {
                #expect(try unlock(volume, "wrong \(number)").status == 12)
            }
            for (number, minutes) in zip(4...9, [1, 5, 15, 60, 180, 480]) {
                let wrong = try unlock(volume, "wrong \(number)")
                #expect(wrong.status == 12, "no delay is left: \(wrong.everything)")
                let early = try unlock(volume, MountedVolume.passcode)
                #expect(early.status == 13, "\(early.everything)")
                #expect(early.errors.contains("ward: hint: try again in "), "\(early.everything)")
                try volume.advance(seconds: minutes * 60 - 1)
                #expect(try unlock(volume, MountedVolume.passcode).status == 13)
                try volume.advance(seconds: 1)
            }
            #expect(try volume.probe().open("A/f", "r", as: "fd") == .eperm)
            #expect(try unlock(volume, MountedVolume.passcode).succeeded)
            // The right passcode gives all tries back.
            let again = try unlock(volume, "wrong 1")
            #expect(again.errors.contains("9 tries left"), "\(again.everything)")
        }

        @Test(
            "L6: a delay outlives a restart, a reboot and a crash, and starts again with each",
            arguments: User.usual)
        func restarts(user: User) throws {
            let volume = try MountedVolume(as: user)
            try volume.lockNow()
            try spend(1...4, volume)
            #expect(try unlock(volume, "wrong 5").status == 12)
            let restarts: [() throws -> Void] = [
                {
                    try volume.unmount()
                    try volume.mount()
                },
                { try volume.reboot() },
                {
                    try volume.kill()
                    volume.detach()
                    try volume.mount()
                },
            ]
            try volume.advance(seconds: 299)
            for restart in restarts {
                try restart()
                try volume.advance(seconds: 299)
                let early = try unlock(volume, MountedVolume.passcode)
                #expect(early.status == 13, "\(early.everything)")
            }
            // The same wrong passcode does not count again, from any command.
            try volume.advance(seconds: 1)
            let same = try unlock(volume, "wrong 5")
            #expect(same.status == 12 && same.errors.contains("5 tries left"), "\(same.everything)")
            #expect(try unlock(volume, MountedVolume.passcode).succeeded)
        }

        @Test("L6: a clock that can be moved moves no delay but of a volume that is made for tests")
        func manualClockMovesNoDelay() throws {
            let user = try #require(User.available.last)
            let volume = try MountedVolume(
                as: user, manualClock: false, initArguments: ["--passcode-cost", "32768"])
            try volume.lockNow()
            for number in 1...4 { #expect(try unlock(volume, "wrong \(number)").status == 12) }
            let moved = try volume.ward("advance", volume.mountPoint, "3600s")
            #expect(moved.status == 64, "\(moved.everything)")
            try volume.unmount()
            let mounted = try volume.ward(
                "mount", volume.volume, volume.mountPoint, "--manual-clock")
            #expect(mounted.status == 64, "\(mounted.everything)")
            try volume.mount()
            let early = try unlock(volume, MountedVolume.passcode)
            #expect(early.status == 13, "\(early.everything)")
            let status = try volume.ward("status", volume.mountPoint, "--json").output
            #expect(status.contains(#""retrySeconds":"#), "\(status)")
            // Other commands on the same files don't either.
            let kit = try volume.ward(
                "recovery", "create", volume.mountPoint, "--out", volume.directory + "/home/kit",
                "--passcode-file", volume.passcodeFile)
            #expect(kit.status == 13, "\(kit.everything)")
        }

        @Test("L6: after ten the volume is disabled, and stays so", arguments: User.usual)
        func disabled(user: User) throws {
            let volume = try MountedVolume(as: user)
            try StateWalk.makeDirectory(of: .complete, with: volume.probe())
            try volume.lockNow()
            try volume.copyStore(to: volume.directory + "/home/copy")
            try spend(1...10, volume)
            for round in ["at once", "after a restart", "with an older copy of the volume"] {
                let right = try unlock(volume, MountedVolume.passcode)
                #expect(right.status == 13, "\(round): \(right.everything)")
                #expect(right.errors.contains("disabled"), "\(right.everything)")
                #expect(
                    right.errors.contains("ward: hint: only a recovery kit opens it now"),
                    "\(right.everything)")
                try volume.advance(seconds: 30 * 86400)
                try volume.unmount()
                if round == "after a restart" {
                    try volume.shell("cp -a $OUT/copy/ward.keybag* '\(volume.volume)/'")
                }
                try volume.mount()
            }
            let changed = try volume.ward(
                "passcode", "change", volume.mountPoint, "--passcode-file", volume.passcodeFile,
                "--new-passcode-file", volume.passcodeFile)
            #expect(changed.status == 13, "\(changed.everything)")
            // Calls that need no passcode still work.
            #expect(try volume.probe().stat("A/f", "size") == .number(12))
        }

        @Test(
            "L6: --erase-after-10 erases at the tenth and ends the mount", arguments: User.usual
        )
        func erased(user: User) throws {
            let volume = try MountedVolume(as: user, initArguments: ["--erase-after-10"])
            try StateWalk.makeDirectory(of: .complete, with: volume.probe())
            let shown = try volume.ward("policy", volume.mountPoint)
            #expect(shown.output.contains("erases the volume"), "\(shown.everything)")
            try volume.lockNow()
            try volume.copyStore(to: volume.directory + "/home/copy")
            try spend(1...9, volume)
            let daemon = try #require(volume.daemonProcess())
            let tenth = try unlock(volume, "wrong 10")
            #expect(tenth.status == 14 && tenth.errors.contains("erased"), "\(tenth.everything)")
            #expect(comesTrue { !MountedVolume.isRunning(daemon) }, "the mount ends")
            try expectErased(volume, [volume.volume, volume.directory + "/home/copy"])
        }

        @Test(
            "L5: wrong passcodes from many processes are counted once each, in order",
            arguments: User.usual)
        func parallel(user: User) throws {
            let volume = try MountedVolume(as: user)
            try volume.lockNow()
            // Through the daemon, and beside it: `ward recovery create` tries the passcode itself.
            let files = (0..<4).map { volume.directory + "/attempt\($0)" }
            for (number, file) in files.enumerated() {
                try volume.writePasscode("wrong \(number)", to: file)
            }
            let children = try (0..<12).map { number in
                let file = files[number % 4]
                let command =
                    number % 3 == 0
                    ? [
                        "recovery", "create", volume.mountPoint, "--out",
                        volume.directory + "/home/kit\(number)",
                    ] : ["unlock", volume.mountPoint]
                return try Child(
                    user.prefix + [TestEnvironment.shared.ward] + command
                        + ["--passcode-file", file], environment: volume.environment)
            }
            let codes = children.map { $0.wait(seconds: 60) }
            #expect(codes.allSatisfy { $0 == 12 || $0 == 13 }, "\(codes)")
            let policy = try volume.ward("policy", volume.mountPoint, "--json")
            #expect(policy.output.contains(#""triesLeft":6"#), "\(policy.everything)")
            #expect(try unlock(volume, MountedVolume.passcode).status == 13)
            try volume.advance(seconds: 60)
            #expect(try unlock(volume, MountedVolume.passcode).succeeded)
        }

        @Test("L5: deleting the attempts file wins nothing", arguments: User.usual)
        func ledgerDeleted(user: User) throws {
            let volume = try MountedVolume(as: user)
            try volume.lockNow()
            #expect(try unlock(volume, "wrong 1").status == 12)
            try volume.shell("rm '\(try volume.deviceDirectory())/attempts'")
            #expect(try unlock(volume, "wrong 2").status == 13)
            try volume.advance(seconds: 8 * 3600)
            #expect(try unlock(volume, MountedVolume.passcode).succeeded)
        }

        // MARK: Mount options

        @Test(
            "Options of a mount shorten what the policy says, and lengthen nothing",
            arguments: User.usual)
        func mountOptions(user: User) throws {
            // Made without the option for a cheap passcode, which only tests use.
            let volume = try MountedVolume(directoryOnlyAs: user)
            let made = try volume.ward(
                "init", volume.volume, "--passcode-file", volume.passcodeFile, "--quiet")
            #expect(made.succeeded, "\(made.everything)")
            for (options, word) in [
                (["--manual-clock"], "--manual-clock"), (["--grace", "11"], "ward policy set"),
                (["--grace", "86400"], "ward policy set"),
            ] {
                let refused = try Child.run(
                    user.prefix + [TestEnvironment.shared.ward, "mount"] + options
                        + [volume.volume, volume.mountPoint], environment: volume.environment)
                #expect(refused.status == 64, "\(options): \(refused.everything)")
                #expect(refused.errors.contains(word), "\(options): \(refused.everything)")
                #expect(refused.errors.contains("ward: hint: "), "\(refused.everything)")
            }
            let mounted = try volume.ward(
                "mount", volume.volume, volume.mountPoint, "--grace", "9", "--passcode-file",
                volume.passcodeFile)
            #expect(mounted.succeeded, "\(mounted.everything)")
            func grace() throws -> Bool {
                try volume.ward("status", volume.mountPoint, "--json").output
                    .contains(#""graceSeconds":9"#)
            }
            #expect(try grace())
            // A shorter policy counts at once; a longer one does not.
            for (policy, expected) in [("2s", false), ("20s", true)] {
                let set = try volume.ward(
                    "policy", "set", volume.mountPoint, "--grace", policy, "--passcode-file",
                    volume.passcodeFile)
                #expect(set.succeeded, "\(set.everything)")
                #expect(try grace() == expected, "\(policy)")
            }
            #expect(try volume.ward("unmount", volume.mountPoint).succeeded)
        }

        // MARK: Erase

        @Test(
            "L9: ward erase, in every lock state, ends the mount and leaves nothing that opens",
            arguments: User.usual,
            [LockState.noPasscode, .beforeFirstUnlock, .unlocked, .locked])
        func erase(user: User, state: LockState) throws {
            let volume = try MountedVolume(
                as: user, passcode: state == .noPasscode ? nil : MountedVolume.passcode)
            let probe = try volume.probe()
            try StateWalk.makeDirectory(of: .complete, with: probe)
            try StateWalk.makeDirectory(of: .none, with: probe)
            try volume.enter(state)
            #expect(probe.open("D/f", "r", as: "fd") == .ok)
            #expect(probe.mmap("fd", 4, "r", as: "map") == .ok)
            #expect(probe.touch("map", 4) == .data("cont"))
            try volume.copyStore(to: volume.directory + "/home/copy")
            let daemon = try #require(volume.daemonProcess())

            let refused = try volume.ward("erase", volume.mountPoint)
            #expect(refused.status == 64, "nobody was asked: \(refused.everything)")
            #expect(refused.errors.contains("ward: hint: --yes-really"), "\(refused.everything)")
            #expect(probe.readFile("D/f") == .data("content of D"))

            if state == .noPasscode {
                try eraseWithoutPasscode(volume)
            } else {
                let erased = try volume.ward(
                    "erase", volume.mountPoint, "--yes-really", "--passcode-file",
                    volume.passcodeFile)
                #expect(erased.succeeded, "\(erased.everything)")
                #expect(erased.errors.contains("recovery kit"), "\(erased.everything)")
            }
            #expect(comesTrue { !MountedVolume.isRunning(daemon) }, "the mount ends")
            #expect(!probe.pread("fd", 4).succeeded, "programs get errors")
            #expect(!probe.touch("map", 4).succeeded)
            probe.kill()
            try expectErased(volume, [volume.volume, volume.directory + "/home/copy"])
        }

        /// Erases after the delay, which the manual clock passes at once.
        private func eraseWithoutPasscode(_ volume: MountedVolume) throws {
            let erasing = try Child(
                volume.user.prefix + [
                    TestEnvironment.shared.ward, "erase", volume.mountPoint, "--yes-really",
                ], environment: volume.environment)
            #expect(try comesTrue { try eraseInSeconds(volume) == 60 })
            try volume.advance(seconds: 60)
            #expect(erasing.wait(seconds: 30) == 0)
        }

        private func eraseInSeconds(_ volume: MountedVolume) throws -> Double? {
            let status = try volume.ward("status", volume.mountPoint, "--json").output
            let object = try JSONSerialization.jsonObject(with: Data(status.utf8))
            return (object as? [String: Any])?["eraseInSeconds"] as? Double
        }

        @Test(
            "L9: without the passcode an erase is announced, locks, and can be taken back",
            arguments: User.usual)
        func eraseAnnounced(user: User) throws {
            let volume = try MountedVolume(as: user)
            try StateWalk.makeDirectory(of: .complete, with: volume.probe())
            let uuid = try #require(try volume.deviceDirectory().split(separator: "/").last)
            // Calls the socket as any program can that reaches it.
            func call(_ method: String, _ parameters: String) throws -> String {
                try Child.run(
                    user.prefix + [
                        TestEnvironment.shared.python, "-c",
                        """
                        import socket, sys
                        channel = socket.socket(socket.AF_UNIX)
                        channel.connect(sys.argv[1])
                        text = '{"method":"org.ward.Volume.%s","parameters":%s}' % (sys.argv[2], sys.argv[3])
                        channel.sendall(text.encode() + bytes(1))
                        answer = b""
                        while not answer.endswith(bytes(1)):
                            piece = channel.recv(65536)
                            if not piece:
                                break
                            answer += piece
                        print(answer.rstrip(bytes(1)).decode())
                        """, try #require(volume.socketPath()), method, parameters,
                    ], environment: volume.environment
                ).output
            }
            let key = try volume.deviceDirectory() + "/effaceable.key"
            for way in ["cancel", "unlock"] {
                let answer = try call("Erase", #"{"uuid":"\#(uuid)"}"#)
                #expect(answer.contains(#""eraseInSeconds":60"#), "\(answer)")
                #expect(try volume.probe().readFile("A/f") == .eperm, "it is locked")
                let shown = try volume.ward("status", volume.mountPoint).output
                #expect(
                    shown.split(separator: "\n").first?.contains("erase in") == true
                        && shown.contains("ward erase --cancel"), "\(shown)")
                try volume.advance(seconds: 59)
                #expect(try eraseInSeconds(volume) == 1)
                if way == "cancel" {
                    let taken = try volume.ward("erase", "--cancel", volume.mountPoint)
                    #expect(
                        taken.succeeded && taken.output.contains("will not be erased"),
                        "\(taken.everything)")
                    try volume.unlock()
                } else {
                    try volume.unlock()
                }
                #expect(try eraseInSeconds(volume) == nil)
                try volume.advance(seconds: 120)
                #expect(FileManager.default.fileExists(atPath: key), "\(way)")
                #expect(try volume.probe().readFile("A/f") == .data("content of A"))
                let events = try ControlEvent.latest(of: volume).compactMap { $0.fields["detail"] }
                #expect(events.contains { $0.contains("will be erased without the passcode") })
                #expect(events.contains { $0.contains("was taken back") }, "\(events)")
            }
            let none = try volume.ward("erase", "--cancel", volume.mountPoint)
            #expect(
                none.succeeded && none.output.contains("nobody has asked"), "\(none.everything)")

            // A wrong passcode counts as a try, and erases nothing.
            let wrong = volume.directory + "/home/wrong"
            try volume.writePasscode("wrong", to: wrong)
            let refused = try volume.ward(
                "erase", volume.mountPoint, "--yes-really", "--passcode-file", wrong)
            #expect(refused.status == 12, "\(refused.everything)")
            let status = try volume.ward("status", volume.mountPoint, "--json").output
            #expect(status.contains(#""triesLeft":9"#), "\(status)")
            #expect(FileManager.default.fileExists(atPath: key))

            // This time no program cancels it.
            let daemon = try #require(volume.daemonProcess())
            let announced = try call("Erase", #"{"uuid":"\#(uuid)"}"#)
            #expect(announced.contains(#""eraseInSeconds":60"#), "\(announced)")
            try volume.advance(seconds: 60)
            #expect(comesTrue { !MountedVolume.isRunning(daemon) }, "the mount ends")
            try expectErased(volume, [volume.volume])
        }

        @Test(
            "L9: an erase that was taken back before the mount ended is not reported as done",
            .enabled(if: geteuid() == 0, "only root sees where a process of ward waits"),
            arguments: User.usual)
        func takenBackBeforeTheEnd(user: User) throws {
            let volume = try MountedVolume(as: user)
            let erasing = try Child(
                user.prefix + [
                    TestEnvironment.shared.ward, "erase", volume.mountPoint, "--yes-really",
                    "--no-passcode",
                ], environment: volume.environment)
            #expect(try comesTrue { try eraseInSeconds(volume) == 60 })
            let cancelled = try volume.ward("erase", volume.mountPoint, "--cancel")
            #expect(cancelled.succeeded, "\(cancelled.everything)")
            // Between two looks at the volume the command sleeps. Then it waits on its socket.
            #expect(
                comesTrue {
                    let place = try? String(
                        contentsOfFile: "/proc/\(erasing.process)/wchan", encoding: .utf8)
                    return place.map { $0.count > 1 && !$0.contains("nanosleep") } ?? true
                })
            try volume.unmount()
            #expect(erasing.wait(seconds: 30) == 75)
            let key = try volume.deviceDirectory() + "/effaceable.key"
            #expect(FileManager.default.fileExists(atPath: key))
        }

        @Test(
            "L9: an announced erase ends with the mount, and whoever waits for it is told",
            arguments: User.usual)
        func eraseEndsWithTheMount(user: User) throws {
            let volume = try MountedVolume(as: user)
            let output = try Child.pipe()
            let erasing = try Child(
                user.prefix + [
                    TestEnvironment.shared.ward, "erase", volume.mountPoint, "--yes-really",
                    "--no-passcode",
                ], environment: volume.environment, errors: output.writing)
            close(output.writing)
            #expect(try comesTrue { try eraseInSeconds(volume) == 60 })
            try volume.unmount()
            #expect(erasing.wait(seconds: 30) == 75)
            let said = FileHandle(fileDescriptor: output.reading, closeOnDealloc: true)
                .readDataToEndOfFile()
            #expect(String(decoding: said, as: UTF8.self).contains("nothing was erased"))
            let key = try volume.deviceDirectory() + "/effaceable.key"
            #expect(FileManager.default.fileExists(atPath: key))
            try volume.mount()
            try volume.unlock()
            #expect(try eraseInSeconds(volume) == nil)
        }

        @Test("L9: ward erase of a volume that is not mounted, or whose daemon is stopped")
        func eraseUnmounted() throws {
            let user = try #require(User.available.last)
            let unmounted = try MountedVolume(as: user)
            try unmounted.unmount()
            let erased = try unmounted.ward("erase", unmounted.volume, "--yes-really", "--json")
            #expect(
                erased.succeeded && erased.output.contains(#""erased":true"#),
                "\(erased.everything)")
            try expectErased(unmounted, [unmounted.volume])

            let damaged = try MountedVolume(as: user)
            try damaged.unmount()
            try damaged.shell("for f in '\(damaged.volume)'/ward.keybag*; do echo > $f; done")
            let unknown = try damaged.ward("erase", damaged.volume, "--yes-really")
            #expect(
                unknown.status == 14 && unknown.errors.contains("--uuid"), "\(unknown.everything)")
            let uuid = try #require(try damaged.deviceDirectory().split(separator: "/").last)
            let byUUID = try damaged.ward("erase", "--uuid", String(uuid), "--yes-really")
            #expect(byUUID.succeeded, "\(byUUID.everything)")
            let key = try damaged.deviceDirectory() + "/effaceable.key"
            #expect(!FileManager.default.fileExists(atPath: key))

            let killed = try MountedVolume(as: user)
            try killed.kill()
            let beside = try killed.ward("erase", killed.volume, "--yes-really")
            #expect(beside.succeeded, "\(beside.everything)")
            killed.detach()
            try expectErased(killed, [killed.volume])
        }

        @Test("L9: ward erase by UUID ends the mount, too, and says so where it can't")
        func eraseReachesTheDaemon() throws {
            let user = try #require(User.available.last)
            let mounted = try MountedVolume(as: user)
            let uuid = try #require(try mounted.deviceDirectory().split(separator: "/").last)
            let daemon = try #require(mounted.daemonProcess())
            let erased = try mounted.ward(
                "erase", "--uuid", String(uuid), "--yes-really", "--passcode-file",
                mounted.passcodeFile)
            #expect(erased.succeeded, "\(erased.everything)")
            #expect(comesTrue { !MountedVolume.isRunning(daemon) }, "the mount ends")
            try expectErased(mounted, [mounted.volume])

            // A daemon with its socket at another place keeps its keys in memory: the command must
            // say so.
            let hidden = try MountedVolume(as: user)
            var elsewhere = hidden.environment
            elsewhere["XDG_RUNTIME_DIR"] = hidden.directory + "/home"
            // A mount namespace without the mount, and another runtime directory. An ordinary user
            // can't have the namespace, so that daemon is found.
            let apart =
                geteuid() == 0
                ? [
                    "unshare", "--mount", "--propagation", "private", "sh", "-c",
                    #"umount -l "$0"; exec "$@""#, hidden.mountPoint,
                ] : []
            let partly = try Child.run(
                apart + user.prefix + [
                    TestEnvironment.shared.ward, "erase", hidden.volume, "--yes-really",
                ], environment: elsewhere)
            #expect(
                apart.isEmpty
                    ? partly.succeeded
                    : partly.status == 75 && partly.errors.contains("still has it open"),
                "\(partly.everything)")
            let key = try hidden.deviceDirectory() + "/effaceable.key"
            #expect(!FileManager.default.fileExists(atPath: key))
            if !apart.isEmpty {
                #expect(try hidden.ward("unmount", "--force", hidden.mountPoint).succeeded)
            }
            try expectErased(hidden, [hidden.volume])
        }

        /// Every command that opens the volume says that it is erased, with one exit code.
        private func expectErased(_ volume: MountedVolume, _ paths: [String]) throws {
            try volume.writePasscode(MountedVolume.passcode, to: volume.passcodeFile)
            let file = ["--passcode-file", volume.passcodeFile]
            for path in paths {
                for command in [
                    ["mount", path, volume.mountPoint], ["policy", path],
                    ["passcode", "change", path, "--new-passcode-file", volume.passcodeFile] + file,
                    ["passcode", "set", path] + file, ["passcode", "remove", path] + file,
                    ["policy", "set", path, "--grace", "1s"] + file,
                    ["recovery", "create", path, "--out", volume.directory + "/home/new-kit"]
                        + file,
                ] {
                    let done = try Child.run(
                        volume.user.prefix + [TestEnvironment.shared.ward] + command,
                        environment: volume.environment)
                    #expect(done.status == 14, "\(command): \(done.everything)")
                    #expect(done.errors.contains("erased"), "\(command): \(done.everything)")
                    #expect(done.errors.contains("ward: hint: "), "\(command): \(done.everything)")
                }
                let again = try volume.ward("erase", path, "--yes-really")
                #expect(again.succeeded && again.output.contains("already"), "\(again.everything)")
            }
        }

        // MARK: What is no error

        @Test("Unlocking what is unlocked, locking what is locked, and what has no passcode")
        func noErrors() throws {
            let user = try #require(User.available.last)
            let volume = try MountedVolume(as: user)
            try volume.unlock()
            try volume.unlock()
            for _ in 0..<2 {
                let locked = try volume.ward("lock", volume.mountPoint, "--now")
                #expect(
                    locked.succeeded && locked.output.contains(": locked"), "\(locked.everything)")
            }
            let slower = try volume.ward("lock", volume.mountPoint)
            #expect(slower.succeeded && slower.output.contains(": locked"), "\(slower.everything)")

            let open = try MountedVolume(as: user, passcode: nil)
            let lock = try open.ward("lock", open.mountPoint, "--now")
            #expect(lock.status == 16, "\(lock.everything)")
            #expect(
                lock.errors.contains("nothing is locked: \(open.mountPoint) has no passcode")
                    && lock.errors.contains("ward passcode set \(open.mountPoint)"),
                "\(lock.everything)")
            let unlock = try open.ward("unlock", open.mountPoint)
            #expect(unlock.succeeded, "\(unlock.everything)")
            #expect(unlock.errors.contains("no passcode is set"), "\(unlock.everything)")
        }

        @Test("A policy is in force at once and needs the passcode", arguments: User.usual)
        func policy(user: User) throws {
            let volume = try MountedVolume(as: user)
            let wrong = volume.directory + "/wrong"
            try volume.writePasscode("wrong", to: wrong)
            for place in ["mounted", "unmounted"] {
                let path = place == "mounted" ? volume.mountPoint : volume.volume
                if place == "unmounted" { try volume.unmount() }
                let refused = try volume.ward(
                    "policy", "set", path, "--erase-after-10", "--passcode-file", wrong)
                #expect(refused.status == 12, "\(place): \(refused.everything)")
                let set = try volume.ward(
                    "policy", "set", path, "--erase-after-10", "--grace", "7s", "--cx-period", "2d",
                    "--passcode-file", volume.passcodeFile)
                #expect(set.succeeded, "\(place): \(set.everything)")
                let shown = try volume.ward("policy", path, "--json").output
                for part in [
                    #""graceSeconds":7"#, #""userInactiveSeconds":172800"#,
                    #""eraseAfterTries":true"#, #""triesLeft":10"#,
                ] {
                    #expect(shown.contains(part), "\(place): \(shown)")
                }
                let unset = try volume.ward(
                    "policy", "set", path, "--no-erase-after-10", "--passcode-file",
                    volume.passcodeFile)
                #expect(unset.succeeded, "\(unset.everything)")
            }
            #expect(try volume.ward("policy", "set", volume.volume).status == 64)
            try volume.mount()
            try volume.unlock()
        }
    }
}
