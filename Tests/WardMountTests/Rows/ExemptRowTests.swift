import Foundation
import Testing

extension MountSuite {
    /// Rows O9 to O12 of semantics.md, directories, and special files: allowed in every state.
    @Suite struct ExemptRowTests {
        @Test(
            "O9: fsync, close, flock and record locks succeed in every state",
            arguments: User.available)
        func o9(user: User) throws {
            try StateWalk(user: user).run { probe, fileClass in
                for state in LockState.allCases {
                    let key = "\(fileClass.letter) \(state.rawValue)"
                    #expect(probe.open("\(fileClass.letter)/f", "rw", as: key) == .ok)
                    #expect(probe.pwrite(key, "c") == .number(1))
                }
            } check: { probe, state, fileClass in
                let key = "\(fileClass.letter) \(state.rawValue)"
                let comment: Comment = "\(key) as \(user.rawValue)"
                #expect(probe.fsync(key) == .ok, comment)
                #expect(probe.call("fdatasync", key) == .ok, comment)
                #expect(probe.call("flock", key) == .ok, comment)
                #expect(probe.call("funlock", key) == .ok, comment)
                #expect(probe.call("lockf", key) == .ok, comment)
                #expect(probe.close(key) == .ok, comment)
            }
        }

        @Test(
            "O10: stat, access, the class, chmod, chown and utimes succeed in every state",
            arguments: User.available)
        func o10(user: User) throws {
            try StateWalk(user: user).run { probe, state, fileClass in
                let file = fileClass.letter + "/f"
                let comment: Comment = "\(file) in \(state.rawValue) as \(user.rawValue)"
                let size = StateWalk.content(fileClass).utf8.count
                #expect(probe.stat(file, "size") == .number(size), comment)
                #expect(probe.call("access", file, 4) == .ok, comment)
                #expect(probe.protectionClass(file) == .data(fileClass.apple), comment)
                #expect(probe.call("chmod", file, 0o640) == .ok, comment)
                #expect(probe.stat(file, "mode") == .data("640"), comment)
                #expect(probe.call("chmod", file, 0o644) == .ok, comment)
                let owner = user == .root ? 1 : Int(user.userID)
                #expect(probe.call("chown", file, owner, Int(user.groupID)) == .ok, comment)
                #expect(probe.stat(file, "uid") == .number(owner), comment)
                let stamp = 1_700_000_000_123_456_789
                #expect(probe.call("utime", file, stamp, stamp + 1) == .ok, comment)
                #expect(probe.stat(file, "mtime_ns") == .number(stamp + 1), comment)
                #expect(probe.stat(file, "size") == .number(size), comment)
            }
        }

        @Test(
            "O11: extended attributes can be set, read, listed and removed in every state",
            arguments: User.available)
        func o11(user: User) throws {
            try StateWalk(user: user).run { probe, fileClass in
                #expect(probe.setxattr(fileClass.letter + "/f", "user.kept", "before") == .ok)
            } check: { probe, state, fileClass in
                let file = fileClass.letter + "/f"
                let comment: Comment = "\(file) in \(state.rawValue) as \(user.rawValue)"
                #expect(probe.setxattr(file, "user.note", "noted") == .ok, comment)
                #expect(probe.getxattr(file, "user.note") == .data("noted"), comment)
                #expect(probe.getxattr(file, "user.kept") == .data("before"), comment)
                #expect(
                    probe.call("listxattr", file) == .data("user.kept user.note user.ward.class"),
                    comment)
                #expect(probe.call("removexattr", file, "user.note") == .ok, comment)
                #expect(probe.getxattr(file, "user.note") == .enodata, comment)
                // A file without data has no key yet; its attributes must not need one.
                if state.creates(fileClass) {
                    let empty = "\(fileClass.letter)/empty in \(state.rawValue)"
                    #expect(probe.call("mknod", empty, 0o100644) == .ok, comment)
                    #expect(probe.setxattr(empty, "user.note", "empty") == .ok, comment)
                    #expect(probe.getxattr(empty, "user.note") == .data("empty"), comment)
                }
            }
        }

        @Test(
            "O12: rename, link, unlink, rename over, symlink and readlink succeed in every state",
            arguments: User.available)
        func o12(user: User) throws {
            try StateWalk(user: user).run { probe, fileClass in
                for state in LockState.allCases {
                    #expect(
                        probe.writeFile("\(fileClass.letter)/old \(state.rawValue)", "old") == .ok)
                    #expect(
                        probe.writeFile("\(fileClass.letter)/over \(state.rawValue)", "gone") == .ok
                    )
                }
            } check: { probe, state, fileClass in
                let letter = fileClass.letter
                let comment: Comment = "\(letter) in \(state.rawValue) as \(user.rawValue)"
                #expect(
                    probe.rename("\(letter)/old \(state.rawValue)", "\(letter)/moved") == .ok,
                    comment)
                #expect(probe.link("\(letter)/moved", "\(letter)/second") == .ok, comment)
                #expect(probe.stat("\(letter)/second", "nlink") == .number(2), comment)
                #expect(probe.call("unlink", "\(letter)/moved") == .ok, comment)
                #expect(
                    probe.rename("\(letter)/second", "\(letter)/over \(state.rawValue)") == .ok,
                    comment)
                #expect(
                    probe.stat("\(letter)/over \(state.rawValue)", "size") == .number(3), comment)
                #expect(probe.call("symlink", "to/nowhere", "\(letter)/link") == .ok, comment)
                #expect(probe.call("readlink", "\(letter)/link") == .data("to/nowhere"), comment)
                #expect(probe.unlink("\(letter)/link") == .ok, comment)
            } finish: { probe, fileClass in
                let listed = probe.list(fileClass.letter).text.contains("old S4")
                // The volume in S0 went through one state only.
                let states = listed ? [.noPasscode] : LockState.walk
                for state in states {
                    #expect(
                        probe.readFile("\(fileClass.letter)/over \(state.rawValue)") == .data("old")
                    )
                }
            }
        }

        @Test(
            "Directories have a class but no key; special files have neither",
            arguments: User.available)
        func directoriesAndSpecialFiles(user: User) throws {
            try StateWalk(user: user).run { probe, fileClass in
                let letter = fileClass.letter
                #expect(probe.call("symlink", "target", "\(letter)/link") == .ok)
                #expect(probe.call("mkfifo", "\(letter)/fifo") == .ok)
            } check: { probe, state, fileClass in
                let letter = fileClass.letter
                let comment: Comment = "\(letter) in \(state.rawValue) as \(user.rawValue)"
                #expect(probe.list(letter) == .data("f fifo link"), comment)
                #expect(probe.call("readlink", "\(letter)/link") == .data("target"), comment)
                #expect(
                    probe.call("fifo", "\(letter)/fifo", "through") == .data("through"), comment)
                #expect(probe.mkdir("\(letter)/sub") == .ok, comment)
                #expect(probe.protectionClass("\(letter)/sub") == .data(fileClass.apple), comment)
                for other in FileClass.allCases {
                    #expect(probe.setClass("\(letter)/sub", other.letter) == .ok, comment)
                    #expect(probe.protectionClass("\(letter)/sub") == .data(other.apple), comment)
                }
                #expect(probe.call("rmdir", "\(letter)/sub") == .ok, comment)
                #expect(probe.call("mkfifo", "\(letter)/p") == .ok, comment)
                #expect(probe.call("socket", "\(letter)/s") == .ok, comment)
                #expect(probe.unlink("\(letter)/p") == .ok, comment)
                #expect(probe.unlink("\(letter)/s") == .ok, comment)
            }
        }
    }
}
