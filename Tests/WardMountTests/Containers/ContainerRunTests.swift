import Foundation
import Testing

extension MountSuite {
    /// `ward container run`.
    @Suite struct ContainerRunTests {
        private let diary = "org.example.diary"

        private func makeVolume(_ user: User) throws -> MountedVolume {
            let volume = try MountedVolume(as: user)
            let file = try volume.entitlements("app", Place.complete, groups: ["group.mine"])
            let other = try volume.entitlements("other", Place.complete, groups: ["group.other"])
            try volume.container("create", diary, "--entitlements", file)
            try volume.container("create", "org.example.other", "--entitlements", other)
            try volume.shell("echo top >\"$MNT/top\"")
            return volume
        }

        private func path(_ volume: MountedVolume) -> String {
            volume.mountPoint + "/" + Place.applications + diary
        }

        @Test(
            "home, XDG and temporary directories point into the container",
            arguments: User.usual)
        func environment(user: User) throws {
            let volume = try makeVolume(user)
            let root = path(volume)
            let names = [
                "HOME", "CFFIXED_USER_HOME", "WARD_CONTAINER", "TMPDIR", "XDG_CACHE_HOME",
                "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME",
            ]
            let script = names.map { "echo \"$\($0)\"; test -d \"$\($0)\"" }.joined(separator: "; ")
            for sandbox in [[], ["--sandbox"]] {
                // Programs delete these directories; a run makes them again.
                try volume.shell("rm -r \"\(root)/tmp\" \"\(root)/Library/Caches\"")
                let done = try volume.run(diary, sandbox, "set -e; " + script)
                #expect(
                    done.output.split(separator: "\n").map(String.init)
                        == [root, root, root].map { $0 } + [
                            root + "/tmp", root + "/Library/Caches", root + "/Library/Preferences",
                            root + "/Library/Application Support",
                            root + "/Library/Application Support",
                        ], "\(done.everything)")
                #expect(done.succeeded, "\(done.everything)")
            }
        }

        @Test(
            "exit codes are the command's own; 126 and 127 where it can't be run",
            arguments: User.usual)
        func exitCodes(user: User) throws {
            let volume = try makeVolume(user)
            for sandbox in [[], ["--sandbox"]] {
                #expect(try volume.run(diary, sandbox, "exit 0").status == 0)
                #expect(try volume.run(diary, sandbox, "exit 42").status == 42)
                #expect(try volume.run(diary, sandbox, "kill -TERM $$").status == 128 + SIGTERM)
                for (command, status) in [("no-such-command", 127), ("/etc/passwd", 126)]
                    as [(String, Int32)]
                {
                    let done = try volume.start(diary, sandbox + ["--", command])
                    #expect(done.status == status, "\(done.everything)")
                    #expect(done.errors.contains("ward: error: cannot run \(command)"))
                }
            }
            #expect(
                try volume.refusal(66, "run", "org.example.missing", "--", "true").contains(
                    "no container"))
            #expect(try volume.refusal(64, "run", "group.mine", "--", "true").contains("a group's"))
            #expect(try volume.refusal(64, "run", diary).contains("a command is expected"))
        }

        @Test("signals go to the command, which has its time to end", arguments: User.usual)
        func signals(user: User) throws {
            let volume = try makeVolume(user)
            for sandbox in [[], ["--sandbox"]] {
                for (name, number) in [("TERM", SIGTERM), ("INT", SIGINT), ("USR1", SIGUSR1)] {
                    let ready = path(volume) + "/ready"
                    let script = """
                        trap 'sleep 0.2; echo got >"$HOME/got"; exit 9' \(name)
                        echo >"$HOME/ready"; while :; do sleep 0.05; done
                        """
                    let child = try Child(
                        volume.user.prefix + [
                            TestEnvironment.shared.ward, "container", "run", volume.mountPoint,
                            diary,
                        ] + sandbox + ["--", "sh", "-c", script], environment: volume.environment)
                    try volume.shell("until [ -e \"\(ready)\" ]; do sleep 0.02; done")
                    kill(child.process, number)
                    #expect(child.wait(seconds: 60) == 9, "\(name) \(sandbox)")
                    #expect(try volume.shell("cat \"\(path(volume))/got\"") == "got\n")
                    try volume.shell("rm \"\(path(volume))/got\" \"\(ready)\"")
                }
            }
        }

        @Test(
            "^C at a terminal ends the command in its own way, and not the sandbox before it",
            arguments: User.usual)
        func terminalKeys(user: User) throws {
            let volume = try makeVolume(user)
            let script = """
                trap 'sleep 0.3; echo ended by itself; exit 9' INT
                echo waiting; while :; do sleep 0.05; done
                """
            for sandbox in [true, false] {
                let words = sandbox ? ["--sandbox", "--"] : ["--"]
                let terminal = try Terminal(
                    volume, "container", "run", volume.mountPoint, diary,
                    words: words + ["sh", "-c", script])
                try terminal.wait(for: "waiting", seconds: 60)
                try terminal.type("\u{3}")
                let end = try terminal.end(seconds: 60)
                #expect(end.status == 9 && end.text.contains("ended by itself"), "\(end.text)")
            }
        }

        @Test(
            "--sandbox: its own container and its groups, and no other; nothing of other volumes, no keys",
            arguments: User.usual)
        func sandbox(user: User) throws {
            let volume = try makeVolume(user)
            let other = try MountedVolume(as: user)
            try other.shell("echo other >\"$MNT/file\"")
            let script = """
                cd "\(volume.mountPoint)"; find . | LC_ALL=C sort
                echo "--"; ls -A "\(other.mountPoint)"; find "\(volume.stateDirectory)/ward"
                echo "--"; cat top Containers/Data/Application/org.example.other/Documents/* 2>&1
                echo lost 2>/dev/null >lost || echo "not written"
                echo lost 2>/dev/null >Containers/lost || echo "not written"
                echo kept >"$HOME/Documents/kept"
                echo shared >Containers/Shared/AppGroup/group.mine/shared
                cd /proc; for process in [0-9]*; do
                    ls "$process/root\(volume.mountPoint)/top" 2>/dev/null
                done
                umount "\(volume.mountPoint)" 2>/dev/null && echo "unmounted"
                true
                """
            let done = try volume.run(diary, ["--sandbox"], script)
            let parts = done.output.components(separatedBy: "--\n")
            try #require(done.succeeded && parts.count == 3, "\(done.everything)")
            let own = Place.inside.map { "./" + Place.applications + diary + "/" + $0 }
            let group = Place.inside.filter { $0.hasPrefix("Library") }
                .map { "./" + Place.groups + "group.mine/" + $0 }
            #expect(
                Set(parts[0].split(separator: "\n").map(String.init))
                    == Set(
                        own + group + [
                            ".", "./Containers", "./Containers/Data",
                            "./Containers/Data/Application",
                            "./" + Place.applications + diary, "./Containers/Shared",
                            "./Containers/Shared/AppGroup", "./" + Place.groups + "group.mine",
                        ]))
            #expect(parts[1] == "")
            let lines = parts[2].split(separator: "\n")
            #expect(
                lines.count == 4 && lines[0].hasPrefix("cat: top: No such file")
                    && lines[1].contains("No such file")
                    && lines[2...] == ["not written", "not written"],
                "\(parts[2])")
            // The file is there, in the class that it got from its container.
            #expect(
                try volume.shell(
                    "cat \"\(path(volume))/Documents/kept\" \"$MNT/\(Place.groups)group.mine/shared\""
                )
                    == "kept\nshared\n")
            #expect(try volume.letters(Place.applications + diary + "/Documents/kept") == ["A"])
            try volume.lockNow()
            let locked = try volume.run(
                diary, ["--sandbox"], "cat Documents/kept 2>&1; cd; cat Documents/kept")
            #expect(locked.errors.contains("Operation not permitted"), "\(locked.everything)")
        }

        @Test(
            "--sandbox begins in the container where the working directory is hidden",
            arguments: User.usual)
        func workingDirectory(user: User) throws {
            let volume = try makeVolume(user)
            let output = try volume.shell(
                """
                cd "$MNT"; \(TestEnvironment.shared.ward) container run . \(diary) --sandbox -- pwd
                cd "$MNT/\(Place.applications)\(diary)/Documents"
                \(TestEnvironment.shared.ward) container run . \(diary) --sandbox -- pwd
                cd /usr; \(TestEnvironment.shared.ward) container run "$MNT" \(diary) --sandbox -- pwd
                """)
            let root = path(volume)
            #expect(output == "\(root)\n\(root)/Documents\n/usr\n")
        }

        @Test(
            "--sandbox without bubblewrap, or where it may not make one: said so, and nothing runs")
        func noSandbox() throws {
            let volume = try makeVolume(User.available.last!)
            let programs = volume.directory + "/programs"
            mkdir(programs, 0o755)
            volume.variables["PATH"] = programs
            // From here on programs are found only by their paths.
            let setpriv = "/usr/bin/setpriv"
            func run() throws -> Finished {
                let prefix =
                    volume.user.prefix.isEmpty
                    ? [] : [setpriv] + volume.user.prefix.dropFirst()
                return try Child.run(
                    prefix + [
                        TestEnvironment.shared.ward, "container", "run", volume.mountPoint, diary,
                        "--sandbox", "--", "/bin/sh", "-c", ": >\"$HOME/ran\"",
                    ], environment: volume.environment)
            }
            let missing = try run()
            #expect(missing.status == 69, "\(missing.everything)")
            #expect(missing.errors.contains("there is no program bwrap"))
            #expect(missing.errors.contains("ward: hint: apt-get install bubblewrap"))
            // Another process writes the file: while this process starts a program, a file that it
            // wrote may be busy.
            _ = try Child.run(
                [
                    "/bin/sh", "-c",
                    """
                    cat >"$0" <<'END'
                    #!/bin/sh
                    echo 'bwrap: No permissions to create new namespace' >&2
                    exit 1
                    END
                    chmod 755 "$0"
                    """, programs + "/bwrap",
                ], environment: TestEnvironment.shared.variables)
            let refused = try run()
            #expect(refused.status == 69, "\(refused.everything)")
            #expect(refused.errors.contains("bwrap: No permissions to create new namespace"))
            #expect(
                refused.errors.contains(
                    "ward: error: cannot run in a sandbox: bubblewrap could not"))
            #expect(
                refused.errors.contains("ward: hint: where ordinary users may not make namespaces"))
            volume.variables = [:]
            #expect(try volume.tree(Place.applications + diary).contains("ran") == false)
        }
    }
}

extension MountedVolume {
    /// Runs `ward container run ID [--sandbox] -- sh -c SCRIPT` to its end.
    fileprivate func run(_ id: String, _ options: [String], _ script: String) throws -> Finished {
        try start(id, options + ["--", "sh", "-c", script])
    }

    fileprivate func start(_ id: String, _ arguments: [String]) throws -> Finished {
        try Child.run(
            user.prefix + [TestEnvironment.shared.ward, "container", "run", mountPoint, id]
                + arguments,
            environment: environment)
    }
}
