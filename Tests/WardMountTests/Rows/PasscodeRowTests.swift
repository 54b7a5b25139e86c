import Foundation
import Testing

extension MountSuite {
    /// Rows L7 and L9 of semantics.md: the passcode and the effaceable key.
    @Suite struct PasscodeRowTests {
        @Test("L7: after a change only the new passcode works", arguments: User.usual)
        func changed(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            try StateWalk.makeDirectory(of: .complete, with: probe)
            let old = volume.directory + "/old"
            try volume.writePasscode(MountedVolume.passcode, to: old)
            try volume.writePasscode("the new one", to: volume.directory + "/new")
            let change = try volume.ward(
                "passcode", "change", volume.mountPoint, "--passcode-file", old,
                "--new-passcode-file", volume.directory + "/new")
            #expect(change.succeeded, "\(change.everything)")
            try volume.writePasscode("the new one", to: volume.passcodeFile)
            for round in ["in the same mount", "after a remount"] {
                try volume.reboot()
                let refused = try volume.ward(
                    "unlock", volume.mountPoint, "--passcode-file", old)
                #expect(refused.status == 12, "\(round): \(refused.everything)")
                #expect(probe.open("A/f", "r", as: "fd") == .eperm)
                try volume.unlock()
                #expect(probe.readFile("A/f") == .data("content of A"))
                try volume.remount()
            }
        }

        @Test("L7: a keybag from before a change opens nothing", arguments: User.usual)
        func oldKeybag(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            try StateWalk.makeDirectory(of: .complete, with: probe)
            let old = volume.directory + "/old"
            try volume.writePasscode(MountedVolume.passcode, to: old)
            try volume.shell(
                "mkdir $OUT/before; cp -a '\(volume.volume)'/ward.keybag* $OUT/before/")
            try volume.writePasscode("the new one", to: volume.directory + "/new")
            let change = try volume.ward(
                "passcode", "change", volume.mountPoint, "--passcode-file", old,
                "--new-passcode-file", volume.directory + "/new")
            #expect(change.succeeded, "\(change.everything)")
            try volume.unmount()
            try volume.shell(
                "mkdir $OUT/after; cp -a '\(volume.volume)'/ward.keybag* $OUT/after/; "
                    + "cp -a $OUT/before/* '\(volume.volume)/'")
            let mounted = try volume.ward("mount", volume.volume, volume.mountPoint)
            #expect(!mounted.succeeded, "an older keybag is a replay: \(mounted.everything)")
            if mounted.succeeded {
                let unlocked = try volume.ward("unlock", volume.mountPoint, "--passcode-file", old)
                #expect(!unlocked.succeeded, "\(unlocked.everything)")
                try volume.unmount()
            }
            // The old keybag does not open either when the device has forgotten its generation: the
            // effaceable key is a new one.
            let device = try volume.deviceDirectory()
            try volume.shell("rm -f '\(device)/remembered'")
            let forgotten = try volume.ward("mount", volume.volume, volume.mountPoint)
            if forgotten.succeeded {
                let unlocked = try volume.ward("unlock", volume.mountPoint, "--passcode-file", old)
                #expect(!unlocked.succeeded, "\(unlocked.everything)")
                try volume.unmount()
            }
            try volume.shell("cp -a $OUT/after/* '\(volume.volume)/'")
            try volume.writePasscode("the new one", to: volume.passcodeFile)
            try volume.mount()
            try volume.unlock()
            #expect(try volume.probe().readFile("A/f") == .data("content of A"))
        }

        @Test(
            "L7: setting a first passcode protects existing files at once",
            arguments: User.usual)
        func firstPasscode(user: User) throws {
            let volume = try MountedVolume(as: user, passcode: nil)
            let probe = try volume.probe()
            try StateWalk.makeDirectories(with: probe)
            try volume.writePasscode("first", to: volume.passcodeFile)
            let set = try volume.ward(
                "passcode", "set", volume.mountPoint, "--passcode-file", volume.passcodeFile)
            #expect(set.succeeded, "\(set.everything)")
            #expect(probe.readFile("A/f") == .data("content of A"), "S2 afterwards")
            try volume.lockNow()
            for fileClass in FileClass.allCases {
                #expect(
                    probe.readFile("\(fileClass.letter)/f")
                        == .allowed(
                            LockState.locked.opens(fileClass), .data(StateWalk.content(fileClass))))
            }
            try volume.unmount()
            try volume.mount()
            let second = try volume.probe()
            #expect(second.open("A/f", "r", as: "fd") == .eperm)
            try volume.unlock()
            #expect(second.readFile("A/f") == .data("content of A"))

            let wrong = try volume.ward(
                "passcode", "set", volume.mountPoint, "--passcode-file", volume.passcodeFile)
            #expect(!wrong.succeeded, "one is set already: \(wrong.everything)")
        }

        @Test(
            "L7: a change whose last step fails counts for the lock state too",
            arguments: User.usual)
        func unfinished(user: User) throws {
            let volume = try MountedVolume(as: user, passcode: nil)
            let obstacle = try volume.deviceDirectory() + "/remembered.new"
            try volume.writePasscode("first", to: volume.passcodeFile)
            try volume.shell("mkdir '\(obstacle)'")
            let set = try volume.ward(
                "passcode", "set", volume.mountPoint, "--passcode-file", volume.passcodeFile)
            #expect(!set.succeeded && set.errors.contains("took effect"), "\(set.everything)")
            try volume.lockNow()
            let locked = try volume.ward("status", volume.mountPoint, "--json")
            #expect(locked.output.contains(#""state":"locked""#), "\(locked.everything)")
            let removed = try volume.ward(
                "passcode", "remove", volume.mountPoint, "--passcode-file", volume.passcodeFile)
            #expect(!removed.succeeded, "\(removed.everything)")
            let open = try volume.ward("status", volume.mountPoint, "--json")
            #expect(open.output.contains(#""state":"noPasscode""#), "\(open.everything)")
            #expect(try volume.probe().writeFile("f", "content") == .ok)
            try volume.shell("rmdir '\(obstacle)'")
            try volume.remount()
            #expect(try volume.probe().readFile("f") == .data("content"))
        }

        @Test("L7: removing the passcode leads back to S0", arguments: User.usual)
        func removed(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            try StateWalk.makeDirectories(with: probe)
            let removed = try volume.ward(
                "passcode", "remove", volume.mountPoint, "--passcode-file", volume.passcodeFile)
            #expect(removed.succeeded, "\(removed.everything)")
            for round in 0..<2 {
                try volume.ward("lock", volume.mountPoint, "--now")
                try volume.advance(seconds: 100)
                let reading = try volume.probe()
                for fileClass in FileClass.allCases {
                    #expect(
                        reading.readFile("\(fileClass.letter)/f")
                            == .data(StateWalk.content(fileClass)), "round \(round)")
                }
                try volume.unmount()
                try volume.mount()
            }
        }

        @Test(
            "L9: without the effaceable key nothing on the device opens again",
            arguments: User.usual)
        func l9(user: User) throws {
            for damage in ["rm -f KEY", "head -c \"$(stat -c %s KEY)\" /dev/zero > KEY"] {
                let volume = try MountedVolume(as: user)
                let probe = try volume.probe()
                try StateWalk.makeDirectories(with: probe)
                try volume.unmount()
                let key = try volume.deviceDirectory() + "/effaceable.key"
                try volume.shell("cp -a '\(volume.volume)' $OUT/copy; test -s '\(key)'")
                try volume.shell(damage.replacingOccurrences(of: "KEY", with: "'\(key)'"))
                // Neither the volume opens, nor a copy that was made while the key was there.
                for path in [volume.volume, volume.directory + "/home/copy"] {
                    let mounted = try volume.ward("mount", path, volume.mountPoint)
                    #expect(!mounted.succeeded, "after \(damage): \(mounted.everything)")
                    #expect(mounted.errors.hasPrefix("ward: error: "), "\(mounted.everything)")
                    #expect(mounted.errors.contains("ward: hint: "), "\(mounted.everything)")
                    if mounted.succeeded { try volume.unmount() }
                }
            }
        }
    }
}
