import Foundation
import Testing

extension MountSuite {
    /// The files that a backup takes, in every state: everything except `Library/Caches`, `tmp` and
    /// marked items.
    @Suite struct BackupListTests {
        private static let containers = """
            for home in Containers/Data/Application/org.example.notes \
                Containers/Data/PluginKitPlugin/org.example.notes.widget \
                Containers/Shared/AppGroup/group.example; do
                mkdir -p "$home/Library/Caches/deep" "$home/Library/Preferences" "$home/tmp" "$home/Documents"
                for place in Library Library/Caches Library/Caches/deep Library/Preferences tmp Documents; do
                    echo content >"$home/$place/file"
                done
                mkdir -p "$home/Documents/tmp" "$home/Documents/Library/Caches"
                echo content >"$home/Documents/tmp/file"; echo content >"$home/Documents/Library/Caches/file"
            done
            """

        /// The same in each container: the caches' directories, but none of their content.
        private static func expected(_ home: String) -> [String] {
            [
                "", "/Library", "/Library/Caches", "/Library/Preferences", "/tmp", "/Documents",
                "/Documents/tmp", "/Documents/Library", "/Documents/Library/Caches",
                "/Library/file", "/Library/Preferences/file", "/Documents/file",
                "/Documents/tmp/file", "/Documents/Library/Caches/file",
            ].map { home + $0 }
        }

        @Test(
            "Containers without caches and tmp, marks, long names, the root's own files: the same in every state",
            arguments: User.usual)
        func everyState(user: User) throws {
            let volume = try MountedVolume(as: user)
            let long = String(repeating: "long", count: 50)
            try volume.backupShell(
                """
                cd "$MNT"
                \(Self.containers)
                mkdir -p diary tmp Library/Caches downloads/inner
                "$WARD" class set A diary
                echo secret >diary/monday; echo kept >tmp/file; echo kept >Library/Caches/file
                echo 1 >downloads/one; echo 2 >downloads/inner/two; echo 3 >marked; echo 4 >\(long); echo 5 >\(long)x
                ln -s diary/monday link; mkfifo pipe; echo two >first; ln first second; echo out >left; ln left right
                "$WARD" backup exclude downloads marked \(long)x right
                """)
            let kinds = ["Data/Application/org.example.notes", "Shared/AppGroup/group.example"]
            let homes =
                (kinds + ["Data/PluginKitPlugin/org.example.notes.widget"]).map {
                    "Containers/" + $0
                }
            let parents = [
                "Containers", "Containers/Data", "Containers/Data/Application",
                "Containers/Data/PluginKitPlugin", "Containers/Shared",
                "Containers/Shared/AppGroup",
            ]
            let plain = [
                "diary", "diary/monday", "tmp", "tmp/file", "Library", "Library/Caches",
                "Library/Caches/file", long, "link", "pipe", "first", "second",
            ]
            let named = parents + homes.flatMap(Self.expected) + plain
            let directories = 1 + 6 + 3 * 9 + 4
            let own =
                Array(repeating: "+.ward", count: directories) + [
                    "+.n", "+README", "+ward.kem", "+ward.keybag", "+ward.keybag.copy",
                    "+ward.lock",
                    "+ward.state",
                ]
            let wanted = (named + own).sorted { $0.utf8.lexicographicallyPrecedes($1.utf8) }

            var lists: [Data] = []
            for state in LockState.walk {
                try volume.enter(state)
                let found = try volume.backedUp("\"$MNT\"")
                #expect(
                    found == wanted,
                    "\(state.rawValue): \(Set(found).symmetricDifference(wanted).sorted())")
                lists.append(
                    try Data(contentsOf: URL(fileURLWithPath: volume.directory + "/home/list")))
            }
            try volume.unmount()
            try volume.backupShell("\"$WARD\" backup list \"$VOL\" -0 >\"$OUT/list\"")
            lists.append(
                try Data(contentsOf: URL(fileURLWithPath: volume.directory + "/home/list")))
            // But for capsules: a mount has one of its own.
            let sets = lists.map { list in
                Set(
                    list.split(separator: 0).filter { $0.range(of: Data("/ward.kem/".utf8)) == nil }
                )
            }
            #expect(Set(sets).count == 1, "also not mounted")
            // The two kinds of list share no name, and together have all names.
            try volume.backupShell(
                """
                "$WARD" backup list "$VOL" --relative | sort >"$OUT/taken"
                "$WARD" backup list "$VOL" --relative --excludes | sort >"$OUT/left"
                test -z "$(comm -12 "$OUT/taken" "$OUT/left")"
                test "$("$WARD" backup list "$VOL" --json | wc -l)" = "$(wc -l <"$OUT/taken")"
                # Everything that is neither is below something that is left out.
                cd "$VOL"; find . -mindepth 1 | sort >"$OUT/all"
                sort -m "$OUT/taken" "$OUT/left" | comm -13 - "$OUT/all" | while read -r path; do
                    while ! grep -qxF "$path" "$OUT/left"; do path=${path%/*}; test "$path" != .; done
                done
                """)
        }

        @Test(
            "A volume that is an app's home: its own caches and tmp are left out",
            arguments: User.usual)
        func home(user: User) throws {
            let volume = try MountedVolume(as: user)
            try volume.backupShell(
                """
                cd "$MNT"; mkdir -p Library/Caches tmp
                echo 1 >Library/Caches/file; echo 2 >tmp/file
                """)
            #expect(try volume.backedUp().contains("tmp/file"), "no home without Documents")
            try volume.backupShell("mkdir \"$MNT/Documents\"; echo 3 >\"$MNT/Documents/file\"")
            let found = try volume.backedUp().filter { !$0.hasPrefix("+") }
            #expect(found == ["Documents", "Documents/file", "Library", "Library/Caches", "tmp"])
        }

        @Test(
            "The mark belongs to the file, and goes when the file is replaced",
            arguments: User.usual)
        func replaced(user: User) throws {
            let volume = try MountedVolume(as: user)
            let mark = "getfattr -n user.ward.backup-excluded --only-values -h"
            try volume.backupShell(
                """
                cd "$MNT"
                for name in renamed over written truncated copied atomic; do echo old >$name; done
                mkdir directory; echo in >directory/file
                "$WARD" backup exclude *
                mv renamed moved; mv directory moved-directory
                echo new >staged; mv staged over
                echo more >>written; : >truncated
                cp -a copied copy; cp copied plain
                "$WARD" lock --now "$MNT" -q
                echo new >staged; mv staged atomic
                # A plain attribute does the same, and any value.
                echo x >by-hand; setfattr -n user.ward.backup-excluded by-hand
                \(mark) moved written truncated copied copy moved-directory by-hand
                ! \(mark) over 2>/dev/null; ! \(mark) atomic 2>/dev/null; ! \(mark) plain 2>/dev/null
                """)
            #expect(
                try volume.backedUp().filter { !$0.hasPrefix("+") } == ["atomic", "over", "plain"])
            try volume.backupShell(
                """
                cd "$MNT"; "$WARD" backup include moved moved-directory/file by-hand 2>"$OUT/notes"
                grep -q 'left out all the same: .*moved-directory is marked' "$OUT/notes"
                """)
            #expect(
                try volume.backedUp().filter { !$0.hasPrefix("+") } == [
                    "atomic", "by-hand", "moved", "over", "plain",
                ])
        }

        @Test(
            "A mark of another file, or a forged one, leaves nothing out", arguments: User.usual
        )
        func forged(user: User) throws {
            let volume = try MountedVolume(as: user)
            let notes = try volume.backupShell(
                #"""
                cd "$MNT"; echo 1 >marked; echo 2 >victim; echo 3 >forged; mkdir directory; echo 4 >directory/file
                "$WARD" backup exclude marked -q
                inode() { find "$VOL" -inum "$(stat -c %i "$MNT/$1")"; }
                name=$(getfattr --absolute-names -m '^user[.]w[.]' "$(inode marked)" | grep '^user')
                value=$(getfattr --absolute-names -n "$name" -e hex "$(inode marked)" | sed -n 's/^user.*=//p')
                setfattr -n "$name" -v "$value" "$(inode victim)"
                setfattr -n "$name" -v "$value" "$(inode directory)"
                setfattr -n "$name" -v 0x00 "$(inode forged)"
                "$WARD" backup list "$MNT" 2>&1 >/dev/null
                """#)
            #expect(
                notes.split(separator: "\n").count == 3 && notes.contains("does not authenticate"))
            #expect(
                try volume.backedUp().filter { !$0.hasPrefix("+") } == [
                    "directory", "directory/file", "forged", "victim",
                ])
        }

        @Test(
            "Where a directory's record is damaged everything in it is backed up",
            arguments: User.usual)
        func damaged(user: User) throws {
            let volume = try MountedVolume(as: user)
            try volume.backupShell(
                """
                cd "$MNT"; \(Self.containers)
                app=Containers/Data/Application/org.example.notes
                inode=$(stat -c %i $app/tmp)
                "$WARD" backup list "$MNT" | grep -q "$(find "$VOL" -inum "$(stat -c %i $app/Documents/file)")"
                record=$(find "$VOL" -inum "$(stat -c %i $app)")
                ln -sfn AAAA "$record/.ward"
                "$WARD" backup list "$MNT" >"$OUT/list" 2>"$OUT/notes"
                grep -q 'its directory record is damaged' "$OUT/notes"
                grep -q "$(find "$VOL" -inum $inode)/." "$OUT/list"
                """)
        }

        @Test("Paths that are longer on disk than the kernel takes", arguments: User.usual)
        func deep(user: User) throws {
            let volume = try MountedVolume(as: user)
            try volume.backupShell(
                #"""
                cd "$MNT"; name=$(printf 'directory%03d' $(seq 1 1))
                for i in $(seq 140); do mkdir $name-$name; cd $name-$name; done
                echo 1 >kept; echo 2 >marked; "$WARD" backup exclude marked -q; cd "$MNT"
                "$WARD" backup list "$VOL" --relative >"$OUT/taken" 2>"$OUT/errors"
                "$WARD" backup list "$VOL" --relative --excludes >"$OUT/left"
                test ! -s "$OUT/errors"
                test "$(wc -L <"$OUT/taken")" -gt 5000
                # 140 directories, their records and the root's, the root's five files, one file in the deepest,
                # ward.kem with a key and a capsule.
                test "$(wc -l <"$OUT/taken")" = 290; test "$(wc -l <"$OUT/left")" = 1
                "$WARD" backup run "$MNT" --json -- true | grep -q '"files":1,"directories":141,"excluded":1'
                rm -r directory*
                """#)
        }

        @Test(
            "Beside programs that create, rename and delete: nothing is missed, nobody is disturbed",
            arguments: User.usual)
        func concurrent(user: User) throws {
            let volume = try MountedVolume(as: user)
            try volume.backupShell(
                """
                cd "$MNT"; mkdir steady storm gone
                for i in $(seq 200); do echo $i >steady/$i; done
                """)
            let storms = try (0..<3).map { _ in
                try volume.start([
                    TestEnvironment.shared.python, TestEnvironment.shared.script("backup.py"),
                    "storm", volume.mountPoint + "/storm", "60", "50",
                ])
            }
            defer { storms.forEach { $0.kill() } }
            let before = try ControlEvent.latest(of: volume).count
            try volume.backupShell(
                """
                steady=$(find "$VOL" -inum "$(stat -c %i "$MNT/steady")")
                for i in $(seq 15); do
                    "$WARD" backup list "$VOL" >"$OUT/list" 2>"$OUT/errors"
                    test ! -s "$OUT/errors"
                    test "$(grep -c "^$steady/[^.]" "$OUT/list")" = 200
                    mkdir -p "$MNT/gone/a/b/c"; rm -r "$MNT/gone/a"
                done
                """)
            storms.forEach { $0.kill() }
            #expect(try ControlEvent.latest(of: volume).count == before, "no events")
            try volume.backupShell("backup check-storm \"$MNT/storm\"")
        }

        @Test("Not a volume, no keys, erased, links, the whole volume: facts and advice")
        func badInput() throws {
            let volume = try MountedVolume(as: User.available[0])
            volume.variables["TMPDIR"] = volume.directory + "/home"
            try volume.shell(
                "cd \"$MNT\"; echo 1 >file; ln -s file link; mkfifo pipe; mkdir \"$OUT/empty\"")
            var transcript = Transcript(volume)
            let home = volume.directory + "/home"
            try transcript.ward("backup", "list", home + "/missing", exit: 66)
            try transcript.ward("backup", "list", home + "/empty", exit: 10)
            try transcript.ward(
                "backup", "list", volume.mountPoint, "--for", "rclone", "-0", exit: 64)
            try transcript.ward("backup", "list", volume.mountPoint, "--for", "dump", exit: 64)
            try transcript.ward("backup", "exclude", volume.mountPoint, exit: 65)
            try transcript.ward("backup", "exclude", volume.mountPoint + "/link", exit: 65)
            try transcript.ward("backup", "exclude", volume.mountPoint + "/pipe", exit: 65)
            try transcript.ward("backup", "exclude", volume.mountPoint + "/missing", exit: 66)
            try transcript.ward("backup", "include", home + "/empty", exit: 10)
            try transcript.ward("backup", "run", volume.mountPoint, exit: 64)
            try transcript.ward("backup", "run", home + "/empty", "--", "true", exit: 10)
            try transcript.ward(
                "backup", "run", volume.mountPoint, "--", "/no/such/program", exit: 66)
            try volume.unmount()
            try volume.shell("mv '\(try volume.deviceDirectory())/device.key' $OUT/")
            transcript.remark("the device key is lost")
            try transcript.ward("backup", "list", volume.volume, exit: 78)
            try volume.shell(
                "mv $OUT/device.key '\(try volume.deviceDirectory())/'; rm '\(try volume.deviceDirectory())/effaceable.key'"
            )
            transcript.remark("it was erased")
            try transcript.ward("backup", "list", volume.volume, exit: 14)
            try transcript.check("backup")
        }
    }
}
