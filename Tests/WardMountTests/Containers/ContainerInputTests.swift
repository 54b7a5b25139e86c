import Foundation
import Testing

extension MountSuite {
    /// Messages of ward about containers that can't be made, and about directories that only look
    /// like one.
    @Suite struct ContainerInputTests {
        private let diary = "org.example.diary"

        @Test("IDs, property lists and groups that can't be used", arguments: User.usual)
        func badInput(user: User) throws {
            let volume = try MountedVolume(as: user)
            let mount = volume.mountPoint
            var transcript = Transcript(volume)
            transcript.remark("IDs")
            for id in [
                "", "..", "../../outside", "a/b", "org..example", ".hidden", "org.example.\n",
                "a b",
                String(repeating: "x", count: 156),
            ] {
                try transcript.ward("container", "create", mount, id, exit: 64)
            }
            transcript.remark("classes")
            for name in ["NSFileProtectionNone", "Complete", ""] {
                let file = try volume.entitlements("class", name)
                try transcript.ward(
                    "container", "create", mount, diary, "--entitlements", file, exit: 65)
            }
            transcript.remark("property lists")
            let key = MountedVolume.dataProtection
            for (name, text) in [
                ("empty", ""), ("json", "{\"\(key)\": \"A\"}"),
                ("cut", "<?xml version=\"1.0\"?><plist version=\"1.0\"><dict><key>"),
                ("array", "<plist version=\"1.0\"><array/></plist>"),
                (
                    "number",
                    "<plist version=\"1.0\"><dict><key>\(key)</key><integer>1</integer></dict></plist>"
                ),
                ("binary", "bplist00" + String(repeating: "\u{1}", count: 40)),
                ("huge", "<plist version=\"1.0\">" + String(repeating: " ", count: 1 << 20)),
                (
                    "deep",
                    "<plist version=\"1.0\">" + String(repeating: "<array>", count: 14_000)
                        + String(repeating: "</array>", count: 14_000) + "</plist>"
                ),
            ] {
                let file = volume.directory + "/" + name
                try text.write(toFile: file, atomically: false, encoding: .utf8)
                try transcript.ward(
                    "container", "create", mount, diary, "--entitlements", file, exit: 65)
            }
            for place in ["/dev/zero", volume.directory + "/missing", volume.directory] {
                try transcript.ward(
                    "container", "create", mount, diary, "--entitlements", place,
                    exit: place == "/dev/zero" ? 65 : 66)
            }
            transcript.remark("groups")
            for group in ["../group", "$(TeamIdentifierPrefix)group.x"] {
                let file = try volume.entitlements("group", nil, groups: [group])
                try transcript.ward(
                    "container", "create", mount, diary, "--entitlements", file, exit: 65)
            }
            transcript.remark("nothing was made; a group that an app of another team made")
            #expect(try volume.container("list").output == "no containers\n")
            let first = try volume.entitlements("first", nil, groups: ["group.x"], team: "TEAM1")
            let other = try volume.entitlements("other", nil, groups: ["group.x"], team: "TEAM2")
            let nobody = try volume.entitlements("nobody", nil, groups: ["group.x"])
            try transcript.ward(
                "container", "create", mount, diary, "--entitlements", first, exit: 0)
            for file in [other, nobody] {
                try transcript.ward(
                    "container", "create", mount, "org.example.other", "--entitlements", file,
                    exit: 77)
                try transcript.ward(
                    "container", "create", mount, diary, "--entitlements", file, exit: 77)
            }
            transcript.remark("an app of the same team may, and what is not there can't be shown")
            try transcript.ward(
                "container", "create", mount, "org.example.second", "--entitlements", first, exit: 0
            )
            try transcript.ward("container", "remove", mount, "org.example.none", "--yes", exit: 66)
            try transcript.ward("container", "list", volume.directory, exit: 10)
            try transcript.check("containers")
            #expect(
                try volume.listing().keys.sorted() == ["group.x", diary, "org.example.second"])
        }

        @Test("too many or too long groups: nothing is made")
        func recordTooLarge() throws {
            let volume = try MountedVolume(as: User.available[0])
            let many = try volume.entitlements("many", nil, groups: (0..<40).map { "group.g\($0)" })
            #expect(
                try volume.refusal(65, "create", diary, "--entitlements", many).contains(
                    "40 groups"))
            let long = try volume.entitlements(
                "long", nil,
                groups: (0..<30).map { "group.\($0)." + String(repeating: "x", count: 140) })
            #expect(
                try volume.refusal(65, "create", diary, "--entitlements", long).contains("too long")
            )
            #expect(try volume.listing().isEmpty)
            // The greatest number of groups that fits is accepted.
            let most = try volume.entitlements(
                "most", nil,
                groups: (0..<18).map { "group.\($0)." + String(repeating: "x", count: 136) })
            try volume.container("create", diary, "--entitlements", most)
            #expect(try volume.listing().count == 19)
        }

        @Test(
            "what only looks like a container is told, and never touched", arguments: User.usual
        )
        func oddities(user: User) throws {
            let volume = try MountedVolume(as: user)
            let top = volume.mountPoint + "/" + Place.applications
            try volume.container("create", diary)
            try volume.shell(
                """
                cd "$MNT/\(Place.applications)"
                mkdir org.example.plain; echo x >org.example.plain/f
                cp -a \(diary) org.example.copy; echo x >file
                mkdir org.example.broken
                setfattr -n user.ward.container -v '{"version":1' org.example.broken
                ln -s \(diary) org.example.link
                mkdir .ward-gone-mine; echo x >.ward-gone-mine/f
                """)
            let listing = try volume.listing()
            #expect(listing.filter { $0.value["oddity"] == nil }.keys.sorted() == [diary])
            func reason(_ name: String) -> String? { listing[top + name]?["reason"] as? String }
            #expect(reason("org.example.plain") == "it has no record")
            #expect(reason("org.example.copy")?.contains("a copy, or renamed") == true)
            #expect(reason("org.example.broken") == "the record is not JSON")
            #expect(listing[top + "org.example.link"] != nil && listing[top + "file"] != nil)
            let told = try volume.container("list").errors
            #expect(told.contains("org.example.copy is no container: its record is of"))
            for name in [
                "org.example.plain", "org.example.copy", "org.example.broken", "org.example.link",
            ] {
                #expect(try volume.refusal(73, "create", name).contains("no container"))
                #expect(try volume.refusal(73, "remove", name, "--yes").contains("no container"))
            }
            // The changes in between also kept directories without a record of a removal.
            #expect(
                try volume.shell("cat \"\(top)org.example.plain/f\" \"\(top).ward-gone-mine/f\"")
                    == "x\nx\n")
        }

        @Test(
            "a copy elsewhere is a plain directory; copied to another volume's place it is the container"
        )
        func copies() throws {
            let volume = try MountedVolume(as: User.available[0])
            let other = try MountedVolume(as: User.available[0])
            let file = try volume.entitlements("app", Place.complete, groups: ["group.x"])
            try volume.container("create", diary, "--entitlements", file)
            try volume.shell("echo x >\"$MNT/\(Place.applications)\(diary)/Documents/f\"")
            try volume.shell(
                "mkdir \"$MNT/backup\"; cp -a \"$MNT/\(Place.applications)\(diary)\" \"$MNT/backup/\""
            )
            #expect(try volume.listing().count == 2)
            try volume.shell("rsync -aX \"$MNT/Containers\" \"\(other.mountPoint)/\"")
            #expect(try other.listing().keys.sorted() == ["group.x", diary])
            #expect(
                try other.letters(
                    Place.applications + diary, Place.applications + diary + "/Documents/f") == [
                        "A", "A",
                    ])
            try other.container("remove", diary, "--yes")
            #expect(try other.listing().isEmpty)
        }

        @Test("a symbolic link in the way is not followed", arguments: User.usual)
        func links(user: User) throws {
            let volume = try MountedVolume(as: user)
            try volume.shell(
                "mkdir \"$OUT/elsewhere\"; ln -s \"$OUT/elsewhere\" \"$MNT/Containers\"")
            #expect(try volume.refusal(66, "create", diary).contains("not a directory"))
            try volume.shell("rm \"$MNT/Containers\"")
            try volume.container("create", diary)
            // ward follows no link that the app made there.
            try volume.shell(
                """
                echo x >"$OUT/elsewhere/f"; cd "$MNT/\(Place.applications)\(diary)"
                rmdir tmp; ln -s "$OUT/elsewhere" tmp; mkdir -m 0 Documents/closed
                """)
            #expect(try volume.listing()[diary]?["files"] as? Int == 0)
            try volume.container("remove", diary, "--yes")
            #expect(try volume.shell("cat \"$OUT/elsewhere/f\"") == "x\n")
            #expect(try volume.tree(Place.applications) == [])
        }

        @Test("a volume mounted read-only: refused, and said so", arguments: User.usual)
        func readOnly(user: User) throws {
            let volume = try MountedVolume(as: user)
            try volume.container("create", diary)
            try volume.unmount()
            try volume.mount(extra: ["--read-only"])
            #expect(try volume.listing().count == 1)
            #expect(try volume.refusal(73, "create", "org.example.other").contains("read-only"))
            #expect(try volume.refusal(73, "remove", diary, "--yes", "-q").contains("read-only"))
            try volume.container("run", diary, "--", "true")
        }
    }
}
