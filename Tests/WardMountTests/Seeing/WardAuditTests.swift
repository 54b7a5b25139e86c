import Foundation
import Testing

extension MountSuite {
    /// `ward audit` finds common mistakes: each kind, and its absence.
    @Suite struct WardAuditTests {
        private struct Report {
            let status: Int32
            let json: [String: Any]
            let errors: String

            var findings: [[String: Any]] { json["findings"] as? [[String: Any]] ?? [] }
            /// "kind path", sorted.
            var found: [String] {
                findings.map { "\($0["kind"] ?? "?") \($0["path"] ?? "?")" }.sorted()
            }
            func text(of path: String) -> String {
                findings.first { $0["path"] as? String == path }?["text"] as? String ?? ""
            }
        }

        private func audit(_ volume: MountedVolume, _ arguments: String...) throws -> Report {
            let done = try Child.run(
                volume.user.prefix + [
                    TestEnvironment.shared.ward, "audit", volume.mountPoint, "--json",
                ] + arguments, environment: volume.environment)
            let json = try JSONSerialization.jsonObject(with: Data(done.output.utf8))
            return Report(
                status: done.status,
                json: try #require(json as? [String: Any], "\(done.everything)"),
                errors: done.errors)
        }

        /// Makes files of classes A, B, CX, C and D in a directory.
        private func fill(_ directory: String, _ probe: Probe) {
            for fileClass in FileClass.allCases {
                let name = directory + "/" + fileClass.letter
                #expect(probe.writeFile(name, "\(name) \(UUID())") == .ok)
                #expect(probe.setClass(name, fileClass.letter) == .ok)
            }
        }

        @Test(
            "protected files where Syncthing, Nextcloud, ownCloud or Dropbox synchronise",
            arguments: User.usual)
        func tools(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            var expected: [String] = []
            let marks: [(name: String, isDirectory: Bool, tool: String?)] = [
                (".stfolder", true, "Syncthing"), (".stfolder", false, "Syncthing"),
                (".sync_0a1b2c.db", false, "Nextcloud or ownCloud"),
                ("._sync_0a1b2c.db", false, "Nextcloud or ownCloud"),
                (".csync_journal.db", false, "Nextcloud or ownCloud"),
                (".owncloudsync.log", false, "Nextcloud or ownCloud"),
                (".nextcloudsync.log", false, "Nextcloud or ownCloud"),
                (".dropbox.cache", true, "Dropbox"), (".dropbox", false, "Dropbox"),
                // Dropbox's configuration in a home directory, and similar names.
                (".dropbox", true, nil), (".sync_.txt", false, nil), ("stfolder", true, nil),
                (".sync_0.db", true, nil),
            ]
            for (number, mark) in marks.enumerated() {
                let directory = "d\(number)"
                #expect(probe.call("makedirs", directory + "/deep/er") == .ok)
                fill(directory + "/deep/er", probe)
                let name = directory + "/" + mark.name
                #expect((mark.isDirectory ? probe.mkdir(name) : probe.writeFile(name, "")) == .ok)
                guard mark.tool != nil else { continue }
                expected += ["A", "B", "CX"].map { "protected-synced /\(directory)/deep/er/\($0)" }
            }
            for isLocked in [false, true] {
                if isLocked { try volume.lockNow() }
                let report = try audit(volume)
                #expect(report.status == 15)
                #expect(report.found == expected.sorted())
                for (number, mark) in marks.enumerated() {
                    guard let tool = mark.tool else { continue }
                    #expect(
                        report.text(of: "/d\(number)/deep/er/A")
                            == "/d\(number)/deep/er/A of class A is in /d\(number), which \(tool) "
                            + "synchronises")
                }
            }
            let denials = try ControlEvent.latest(of: volume).filter { $0.kind == "denied" }
            #expect(denials.isEmpty, "\(denials)")
        }

        @Test(
            "around the mount point, and where ward sync mark has marked", arguments: User.usual
        )
        func markedAndAround(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            #expect(probe.call("makedirs", "Sync/deep") == .ok)
            fill("Sync/deep", probe)
            #expect(try audit(volume).status == 0)
            #expect(try volume.ward("sync", "mark", volume.mountPoint + "/Sync").status == 15)
            let report = try audit(volume)
            #expect(report.found == ["A", "B", "CX"].map { "protected-synced /Sync/deep/\($0)" })
            #expect(
                report.text(of: "/Sync/deep/B")
                    == "/Sync/deep/B of class B is in /Sync, which is marked as synchronised")
            #expect(report.json["marked"] as? [String] == ["/Sync"])
            #expect(try volume.ward("sync", "unmark", volume.mountPoint + "/Sync").status == 0)
            #expect(try audit(volume).status == 0)

            Glibc.mkdir(volume.directory + "/.stfolder", 0o755)
            let around = try audit(volume)
            #expect(around.status == 15 && around.found.count == 3)
            #expect(
                around.text(of: "/Sync/deep/A").hasSuffix(
                    " is in \(volume.directory), which Syncthing synchronises"))
        }

        @Test("databases whose side files differ in class", arguments: User.usual)
        func sideFiles(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            for name in ["good", "bad"] {
                #expect(probe.writeFile(name, "SQLite format 3\0 and so on") == .ok)
                for suffix in ["", "-wal", "-journal"] {
                    if suffix != "" { #expect(probe.writeFile(name + suffix, suffix) == .ok) }
                    #expect(probe.setClass(name + suffix, "A") == .ok)
                }
                #expect(probe.writeFile(name + "-shm", "shared") == .ok)
            }
            #expect(try audit(volume).status == 0)
            #expect(probe.setClass("bad-wal", "C") == .ok)
            #expect(probe.setClass("bad-shm", "A") == .ok)
            for isLocked in [false, true] {
                if isLocked { try volume.lockNow() }
                let report = try audit(volume)
                #expect(
                    report.found == ["side-file-class /bad-shm", "side-file-class /bad-wal"])
                #expect(report.text(of: "/bad-wal").contains("it should be class A"))
            }
        }

        @Test(
            "readable copies of protected files, compared by content, which needs them readable",
            arguments: User.usual)
        func copies(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            #expect(probe.mkdir("A") == .ok)
            #expect(probe.setClass("A", "A") == .ok)
            // Larger than the part that is compared first, and equal in that part.
            try volume.shell(
                """
                cd "$MNT"; head -c 299999 /dev/urandom >almost; cp almost A/large
                echo >>A/large; printf x >>almost; cp A/large copy
                echo the secret recipe >A/recipe; cp A/recipe recipe; cp A/recipe A/again
                echo {} >A/empty; echo {} >empty; echo another of 17 b >other
                """)
            let report = try audit(volume)
            #expect(report.status == 15)
            #expect(report.found == ["readable-copy /copy", "readable-copy /recipe"])
            #expect(report.json["uncompared"] as? Int == 0)
            #expect(report.text(of: "/copy").contains("holds the content of /A/large, class A"))

            try volume.lockNow()
            let locked = try audit(volume)
            #expect(locked.status == 0 && locked.found.isEmpty)
            #expect(locked.json["uncompared"] as? Int == 4)
            let text = try volume.ward("audit", volume.mountPoint)
            #expect(text.status == 0 && text.output.isEmpty)
            #expect(
                text.errors == """
                    ward: note: 4 files can't be read now (locked), so not compared with others: ward \
                    unlock first for that
                    ward: note: nothing found in 9 files

                    """)
            let denials = try ControlEvent.latest(of: volume).filter { $0.kind == "denied" }
            #expect(denials.isEmpty, "\(denials)")
        }

        @Test(
            "containers: class A of an app in the background, not the entitlement's class, tmp",
            arguments: User.usual)
        func containers(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            let applications = "Containers/Data/Application"
            let entitled = volume.directory + "/home/complete.entitlements"
            try """
            <?xml version="1.0" encoding="UTF-8"?>
            <plist version="1.0"><dict>
            <key>com.apple.developer.default-data-protection</key>
            <string>NSFileProtectionComplete</string>
            <key>com.apple.security.application-groups</key><array><string>group.GROUP</string></array>
            </dict></plist>
            """.write(toFile: entitled, atomically: false, encoding: .utf8)
            func make(_ id: String, _ letter: String, _ more: String...) throws {
                if more.contains(entitled) {
                    // Each container gets a group of its own.
                    try volume.shell("sed 's/GROUP/\(id)/' \(entitled) >\(entitled).\(id)")
                }
                let done = try Child.run(
                    user.prefix + [
                        TestEnvironment.shared.ward, "container", "create", volume.mountPoint, id,
                    ] + more.map { $0 == entitled ? "\(entitled).\(id)" : $0 },
                    environment: volume.environment)
                #expect(done.succeeded, "\(done.everything)")
                let path = applications + "/" + id
                #expect(probe.setClass(path, letter) == .ok)
                #expect(probe.call("makedirs", path + "/Documents/deep/tmp") == .ok)
                #expect(probe.call("makedirs", path + "/tmp/deep") == .ok)
                fill(path + "/Documents/deep", probe)
                fill(path + "/Documents/deep/tmp", probe)
                if more.contains(entitled) {
                    fill("Containers/Shared/AppGroup/group.\(id)/Library", probe)
                }
            }
            try make("org.front", "A", "--entitlements", entitled)
            try make("org.none", "C")
            // A copy at another place is no container.
            try volume.shell("cp -a \"$MNT/\(applications)/org.front\" \"$MNT/tmporary\"")
            #expect(try audit(volume, "--ignore", "readable-copy").status == 0)
            try make(
                "org.back", "A", "--entitlements", entitled, "--background", "fetch",
                "--background", "audio")
            try make("org.differs", "C", "--entitlements", entitled)
            fill(applications + "/org.front/tmp/deep", probe)
            #expect(probe.mkdir("tmp") == .ok)
            fill("tmp", probe)
            for isLocked in [false, true] {
                if isLocked { try volume.lockNow() }
                let report = try audit(volume, "--ignore", "readable-copy")
                var expected = ["deep/A", "deep/tmp/A"].map {
                    "background-class-a /\(applications)/org.back/Documents/\($0)"
                }
                expected.append(
                    "background-class-a /Containers/Shared/AppGroup/group.org.back/Library/A")
                expected.append("container-class /\(applications)/org.differs")
                for letter in ["A", "B", "CX"] {
                    expected.append(
                        "protected-temporary /\(applications)/org.front/tmp/deep/\(letter)")
                    expected.append("protected-temporary /tmp/\(letter)")
                }
                #expect(report.found == expected.sorted())
                #expect(
                    report.text(of: "/\(applications)/org.back/Documents/deep/A")
                        == "/\(applications)/org.back/Documents/deep/A is class A, and org.back runs "
                        + "in the background (audio, fetch): while locked it can't be read")
                #expect(
                    report.text(of: "/\(applications)/org.differs")
                        == "/\(applications)/org.differs is class C, and the entitlement of "
                        + "org.differs says class A")
            }
            // An update keeps the background modes; an option removes them.
            try volume.unlock()
            for (more, count) in [([], 3), (["--no-background"], 0)] {
                let done = try Child.run(
                    user.prefix + [
                        TestEnvironment.shared.ward, "container", "create", volume.mountPoint,
                        "org.back", "--entitlements", entitled + ".org.back",
                    ] + more, environment: volume.environment)
                #expect(done.succeeded, "\(done.everything)")
                let report = try audit(volume, "--only", "background-class-a")
                #expect(report.found.count == count)
            }
            let wrong = try volume.ward(
                "container", "create", volume.mountPoint, "org.back", "--background", "a/b")
            #expect(wrong.status == 64 && wrong.errors.contains("is no mode"))
        }

        @Test("--only, --ignore, text, --all, exit codes", arguments: User.usual)
        func options(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            let mount = volume.mountPoint
            #expect(probe.mkdir("tmp") == .ok)
            #expect(probe.mkdir("Sync") == .ok)
            #expect(probe.writeFile("Sync/a\nb\u{1B}[2J", "x") == .ok)
            #expect(probe.setClass("Sync/a\nb\u{1B}[2J", "A") == .ok)
            #expect(probe.mkdir("Sync/.stfolder") == .ok)
            #expect(probe.setClass("tmp", "A") == .ok)
            for number in 0..<60 { #expect(probe.writeFile("tmp/\(number)", "x") == .ok) }
            let text = try volume.ward("audit", mount)
            #expect(text.status == 15)
            let lines = text.output.split(separator: "\n").map(String.init)
            #expect(
                lines.prefix(4) == [
                    "protected-synced  class A, B or CX where a program synchronises",
                    "  /Sync/a\\nb\\u{1b}[2J of class A is in /Sync, which Syncthing synchronises",
                    "  → move it to another directory, or give it up to what synchronises: ward "
                        + "class set C FILE",
                    "protected-temporary  class A, B or CX in tmp",
                ], "\(text.output)")
            #expect(lines.contains("  and 10 more: --all"))
            #expect(text.errors.hasSuffix("ward: note: 61 findings in 61 files\n"))
            let all = try volume.ward("audit", mount, "--all", "--quiet")
            #expect(all.output.split(separator: "\n").count == 63 && all.errors.isEmpty)
            for (arguments, status, count) in [
                (["--only", "protected-synced"], 15, 1),
                (["--only", "protected-synced", "--only", "protected-temporary"], 15, 61),
                (["--ignore", "protected-temporary"], 15, 1),
                (["--only", "readable-copy"], 0, 0),
                (["--ignore", "protected-temporary", "--ignore", "protected-synced"], 0, 0),
            ] {
                let done = try Child.run(
                    user.prefix + [TestEnvironment.shared.ward, "audit", mount, "--json"]
                        + arguments, environment: volume.environment)
                #expect(done.status == Int32(status), "\(arguments): \(done.everything)")
                let json = try JSONSerialization.jsonObject(with: Data(done.output.utf8))
                let found = (json as? [String: Any])?["findings"] as? [Any]
                #expect(found?.count == count, "\(arguments)")
            }
            for (arguments, status, text) in [
                (["--only", "nonsense"], 64, "nonsense"),
                (["--only", "readable-copy", "--ignore", "readable-copy"], 64, "leave nothing"),
            ] {
                let done = try Child.run(
                    user.prefix + [TestEnvironment.shared.ward, "audit", mount] + arguments,
                    environment: volume.environment)
                #expect(done.status == Int32(status) && done.errors.contains(text), "\(done)")
            }
            #expect(try volume.ward("audit", volume.directory).status == 10)
            try volume.unmount()
            #expect(try volume.ward("audit", volume.volume).status == 69)
            if geteuid() == 0 { #expect(try volume.wardAlone("audit").status == 69) }
        }

        @Test("a tree that is deeper than a path may be long", arguments: User.usual)
        func deep(user: User) throws {
            let volume = try MountedVolume(as: user)
            try volume.shell(
                """
                cd "$MNT"; mkdir .stfolder
                python3 - <<'END'
                import os
                for level in range(40):
                    os.mkdir(chr(97 + level % 26) * 255)
                    os.chdir(chr(97 + level % 26) * 255)
                open("secret", "w").write("the same in both")
                os.setxattr("secret", "user.ward.class", b"A")
                open("copy", "w").write("the same in both")
                END
                """)
            let report = try audit(volume)
            let below =
                "/"
                + (0..<40).map { level in
                    String(repeating: Character(UnicodeScalar(97 + UInt8(level % 26))), count: 255)
                }.joined(separator: "/")
            #expect(
                report.found == [
                    "protected-synced \(below)/secret", "readable-copy \(below)/copy",
                ])
            #expect((report.json["unreachable"] as? [Any])?.isEmpty == true)
            #expect(report.json["files"] as? Int == 2)
        }

        @Test(
            "a file that takes the place of one of a stronger class, and a class that could not be had",
            arguments: User.usual)
        func weakened(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            for name in ["saved", "mended", "stronger", "gone", "same"] {
                #expect(probe.writeFile(name, "old") == .ok)
                #expect(probe.setClass(name, name == "stronger" ? "D" : "A") == .ok)
                #expect(probe.writeFile(name + ".new", "new") == .ok)
            }
            #expect(probe.setClass("same.new", "A") == .ok)
            for name in ["saved", "mended", "stronger", "gone", "same"] {
                #expect(probe.rename(name + ".new", name) == .ok)
            }
            #expect(probe.setClass("mended", "A") == .ok)
            #expect(probe.unlink("gone") == .ok)
            #expect(probe.writeFile("asked", "content") == .ok)
            #expect(probe.writeFile("empty", "") == .ok)
            try volume.lockNow()
            for name in ["asked", "empty"] { #expect(probe.setClass(name, "A") == .eperm) }
            let report = try audit(volume)
            #expect(report.status == 15)
            #expect(report.found == ["weakened /asked", "weakened /saved"])
            #expect(
                report.text(of: "/saved").hasPrefix(
                    "/saved is class C and took the place of a file of a stronger class: python"))
            #expect(
                report.text(of: "/asked").hasPrefix(
                    "/asked is class C and a stronger class was asked for and could not be had: "))
            #expect(try audit(volume, "--ignore", "weakened").status == 0)
            try volume.unlock()
            for name in ["asked", "saved"] { #expect(probe.setClass(name, "A") == .ok) }
            #expect(try audit(volume).found.isEmpty)
        }

        @Test("what could not be looked at is said, with exit code 1", arguments: User.usual)
        func unreachable(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            #expect(probe.call("makedirs", "closed/deep") == .ok)
            #expect(probe.writeFile("closed/deep/f", "x") == .ok)
            #expect(probe.call("chmod", "closed", 0) == .ok)
            let report = try audit(volume)
            if user == .root {
                #expect(report.status == 0 && report.json["files"] as? Int == 1)
            } else {
                #expect(report.status == 1)
                #expect(report.json["unreachable"] as? [String] == ["/closed: Permission denied"])
            }
            #expect(probe.call("chmod", "closed", 0o755) == .ok)
        }

        @Test(
            "it changes nothing, and goes on while everything changes", arguments: User.usual)
        func concurrent(user: User) throws {
            let volume = try MountedVolume(as: user)
            try volume.shell(
                """
                cd "$MNT"; mkdir -p Sync/.stfolder many; ward=A
                for i in $(seq 300); do echo $i content of it >many/$i; done
                echo fixed >Sync/fixed; setfattr -n user.ward.class -v A Sync/fixed
                find . -printf '%p %s %T@ %C@\\n' | sort >"$OUT/before"
                """)
            #expect(try audit(volume).found == ["protected-synced /Sync/fixed"])
            try volume.shell(
                "cd \"$MNT\"; find . -printf '%p %s %T@ %C@\\n' | sort | diff \"$OUT/before\" -")
            let storm = try Child(
                user.prefix + [
                    "bash", "-c",
                    """
                    cd "$0" || exit 1
                    while :; do
                        for i in $(seq 300); do
                            rm many/$i; mkdir many/$i; mv many/$i Sync/$i; rmdir Sync/$i
                            echo again $i >many/$i
                        done
                    done
                    """, volume.mountPoint,
                ], environment: volume.environment)
            for _ in 0..<5 {
                let report = try audit(volume)
                #expect(report.found == ["protected-synced /Sync/fixed"])
                #expect(report.json["unreachable"] as? [String] == [])
            }
            #expect(MountedVolume.isRunning(storm.process))
            storm.kill()
        }
    }
}
