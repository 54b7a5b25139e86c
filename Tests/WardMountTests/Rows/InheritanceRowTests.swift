import Foundation
import Testing

extension MountSuite {
    /// Rows I1 to I6 and I13 of semantics.md: how a file gets its class and keeps it.
    @Suite struct InheritanceRowTests {
        @Test(
            "I1: a new file takes the class asked for, else its directory's, else the volume's",
            arguments: User.usual)
        func i1(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            #expect(probe.writeFile("top", "x") == .ok)
            #expect(
                probe.protectionClass("top")
                    == .data(FileClass.completeUntilFirstUserAuthentication.apple))
            for directory in FileClass.allCases {
                try StateWalk.makeDirectory(of: directory, with: probe)
                for asked in FileClass.allCases {
                    let name = "\(directory.letter)/asked \(asked.letter)"
                    #expect(probe.tmpfile(directory.letter, as: "t") == .ok)
                    #expect(probe.setClass("t", asked.rawValue) == .ok)
                    #expect(probe.pwrite("t", "x") == .number(1))
                    #expect(probe.linkat("t", name) == .ok)
                    #expect(probe.close("t") == .ok)
                    #expect(probe.protectionClass(name) == .data(asked.apple), "\(name)")
                }
            }
            try volume.remount()
            for directory in FileClass.allCases {
                #expect(probe.protectionClass("\(directory.letter)/f") == .data(directory.apple))
                for asked in FileClass.allCases {
                    let name = "\(directory.letter)/asked \(asked.letter)"
                    #expect(probe.protectionClass(name) == .data(asked.apple), "\(name)")
                    #expect(probe.readFile(name) == .data("x"))
                }
            }
        }

        @Test("I1: the volume's default is what `init --class` said", arguments: User.usual)
        func volumeDefault(user: User) throws {
            for fileClass in FileClass.allCases {
                let volume = try MountedVolume(
                    as: user, initArguments: ["--class", fileClass.rawValue])
                let probe = try volume.probe()
                #expect(probe.writeFile("f", "x") == .ok)
                #expect(probe.mkdir("d") == .ok)
                for path in ["f", "d", ""] {
                    #expect(probe.protectionClass(path) == .data(fileClass.apple), "\(path)")
                }
                // The class of the root can be changed like any directory's.
                #expect(probe.setClass("", "D") == .ok)
                #expect(probe.writeFile("g", "x") == .ok)
                #expect(probe.protectionClass("g") == .data(FileClass.none.apple))
                #expect(probe.protectionClass("f") == .data(fileClass.apple))
            }
        }

        @Test("I1: every spelling of a class is accepted", arguments: User.usual)
        func spellings(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            #expect(probe.writeFile("f", "x") == .ok)
            for fileClass in FileClass.allCases {
                let spellings = [
                    fileClass.rawValue, fileClass.letter, fileClass.letter.lowercased(),
                    fileClass.apple, "NSURL" + fileClass.apple.dropFirst(2),
                ]
                for spelling in spellings {
                    #expect(probe.setClass("f", spelling) == .ok, "\(spelling)")
                    #expect(probe.protectionClass("f") == .data(fileClass.apple), "\(spelling)")
                }
            }
            #expect(probe.setClass("f", "NSFileProtectionWriteOnly") == .ok)
            #expect(probe.protectionClass("f") == .data(FileClass.completeUnlessOpen.apple))
            #expect(probe.setClass("f", "NSFileProtectionCompleteUntilUserAuthentication") == .ok)
            #expect(
                probe.protectionClass("f")
                    == .data(FileClass.completeUntilFirstUserAuthentication.apple))
        }

        @Test(
            "I2: a class that can't be honoured now is refused, never replaced by another",
            arguments: User.usual)
        func i2(user: User) throws {
            try StateWalk(user: user).run { probe, state, fileClass in
                let name = "D/asked \(fileClass.letter) in \(state.rawValue)"
                let allowed = state.creates(fileClass)
                #expect(probe.tmpfile("D", as: "t") == .ok)
                #expect(probe.setClass("t", fileClass.apple) == .allowed(allowed), "\(name)")
                if allowed { #expect(probe.linkat("t", name) == .ok) }
                #expect(probe.close("t") == .ok)
                #expect(probe.exists(name) == allowed, "\(name)")
                if allowed { #expect(probe.protectionClass(name) == .data(fileClass.apple)) }
            }
        }

        @Test("I3: a new directory takes its parent's class", arguments: User.usual)
        func i3(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            for fileClass in FileClass.allCases {
                try StateWalk.makeDirectory(of: fileClass, with: probe)
                #expect(probe.call("makedirs", "\(fileClass.letter)/one/two/three") == .ok)
                #expect(probe.writeFile("\(fileClass.letter)/one/two/three/f", "deep") == .ok)
            }
            try volume.remount()
            for fileClass in FileClass.allCases {
                for path in ["one", "one/two", "one/two/three", "one/two/three/f"] {
                    #expect(
                        probe.protectionClass("\(fileClass.letter)/\(path)")
                            == .data(fileClass.apple), "\(fileClass.letter)/\(path)")
                }
            }
        }

        @Test(
            "I4: a directory's new class affects only what is created in it afterwards",
            arguments: User.usual)
        func i4(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            #expect(probe.mkdir("d") == .ok)
            var expected: [(String, FileClass)] = []
            for fileClass in FileClass.allCases {
                #expect(probe.setClass("d", fileClass.letter) == .ok)
                let name = "d/" + fileClass.letter
                #expect(probe.writeFile(name, "x") == .ok)
                #expect(probe.writeFile(name + " empty", "") == .ok)
                #expect(probe.mkdir(name + " directory") == .ok)
                expected += ["", " empty", " directory"].map { (name + $0, fileClass) }
                for (path, fileClass) in expected {
                    #expect(probe.protectionClass(path) == .data(fileClass.apple), "\(path)")
                }
            }
            try volume.remount()
            for (path, fileClass) in expected {
                #expect(probe.protectionClass(path) == .data(fileClass.apple), "\(path) remounted")
            }
        }

        @Test("I5: rename and hard link keep the file's class", arguments: User.usual)
        func i5(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            try StateWalk.makeDirectories(with: probe)
            for from in FileClass.allCases {
                for to in FileClass.allCases where to != from {
                    let moved = "\(to.letter)/moved from \(from.letter)"
                    let linked = "\(to.letter)/linked from \(from.letter)"
                    let empty = "\(to.letter)/empty from \(from.letter)"
                    #expect(probe.writeFile("\(from.letter)/tmp", "x") == .ok)
                    #expect(probe.rename("\(from.letter)/tmp", moved) == .ok)
                    #expect(probe.link("\(from.letter)/f", linked) == .ok)
                    // Also a file without a header, whose class is only its directory's so far.
                    #expect(probe.writeFile("\(from.letter)/tmp", "") == .ok)
                    #expect(probe.rename("\(from.letter)/tmp", empty) == .ok)
                }
            }
            try volume.remount()
            for from in FileClass.allCases {
                for to in FileClass.allCases where to != from {
                    for how in ["moved", "linked", "empty"] {
                        let name = "\(to.letter)/\(how) from \(from.letter)"
                        #expect(probe.protectionClass(name) == .data(from.apple), "\(name)")
                    }
                }
            }
            // The files behave by these classes.
            try volume.enter(.locked)
            #expect(probe.open("D/moved from A", "r", as: "fd") == .eperm)
            #expect(probe.readFile("A/moved from D") == .data("x"))
        }

        @Test("I6: a replaced file has the new file's own class", arguments: User.usual)
        func i6(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            try StateWalk.makeDirectories(with: probe)
            for new in FileClass.allCases {
                for old in FileClass.allCases where old != new {
                    let replaced = "\(old.letter)/replaced by \(new.letter)"
                    #expect(probe.writeFile(replaced, "old") == .ok)
                    #expect(probe.writeFile("\(new.letter)/tmp", "new") == .ok)
                    #expect(probe.rename("\(new.letter)/tmp", replaced) == .ok)
                    #expect(probe.protectionClass(replaced) == .data(new.apple), "\(replaced)")
                    #expect(probe.readFile(replaced) == .data("new"))
                }
            }
            // Replaced as programs do it: the new file has the directory's class, though the old
            // file had another.
            #expect(probe.writeFile("C/document", "old") == .ok)
            #expect(probe.setClass("C/document", "A") == .ok)
            #expect(probe.writeFile("C/document.tmp", "new") == .ok)
            #expect(probe.rename("C/document.tmp", "C/document") == .ok)
            #expect(
                probe.protectionClass("C/document")
                    == .data(FileClass.completeUntilFirstUserAuthentication.apple))
        }

        @Test("I13: copies carry the class along where attributes are", arguments: User.usual)
        func i13(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            for fileClass in FileClass.allCases {
                let letter = fileClass.letter
                try StateWalk.makeDirectory(of: fileClass, with: probe)
                #expect(probe.call("listxattr", "\(letter)/f") == .data("user.ward.class"))
                #expect(probe.call("listxattr", letter) == .data("user.ward.class"))
            }
            try volume.shell(
                """
                cd "$MNT"
                mkdir cp rsync tar plain
                for class in A B C D CX; do
                    cp -a $class cp/
                    rsync -aX $class rsync/
                    tar --xattrs --xattrs-include='*' -cf - $class | tar --xattrs --xattrs-include='*' -C tar -xf -
                    cp $class/f plain/$class
                    cp $class/f D/plain-$class
                done
                """)
            for fileClass in FileClass.allCases {
                let letter = fileClass.letter
                for copy in ["cp", "rsync", "tar"] {
                    for path in ["\(copy)/\(letter)/f", "\(copy)/\(letter)"] {
                        #expect(probe.protectionClass(path) == .data(fileClass.apple), "\(path)")
                    }
                    #expect(
                        probe.readFile("\(copy)/\(letter)/f") == .data(StateWalk.content(fileClass))
                    )
                }
                #expect(
                    probe.protectionClass("plain/\(letter)")
                        == .data(FileClass.completeUntilFirstUserAuthentication.apple))
                #expect(probe.protectionClass("D/plain-\(letter)") == .data(FileClass.none.apple))
            }
        }
    }
}
