import Foundation
import Testing

extension MountSuite {
    /// No single system call of a program of the daemon's own user keeps class A open.
    @Suite struct VetoTests {
        /// An unlocked volume on the real clock with a file of class A that a program has open.
        private func opened(_ user: User) throws -> (MountedVolume, Probe) {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            try StateWalk.makeDirectory(of: .complete, with: probe)
            #expect(probe.open("A/f", "r", as: "fd") == .ok)
            return (volume, probe)
        }

        private func veto(_ user: User, _ words: String...) throws -> Finished {
            try Child.run(
                user.prefix + [
                    TestEnvironment.shared.python, TestEnvironment.shared.script("veto.py"),
                ] + words, environment: TestEnvironment.shared.variables)
        }

        /// Whether class A can't be read any more through the open descriptor, or the mount is
        /// dead. Waits for the deadline of a lock and, for a loaded machine, some seconds more.
        private func isClosed(_ volume: MountedVolume, _ probe: Probe) -> Bool {
            let daemon = volume.daemonProcess() ?? 0
            return comesTrue(within: 10) {
                MountedVolume.isRunning(daemon)
                    ? probe.pread("fd", 1) == .eperm : !probe.readFile("A/f").succeeded
            }
        }

        @Test(
            "A lowered limit locks, or ends the daemon and its mount",
            arguments: User.usual,
            [
                ("NOFILE", 3), ("NOFILE", 1), ("NOFILE", 0), ("CPU", 1), ("FSIZE", 0), ("DATA", 0),
                ("STACK", 0), ("RSS", 0), ("NPROC", 0), ("MEMLOCK", 0), ("AS", 0), ("LOCKS", 0),
                ("SIGPENDING", 0), ("MSGQUEUE", 0), ("RTTIME", 0),
            ])
        func limits(user: User, limit: (name: String, value: Int)) throws {
            let (volume, probe) = try opened(user)
            let daemon = try #require(volume.daemonProcess())
            let done = try veto(
                user, "limit", "\(daemon)", "RLIMIT_\(limit.name)", "\(limit.value)")
            #expect(done.output == "done\n", "\(limit): \(done.everything)")
            // Work uses the processor time up.
            if limit.name == "CPU" { for _ in 0..<2000 { _ = probe.readFile("A/f") } }
            #expect(isClosed(volume, probe), "\(limit)")
            if MountedVolume.isRunning(daemon), limit.name == "NOFILE", limit.value > 0 {
                // Requests are still answered, and so is a passcode.
                let locked = try volume.ward("lock", volume.mountPoint, "--now", seconds: 30)
                #expect(locked.succeeded, "\(limit): \(locked.everything)")
                #expect(probe.pread("fd", 1) == .eperm)
                let said = try ControlEvent.latest(of: volume)
                #expect(
                    said.contains { $0.fields["detail"]?.contains("RLIMIT_NOFILE") == true },
                    "\(said)")
            }
            probe.kill()
        }

        @Test(
            "Whoever asks is answered where no descriptor is to be had", arguments: User.usual)
        func withoutDescriptors(user: User) throws {
            let (volume, probe) = try opened(user)
            let daemon = try #require(volume.daemonProcess())
            let done = try veto(user, "limit", "\(daemon)", "RLIMIT_NOFILE", "3")
            #expect(done.output == "done\n", "\(done.everything)")
            #expect(isClosed(volume, probe))
            // The file that counts the tries can't be opened, so no passcode is tried.
            let unlocked = try volume.ward(
                "unlock", volume.mountPoint, "--passcode-file", volume.passcodeFile, seconds: 30)
            #expect(!unlocked.timedOut && !unlocked.succeeded, "\(unlocked.everything)")
            let again = try volume.ward("lock", volume.mountPoint, "--now", seconds: 30)
            #expect(again.succeeded, "\(again.everything)")
            #expect(probe.pread("fd", 1) == .eperm)
            let status = try volume.ward("status", volume.mountPoint, seconds: 30)
            #expect(status.succeeded, "\(status.everything)")
            probe.kill()
        }

        @Test(
            "A helper whose limits are lowered is replaced, and the volume locked",
            arguments: User.usual)
        func helperLimits(user: User) throws {
            let (volume, probe) = try opened(user)
            let watchdog = try #require(volume.helper("watchdog"))
            let done = try veto(user, "limit", "\(watchdog)", "RLIMIT_NOFILE", "0")
            #expect(done.output == "done\n", "\(done.everything)")
            #expect(isClosed(volume, probe))
            #expect(comesTrue { volume.helper("watchdog").map { $0 != watchdog } ?? false })
            probe.kill()
        }

        @Test("The daemon's user can trace neither the daemon nor a helper")
        func notTraced() throws {
            let (volume, probe) = try opened(.ordinaryUser)
            let daemon = try #require(volume.daemonProcess())
            let watchdog = try #require(volume.helper("watchdog"))
            for process in [daemon, watchdog] {
                let done = try veto(.ordinaryUser, "seize", "\(process)")
                #expect(done.output == "Operation not permitted\n", "\(done.everything)")
                for name in ["mem", "environ", "maps"] {
                    let read = try Child.run(
                        User.ordinaryUser.prefix + ["head", "-c", "1", "/proc/\(process)/\(name)"],
                        environment: volume.environment)
                    #expect(!read.succeeded && read.output.isEmpty, "\(name): \(read.everything)")
                }
                let limits = try String(contentsOfFile: "/proc/\(process)/limits", encoding: .utf8)
                let cores = limits.split(separator: "\n").first { $0.hasPrefix("Max core") }
                #expect(cores?.split(separator: " ").suffix(3).prefix(2) == ["0", "0"])
            }
            #expect(try volume.ward("lock", volume.mountPoint, "--now").succeeded)
            probe.kill()
        }

        @Test(
            "A helper that is traced all the same is replaced, and the volume locked",
            .enabled(if: geteuid() == 0))
        func tracedHelper() throws {
            let (volume, probe) = try opened(.ordinaryUser)
            let watchdog = try #require(volume.helper("watchdog"))
            let pipes = (try Child.pipe(), try Child.pipe())
            let tracer = try Child(
                [
                    TestEnvironment.shared.python, TestEnvironment.shared.script("veto.py"),
                    "seize", "\(watchdog)",
                ], environment: TestEnvironment.shared.variables, input: pipes.0.reading,
                output: pipes.1.writing)
            defer { for end in [pipes.0.reading, pipes.0.writing, pipes.1.reading] { close(end) } }
            close(pipes.1.writing)
            var answer = [UInt8](repeating: 0, count: 5)
            #expect(read(pipes.1.reading, &answer, 5) == 5)
            #expect(String(decoding: answer, as: UTF8.self) == "done\n")
            #expect(isClosed(volume, probe))
            #expect(
                try ControlEvent.latest(of: volume).contains {
                    $0.fields["detail"]?.contains("is traced by process") == true
                })
            #expect(comesTrue { volume.helper("watchdog").map { $0 != watchdog } ?? false })
            // The new watchdog works.
            try volume.unlock()
            let daemon = try #require(volume.daemonProcess())
            Glibc.kill(daemon, SIGSTOP)
            defer { Glibc.kill(daemon, SIGCONT) }
            #expect(try volume.ward("lock", volume.mountPoint, "--now", seconds: 30).succeeded)
            #expect(probe.pread("fd", 1) == .eperm)
            tracer.kill()
            probe.kill()
        }

        @Test(
            "A helper that somebody is quick enough to trace at its start does not stay",
            arguments: [User.ordinaryUser])
        func racedHelper(user: User) throws {
            let (volume, probe) = try opened(user)
            let daemon = try #require(volume.daemonProcess())
            let pipe = try Child.pipe()
            let racer = try Child(
                user.prefix + [
                    TestEnvironment.shared.python, TestEnvironment.shared.script("veto.py"), "race",
                    "\(daemon)", "watchdog",
                ], environment: TestEnvironment.shared.variables, input: pipe.reading)
            close(pipe.reading)
            for _ in 0..<5 {
                #expect(comesTrue { volume.helper("watchdog") != nil })
                let watchdog = try #require(volume.helper("watchdog"))
                Glibc.kill(watchdog, SIGKILL)
                #expect(comesTrue { volume.helper("watchdog").map { $0 != watchdog } ?? false })
                // Each new watchdog may be traced in turn; a traced one does not stay.
                let next = volume.helper("watchdog") ?? 0
                #expect(
                    comesTrue(within: 30) { volume.helper("watchdog") != next || !isTraced(next) })
            }
            close(pipe.writing)
            _ = racer.wait(seconds: 30)
            #expect(isClosed(volume, probe))
            probe.kill()
        }

        @Test("A watchdog that was killed is an alarm", arguments: User.usual)
        func killedWatchdog(user: User) throws {
            let (volume, probe) = try opened(user)
            let watchdog = try #require(volume.helper("watchdog"))
            Glibc.kill(watchdog, SIGKILL)
            #expect(isClosed(volume, probe))
            #expect(
                try ControlEvent.latest(of: volume).contains {
                    $0.fields["detail"]?.contains("locked now: watchdog: process \(watchdog)")
                        == true
                })
            probe.kill()
        }

        @Test("A service manager that signals all processes of the service unmounts cleanly")
        func endedAsAGroup() throws {
            let user = try #require(User.available.last)
            let (volume, probe) = try opened(user)
            probe.kill()
            let watchdog = try #require(volume.helper("watchdog"))
            let daemon = try #require(volume.daemonProcess())
            Glibc.kill(watchdog, SIGTERM)
            Glibc.kill(daemon, SIGTERM)
            #expect(comesTrue { !MountedVolume.isRunning(daemon) })
            let log = try String(
                contentsOfFile: volume.deviceDirectory() + "/ward.log", encoding: .utf8)
            #expect(log.contains("unmounted") && !log.contains("another is started"), "\(log)")
        }

        @Test("Every process of ward's is called ward", arguments: User.usual)
        func name(user: User) throws {
            let volume = try MountedVolume(as: user)
            let processes = [
                try #require(volume.daemonProcess()), try #require(volume.helper("watchdog")),
            ]
            for process in processes {
                let name = try String(contentsOfFile: "/proc/\(process)/comm", encoding: .utf8)
                #expect(name == "ward\n")
                let words = try String(contentsOfFile: "/proc/\(process)/cmdline", encoding: .utf8)
                #expect(words.hasPrefix("ward\0"), "\(words)")
            }
        }

        private func isTraced(_ process: pid_t) -> Bool {
            let status = try? String(contentsOfFile: "/proc/\(process)/status", encoding: .utf8)
            let line = status?.split(separator: "\n").first { $0.hasPrefix("TracerPid:") }
            return line.map { !$0.hasSuffix("\t0") } ?? false
        }
    }
}
