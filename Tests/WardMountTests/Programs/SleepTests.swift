import Foundation
import Testing

extension MountSuite {
    /// Sleep, shutdown and locked screens, as the login manager announces them.
    @Suite struct SleepTests {
        /// A volume with an A file, whose daemon listens to a login manager.
        private func watched(
            _ user: User, _ arguments: [String] = []
        ) throws -> (MountedVolume, LoginManager) {
            let volume = try MountedVolume(directoryOnlyAs: user, mountArguments: arguments)
            let manager = try LoginManager(as: user, in: volume.directory + "/home")
            volume.variables["DBUS_SYSTEM_BUS_ADDRESS"] = manager.address
            try volume.initialize()
            try volume.mount()
            try volume.unlock()
            try StateWalk.makeDirectory(of: .complete, with: try volume.probe())
            #expect(try manager.tell("wait") == "taken", "a delay lock is held")
            return (volume, manager)
        }

        @Test(
            "L1: sleep and shutdown wait until class A is gone, without a grace period",
            arguments: User.available)
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

        @Test("A screen that is locked locks where that is wanted", arguments: User.available)
        func screen(user: User) throws {
            let (volume, manager) = try watched(user, ["--lock-with-screen"])
            for command in ["lock", "hint"] {
                _ = try manager.tell("\(command) /org/freedesktop/login1/session/_31")
                #expect(try eventually(volume, "locking"), "\(command): with the grace period")
                try volume.unlock()
            }
            if user == .ordinaryUser {
                _ = try manager.tell("lock /org/freedesktop/login1/session/other")
                // Signals come in order: once this one is handled the other was.
                #expect(try manager.tell("wake") == "taken")
                #expect(try state(volume) == "unlocked", "another user's session")
            }
        }

        @Test("Without --lock-with-screen the screen changes nothing", arguments: User.available)
        func notAsked(user: User) throws {
            let (volume, manager) = try watched(user)
            _ = try manager.tell("lock /org/freedesktop/login1/session/_31")
            #expect(try manager.tell("wake") == "taken")
            #expect(try state(volume) == "unlocked")
        }

        @Test("Signals of other programs lock nothing", arguments: User.available)
        func forged(user: User) throws {
            let (volume, manager) = try watched(user, ["--lock-with-screen"])
            #expect(try manager.tell("forge") == "sent")
            #expect(try manager.tell("wake") == "taken")
            #expect(try state(volume) == "unlocked")
        }

        @Test("The watching process ends with its daemon", arguments: User.available)
        func endsWithDaemon(user: User) throws {
            let (volume, manager) = try watched(user)
            let daemon = try #require(volume.daemonProcess())
            try volume.kill()
            for _ in 0..<500
            where TestEnvironment.shared.processes().contains(where: { line in
                line.contains("session-watch") && line.contains(volume.directory)
            }) {
                usleep(10_000)
            }
            #expect(try manager.tell("locks").hasSuffix(" 0"), "daemon \(daemon) and its lock")
        }

        private func state(_ volume: MountedVolume) throws -> String {
            let status = try volume.ward("status", volume.mountPoint, "--json")
            let object = try JSONSerialization.jsonObject(with: Data(status.output.utf8))
            return ((object as? [String: Any])?["state"] as? String) ?? status.everything
        }

        private func eventually(_ volume: MountedVolume, _ wanted: String) throws -> Bool {
            for _ in 0..<500 {
                if try state(volume) == wanted { return true }
                usleep(10_000)
            }
            return false
        }
    }
}
