import Foundation
import Testing

extension MountSuite {
    /// docs/sync.md, "The better way": Debian's rclone and Syncthing synchronise the ciphertext
    /// while the volume is mounted and locked. The copy opens on another machine (`ward adopt`),
    /// and every file in it is unchanged, its class included.
    @Suite struct CiphertextSyncTests {
        /// Files of every class, with every kind of name, content, mode and attribute.
        private func fill(_ volume: MountedVolume) throws {
            try volume.shell(
                """
                cd "$MNT"
                for class in A B C D CX; do
                    mkdir -p $class/deep/er
                    setfattr -n user.ward.class -v $class $class $class/deep $class/deep/er
                    head -c 200000 /dev/urandom >$class/large
                    echo small $class >$class/deep/small
                    : >$class/deep/er/empty
                    ln -s ../large $class/deep/link
                done
                long=$(printf 'n%.0s' $(seq 250))
                echo long >"C/$long"; mkdir "D/$long"; echo in it >"D/$long/f"
                truncate -s 3000000 C/sparse; echo end >>C/sparse
                touch -d '2001-02-03 04:05:06.789' C/deep/small
                mkdir Sync; echo synchronised >Sync/f
                """)
            #expect(try volume.ward("sync", "mark", volume.mountPoint + "/Sync").status == 0)
        }

        /// One line for each file: path, type, size, time, class, mark, content, target. Syncthing
        /// does not copy the times of symbolic links.
        private func picture(_ volume: MountedVolume) throws -> String {
            try volume.shell(
                """
                cd "$MNT"
                find . -mindepth 1 -printf '%P\\n' | LC_ALL=C sort | while IFS= read -r name; do
                    stat -c '%n %F %a %s %y' -- "$name" |
                        sed -E 's/ (directory [0-7]*|symbolic link) .*/ \\1/'
                    if [ -L "$name" ]; then readlink -- "$name"; continue; fi
                    getfattr --only-values -n user.ward.class -- "$name"; echo
                    getfattr --only-values -n user.ward.synced -- "$name" 2>/dev/null && echo
                    if [ -f "$name" ]; then sha256sum <"$name"; fi
                done
                """)
        }

        /// Opens a copy as another machine does, which has only a recovery kit and its code. The
        /// copy itself stays as it is.
        private func open(
            copy: String, of volume: MountedVolume, _ body: (MountedVolume) throws -> Void
        ) throws {
            let machine = try MountedVolume(directoryOnlyAs: volume.user, passcode: "another one")
            try machine.shell(
                "rmdir '\(machine.volume)'; cp -a '\(copy)' '\(machine.volume)'; "
                    + "cp '\(volume.directory)'/home/kit* $OUT/")
            let done = try machine.ward(
                "adopt", machine.volume, "--recovery-kit", machine.directory + "/home/kit",
                "--code-file", machine.directory + "/home/kit.code", "--passcode-cost", "1024",
                "--passcode-file", machine.passcodeFile)
            #expect(done.succeeded, "\(done.everything)")
            try machine.mount()
            try machine.unlock()
            try body(machine)
            #expect(
                try ControlEvent.latest(of: machine).filter {
                    ["integrityFailure", "foreignFile"].contains($0.kind)
                }.isEmpty)
            try machine.unmount()
        }

        private func makeKit(_ volume: MountedVolume) throws {
            try volume.shell(
                """
                '\(TestEnvironment.shared.ward)' recovery create '\(volume.volume)' --out $OUT/kit --json \
                    --passcode-file '\(volume.passcodeFile)' >$OUT/kit.json
                sed 's/.*"recoveryCode":"\\([^"]*\\)".*/\\1/' $OUT/kit.json >$OUT/kit.code
                """)
        }

        @Test(
            "rclone between two backing directories, locked: all there, and again after a change",
            arguments: User.usual)
        func rclone(user: User) throws {
            let volume = try MountedVolume(as: user)
            try fill(volume)
            try makeKit(volume)
            let before = try picture(volume)
            let copy = volume.directory + "/home/copy"
            let sync = """
                rclone --config /dev/null sync --links --metadata --stats-one-line -v \
                "$OUT/../volume" "$OUT/copy"
                """
            try volume.lockNow()
            try volume.shell(sync)
            // Nothing was read through the mount.
            let denied = try ControlEvent.latest(of: volume).filter { $0.kind == "denied" }
            #expect(denied.isEmpty, "\(denied)")
            try open(copy: copy, of: volume) { machine in
                let after = try picture(machine)
                #expect(after == before)
            }
            // While locked, files of class C and D can change, and new files of class B can be
            // added.
            try volume.lockNow()
            try volume.shell(
                """
                cd "$MNT"
                printf changed | dd of=C/large bs=1 seek=100000 conv=notrunc status=none
                echo new >B/new; mv A/large A/moved; rm D/large; mkdir -p C/new/dir
                """)
            let counted = try volume.shell(sync + " 2>&1")
            // Only changed files were transferred.
            #expect(!counted.contains("/large: Copied") || counted.contains("Copied (replaced"))
            try volume.unlock()
            let changed = try picture(volume)
            #expect(changed != before)
            try open(copy: copy, of: volume) { machine in
                let after = try picture(machine)
                #expect(after == changed)
            }
        }

        @Test(
            "rclone sees a change of class by --checksum alone: size and time stay",
            arguments: User.usual)
        func classChange(user: User) throws {
            let volume = try MountedVolume(as: user)
            try makeKit(volume)
            try volume.shell("echo secret >\"$MNT/f\"")
            let sync =
                "rclone --config /dev/null sync --links --metadata \"$OUT/../volume\" \"$OUT/copy\""
            try volume.shell(sync)
            let file = volume.mountPoint + "/f"
            #expect(try volume.ward("class", "set", "A", file).status == 0)
            try volume.shell(sync)
            let copy = volume.directory + "/home/copy"
            func classInTheCopy() throws -> String {
                var shown = ""
                try open(copy: copy, of: volume) { machine in
                    shown = try machine.ward("class", "show", machine.mountPoint + "/f").output
                }
                return shown
            }
            #expect(try classInTheCopy().hasPrefix("C"))
            try volume.shell(sync + " --checksum")
            #expect(try classInTheCopy().hasPrefix("A"))
        }

        @Test(
            "Syncthing on the backing directory, over loopback, locked: all there, then what changed",
            arguments: User.usual)
        func syncthing(user: User) throws {
            let volume = try MountedVolume(as: user)
            try fill(volume)
            try makeKit(volume)
            let before = try picture(volume)
            let home = volume.directory + "/home"
            try volume.lockNow()
            try volume.shell(
                """
                cd "$OUT"; mkdir work copy; mkfifo orders; : >answers
                # Read and write: opening waits for nobody.
                exec 7<>orders
                python3 "\(TestEnvironment.shared.script("syncthing.py"))" "$OUT/work" \
                    "$(realpath "$OUT/../volume")" "$OUT/copy" <orders >answers 2>errors 7>&- &
                pid=$!
                order() {
                    echo >&7
                    while [ "$(wc -l <answers)" -lt "$1" ]; do
                        kill -0 $pid 2>/dev/null || { cat errors; exit 1; }
                        sleep 0.1
                    done
                }
                trap 'kill $pid 2>/dev/null || true; wait $pid || true' EXIT
                order 1
                cp -a copy first
                cd "$MNT"
                printf changed | dd of=C/large bs=1 seek=100000 conv=notrunc status=none
                echo new >B/new; mv A/large A/moved; rm D/large; mkdir -p C/new/dir
                # A class alone keeps size and time, and this version of Syncthing looks at nothing else.
                setfattr -n user.ward.class -v D C/deep/small; touch -d '2002-02-02' C/deep/small
                cd "$OUT"
                order 2
                """, seconds: 300)
            try volume.unlock()
            let changed = try picture(volume)
            // This version of Syncthing does not copy extended attributes; no file here has any.
            for (copy, expected) in [("first", before), ("copy", changed)] {
                try open(copy: home + "/" + copy, of: volume) { machine in
                    let after = try picture(machine)
                    #expect(after == expected, "\(copy)")
                }
            }
            let foreign = try ControlEvent.latest(of: volume).filter { $0.kind == "foreignFile" }
            #expect(foreign.isEmpty, "\(foreign)")
        }
    }
}
