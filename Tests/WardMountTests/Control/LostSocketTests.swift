import Foundation
import Testing

extension MountSuite {
    /// The socket or record of a daemon is gone, or another program's. Commands must work or fail,
    /// and never report a wrong state.
    @Suite struct LostSocketTests {
        /// A volume with a file `A/f` of class A, unlocked.
        private func volume(as user: User) throws -> MountedVolume {
            let volume = try MountedVolume(as: user)
            try volume.shell(
                #"mkdir "$MNT/A" && setfattr -n user.ward.class -v complete "$MNT/A" && echo secret >"$MNT/A/f""#
            )
            return volume
        }

        private func isOpen(_ volume: MountedVolume) throws -> Bool {
            try Child.run(
                volume.user.prefix + ["cat", volume.mountPoint + "/A/f"],
                environment: volume.environment
            ).succeeded
        }

        /// Removes the socket, and freezes the store before the daemon has made it again.
        private func freeze(_ store: LoopStore, without socket: String) throws {
            while true {
                unlink(socket)
                try store.freeze(true)
                if !FileManager.default.fileExists(atPath: socket) { return }
                try store.freeze(false)
            }
        }

        private func note(_ volume: MountedVolume, _ text: String) throws -> Bool {
            try volume.ward("events", volume.mountPoint, "--last", "100", "--json").output
                .contains(text)
        }

        @Test("the runtime directory is lost while the volume is open", arguments: User.available)
        func lostDirectory(user: User) throws {
            let volume = try volume(as: user)
            let runtime = volume.runtimeDirectory
            try volume.shell("rm -rf '\(runtime)' && mkdir -m700 '\(runtime)'")
            let status = try volume.ward("status", volume.mountPoint)
            #expect(status.succeeded && status.output.contains("unlocked"), "\(status)")
            let locked = try volume.ward("lock", volume.mountPoint, "--now")
            #expect(locked.output == "\(volume.mountPoint): locked\n", "\(locked)")
            #expect(try !isOpen(volume))
            try volume.unlock()
            #expect(try isOpen(volume))
            #expect(try note(volume, "the control socket was gone"))
            let unmounted = try volume.ward("unmount", volume.mountPoint)
            #expect(unmounted.succeeded, "\(unmounted)")
        }

        @Test(
            "a runtime directory that never answers locks, and holds up no command",
            .enabled(if: geteuid() == 0), arguments: User.available)
        func hangingDirectory(user: User) throws {
            let store = try LoopStore(owner: user)
            let volume = try MountedVolume(directoryOnlyAs: user)
            volume.variables["XDG_RUNTIME_DIR"] = store.path + "/volume"
            chmod(store.path + "/volume", 0o700)
            try volume.initialize()
            try volume.mount()
            try volume.unlock()
            try volume.shell(
                #"mkdir "$MNT/A" && setfattr -n user.ward.class -v complete "$MNT/A" && echo secret >"$MNT/A/f""#
            )
            let runtime = store.path + "/volume/ward"
            let names = try FileManager.default.contentsOfDirectory(atPath: runtime)
            let socket = runtime + "/" + (try #require(names.first { $0.hasSuffix(".socket") }))
            try freeze(store, without: socket)
            defer { try? store.freeze(false) }
            let locked = try volume.ward("lock", volume.mountPoint, "--now", seconds: 30)
            #expect(locked.succeeded, "\(locked)")
            #expect(try !isOpen(volume))
            try store.freeze(false)
            #expect(comesTrue { FileManager.default.fileExists(atPath: socket) })
            try volume.unlock()
            #expect(try isOpen(volume))
            try freeze(store, without: socket)
            #expect(try comesTrue(within: 30) { try !isOpen(volume) }, "it stays open")
            try store.freeze(false)
            #expect(comesTrue { FileManager.default.fileExists(atPath: socket) })
            #expect(try note(volume, "its directory does not answer"))
            try volume.unmount()
        }

        @Test(
            "a daemon that starts takes away what one that died has left",
            arguments: User.available)
        func leftRecords(user: User) throws {
            let volume = try volume(as: user)
            let runtime = volume.runtimeDirectory + "/ward"
            let before = try FileManager.default.contentsOfDirectory(atPath: runtime)
            try volume.kill()
            try volume.mount()
            let after = try FileManager.default.contentsOfDirectory(atPath: runtime)
            #expect(after.count == before.count && Set(after).isDisjoint(with: before), "\(after)")
        }

        @Test("a record or a socket that is removed is there again", arguments: User.available)
        func removed(user: User) throws {
            let volume = try volume(as: user)
            let socket = try #require(volume.socketPath())
            let record = socket.replacingOccurrences(of: ".socket", with: ".json")
            for path in [record, socket] {
                unlink(path)
                #expect(
                    comesTrue {
                        FileManager.default.fileExists(atPath: record)
                            && FileManager.default.fileExists(atPath: socket)
                    }, "\(path)")
                let done = try volume.ward("status", "--json", volume.mountPoint)
                #expect(done.succeeded && done.errors.isEmpty, "\(done)")
            }
            #expect(try isOpen(volume), "a cleaner is no reason to lock")
        }

        @Test(
            "a FIFO in the place of a record, of a new one, or of none holds up no command",
            arguments: User.available)
        func fifo(user: User) throws {
            let volume = try volume(as: user)
            let socket = try #require(volume.socketPath())
            let record = socket.replacingOccurrences(of: ".socket", with: ".json")
            let other =
                URL(fileURLWithPath: socket).deletingLastPathComponent().path + "/other.json"
            // The daemon writes a record that is gone anew, so a FIFO is renamed over it.
            try volume.shell(
                """
                mkfifo '\(record).new' '\(other)' '\(record).fifo'
                mv '\(record).fifo' '\(record)'
                """)
            #expect(
                try comesTrue {
                    let attributes = try FileManager.default.attributesOfItem(atPath: record)
                    return attributes[.type] as? FileAttributeType == .typeRegular
                }, "the record is made again")
            let status = try volume.ward("status", volume.mountPoint)
            #expect(status.succeeded && status.output.contains("unlocked"), "\(status)")
            #expect(try volume.ward("status").output.contains(volume.mountPoint))
            #expect(try volume.ward("lock", volume.mountPoint, "--now").succeeded)
            #expect(try !isOpen(volume))
            unlink(other)
        }

        @Test(
            "a program that takes the socket's name gets no passcode, and the volume locks",
            arguments: User.available)
        func replaced(user: User) throws {
            let volume = try volume(as: user)
            let environment = TestEnvironment.shared
            let socket = try #require(volume.socketPath())
            let thief = try Child(
                user.prefix + [
                    environment.python, environment.script("false_socket.py"), socket,
                    volume.directory + "/home/heard",
                ], environment: volume.environment)
            #expect(try comesTrue { try !isOpen(volume) }, "it does not lock")
            #expect(try note(volume, "a program has put another socket"))
            for _ in 0..<5 {
                let locked = try volume.ward("lock", volume.mountPoint, "--now")
                #expect(locked.succeeded, "\(locked)")
                #expect(try !isOpen(volume))
                _ = try volume.ward(
                    "unlock", volume.mountPoint, "--passcode-file", volume.passcodeFile)
            }
            thief.kill()
            let heard = try String(
                contentsOfFile: volume.directory + "/home/heard", encoding: .utf8)
            #expect(!heard.contains(MountedVolume.passcode), "\(heard)")
            let unmounted = try volume.ward("unmount", "--force", volume.mountPoint)
            #expect(unmounted.succeeded, "\(unmounted)")
        }

        @Test(
            "a socket that can't be made again locks the volume; lock and unmount go through the mount",
            arguments: User.available)
        func lost(user: User) throws {
            let volume = try volume(as: user)
            let daemon = try #require(volume.daemonProcess())
            let socket = try #require(volume.socketPath())
            try volume.shell("prlimit --pid \(daemon) --nofile=3:3 && rm '\(socket)'")
            #expect(try comesTrue { try !isOpen(volume) }, "it does not lock")
            let status = try volume.ward("status", volume.mountPoint)
            #expect(status.succeeded && status.errors.contains("through the mount"), "\(status)")
            #expect(try volume.ward("lock", volume.mountPoint, "--now").succeeded)
            let unmounted = try volume.ward("unmount", volume.mountPoint)
            #expect(
                unmounted.succeeded && unmounted.errors.contains("by the kernel"), "\(unmounted)")
            try MountedVolume.waitForEnd(of: daemon)
        }

        @Test("a read-only mount, and a root that nobody may read, are locked through the mount")
        func unreadableRoot() throws {
            let volume = try volume(as: .available[0])
            try volume.shell(#"chmod 0 "$MNT""#)
            #expect(try volume.ward("lock", volume.mountPoint, "--now").succeeded)
            try volume.unlock()
            try volume.shell(#"chmod 700 "$MNT""#)
            try volume.unmount()
            try volume.mount(extra: ["--read-only"])
            try volume.unlock()
            #expect(try isOpen(volume))
            #expect(try volume.ward("lock", volume.mountPoint, "--now").succeeded)
            #expect(try !isOpen(volume))
        }

        @Test("only the user who mounted, and root, may lock through a mount that is for all")
        func stranger() throws {
            guard geteuid() == 0 else { return }
            let volume = try MountedVolume(as: .root, mountArguments: ["--allow-other"])
            chmod(volume.directory, 0o755)
            for name in ["lock-now", "status", "control", "locked"] {
                let asked = try Child.run(
                    User.ordinaryUser.prefix + [
                        "getfattr", "-n", "system.ward.mount.\(name)", volume.mountPoint,
                    ], environment: volume.environment)
                #expect(!asked.succeeded, "\(name): \(asked)")
            }
            #expect(try volume.ward("status", volume.mountPoint).output.contains("unlocked"))
            let own = try volume.shell(
                #"getfattr --only-values -n system.ward.mount.lock-now "$MNT""#)
            #expect(UInt64(own) != nil, "the lock's number")
        }

        @Test(
            "root's passcode goes to no process of another user, whatever a record says",
            .enabled(if: geteuid() == 0))
        func peerOfAnother() throws {
            let volume = try MountedVolume(directoryOnlyAs: .root)
            let environment = TestEnvironment.shared
            let theirs = try environment.makeDirectory("theirs")
            defer { try? FileManager.default.removeItem(atPath: theirs) }
            chown(theirs, 65534, 65534)
            let thief = try Child(
                User.ordinaryUser.prefix + [
                    environment.python, environment.script("false_socket.py"),
                    theirs + "/control", theirs + "/heard", "--alone",
                ], environment: volume.environment)
            #expect(
                comesTrue { FileManager.default.fileExists(atPath: theirs + "/heard") },
                "the other program's socket is asked")
            let uuid = "11111111-2222-4333-8444-555555555555"
            let runtime = volume.runtimeDirectory + "/ward"
            Glibc.mkdir(runtime, 0o700)
            let record: [String: Any] = [
                "uuid": uuid, "volume": "/nowhere", "mountpoint": "/nowhere", "device": 7,
                "pid": Int(thief.process), "socket": theirs + "/control",
            ]
            try JSONSerialization.data(withJSONObject: record).write(
                to: URL(fileURLWithPath: "\(runtime)/\(uuid.prefix(8))-7-\(thief.process).json"))
            let done = try volume.ward("unlock", uuid, "--passcode-file", volume.passcodeFile)
            #expect(done.status == 77 && done.errors.contains("uid 65534"), "\(done)")
            let heard = try String(contentsOfFile: theirs + "/heard", encoding: .utf8)
            #expect(heard == "listening\n")
        }

        @Test(
            "a lock on a volume without a passcode does not look like one",
            arguments: User.available)
        func withoutPasscode(user: User) throws {
            let volume = try MountedVolume(as: user, passcode: nil)
            for extra in [[], ["--now"]] {
                let done = try Child.run(
                    user.prefix + [
                        TestEnvironment.shared.ward, "lock", volume.mountPoint, "--json",
                    ]
                        + extra, environment: volume.environment)
                #expect(done.status == 16, "\(done)")
                #expect(done.errors.contains("nothing is locked"), "\(done)")
                #expect(done.output.contains(#""locked":false"#), "\(done)")
            }
        }
    }
}
