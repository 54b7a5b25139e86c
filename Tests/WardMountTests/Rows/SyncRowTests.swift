import Foundation
import Testing

extension MountSuite {
    /// Rows Y1 to Y8 of docs/sync.md: directories that are marked as synchronised.
    @Suite struct SyncRowTests {
        private static let protected: [FileClass] = [
            .complete, .completeUnlessOpen, .completeWhenUserInactive,
        ]
        private static let classC = Outcome.data(
            FileClass.completeUntilFirstUserAuthentication.apple)

        private func events(_ volume: MountedVolume, _ kind: String) throws -> [[String: String]] {
            try ControlEvent.latest(of: volume).filter { $0.kind == kind }.map(\.fields)
        }

        @Test(
            "Y1, Y8: `ward sync mark`: class C at most, in every state, over a mount, until `unmark`",
            arguments: User.usual)
        func markAndUnmark(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            for (number, state) in LockState.walk.enumerated() {
                try volume.enter(state)
                for (fileClass, expected) in [
                    ("A", Self.classC), ("B", Self.classC), ("CX", Self.classC),
                    ("C", Self.classC), ("D", .data(FileClass.none.apple)),
                ] {
                    let name = "\(fileClass) \(number)"
                    #expect(probe.mkdir(name) == .ok)
                    #expect(probe.setClass(name, fileClass) == .ok)
                    let done = try volume.ward("sync", "mark", volume.mountPoint + "/" + name)
                    #expect(done.status == 0, "\(state): \(done.everything)")
                    #expect(probe.protectionClass(name) == expected, "\(state)")
                    #expect(probe.getxattr(name, "user.ward.synced") == .data("marked"))
                }
                let again = try volume.ward("sync", "mark", volume.mountPoint + "/C \(number)")
                #expect(again.status == 0)
            }
            // A mark that is set before the first unlock counts once there was one.
            try volume.unlock()
            try volume.remount()
            let listed = try volume.ward("sync", "list", volume.mountPoint, "--json")
            #expect(listed.output.split(separator: "\n").count == 5 * LockState.walk.count)
            #expect(
                listed.output.contains(
                    "{\"path\":\"\(volume.mountPoint)/A 0\",\"letter\":\"C\",\"protected\":0}"))
            #expect(probe.setClass("A 0", "A") == .einval)
            for state in LockState.walk {
                try volume.enter(state)
                let name = "\(volume.mountPoint)/A \(LockState.walk.firstIndex(of: state)!)"
                let done = try volume.ward("sync", "unmark", name)
                #expect(done.status == 0, "\(state): \(done.everything)")
            }
            #expect(probe.getxattr("A 0", "user.ward.synced") == .enodata)
            #expect(probe.protectionClass("A 0") == Self.classC)
            #expect(probe.setClass("A 0", "A") == .ok)
            // Tools can neither copy nor remove the mark as an attribute.
            #expect(!probe.call("listxattr", "B 0").text.contains("synced"))
        }

        @Test(
            "Y2: A, B or CX set in it, at any depth, in every state: EINVAL, and an event says why",
            arguments: User.usual)
        func setting(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            #expect(probe.call("makedirs", "Files/Sync") == .ok)
            #expect(probe.writeFile("Files/Sync/early", "x") == .ok)
            #expect(try volume.ward("sync", "mark", volume.mountPoint + "/Files/Sync").status == 0)
            // Directories that are made later, and one that is moved in.
            #expect(probe.call("makedirs", "Files/Sync/one/two") == .ok)
            #expect(probe.call("makedirs", "moved/deep") == .ok)
            #expect(probe.rename("moved", "Files/Sync/moved") == .ok)
            let places = ["Files/Sync", "Files/Sync/one/two", "Files/Sync/moved/deep"]
            for place in places {
                #expect(probe.writeFile(place + "/f", "x") == .ok)
                #expect(probe.writeFile(place + "/e", "") == .ok)
            }
            for state in LockState.walk {
                try volume.enter(state)
                for fileClass in Self.protected {
                    for path in ["Files/Sync/early"] + places + places.map({ $0 + "/f" })
                        + ["Files/Sync/moved/deep/e"]
                    {
                        #expect(
                            probe.setClass(path, fileClass.apple) == .einval, "\(path) \(state)")
                    }
                }
            }
            try volume.enter(.unlocked)
            for place in places {
                #expect(probe.protectionClass(place + "/f") == Self.classC)
                #expect(probe.setClass(place + "/f", "D") == .ok)
                #expect(probe.setClass(place + "/f", "C") == .ok)
            }
            let told = try events(volume, "syncRefused").filter {
                $0["path"] == "/Files/Sync/moved/deep/f" && $0["protectionClass"] == "A"
            }
            // Two events in the state "locked" become one with a count.
            #expect(
                Set(told.map { $0["state"] ?? "" })
                    == ["unlocked", "locking", "locked", "beforeFirstUnlock"], "\(told)")
            #expect(told.first?["operation"] == "setClass")
            #expect(told.first?["program"]?.hasPrefix("python3") == true)
            #expect(
                told.first?["detail"]
                    == "/Files/Sync is synchronised: class C or D in it, nothing above")
            let command = try volume.ward(
                "class", "set", "A", volume.mountPoint + "/Files/Sync/one/two/f")
            #expect(command.status == 65)
            #expect(
                command.errors == """
                    ward: error: cannot set class A on \(volume.mountPoint)/Files/Sync/one/two/f: it \
                    is in a directory that is synchronised, which takes C or D
                    ward: hint: ward sync list shows it; move the file elsewhere first

                    """)
        }

        @Test(
            "Y3, Y4, Y5: nothing above C is created in it: by inheritance, unnamed, beside a database",
            arguments: User.usual)
        func creating(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            for fileClass in Self.protected {
                try StateWalk.makeDirectory(of: fileClass, with: probe)
            }
            #expect(probe.mkdir("Sync") == .ok)
            #expect(probe.setClass("Sync", "A") == .ok)
            #expect(probe.mkdir("Sync/before") == .ok)
            #expect(probe.protectionClass("Sync/before") == .data(FileClass.complete.apple))
            #expect(try volume.ward("sync", "mark", volume.mountPoint + "/Sync").status == 0)
            // Row Y3
            for directory in ["Sync", "Sync/before", "Sync/before/later"] {
                if directory.hasSuffix("later") { #expect(probe.mkdir(directory) == .ok) }
                #expect(probe.protectionClass(directory) == Self.classC)
                #expect(probe.writeFile(directory + "/f", "x") == .ok)
                #expect(probe.protectionClass(directory + "/f") == Self.classC)
            }
            for fileClass in Self.protected {
                #expect(probe.rename(fileClass.letter, "Sync/\(fileClass.letter)") == .ok)
                let directory = "Sync/\(fileClass.letter)"
                #expect(probe.writeFile(directory + "/new", "x") == .ok)
                #expect(probe.protectionClass(directory + "/new") == Self.classC)
                #expect(probe.protectionClass(directory + "/f") == .data(fileClass.apple))
            }
            // Row Y4
            for fileClass in Self.protected {
                for place in ["", "Sync"] {
                    #expect(probe.tmpfile(place, as: "t") == .ok)
                    #expect(probe.setClass("t", fileClass.apple) == .ok)
                    #expect(probe.pwrite("t", "secret") == .number(6))
                    #expect(probe.linkat("t", "Sync/t") == .einval)
                    #expect(!probe.exists("Sync/t"))
                    #expect(probe.linkat("t", "t \(fileClass.letter)\(place)") == .ok)
                    #expect(probe.close("t") == .ok)
                }
            }
            #expect(probe.tmpfile("Sync", as: "t") == .ok)
            #expect(probe.pwrite("t", "plain") == .number(5))
            #expect(probe.linkat("t", "Sync/t") == .ok)
            #expect(probe.protectionClass("Sync/t") == Self.classC)
            #expect(
                try events(volume, "syncRefused").contains {
                    $0["operation"] == "link" && $0["path"] == "/Sync/t"
                        && $0["protectionClass"] == "CX"
                })
            // Row Y5, with SQLite itself.
            let script = """
                import os, sqlite3, sys
                os.chdir(sys.argv[1])
                plain = sqlite3.connect("Sync/plain")
                plain.execute("pragma journal_mode=wal")
                plain.execute("create table t (x)")
                plain.commit()
                names = sorted(n for n in os.listdir("Sync") if n.startswith("plain"))
                print(*(os.getxattr("Sync/" + n, "user.ward.class").decode() for n in names))
                secret = sqlite3.connect("secret")
                secret.execute("create table t (x)")
                secret.commit()
                os.setxattr("secret", "user.ward.class", b"A")
                os.rename("secret", "Sync/secret")
                secret = sqlite3.connect("Sync/secret")
                print(*secret.execute("select count(*) from t").fetchone())
                try:
                    secret.execute("insert into t values (1)")
                    secret.commit()
                    print("written")
                except sqlite3.OperationalError as error:
                    print(error)
                print(os.path.exists("Sync/secret-journal"))
                """
            let output = try volume.shell("python3 -c '\(script)' \"$MNT\"")
            let expected = FileClass.completeUntilFirstUserAuthentication.apple
            #expect(
                output == """
                    \(expected) \(expected) \(expected)
                    0
                    unable to open database file
                    False

                    """)
        }

        @Test(
            "Y6: a protected file that is moved or linked in keeps its class, and an event says so",
            arguments: User.usual)
        func arriving(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            for fileClass in Self.protected {
                try StateWalk.makeDirectory(of: fileClass, with: probe)
            }
            #expect(probe.call("makedirs", "Sync/inner") == .ok)
            #expect(try volume.ward("sync", "mark", volume.mountPoint + "/Sync").status == 0)
            for (state, fileClass) in zip(
                [LockState.unlocked, .locked, .beforeFirstUnlock], Self.protected)
            {
                try volume.enter(state)
                let letter = fileClass.letter
                #expect(probe.link("\(letter)/f", "Sync/inner/\(letter) link") == .ok)
                #expect(probe.rename("\(letter)/f", "Sync/\(letter)") == .ok)
                for name in ["Sync/inner/\(letter) link", "Sync/\(letter)"] {
                    #expect(probe.protectionClass(name) == .data(fileClass.apple))
                }
                let told = try events(volume, "syncExposed").filter {
                    $0["protectionClass"] == letter
                }
                #expect(
                    told.map { $0["path"] } == ["/Sync/inner/\(letter) link", "/Sync/\(letter)"])
                #expect(told.map { $0["operation"] } == ["link", "rename"])
                #expect(
                    told.first?["detail"]
                        == "it keeps its class in /Sync, which is synchronised")
            }
            try volume.enter(.unlocked)
            let text = try volume.ward("events", volume.mountPoint).output
            #expect(text.contains("/Sync/A, class A, rename, python3"), "\(text)")
            // The same with a directory.
            #expect(probe.call("makedirs", "tree/deep") == .ok)
            for number in 0..<5 {
                #expect(probe.writeFile("tree/deep/\(number)", "x") == .ok)
                #expect(probe.setClass("tree/deep/\(number)", number < 3 ? "B" : "D") == .ok)
            }
            #expect(probe.rename("tree", "Sync/tree") == .ok)
            var told: [[String: String]] = []
            _ = try comesTrue {
                told = try events(volume, "syncExposed").filter { $0["path"] == "/Sync/tree" }
                return !told.isEmpty
            }
            #expect(told.count == 1 && told.first?["files"] == "3", "\(told)")
            #expect(told.first?["protectionClass"] == "B")
        }

        @Test(
            "Y6: copies made by cp -a, tar and rsync -X into it are class C, and the tools go on",
            arguments: User.usual)
        func copies(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            try StateWalk.makeDirectory(of: .complete, with: probe)
            #expect(probe.mkdir("Sync") == .ok)
            #expect(try volume.ward("sync", "mark", volume.mountPoint + "/Sync").status == 0)
            try volume.shell(
                """
                cd "$MNT"
                cp -a A Sync/cp
                mkdir Sync/tar
                tar --xattrs -c A | tar --xattrs --xattrs-include='*' -C Sync/tar -x 2>"$OUT/tar" || true
                rsync -aX A/ Sync/rsync 2>"$OUT/rsync" || true
                mv Sync "$OUT/../mnt/Moved"
                """)
            for name in ["cp/f", "tar/A/f", "rsync/f"] {
                #expect(probe.readFile("Moved/" + name) == .data("content of A"), "\(name)")
                #expect(probe.protectionClass("Moved/" + name) == Self.classC, "\(name)")
            }
            // Row Y8: the mark moved with the directory; a copy of the directory has none.
            #expect(probe.getxattr("Moved", "user.ward.synced") == .data("marked"))
            try volume.shell("cd \"$MNT\"; cp -a Moved Copy")
            #expect(probe.getxattr("Copy", "user.ward.synced") == .enodata)
        }

        @Test(
            "Y7: what is in it when it is marked keeps its class and is listed, with exit code 15",
            arguments: User.usual)
        func markingProtected(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            #expect(probe.mkdir("Sync") == .ok)
            for fileClass in FileClass.allCases {
                try StateWalk.makeDirectory(of: fileClass, with: probe)
                #expect(probe.rename(fileClass.letter, "Sync/\(fileClass.letter)") == .ok)
            }
            try volume.lockNow()
            let path = volume.mountPoint + "/Sync"
            let done = try volume.ward("sync", "mark", path)
            #expect(done.status == 15)
            #expect(
                done.output == """
                    \(path) is marked as synchronised: class C at most
                    A   \(path)/A/f
                    B   \(path)/B/f
                    CX  \(path)/CX/f

                    """)
            #expect(
                done.errors
                    == "ward: note: 3 files in it keep their class; to give in to what "
                    + "synchronises: ward class set C \(path) -R\n")
            let json = try volume.ward("sync", "mark", path, "--json")
            #expect(json.status == 15)
            #expect(
                json.output == """
                    {"path":"\(path)","letter":"C","protected":[{"path":"\(path)/A/f","letter":"A"},\
                    {"path":"\(path)/B/f","letter":"B"},{"path":"\(path)/CX/f","letter":"CX"}],\
                    "unreachable":0}

                    """)
            let list = try volume.ward("sync", "list", volume.mountPoint)
            #expect(list.output == "C   \(path)  3 protected files in it\n")
            try volume.unlock()
            #expect(try volume.ward("class", "set", "C", path, "-R").status == 0)
            #expect(try volume.ward("sync", "mark", path).status == 0)
            for fileClass in FileClass.allCases {
                #expect(probe.protectionClass("Sync/\(fileClass.letter)/f") == Self.classC)
            }
        }

        @Test("mark, unmark and list say what is wrong and what to do", arguments: User.usual)
        func badInput(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            #expect(probe.call("makedirs", "Sync/inner") == .ok)
            #expect(probe.writeFile("file", "x") == .ok)
            let mount = volume.mountPoint
            #expect(try volume.ward("sync", "mark", mount + "/Sync").status == 0)
            for (arguments, status, text) in [
                (["mark", mount + "/file"], 65, "file: only directories are marked"),
                (["mark", mount + "/none"], 66, "none: no such file or directory"),
                (["mark", volume.directory], 10, "it is not in a mounted volume"),
                (["mark", volume.volume], 10, "it is not in a mounted volume"),
                (["unmark", mount], 65, "it is not marked"),
                (["unmark", mount + "/Sync/inner"], 65, "hint: ward sync unmark \(mount)/Sync"),
                (["list", volume.directory], 10, "it is not in a mounted volume"),
                (["mark"], 64, "ward: hint: ward sync mark --help"),
                (["mark", mount + "/none", mount + "/Sync/inner"], 1, "none: no such file"),
            ] {
                let done = try Child.run(
                    user.prefix + [TestEnvironment.shared.ward, "sync"] + arguments,
                    environment: volume.environment)
                #expect(done.status == Int32(status), "\(arguments): \(done.everything)")
                #expect(done.errors.contains(text), "\(arguments): \(done.everything)")
                #expect(done.errors.hasPrefix("ward: error: "))
            }
            #expect(probe.getxattr("Sync/inner", "user.ward.synced") == .data("marked"))
            for value in ["yes", "", "inherited", "marked\0", String(repeating: "x", count: 4000)] {
                #expect(probe.setxattr("Sync", "user.ward.synced", value) == .einval, "\(value)")
            }
            try volume.unmount()
            try volume.mount(extra: ["--read-only"])
            let done = try volume.ward("sync", "unmark", mount + "/Sync")
            #expect(done.status == 73, "\(done.everything)")
            let listed = try volume.ward("sync", "list", mount)
            #expect(listed.status == 0 && listed.output.contains("/Sync\n"))
        }
    }
}
