import Foundation
import Testing

extension MountSuite {
    /// ward's messages about passcodes that it can't use.
    @Suite struct BadPasscodeTests {
        @Test("A wrong passcode", arguments: User.usual)
        func wrong(user: User) throws {
            let volume = try MountedVolume(as: user)
            try StateWalk.makeDirectory(of: .complete, with: volume.probe())
            try volume.lockNow()
            var transcript = Transcript(volume)
            let wrong = volume.directory + "/wrong"
            try volume.writePasscode("wrong horse", to: wrong)
            try transcript.ward("unlock", volume.mountPoint, "--passcode-file", wrong, exit: 12)
            #expect(try volume.probe().open("A/f", "r", as: "fd") == .eperm)
            try transcript.ward(
                "passcode", "remove", volume.mountPoint, "--passcode-file", wrong, exit: 12)
            try transcript.ward(
                "unlock", volume.mountPoint, "--passcode-file", volume.passcodeFile, exit: 0)
            try transcript.check("wrong-passcode")
            #expect(try volume.probe().readFile("A/f") == .data("content of A"))
        }

        @Test("Empty and unusable passcodes", arguments: User.usual)
        func unusable(user: User) throws {
            let volume = try MountedVolume(directoryOnlyAs: user)
            var transcript = Transcript(volume)
            let file = volume.directory + "/passcode-to-try"
            let contents: [(String, [UInt8])] = [
                ("nothing", []), ("only a newline", [10]), ("not UTF-8", [0xff, 0xfe, 0x41]),
                ("1,025 bytes", [UInt8](repeating: 97, count: 1025)),
            ]
            for (what, bytes) in contents {
                try Data(bytes).write(to: URL(fileURLWithPath: file))
                chown(file, user.userID, user.groupID)
                transcript.remark("the passcode is \(what)")
                try transcript.ward("init", volume.volume, "--passcode-file", file, exit: 65)
            }
            try transcript.ward(
                "init", volume.volume, "--passcode-file", volume.directory + "/missing", exit: 66)
            try transcript.check("unusable-passcode")
            #expect(try FileManager.default.contentsOfDirectory(atPath: volume.volume).isEmpty)
        }

        @Test("A passcode may hold anything that is text", arguments: User.usual)
        func unusual(user: User) throws {
            for passcode in [
                " ", "ü\"\\\u{1f512}\u{7}", String(repeating: "p", count: 1024), "a\nb",
            ] {
                let volume = try MountedVolume(as: user, passcode: passcode)
                try StateWalk.makeDirectory(of: .complete, with: volume.probe())
                try volume.lockNow()
                try volume.unlock()
                #expect(try volume.probe().readFile("A/f") == .data("content of A"))
            }
            // One newline at the end of the file does not belong to the passcode. Both Unicode
            // normal forms are the same passcode.
            let volume = try MountedVolume(as: user, passcode: "u\u{308}ber\n")
            try volume.lockNow()
            try volume.writePasscode("\u{fc}ber", to: volume.passcodeFile)
            try volume.unlock()
        }
    }
}
