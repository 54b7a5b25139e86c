import Foundation
import Testing

extension MountSuite {
    /// A container gets its class from the app's entitlement when it is made.
    @Suite struct ContainerTests {
        private let diary = "org.example.diary"

        @Test(
            "create: an entitlements file, XML or binary; its class on the root when it is made, inherited (I1, I3)",
            arguments: User.usual)
        func classFromEntitlement(user: User) throws {
            let volume = try MountedVolume(as: user)
            for (name, format) in [("xml", .xml), ("binary", .binary)]
                as [(String, PropertyListSerialization.PropertyListFormat)]
            {
                let file = try volume.entitlements(name, Place.complete, format: format)
                let id = "org.example.\(name)"
                let made = try volume.container("create", id, "--entitlements", file)
                #expect(made.output.contains("\(id): application of class A"))
                let path = Place.applications + id
                #expect(try volume.tree(path) == Place.inside)
                try volume.shell(
                    "echo x >\"$MNT/\(path)/Documents/f\"; mkdir \"$MNT/\(path)/tmp/d\"")
                #expect(
                    try volume.letters(
                        path, path + "/Documents", path + "/Library/Application Support",
                        path + "/tmp", path + "/Documents/f", path + "/tmp/d")
                        == ["A", "A", "A", "A", "A", "A"])
            }
            #expect(try volume.letters("Containers", "Containers/Data/Application") == ["C", "C"])
            try volume.lockNow()
            #expect(
                try volume.probe().open(
                    Place.applications + "org.example.xml/Documents/f", "r", as: "f")
                    == .eperm)
        }

        @Test(
            "create: without the entitlement it is the volume's default", arguments: User.usual)
        func defaultClass(user: User) throws {
            let volume = try MountedVolume(as: user, initArguments: ["--class", "B"])
            let file = try volume.entitlements("none", nil)
            try volume.container("create", "org.example.none", "--entitlements", file)
            try volume.container("create", "org.example.nofile")
            #expect(
                try volume.letters(
                    Place.applications + "org.example.none/Documents",
                    Place.applications + "org.example.nofile/tmp") == ["B", "B"])
            let entry = try #require(volume.listing()["org.example.none"])
            #expect(entry["classAtCreation"] as? String == "B" && entry["entitlement"] == nil)
        }

        @Test(
            "create again: nothing of the container changes; what differs is told, with the command that converts",
            arguments: User.usual)
        func again(user: User) throws {
            let volume = try MountedVolume(as: user)
            let before = try volume.entitlements("before", Place.complete)
            let after = try volume.entitlements("after", Place.untilFirst)
            let path = Place.applications + diary
            try volume.container("create", diary, "--entitlements", before)
            try volume.shell("echo x >\"$MNT/\(path)/Documents/f\"; rmdir \"$MNT/\(path)/tmp\"")
            let tree = try volume.tree(path)

            // The same entitlement: nothing is reported.
            let same = try volume.container("create", diary, "--entitlements", before)
            #expect(same.output == "\(diary): is there, nothing in it was changed\n")
            #expect(same.errors.isEmpty)
            // Another entitlement changes only the container's record.
            let update = try volume.container("create", diary, "--entitlements", after)
            #expect(try volume.tree(path) == tree)
            #expect(try volume.letters(path, path + "/Documents/f") == ["A", "A"])
            let command = "ward class set C \(volume.mountPoint)/\(path) -R"
            #expect(update.errors.contains("the entitlement says class C now"))
            #expect(update.errors.contains("class A, which it was made with"))
            #expect(update.errors.contains(command), "\(update.errors)")
            let told = try volume.container("create", diary, "--entitlements", after, "--json")
            #expect(
                told.output.contains("\"differingClass\":\"C\"") && told.output.contains(command))
            let entry = try #require(volume.listing()[diary])
            #expect(entry["classAtCreation"] as? String == "A")
            #expect(entry["class"] as? String == "A" && entry["entitlement"] as? String == "C")

            // The command that was shown sets the class; then nothing differs.
            try volume.ward("class", "set", "C", volume.mountPoint + "/" + path, "-R")
            #expect(try volume.letters(path, path + "/Documents/f") == ["C", "C"])
            #expect(
                try volume.container("create", diary, "--entitlements", after).errors.isEmpty)
            // Without a file there is nothing to compare with.
            #expect(try volume.container("create", diary).errors.isEmpty)
            #expect(try volume.listing()[diary]?["entitlement"] as? String == "C")
        }

        @Test(
            "an app's extension has a container and an entitlement of its own",
            arguments: User.usual)
        func extensions(user: User) throws {
            let volume = try MountedVolume(as: user)
            let app = try volume.entitlements("app", Place.complete)
            let widget = try volume.entitlements("widget", Place.unlessOpen)
            let id = diary + ".widget"
            try volume.container("create", diary, "--entitlements", app)
            try volume.container("create", id, "--extension", "--entitlements", widget)
            #expect(
                try volume.letters(Place.applications + diary, Place.extensions + id + "/tmp")
                    == ["A", "B"])
            #expect(try volume.listing()[id]?["kind"] as? String == "extension")
            // One ID is one container.
            #expect(
                try volume.refusal(73, "create", id).contains("there is an extension of that ID"))
            #expect(
                try volume.refusal(73, "create", diary, "--extension").contains(
                    "there is an application of that ID"))
            // The extension stays when its app is removed, and a message says so.
            let removed = try volume.container("remove", diary, "--yes")
            #expect(removed.errors.contains("its extension \(id) stays"))
            #expect(try volume.listing().keys.sorted() == [id])
        }

        @Test(
            "groups are shared, made by the first app that names them, no entitlement's, and go with the last",
            arguments: User.usual)
        func groups(user: User) throws {
            let volume = try MountedVolume(as: user)
            let both = ["group.org.example.b", "group.org.example.a"]
            let app = try volume.entitlements("app", Place.complete, groups: both)
            let widget = try volume.entitlements("widget", Place.complete, groups: [both[0]])
            let id = diary + ".widget"
            let first = try volume.container("create", diary, "--entitlements", app)
            #expect(first.output.contains("group.org.example.a: group container made"))
            let shared = Place.groups + both[0]
            #expect(
                try volume.tree(shared) == Place.inside.filter { $0.hasPrefix("Library") })
            try volume.shell("echo shared >\"$MNT/\(shared)/f\"")
            #expect(
                try volume.letters(shared, shared + "/Library", shared + "/f") == ["C", "C", "C"])

            // The second app finds the group unchanged.
            let second = try volume.container("create", id, "--extension", "--entitlements", widget)
            #expect(!second.output.contains("group container made"))
            #expect(try volume.shell("cat \"$MNT/\(shared)/f\"") == "shared\n")
            let listing = try volume.listing()
            #expect(listing[both[0]]?["usedBy"] as? [String] == [diary, id])
            #expect(listing[both[1]]?["usedBy"] as? [String] == [diary])
            #expect(listing[diary]?["groups"] as? [String] == both.sorted())
            #expect(
                try volume.refusal(75, "remove", both[0], "--yes").contains("last app that names"))

            let removed = try volume.container("remove", diary, "--yes")
            #expect(removed.errors.contains("group \(both[1]) goes with it"))
            #expect(removed.errors.contains("group \(both[0]) stays: \(id) names it, too"))
            #expect(try volume.shell("cat \"$MNT/\(shared)/f\"") == "shared\n")
            try volume.container("remove", id, "--yes")
            #expect(try volume.tree(Place.groups) == [])
            #expect(try volume.container("list").output == "no containers\n")
        }

        @Test("create again: groups that are new are made, those that are gone stay, and are told")
        func groupsOfAnUpdate() throws {
            let volume = try MountedVolume(as: User.available[0])
            let old = try volume.entitlements("old", nil, groups: ["group.old", "group.both"])
            let new = try volume.entitlements("new", nil, groups: ["group.new", "group.both"])
            try volume.container("create", diary, "--entitlements", old)
            try volume.shell("echo x >\"$MNT/\(Place.groups)group.old/f\"")
            let update = try volume.container("create", diary, "--entitlements", new)
            #expect(update.output.contains("group.new: group container made"))
            #expect(update.errors.contains("group.old: not named any more; its container stays"))
            #expect(try volume.letters(Place.groups + "group.old/f") == ["C"])
            #expect(try volume.listing()["group.old"]?["usedBy"] as? [String] == [])
            // A group that no container names can be removed by itself.
            try volume.container("remove", "group.old", "--yes")
            #expect(
                try volume.listing().keys.sorted() == ["group.both", "group.new", diary])
        }

        @Test(
            "a class that a program sets explicitly wins over all of this",
            arguments: User.usual)
        func explicitClasses(user: User) throws {
            let volume = try MountedVolume(as: user)
            let file = try volume.entitlements("app", Place.complete, groups: ["group.x"])
            let path = Place.applications + diary
            try volume.container("create", diary, "--entitlements", file)
            try volume.shell(
                """
                cd "$MNT/\(path)"
                echo x >Documents/d; setfattr -n user.ward.class -v D Documents/d
                mkdir Documents/b; setfattr -n user.ward.class -v B Documents/b
                echo x >Documents/b/f
                setfattr -n user.ward.class -v A "$MNT/\(Place.groups)group.x/Library"
                """)
            let places = [
                path + "/Documents/d", path + "/Documents/b/f", Place.groups + "group.x/Library",
            ]
            for _ in 0..<2 {
                #expect(try volume.letters(places[0], places[1], places[2]) == ["D", "B", "A"])
                try volume.container("create", diary, "--entitlements", file)
            }
            // A class set on the container itself differs from the entitlement, and that is
            // reported.
            try volume.shell("setfattr -n user.ward.class -v CX \"$MNT/\(path)\"")
            let told = try volume.container("create", diary, "--entitlements", file)
            #expect(told.errors.contains("class CX, which was set on it since"), "\(told.errors)")
            #expect(try volume.letters(path) == ["CX"])
        }

        @Test(
            "list and show: ID, class at creation, entitlement now, groups, size, files by class",
            arguments: User.usual)
        func listAndShow(user: User) throws {
            let volume = try MountedVolume(as: user)
            #expect(try volume.container("list").output == "no containers\n")
            let file = try volume.entitlements(
                "app", Place.complete, groups: ["group.x"], team: "TEAM12345")
            let path = Place.applications + diary
            try volume.container("create", diary, "--entitlements", file)
            try volume.shell(
                """
                cd "$MNT/\(path)/Documents"
                head -c 100 /dev/zero >a; head -c 3000 /dev/zero >c; ln c c2; ln -s /etc/passwd link
                setfattr -n user.ward.class -v C c
                """)
            let entry = try #require(volume.listing()[diary])
            #expect(entry["path"] as? String == volume.mountPoint + "/" + path)
            #expect(entry["classAtCreation"] as? String == "A")
            #expect(
                entry["entitlement"] as? String == "A" && entry["team"] as? String == "TEAM12345")
            #expect(entry["groups"] as? [String] == ["group.x"])
            #expect(entry["files"] as? Int == 2 && entry["sizeBytes"] as? Int == 3100)
            #expect(entry["filesByClass"] as? [String: Int] == ["A": 1, "C": 1])
            let lines = try volume.container("list").output.split(separator: "\n").map {
                $0.split(separator: " ", omittingEmptySubsequences: true).joined(separator: " ")
            }
            #expect(
                lines == [
                    "ID KIND MADE ENTITLED FILES GROUPS, OR SHARED BY",
                    "\(diary) application A A 2 files, 3.0 KiB (1 of class A, 1 of class C) group.x",
                    "group.x group C - 0 files \(diary)",
                ])
            let show = try volume.container("show", diary).output
            for words in [
                "path: +\(volume.mountPoint)/\(path)", "made: .*class A", "class now: +A",
                "entitlement now: +A", "groups: +group.x", "team: +TEAM12345", "files: +2 files",
            ] {
                #expect(
                    show.range(of: words, options: .regularExpression) != nil, "\(words)\n\(show)")
            }
            #expect(
                try volume.container("show", "group.x").output.contains(
                    "shared by:          \(diary)"))
            #expect(
                try volume.refusal(66, "show", "org.example.missing").contains(
                    "no container of that ID"))
        }

        @Test("remove: says what goes, and asks", arguments: User.usual)
        func removeAsks(user: User) throws {
            let volume = try MountedVolume(as: user)
            let file = try volume.entitlements("app", Place.complete, groups: ["group.x"])
            try volume.container("create", diary, "--entitlements", file)
            try volume.shell("echo x >\"$MNT/\(Place.applications)\(diary)/Documents/f\"")
            let refused = try volume.refusalAfterNotes(64, "remove", diary, "--no-input")
            #expect(refused.contains("application \(diary) goes: 1 file, 2 bytes (1 of class A)"))
            #expect(
                refused.contains("group group.x goes with it, as nothing else names it: 0 files"))
            #expect(refused.contains("--no-input forbids asking"))
            for (answer, remaining) in [("n\n", 2), ("\n", 2), ("y\n", 0)] {
                let terminal = try Terminal(volume, "container", "remove", volume.mountPoint, diary)
                try terminal.wait(for: "Remove it? [y/N]", seconds: 60)
                try terminal.type(answer)
                #expect(try terminal.end(seconds: 60).status == (remaining == 0 ? 0 : 64))
                #expect(try volume.listing().count == remaining, "\(answer)")
            }
            #expect(try volume.tree("Containers/Data/Application") == [])
        }

        @Test("everything works in every lock state", arguments: User.usual)
        func everyState(user: User) throws {
            for passcode in [nil, MountedVolume.passcode] {
                let volume = try MountedVolume(as: user, passcode: passcode)
                let file = try volume.entitlements("app", Place.complete, groups: ["group.x"])
                for (index, state) in (passcode == nil ? [.noPasscode] : LockState.walk)
                    .enumerated()
                {
                    try volume.enter(state)
                    let id = "\(diary)\(index)"
                    try volume.container("create", id, "--entitlements", file)
                    try volume.container("create", id, "--entitlements", file)
                    #expect(
                        try volume.letters(Place.applications + id + "/Documents") == ["A"],
                        "\(state)")
                    #expect(try volume.listing().count == 2, "\(state)")
                    let ran = try volume.container("run", id, "--", "sh", "-c", "cd && pwd -P")
                    #expect(ran.output == "\(volume.mountPoint)/\(Place.applications)\(id)\n")
                    try volume.container("remove", id, "--yes")
                    #expect(try volume.listing().isEmpty, "\(state)")
                }
            }
        }

        @Test("eight creates at once, with one group: all are made, and one group")
        func atOnce() throws {
            let volume = try MountedVolume(as: User.available.last!)
            let file = try volume.entitlements("app", Place.untilFirst, groups: ["group.x"])
            try volume.shell(
                """
                for n in 1 2 3 4 5 6 7 8; do
                    \(TestEnvironment.shared.ward) container create "$MNT" org.example.n$n \
                        --entitlements \(file) & jobs="${jobs:-} $!"
                done
                for job in $jobs; do wait $job; done
                """)
            let listing = try volume.listing()
            #expect(listing.count == 9)
            #expect((listing["group.x"]?["usedBy"] as? [String])?.count == 8)
        }

        @Test("a create or remove that is cut short, before each call: all of it or nothing")
        func cutShort() throws {
            let volume = try MountedVolume(as: User.available.last!)
            let environment = TestEnvironment.shared
            let done = try Child.run(
                volume.user.prefix + [
                    environment.python, environment.script("stop_at.py"), environment.ward,
                    volume.mountPoint, volume.directory + "/home",
                ], environment: volume.environment, seconds: 300)
            #expect(done.succeeded, "\(done.everything)")
            // Several calls were there to stop at.
            let counts = done.output.split(whereSeparator: \.isWhitespace).compactMap { Int($0) }
            #expect(counts.count == 2 && counts.allSatisfy { $0 >= 12 }, "\(done.output)")
        }
    }
}

extension MountedVolume {
    /// Like `refusal`, for a command that writes notes first.
    fileprivate func refusalAfterNotes(
        _ status: Int32, _ verb: String, _ arguments: String...,
        sourceLocation: SourceLocation = #_sourceLocation
    ) throws -> String {
        let done = try Child.run(
            user.prefix + [TestEnvironment.shared.ward, "container", verb, mountPoint] + arguments,
            environment: environment)
        #expect(done.status == status, "\(done.everything)", sourceLocation: sourceLocation)
        return done.errors
    }
}
