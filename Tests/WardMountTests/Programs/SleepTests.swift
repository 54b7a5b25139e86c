import Foundation
import Testing

extension MountSuite {
    /// Sleep, shutdown and locked screens, as the login manager announces them.
    @Suite struct SleepTests {
        /// A volume with a file of class A, whose daemon listens to a login manager.
        private func watched(
            _ user: User, _ arguments: [String] = [], telling before: [String] = []
        ) throws -> (MountedVolume, LoginManager) {
            let volume = try MountedVolume(directoryOnlyAs: user, mountArguments: arguments)
            let manager = try LoginManager(as: user, in: volume.directory + "/home")
            volume.variables["DBUS_SYSTEM_BUS_ADDRESS"] = manager.address
            for command in before { _ = try manager.tell(command) }
            try volume.initialize()
            try volume.mount()
            try volume.unlock()
            try StateWalk.makeDirectory(of: .complete, with: try volume.probe())
            #expect(try manager.tell("wait") == "taken", "a delay lock is held")
            return (volume, manager)
        }

        @Test(
            "L1: sleep and shutdown wait until class A is gone, without a grace period",
            arguments: User.usual)
        func sleepAndShutdown(user: User) throws {
            let (volume, manager) = try watched(user)
            for event in ["sleep", "shutdown"] {
                #expect(try manager.tell(event) == "released")
                #expect(try state(volume) == "locked", "locked before the \(event) may go on")
                let probe = try volume.probe()
                #expect(probe.readFile("A/f") == .eperm)
                #expect(
                    try ControlEvent.latest(of: volume).contains {
                        $0.kind == "note"
                            && $0.fields["detail"]?.contains("the machine") == true
                    }, "the events say why")
                #expect(try manager.tell("wake") == "taken", "ready for the next time")
                try volume.unlock()
                #expect(probe.readFile("A/f") == .data("content of A"))
            }
        }

        @Test("A screen that is locked locks where that is wanted", arguments: User.usual)
        func screen(user: User) throws {
            let (volume, manager) = try watched(user, ["--lock-with-screen"])
            for command in ["lock", "hint"] {
                _ = try manager.tell("\(command) /org/freedesktop/login1/session/_31")
                #expect(try eventually(volume, "locking"), "\(command): with the grace period")
                try volume.unlock()
            }
            if user == .ordinaryUser {
                _ = try manager.tell("lock /org/freedesktop/login1/session/other")
                // Signals come in order: if this one was handled, the other was too.
                #expect(try manager.tell("wake") == "taken")
                #expect(try state(volume) == "unlocked", "another user's session")
            }
        }

        @Test("Without --lock-with-screen the screen changes nothing", arguments: User.usual)
        func notAsked(user: User) throws {
            let (volume, manager) = try watched(user)
            _ = try manager.tell("lock /org/freedesktop/login1/session/_31")
            #expect(try manager.tell("wake") == "taken")
            #expect(try state(volume) == "unlocked")
        }

        @Test("Signals of other programs lock nothing", arguments: User.usual)
        func forged(user: User) throws {
            let (volume, manager) = try watched(user, ["--lock-with-screen"])
            #expect(try manager.tell("forge") == "sent")
            #expect(try manager.tell("wake") == "taken")
            #expect(try state(volume) == "unlocked")
        }

        @Test("The watching process ends with its daemon", arguments: User.usual)
        func endsWithDaemon(user: User) throws {
            let (volume, manager) = try watched(user)
            let daemon = try #require(volume.daemonProcess())
            try volume.kill()
            let hasEnded = comesTrue {
                !TestEnvironment.shared.processes().contains { line in
                    line.contains("session-watch") && line.contains(volume.directory)
                }
            }
            #expect(hasEnded, "the watching process ends")
            #expect(try manager.tell("locks").hasSuffix(" 0"), "daemon \(daemon) and its lock")
        }

        // MARK: Requirements of a lock, and what is said

        @Test(
            "Each delay lock stands alone: one that is refused is told, the other is held",
            arguments: User.usual, ["sleep", "shutdown"])
        func refused(user: User, kind: String) throws {
            let (volume, manager) = try watched(user, telling: ["refuse \(kind)"])
            let other = kind == "sleep" ? "shutdown" : "sleep"
            #expect(try manager.tell("held \(kind)") == "0")
            #expect(try manager.tell("held \(other)") == "1")
            let shown = try volume.ward("status", volume.mountPoint).output
            #expect(
                shown.contains("locks at") && shown.contains("\(kind) (the login manager refuses"),
                "\(shown)")
            let triggers = try locksAt(volume)
            #expect(triggers[other] == "armed", "\(triggers)")
            #expect(triggers[kind]?.contains("refuses") == true, "\(triggers)")
            #expect(
                try ControlEvent.latest(of: volume).contains {
                    $0.kind == "note"
                        && $0.fields["detail"]?.contains(
                            "at \(kind) the volume is locked, and nothing waits")
                            == true
                }, "an event says so")
            #expect(
                try String(contentsOfFile: volume.deviceDirectory() + "/ward.log", encoding: .utf8)
                    .contains("nothing waits for that"), "and the log")
            // The signal locks without the delay lock, too.
            #expect(try manager.tell(kind) == "released")
            #expect(try eventually(volume, "locked"))
        }

        @Test(
            "Another socket in the place of the volume's changes nothing about sleep",
            arguments: User.usual)
        func withoutASocket(user: User) throws {
            let (volume, manager) = try watched(user)
            let socket = try #require(volume.socketPath())
            #expect(rename(socket, socket + ".hidden") == 0)
            #expect(try manager.tell("sleep") == "released")
            #expect(try volume.probe().readFile("A/f") == .eperm)
            rename(socket + ".hidden", socket)
        }

        @Test(
            "A watch that was killed is replaced, and its daemon locks meanwhile",
            arguments: User.usual)
        func killedWatch(user: User) throws {
            let (volume, manager) = try watched(user)
            let first = try #require(volume.helper("session-watch"))
            Glibc.kill(first, SIGKILL)
            #expect(try eventually(volume, "locked"))
            #expect(try manager.tell("wait") == "taken")
            #expect(volume.helper("session-watch") != first)
            try volume.unlock()
            #expect(try manager.tell("sleep") == "released")
            #expect(try state(volume) == "locked", "by the connection of the new one")
        }

        @Test(
            "Sleep waits for a daemon that is stopped, and wakes it, without its watchdog",
            arguments: User.usual)
        func stoppedDaemon(user: User) throws {
            let (volume, manager) = try watched(user)
            let daemon = try #require(volume.daemonProcess())
            let watchdog = try #require(volume.helper("watchdog"))
            Glibc.kill(daemon, SIGSTOP)
            defer { Glibc.kill(daemon, SIGCONT) }
            Glibc.kill(watchdog, SIGSTOP)
            defer { Glibc.kill(watchdog, SIGCONT) }
            #expect(try manager.tell("sleep") == "released")
            #expect(try volume.probe().readFile("A/f") == .eperm)
        }

        @Test(
            "The end of the user's last session locks, signalled or not",
            arguments: ["end", "state closing"])
        func logout(how: String) throws {
            let (volume, manager) = try watched(.ordinaryUser)
            #expect(try locksAt(volume)["logout"] == "armed")
            _ = try manager.tell(how)
            #expect(try eventually(volume, "locked"), "\(how)")
            _ = try manager.tell("begin")
            try volume.unlock()
            #expect(try state(volume) == "unlocked")
            _ = try manager.tell("end")
            #expect(try eventually(volume, "locked"), "the next time, too")
        }

        @Test("Logging out locks nothing where that was not wanted, or nobody was logged in")
        func noLogout() throws {
            let (kept, manager) = try watched(.ordinaryUser, ["--keep-at-logout"])
            #expect(try locksAt(kept)["logout"] == nil)
            _ = try manager.tell("end")
            #expect(try manager.tell("wake") == "taken")
            #expect(try state(kept) == "unlocked")

            let (headless, other) = try watched(.ordinaryUser, telling: ["state lingering"])
            #expect(try locksAt(headless)["logout"]?.contains("no session") == true)
            _ = try other.tell("begin")
            _ = try other.tell("end")
            #expect(try other.tell("wake") == "taken")
            #expect(try state(headless) == "unlocked", "it was there before any session")
        }

        @Test(
            "--lock-with-screen that can't be had is an error of the mount",
            arguments: User.usual, ["no bus", "nobody listens", "no login manager"])
        func noScreen(user: User, lack: String) throws {
            let volume = try MountedVolume(
                directoryOnlyAs: user, mountArguments: ["--lock-with-screen"])
            var manager: LoginManager?
            switch lack {
            case "no login manager":
                manager = try LoginManager(as: user, in: volume.directory + "/home")
                volume.variables["DBUS_SYSTEM_BUS_ADDRESS"] = manager?.address
                _ = try manager?.tell("gone")
            case "nobody listens":
                volume.variables["DBUS_SYSTEM_BUS_ADDRESS"] = "unix:path=/nonexistent/bus"
            default:
                guard access("/run/dbus/system_bus_socket", F_OK) != 0 else { return }
            }
            try volume.initialize()
            let failed = try volume.ward(
                "mount", volume.volume, volume.mountPoint, "--lock-with-screen")
            #expect(failed.status == 69, "\(failed.everything)")
            #expect(failed.errors.contains("ward: hint: "), "\(failed.everything)")
            #expect(
                failed.errors.contains(lack == "no login manager" ? lack : "no system bus"),
                "\(failed.everything)")
            #expect(
                TestEnvironment.shared.mounts().allSatisfy { $0 != volume.mountPoint },
                "nothing stays mounted")
            // Without the requirement there is a mount, and its status says what does not lock it.
            let mounted = try volume.ward("mount", volume.volume, volume.mountPoint)
            #expect(mounted.succeeded, "\(mounted.everything)")
            let shown = try volume.ward("status", volume.mountPoint).output
            #expect(shown.contains("locks at   nothing ("), "\(shown)")
            try volume.unmount()
            _ = manager
        }

        @Test("A login manager that is lost is told, and watched again", arguments: User.usual)
        func lost(user: User) throws {
            let (volume, manager) = try watched(user, ["--lock-with-screen"])
            #expect(try locksAt(volume)["screen"] == "armed")
            #expect(try manager.tell("gone") == "gone")
            for kind in ["sleep", "screen"] {
                #expect(
                    try comesTrue {
                        try locksAt(volume)[kind]?.contains("no login manager") == true
                    },
                    "\(kind)")
            }
            #expect(
                try ControlEvent.latest(of: volume).contains {
                    $0.fields["detail"]?.contains("nothing locks at screen") == true
                })
            #expect(try manager.tell("back") == "back")
            #expect(try comesTrue { try locksAt(volume)["screen"] == "armed" })
            #expect(try manager.tell("wait") == "taken")
        }

        /// The state of each wanted kind: "armed", or what is missing.
        private func locksAt(_ volume: MountedVolume) throws -> [String: String] {
            let status = try volume.ward("status", volume.mountPoint, "--json")
            let object = try JSONSerialization.jsonObject(with: Data(status.output.utf8))
            let triggers = (object as? [String: Any])?["locksAt"] as? [[String: Any]] ?? []
            var found: [String: String] = [:]
            for trigger in triggers {
                found[trigger["kind"] as? String ?? ""] = trigger["why"] as? String ?? "armed"
            }
            return found
        }

        private func state(_ volume: MountedVolume) throws -> String {
            let status = try volume.ward("status", volume.mountPoint, "--json")
            let object = try JSONSerialization.jsonObject(with: Data(status.output.utf8))
            return ((object as? [String: Any])?["state"] as? String) ?? status.everything
        }

        private func eventually(_ volume: MountedVolume, _ wanted: String) throws -> Bool {
            try comesTrue { try state(volume) == wanted }
        }
    }
}
