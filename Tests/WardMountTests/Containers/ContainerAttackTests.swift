import Foundation
import Testing

extension MountSuite {
    /// Attacks on files outside, prepared by a program in its container or made in its sandbox.
    @Suite struct ContainerAttackTests {
        private let diary = "org.example.diary"

        @Test(
            "remove: deeper than there may be files open, it all goes", arguments: User.available)
        func deep(user: User) throws {
            let volume = try MountedVolume(as: user)
            try volume.container("create", diary)
            let environment = TestEnvironment.shared
            let done = try Child.run(
                user.prefix + [
                    environment.python, "-c",
                    """
                    import os, sys
                    os.chdir(sys.argv[1])
                    for depth in range(300):
                        os.mkdir("d"); os.mkdir("e", 0); os.chdir("d")
                    open("f", "w").close()
                    """, volume.mountPoint + "/" + Place.applications + diary + "/Documents",
                ], environment: volume.environment)
            #expect(done.succeeded, "\(done.everything)")
            let removed = try Child.run(
                user.prefix + [
                    "sh", "-c", "ulimit -n 128; exec \"$0\" \"$@\"", environment.ward, "container",
                    "remove", volume.mountPoint, diary, "--yes",
                ], environment: volume.environment)
            #expect(removed.succeeded, "\(removed.everything)")
            #expect(removed.errors.contains("goes: 0 files, and what can't be looked at"))
            #expect(try volume.tree(Place.applications) == [])
        }

        /// Runs a script in a mount namespace of its own. It has `$WARD`, `$MNT`, and `$P` for the
        /// directory of applications.
        private func withMounts(_ volume: MountedVolume, _ script: String) throws -> Finished {
            let environment = volume.environment.merging([
                "WARD": TestEnvironment.shared.ward, "MNT": volume.mountPoint,
                "P": volume.mountPoint + "/" + Place.applications,
            ]) { $1 }
            return try Child.run(
                ["unshare", "-m", "bash", "-euo", "pipefail", "-c", script],
                environment: environment)
        }

        @Test(
            "a part of the volume that is mounted in a container stays, also where a removal is finished later",
            .enabled(if: geteuid() == 0))
        func mountedInside() throws {
            let volume = try MountedVolume(as: .root)
            try volume.container("create", diary)
            try volume.shell("mkdir \"$MNT/precious\"; echo x >\"$MNT/precious/f\"")
            let inside = try withMounts(
                volume,
                """
                mount --bind "$MNT/precious" "${P}\(diary)/Documents"
                "$WARD" container remove "$MNT" \(diary) --yes && exit 1
                test -d "${P}\(diary)/tmp"; echo refused
                """)
            #expect(inside.output == "refused\n", "\(inside.everything)")
            let later = try withMounts(
                volume,
                """
                mv "${P}\(diary)" "$P.ward-gone-1"
                mount --bind "$MNT/precious" "$P.ward-gone-1/Documents"
                "$WARD" container create "$MNT" org.example.other
                """)
            #expect(later.succeeded, "\(later.everything)")
            #expect(try volume.shell("cat \"$MNT/precious/f\"") == "x\n")
            // When nothing is mounted there any more, the rest is removed.
            try volume.container("create", "org.example.third")
            #expect(try volume.shell("cat \"$MNT/precious/f\"") == "x\n")
            #expect(
                try volume.shell("ls -A \"$MNT/\(Place.applications)\"")
                    == "org.example.other\norg.example.third\n")
        }

        @Test(
            "a removal that can't be finished takes its groups once, and none that is made later",
            .enabled(if: geteuid() == 0))
        func groupsOnce() throws {
            let volume = try MountedVolume(as: .root)
            let file = try volume.entitlements("app", nil, groups: ["group.x"])
            let none = try volume.entitlements("none", nil)
            try volume.container("create", diary, "--entitlements", file)
            let done = try withMounts(
                volume,
                """
                group="$MNT/\(Place.groups)group.x"; echo old >"$group/old"; mkdir "$MNT/busy"
                mv "${P}\(diary)" "$P.ward-gone-1"
                mount --bind "$MNT/busy" "$P.ward-gone-1/Documents"
                "$WARD" container create "$MNT" org.example.other --entitlements \(file)
                test ! -e "$group/old"; echo new >"$group/new"
                "$WARD" container create "$MNT" org.example.other --entitlements \(none)
                "$WARD" container create "$MNT" org.example.third
                cat "$group/new"
                """)
            #expect(done.succeeded && done.output.hasSuffix("\nnew\n"), "\(done.everything)")
        }

        @Test(
            "run: links that a program left in place of its directories lead to nothing",
            arguments: User.available)
        func linkedDirectories(user: User) throws {
            let volume = try MountedVolume(as: user)
            try volume.container("create", diary)
            try volume.shell(
                """
                mkdir "$OUT/elsewhere"; cd "$MNT/\(Place.applications)\(diary)"
                rm -r Library; ln -s "$OUT/elsewhere" Library
                """)
            try volume.container("run", diary, "--", "true")
            #expect(try volume.shell("ls -A \"$OUT/elsewhere\"") == "")
        }

        @Test(
            "remove: what goes is what was said before it was asked, or nothing",
            arguments: User.available)
        func announced(user: User) throws {
            let volume = try MountedVolume(as: user)
            let file = try volume.entitlements("app", nil, groups: ["group.x"])
            for id in [diary, "org.example.other"] {
                try volume.container("create", id, "--entitlements", file)
            }
            for options in [[], ["--json"], ["--quiet"]] {
                let done = try Child.run(
                    user.prefix + [
                        TestEnvironment.shared.ward, "container", "remove", volume.mountPoint,
                        diary, "--no-input",
                    ] + options, environment: volume.environment)
                #expect(
                    done.status == 64 && done.errors.contains("application \(diary) goes"),
                    "\(done.everything)")
            }
            let terminal = try Terminal(
                volume, columns: 200, "container", "remove", volume.mountPoint, diary)
            try terminal.wait(for: "group group.x stays", seconds: 60)
            try terminal.wait(for: "Remove it? [y/N]", seconds: 60)
            try volume.container("remove", "org.example.other", "--yes")
            try terminal.type("y\n")
            let end = try terminal.end(seconds: 60)
            #expect(end.status == 75 && end.text.contains("group.x would go with it now"))
            #expect(try volume.listing().keys.sorted() == ["group.x", diary])

            // A new container of the same name is not removed either.
            let second = try Terminal(
                volume, columns: 200, "container", "remove", volume.mountPoint, diary)
            try second.wait(for: "Remove it? [y/N]", seconds: 60)
            try volume.container("remove", diary, "--yes")
            try volume.container("create", diary)
            try second.type("y\n")
            #expect(try second.end(seconds: 60).status == 75)
            #expect(try volume.listing().keys.sorted() == [diary])
        }

        @Test(
            "--sandbox: another volume that is mounted in the container is hidden as any other",
            .enabled(if: geteuid() == 0))
        func volumeInContainer() throws {
            let volume = try MountedVolume(as: .root)
            let other = try MountedVolume(as: .root)
            try other.shell("echo x >\"$MNT/secret\"")
            try volume.container("create", diary)
            let done = try withMounts(
                volume,
                """
                mount --bind "\(other.mountPoint)" "${P}\(diary)/Documents"
                "$WARD" container run "$MNT" \(diary) --sandbox -- \
                    sh -c 'cd; ls Documents; echo lost >Documents/lost; echo kept >kept'
                ls "${P}\(diary)/Documents"
                """)
            #expect(done.succeeded && done.output == "secret\n", "\(done.everything)")
            #expect(
                try volume.shell("cat \"$MNT/\(Place.applications)\(diary)/kept\"") == "kept\n")
        }

        @Test("--sandbox: the command types nothing into its terminal", arguments: User.available)
        func terminalInput(user: User) throws {
            let volume = try MountedVolume(as: user)
            try volume.container("create", diary)
            // Outside of a console TIOCLINUX fails with another errno than a refusal.
            let script = """
                import fcntl, termios
                for request, argument in [(termios.TIOCSTI, b"x"), (0x541C, b"\\3"), (termios.TIOCGWINSZ, b"x" * 8)]:
                    try:
                        fcntl.ioctl(0, request, argument)
                        print("done", end=" ")
                    except OSError as error:
                        print(error.errno, end=" ")
                print("end")
                """
            let terminal = try Terminal(
                volume, "container", "run", volume.mountPoint, diary,
                words: ["--sandbox", "--", TestEnvironment.shared.python, "-c", script])
            let end = try terminal.end(seconds: 60)
            #expect(end.status == 0 && end.text.contains("1 1 done end"), "\(end.text)")
        }
    }
}
