import Foundation
import Testing

extension MountSuite {
    /// ward's messages about volumes that it can't open: exit code, fact, advice.
    @Suite struct BadVolumeTests {
        @Test("Not a volume", arguments: User.usual)
        func notAVolume(user: User) throws {
            let volume = try MountedVolume(directoryOnlyAs: user)
            var transcript = Transcript(volume)
            let home = volume.directory + "/home"
            try volume.shell(
                "mkdir $OUT/empty $OUT/pictures; touch $OUT/pictures/cat.jpg $OUT/file")
            try transcript.ward("mount", home + "/missing", volume.mountPoint, exit: 66)
            try transcript.ward("mount", home + "/file", volume.mountPoint, exit: 10)
            try transcript.ward("mount", home + "/empty", volume.mountPoint, exit: 10)
            try transcript.ward("mount", home + "/pictures", volume.mountPoint, exit: 10)
            try transcript.ward(
                "init", home + "/pictures", "--passcode-file", volume.passcodeFile, exit: 73)
            try transcript.ward(
                "unlock", home + "/pictures", "--passcode-file", volume.passcodeFile, exit: 10)
            try transcript.ward("class", "show", home + "/pictures/cat.jpg", exit: 10)
            try transcript.check("not-a-volume")
            #expect(
                try volume.shell("ls -A $OUT/empty $OUT/pictures").contains("cat.jpg"),
                "nothing was changed")
        }

        @Test("A damaged keybag: each copy, and both", arguments: User.usual)
        func damagedKeybag(user: User) throws {
            let volume = try MountedVolume(as: user)
            try StateWalk.makeDirectory(of: .complete, with: volume.probe())
            try volume.unmount()
            try volume.shell("cp -a '\(volume.volume)' $OUT/whole")
            let damage = [
                (
                    "four bytes changed",
                    "printf xxxx | dd of=KEYBAG bs=1 seek=100 conv=notrunc status=none"
                ),
                ("cut off", "truncate -s 70 KEYBAG"), ("emptied", ": > KEYBAG"),
                ("lost", "rm KEYBAG"), ("grown", "head -c 100000 /dev/zero >> KEYBAG"),
            ]
            var transcript = Transcript(volume)
            for (how, command) in damage {
                for copies in [
                    ["ward.keybag"], ["ward.keybag.copy"], ["ward.keybag", "ward.keybag.copy"],
                ] {
                    for copy in copies {
                        try volume.shell(
                            command.replacingOccurrences(
                                of: "KEYBAG", with: "'\(volume.volume)/\(copy)'"))
                    }
                    transcript.remark("\(copies.joined(separator: ", ")): \(how)")
                    if copies.count == 1 {
                        try transcript.ward("mount", volume.volume, volume.mountPoint, exit: 0)
                        try volume.unlock()
                        #expect(try volume.probe().readFile("A/f") == .data("content of A"))
                        try volume.unmount()
                    } else {
                        // Without both keybags it is a directory that may have been a volume.
                        let status: Int32 = how == "lost" ? 10 : 14
                        try transcript.ward("mount", volume.volume, volume.mountPoint, exit: status)
                    }
                    try volume.shell(
                        "cp -a $OUT/whole/ward.keybag $OUT/whole/ward.keybag.copy '\(volume.volume)/'"
                    )
                }
            }
            try transcript.check("damaged-keybag")
            try volume.mount()
            try volume.unlock()
            #expect(try volume.probe().readFile("A/f") == .data("content of A"))
        }

        @Test("Other structures of the root damaged", arguments: User.usual)
        func damagedRoot(user: User) throws {
            let volume = try MountedVolume(as: user)
            try StateWalk.makeDirectory(of: .complete, with: volume.probe())
            try volume.unmount()
            var transcript = Transcript(volume)
            let path = volume.volume
            try volume.shell("cp -a '\(path)/ward.state' $OUT/; truncate -s 5 '\(path)/ward.state'")
            transcript.remark("ward.state is cut off")
            try transcript.ward("mount", path, volume.mountPoint, exit: 14)
            try volume.shell(
                "cp -a $OUT/ward.state '\(path)/'; mv '\(path)/.ward' $OUT/record; "
                    + "ln -s nonsense '\(path)/.ward'")
            transcript.remark("the root's directory record is another")
            try transcript.ward("mount", path, volume.mountPoint, exit: 14)
            try volume.shell("rm '\(path)/.ward'")
            transcript.remark("the root's directory record is lost")
            try transcript.ward("mount", path, volume.mountPoint, exit: 14)
            try transcript.check("damaged-root")
            try volume.shell("mv $OUT/record '\(path)/.ward'")
            try volume.mount()
            try volume.unlock()
            #expect(try volume.probe().readFile("A/f") == .data("content of A"))
        }

        @Test("A newer format", arguments: User.usual)
        func newerFormat(user: User) throws {
            let volume = try MountedVolume(as: user)
            try volume.unmount()
            // Correct, checksum included, but with content that this version does not know.
            try volume.shell(
                """
                \(TestEnvironment.shared.python) - '\(volume.volume)' <<'PYTHON'
                import hashlib, sys
                for name in ("ward.keybag", "ward.keybag.copy"):
                    path = sys.argv[1] + "/" + name
                    bytes = open(path, "rb").read()[:-32]
                    bytes = bytes[:8] + b"\\3\\0" + bytes[10:] + b"something new"
                    open(path, "wb").write(bytes + hashlib.sha256(bytes).digest())
                PYTHON
                """)
            var transcript = Transcript(volume)
            try transcript.ward("mount", volume.volume, volume.mountPoint, exit: 14)
            try transcript.check("newer-format")
        }

        @Test("No device key, and a volume copied from another device", arguments: User.usual)
        func noDeviceKey(user: User) throws {
            let volume = try MountedVolume(as: user)
            try volume.unmount()
            var transcript = Transcript(volume)
            let device = try volume.deviceDirectory()
            transcript.remark("device.key is lost")
            try volume.shell("mv '\(device)/device.key' $OUT/")
            let done = try transcript.ward("mount", volume.volume, volume.mountPoint, exit: 78)
            #expect(done.errors.contains(device + "/device.key"), "where it should be")
            #expect(done.errors.contains("recovery"), "what a copied volume needs")
            transcript.remark("the whole state directory is lost")
            try volume.shell("mv '\(device)' $OUT/device")
            try transcript.ward("mount", volume.volume, volume.mountPoint, exit: 78)
            transcript.remark("device.key of another device")
            try volume.shell(
                "mkdir -p '\(volume.stateDirectory)/ward'; mv $OUT/device '\(device)'; "
                    + "head -c \"$(stat -c %s $OUT/device.key)\" /dev/urandom > '\(device)/device.key'; "
                    + "chmod 600 '\(device)/device.key'")
            let other = try volume.ward("mount", volume.volume, volume.mountPoint)
            #expect(
                !other.succeeded && other.errors.contains("ward: hint: "), "\(other.everything)")
            try transcript.check("no-device-key")
            try volume.shell("mv $OUT/device.key '\(device)/device.key'")
            try volume.mount()
            try volume.unlock()
        }
    }
}
