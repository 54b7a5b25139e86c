import Foundation
import Testing

extension MountSuite {
    /// Debian's restic, rclone, rsync, tar and Borg: what they copy of a volume, and the restored
    /// result.
    @Suite struct BackupToolTests {
        /// A volume with a recovery kit in `$OUT/kit` and its code in `$OUT/code`. With `hostile`
        /// its directory's name has characters that are special in programs' patterns.
        private static func volume(
            _ user: User, hostile: Bool = false, kit: Bool = true
        ) throws -> MountedVolume {
            var backing: String?
            if hostile {
                let parent = try TestEnvironment.shared.makeDirectory("backing")
                let path = parent + ##"/we ird [a]*?{b}$HOME\#v"##
                mkdir(path, 0o700)
                chown(path, user.userID, user.groupID)
                backing = path
            }
            let volume = try MountedVolume(as: user, backing: backing)
            if kit {
                try volume.backupShell(
                    """
                    "$WARD" recovery create "$VOL" --out "$OUT/kit" --passcode-file '\(volume.passcodeFile)' |
                        sed -n 's/^recovery code: //p' >"$OUT/code"
                    test -s "$OUT/code"
                    """)
            }
            return volume
        }

        private static func parent(_ path: String) -> String {
            (path as NSString).deletingLastPathComponent
        }

        /// Files of every kind and class. A copy must not have `app-tmp` and the content of
        /// `left-out`.
        private static let fill = #"""
            cd "$MNT"; mkdir -p app/deep/er empty left-out Containers/Data/Application/x/tmp
            for class in A B C D CX; do
                mkdir $class; "$WARD" class set $class $class -q
                seq 5000 >$class/numbers; echo $class >$class/letter; : >$class/empty
            done
            chmod 400 C/letter; chmod 555 D; chmod 750 app/deep; chmod 1777 empty
            ln -s ../A/letter app/link; ln app/../C/numbers app/hard; mkfifo app/pipe
            truncate -s 3M app/sparse; printf end | dd of=app/sparse bs=1 seek=1000000 conv=notrunc status=none
            setfattr -n user.origin -v somewhere app/deep; setfattr -n user.note -v A A/letter
            echo name >"app/$(printf 'long%.0s' $(seq 50))"; echo strange >$'app/a\nb*?\\'
            touch -d '2001-01-01 01:02:03.123456789' B/letter app/deep/er
            for i in $(seq 60); do echo $i >app/deep/er/$i; done
            echo 1 >left-out/file; "$WARD" backup exclude left-out; echo app-tmp >Containers/Data/Application/x/tmp/app-tmp
            """#

        /// The tree that a copy is compared with.
        private static let original =
            #"backup tree "$MNT" --classes | grep -v -e '"left-out' -e 'app-tmp' >"$OUT/original""#

        /// Adopts a copy on a machine that has no keys of the volume, and compares each file,
        /// classes included.
        private static func adopt(_ copy: String, compare: Bool = true) -> String {
            """
            mkdir -p -m 700 "$OUT/elsewhere/run" "$OUT/elsewhere/mnt"; printf other >"$OUT/other"; chmod 600 "$OUT/other"
            elsewhere "$WARD" mount \(copy) "$OUT/elsewhere/mnt" 2>/dev/null && exit 1
            elsewhere "$WARD" adopt \(copy) --recovery-kit "$OUT/kit" --code-file "$OUT/code" \
                --passcode-file "$OUT/other" --passcode-cost 1024 >/dev/null
            elsewhere "$WARD" mount \(copy) "$OUT/elsewhere/mnt" >/dev/null
            elsewhere "$WARD" unlock "$OUT/elsewhere/mnt" --passcode-file "$OUT/other" >/dev/null
            \(compare ? #"backup tree "$OUT/elsewhere/mnt" --classes >"$OUT/copy"; diff "$OUT/original" "$OUT/copy""# : "")
            """
        }

        private static let leave = """
            elsewhere "$WARD" unmount "$OUT/elsewhere/mnt" >/dev/null; chmod -R u+rwX "$OUT/elsewhere"; rm -rf "$OUT/elsewhere"
            """

        @Test("Each program takes both of its lists as they are", arguments: User.usual)
        func lists(user: User) throws {
            let volume = try Self.volume(user, hostile: true, kit: false)
            defer { try? FileManager.default.removeItem(atPath: Self.parent(volume.volume)) }
            try volume.backupShell(
                #"""
                (\#(Self.fill))
                # Names on disk may begin with a hyphen: there are some among these.
                (cd "$MNT"; mkdir many; for i in $(seq 300); do echo $i >many/$i; done)
                (cd "$VOL"; find . -name '-*' | grep -q .)
                was=$(stat -c %i "$VOL/ward.state")
                "$WARD" lock --now "$MNT" -q
                # A lock ends in a durable point of its own. What walks through all of the store is for after it.
                for i in $(seq 600); do
                    test "$(stat -c %i "$VOL/ward.state")" = $was || break; sleep 0.1
                done
                cd "$OUT"
                "$WARD" backup list "$VOL" --relative | sort >expected
                (cd "$VOL"; while read -r path; do test -d "$path" || echo "$path"; done) <expected >leaves
                got() { (cd "$1"; find . -mindepth 1 | sort) >got; diff "${2:-expected}" got; }
                for tool in restic rclone rsync tar borg; do
                    "$WARD" backup list "$MNT" --for $tool >$tool.files
                    "$WARD" backup list "$MNT" --for $tool --excludes >$tool.excludes
                done
                for tool in restic rsync tar borg; do "$WARD" backup list "$MNT" --for $tool -0 >$tool.zero; done
                "$WARD" backup list "$MNT" --for rsync --excludes -0 >rsync.excludes0

                tar -C "$VOL" --no-recursion -T tar.files --xattrs --xattrs-include='*' -cf 1.tar
                tar -C "$VOL" --no-recursion --null -T tar.zero -cf 2.tar
                tar -C "$VOL" -X tar.excludes -cf 3.tar .
                for i in 1 2 3; do mkdir tar$i; tar -C tar$i -xpf $i.tar; got tar$i; done

                rsync -aHAX --files-from=rsync.files "$VOL/" rsync1/; got rsync1
                rsync -aHAX --from0 --files-from=rsync.zero "$VOL/" rsync2/; got rsync2
                rsync -aHAX --exclude-from=rsync.excludes "$VOL/" rsync3/; got rsync3
                rsync -aHAX --from0 --exclude-from=rsync.excludes0 "$VOL/" rsync4/; got rsync4

                # It copies neither FIFOs nor empty directories that are none to it.
                sort leaves | grep -vxF "$(cd "$VOL"; find . -type p)" >files
                rclone copy -q --links --include-from rclone.files "$VOL" rclone1 2>rclone.log
                rclone copy -q --links --exclude-from rclone.excludes "$VOL" rclone2 2>>rclone.log
                for i in 1 2; do (cd rclone$i; find . ! -type d | sort) >got; diff files got; done

                borg init -e none repo.borg
                borg create --paths-from-stdin repo.borg::1 <borg.files
                borg create --paths-from-stdin --paths-delimiter '\0' repo.borg::2 <borg.zero
                borg create --exclude-from borg.excludes repo.borg::3 "$VOL"
                for i in 1 2 3; do
                    mkdir borg$i; (cd borg$i; borg extract ../repo.borg::$i); got "borg$i$VOL"
                done

                restic init -q -r repo.restic
                restic -q -r repo.restic backup --files-from-verbatim restic.files
                restic -q -r repo.restic restore latest --target restic1; got "restic1$VOL"
                restic -q -r repo.restic backup --files-from-raw restic.zero
                restic -q -r repo.restic restore latest --target restic2; got "restic2$VOL"
                restic -q -r repo.restic backup --exclude-file restic.excludes "$VOL"
                restic -q -r repo.restic restore latest --target restic3; got "restic3$VOL"
                chmod -R u+rwX "$OUT"
                """#, seconds: 300)
        }

        @Test(
            "restic to a local repository, while locked: every file comes back with its class",
            arguments: User.usual)
        func restic(user: User) throws {
            let volume = try Self.volume(user)
            try volume.backupShell(
                """
                (\(Self.fill)); \(Self.original)
                "$WARD" lock --now "$MNT" -q
                restic init -q -r "$OUT/repo"
                "$WARD" backup run "$MNT" -q -- sh -c '
                    restic -q -r "$OUT/repo" backup --exclude-file "$WARD_BACKUP_EXCLUDES" "$WARD_BACKUP_SOURCE"'
                # Before the first unlock a second one finds nothing to do.
                "$WARD" reboot "$MNT" -q
                before=$(du -sb "$OUT/repo/data" | cut -f 1)
                "$WARD" backup run "$MNT" -q -- sh -c '
                    restic -q -r "$OUT/repo" backup --exclude-file "$WARD_BACKUP_EXCLUDES" "$WARD_BACKUP_SOURCE"'
                test $(($(du -sb "$OUT/repo/data" | cut -f 1) - before)) -lt 100000
                restic -q -r "$OUT/repo" restore latest --target "$OUT/elsewhere"
                \(Self.adopt("\"$OUT/elsewhere$VOL\""))
                # What is made there can be locked there, and the first device goes on with its own passcode.
                elsewhere "$WARD" lock --now "$OUT/elsewhere/mnt" -q
                ! cat "$OUT/elsewhere/mnt/A/letter" 2>/dev/null
                "$WARD" unlock "$MNT" -q --passcode-file '\(volume.passcodeFile)'; test "$(cat "$MNT/A/letter")" = A
                \(Self.leave)
                """, seconds: 300)
        }

        @Test(
            "restic over loopback to rclone's server: 4 KiB changed in a large file send less than 1 % of a GiB"
        )
        func restServer() throws {
            let volume = try Self.volume(User.available[0])
            try volume.backupShell(
                #"""
                (\#(Self.fill))
                dd if=/dev/urandom of="$MNT/A/large" bs=1M count=100 iflag=fullblock status=none
                mkdir "$OUT/served"
                rclone serve restic --addr 127.0.0.1:0 "$OUT/served" 2>"$OUT/rclone.log" &
                server=$!; trap 'kill $server' EXIT
                for i in $(seq 300); do grep -q 'http://127' "$OUT/rclone.log" && break; sleep 0.1; done
                export REPO="rest:$(sed -n 's|.*\(http://127[0-9.:]*/\).*|\1|p' "$OUT/rclone.log" | head -n 1)"
                restic init -q -r "$REPO"
                "$WARD" lock --now "$MNT" -q
                save() { "$WARD" backup run "$MNT" -q -- sh -c '
                    restic -q -r "$REPO" backup --exclude-file "$WARD_BACKUP_EXCLUDES" "$WARD_BACKUP_SOURCE"'; }
                save
                first=$(du -sb "$OUT/served" | cut -f 1)
                test $first -gt 100000000
                "$WARD" unlock "$MNT" -q --passcode-file '\#(volume.passcodeFile)'
                dd if=/dev/urandom of="$MNT/A/large" bs=4096 seek=12345 count=1 conv=notrunc status=none
                \#(Self.original)
                "$WARD" lock --now "$MNT" -q
                save
                # A chunk of restic's has 8 MiB at the most, however large the file is.
                sent=$(($(du -sb "$OUT/served" | cut -f 1) - first))
                echo "sent $sent"; test $sent -gt 4096; test $sent -lt 10737418
                restic -q -r "$REPO" restore latest --target "$OUT/elsewhere"
                \#(Self.adopt("\"$OUT/elsewhere$VOL\""))
                \#(Self.leave)
                """#, seconds: 400)
        }

        @Test(
            "While eight processes write: what is not told as changed is the original, and the rest opens or says EIO"
        )
        func writers() throws {
            let volume = try Self.volume(User.available[0])
            try volume.backupShell("(\(Self.fill)); mkdir \"$MNT/busy\"; \(Self.original)")
            let writers = try (0..<8).map { number in
                try volume.start([
                    TestEnvironment.shared.python, TestEnvironment.shared.script("backup.py"),
                    "writer", volume.mountPoint + "/busy/\(number)", "100",
                ])
            }
            defer { writers.forEach { $0.kill() } }
            try volume.wait(for: "all writers write") {
                try FileManager.default.contentsOfDirectory(atPath: volume.mountPoint + "/busy")
                    .count == 8
            }
            try volume.backupShell(
                #"""
                restic init -q -r "$OUT/repo"
                "$WARD" backup run "$MNT" --json -- sh -c '
                    restic -q -r "$OUT/repo" backup --exclude-file "$WARD_BACKUP_EXCLUDES" "$WARD_BACKUP_SOURCE"' >"$OUT/report"
                for i in 0 1 2 3 4 5 6 7; do grep -q '"path":"/busy/'$i'","change":"modified"' "$OUT/report"; done
                test "$(grep -o '"change":' "$OUT/report" | wc -l)" = 8
                restic -q -r "$OUT/repo" restore latest --target "$OUT/elsewhere"
                \#(Self.adopt("\"$OUT/elsewhere$VOL\"", compare: false))
                for i in 0 1 2 3 4 5 6 7; do backup blocks "$OUT/elsewhere/mnt/busy/$i"; done
                rm -r "$OUT/elsewhere/mnt/busy"
                backup tree "$OUT/elsewhere/mnt" --classes >"$OUT/copy"
                diff <(grep -v '"busy' "$OUT/original") "$OUT/copy"
                \#(Self.leave)
                """#, seconds: 300)
        }

        @Test("Half-way through a rename storm: what opens is old or new, nothing is torn")
        func renameStorm() throws {
            let volume = try Self.volume(User.available[0])
            try volume.backupShell("mkdir \"$MNT/storm\"")
            let storms = try (0..<4).map { _ in
                try volume.start([
                    TestEnvironment.shared.python, TestEnvironment.shared.script("backup.py"),
                    "storm", volume.mountPoint + "/storm", "200", "300",
                ])
            }
            defer { storms.forEach { $0.kill() } }
            try volume.wait(for: "a storm") {
                try FileManager.default.contentsOfDirectory(atPath: volume.mountPoint + "/storm")
                    .count > 150
            }
            try volume.backupShell(
                #"""
                restic init -q -r "$OUT/repo"
                for round in 1 2 3; do
                    # 3: files that had gone by the time they were read.
                    "$WARD" backup run "$MNT" -q -- sh -c '
                        restic -q -r "$OUT/repo" backup --exclude-file "$WARD_BACKUP_EXCLUDES" \
                            "$WARD_BACKUP_SOURCE" 2>/dev/null' || test $? = 3
                    restic -q -r "$OUT/repo" restore latest --target "$OUT/elsewhere"
                    \#(Self.adopt("\"$OUT/elsewhere$VOL\"", compare: false))
                    backup check-storm "$OUT/elsewhere/mnt/storm" | awk '$2 < 100 { exit 1 }'
                    \#(Self.leave)
                done
                """#, seconds: 300)
        }

        @Test("Copies made by rsync, tar and Borg open elsewhere, too", arguments: User.usual)
        func otherPrograms(user: User) throws {
            let volume = try Self.volume(user)
            try volume.backupShell(
                #"""
                (\#(Self.fill)); \#(Self.original)
                "$WARD" lock --now "$MNT" -q
                mkdir -p "$OUT/elsewhere"
                "$WARD" backup run "$MNT" -q --for rsync -- sh -c '
                    # By default rsync takes two times within a second for one, and leaves the time of the copying.
                    rsync -aHAX --modify-window=-1 --exclude-from "$WARD_BACKUP_EXCLUDES" "$WARD_BACKUP_SOURCE/" \
                        "$OUT/elsewhere/rsync/"'
                \#(Self.adopt("\"$OUT/elsewhere/rsync\""))
                \#(Self.leave)
                "$WARD" backup run "$MNT" -q --for tar -- sh -c '
                    tar -C "$WARD_BACKUP_SOURCE" --xattrs --xattrs-include="*" --sparse -X "$WARD_BACKUP_EXCLUDES" -cf "$OUT/v.tar" .'
                mkdir -p "$OUT/elsewhere/tar"; tar -C "$OUT/elsewhere/tar" --xattrs --xattrs-include='*' -xpf "$OUT/v.tar"
                \#(Self.adopt("\"$OUT/elsewhere/tar\""))
                \#(Self.leave)
                borg init -e none "$OUT/repo.borg"
                "$WARD" backup run "$MNT" -q --for borg -- sh -c '
                    borg create --exclude-from "$WARD_BACKUP_EXCLUDES" "$OUT/repo.borg::1" "$WARD_BACKUP_SOURCE"'
                mkdir -p "$OUT/elsewhere/borg"; (cd "$OUT/elsewhere/borg"; borg extract "$OUT/repo.borg::1")
                \#(Self.adopt("\"$OUT/elsewhere/borg$VOL\""))
                \#(Self.leave)
                """#, seconds: 300)
        }
    }
}
