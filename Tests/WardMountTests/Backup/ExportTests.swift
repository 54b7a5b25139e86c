import Foundation
import Testing

extension MountSuite {
    /// `ward export` and `ward import`: everything goes out and comes back, with its class.
    @Suite struct ExportTests {
        private static let fill = #"""
            cd "$MNT"; mkdir -p app/deep/er empty
            for class in A B C D CX; do
                mkdir $class; "$WARD" class set $class $class -q
                seq 5000 >$class/numbers; echo $class >$class/letter; : >$class/empty
            done
            "$WARD" class set A C/letter -q
            setfattr -n user.closed -v 1 C/letter D app/deep
            chmod 400 C/letter; chmod 555 D; chmod 500 app/deep; chmod 1777 empty
            ln -s ../A/letter app/link; ln C/numbers app/hard; ln C/numbers app/harder; mkfifo app/pipe
            truncate -s 30M app/sparse; printf end | dd of=app/sparse bs=1 seek=20000000 conv=notrunc status=none
            setfattr -n user.origin -v somewhere app; setfattr -n user.note -v A A/letter
            setfattr -n user.ward.backup-excluded -v 1 B/letter; setfacl -m u:1234:r B/letter; setfacl -d -m u:1234:rx app
            echo name >"app/$(printf 'long%.0s' $(seq 50))"; echo strange >$'app/a\nb*?\\'; echo latin >$'app/\xe9t\xe9'
            touch -d '2001-01-01 01:02:03.123456789' B/letter app/link empty
            if [ "$(id -u)" = 0 ]; then
                echo other >owned; chown 1234:5678 owned; chmod 4755 owned; mknod device c 1 3; chown -h 1234 app/link
                mkdir theirs; chown 1234:1234 theirs
            fi
            """#

        @Test(
            "Out and back: modes, times, owners, attributes, links, special files, holes, classes",
            arguments: User.usual)
        func roundTrip(user: User) throws {
            let volume = try MountedVolume(as: user)
            try volume.backupShell(
                #"""
                (\#(Self.fill))
                backup tree "$MNT" >"$OUT/plain"; backup tree "$MNT" --classes >"$OUT/classes"
                "$WARD" export "$MNT" "$OUT/export" --json | grep -q '"failed":0,"complete":true'
                test "$(ls -A "$OUT/export" | tr '\n' ' ')" = 'files ward-export.jsonl '
                backup tree "$OUT/export/files" >"$OUT/exported"; diff "$OUT/plain" "$OUT/exported"
                test "$(du -k "$OUT/export/files/app/sparse" | cut -f 1)" -lt 100
                head -n 1 "$OUT/export/ward-export.jsonl" | grep -q '"format":"ward export","version":1'
                grep -qx '{"path":"A/letter","class":"A"}' "$OUT/export/ward-export.jsonl"
                grep -qx '{"path":"C/letter","class":"A"}' "$OUT/export/ward-export.jsonl"
                grep -q '"pathBase64":"' "$OUT/export/ward-export.jsonl"
                # A complete one is not touched again.
                ! "$WARD" export "$MNT" "$OUT/export" 2>/dev/null
                diff <(backup tree "$OUT/export/files") "$OUT/exported"
                """#)
            for option in ["", "--staged"] {
                let other = try MountedVolume(as: user)
                try other.backupShell(
                    #"""
                    FROM='\#(volume.directory)/home'
                    "$WARD" import \#(option) "$FROM/export" "$MNT" >/dev/null
                    backup tree "$MNT" --classes >"$OUT/classes"; diff "$FROM/classes" "$OUT/classes"
                    test "$(du -k "$MNT/app/sparse" | cut -f 1)" -lt 100
                    # Once more: everything is there already, nothing is done.
                    "$WARD" import "$FROM/export" "$MNT" --json | grep -q '"files":0,.*"failed":0'
                    diff <(backup tree "$MNT" --classes) "$OUT/classes"
                    # A part, into a directory.
                    mkdir "$MNT/part"; "$WARD" import "$FROM/export/files/app" "$MNT/part" -q
                    test "$(getfattr -n user.ward.class --only-values "$MNT/part/hard")" = NSFileProtectionCompleteUntilFirstUserAuthentication
                    """#)
                try other.remount()
                try other.backupShell(
                    #"diff <(backup tree "$MNT" --classes | grep -v '"path": "part') '\#(volume.directory)/home/classes'"#
                )
            }
        }

        @Test(
            "What can't be read now is told, nothing half is left, and it goes on later",
            arguments: User.usual)
        func locked(user: User) throws {
            let volume = try MountedVolume(as: user)
            try volume.backupShell(
                #"""
                (\#(Self.fill)); backup tree "$MNT" >"$OUT/plain"
                "$WARD" lock --now "$MNT" -q
                set +e; "$WARD" export "$MNT" "$OUT/export" >"$OUT/output" 2>"$OUT/errors"; code=$?; set -e
                test $code = 1
                # A and B: numbers, letter, empty of each, and C/letter. Empty files are of their class, too.
                grep -c 'ward: error: cannot export .*lock state' "$OUT/errors" | grep -qx 7
                test -z "$(cd "$OUT/export/files"; find A B C/letter -type f 2>/dev/null)"
                test "$(cat "$OUT/export/files/D/letter")" = D
                test "$(ls -A "$OUT/export" | tr '\n' ' ')" = 'files ward-export.jsonl '
                # An import takes it only when told to.
                set +e; "$WARD" import "$OUT/export" "$MNT/empty" 2>/dev/null; code=$?; set -e; test $code = 65
                "$WARD" unlock "$MNT" -q --passcode-file '\#(volume.passcodeFile)'
                "$WARD" import "$OUT/export" "$MNT/empty" --incomplete -q; test -f "$MNT/empty/D/letter"; chmod -R u+rwX "$MNT/empty"; rm -rf "$MNT/empty"/*; chmod 1777 "$MNT/empty"
                touch -r "$OUT/export/files/empty" "$MNT/empty"
                "$WARD" export "$MNT" "$OUT/export" --json | grep -q '"failed":0,"complete":true'
                diff "$OUT/plain" <(backup tree "$OUT/export/files")
                """#)
        }

        @Test(
            "Killed at any moment: files that have their names are whole, and a second run completes it",
            arguments: User.usual)
        func interrupted(user: User) throws {
            let volume = try MountedVolume(as: user)
            try volume.backupShell(
                #"""
                cd "$MNT"; mkdir -p many/inner; chmod 750 many
                for i in $(seq 300); do seq $i $((i + 2000)) >many/inner/$i; done; chmod 555 many/inner
                backup tree "$MNT" >"$OUT/plain"; backup tree "$MNT" --classes >"$OUT/classes"
                for round in 1 2 3; do
                    "$WARD" export "$MNT" "$OUT/export" >/dev/null 2>&1 & child=$!
                    for i in $(seq 500); do
                        test "$(find "$OUT/export/files" -type f 2>/dev/null | wc -l)" -ge $((round * 60)) && break; sleep 0.01
                    done
                    kill -9 $child 2>/dev/null || true; wait $child || true
                    for file in $(find "$OUT/export/files" -type f); do cmp "$file" "$MNT${file#"$OUT/export/files"}"; done
                done
                set +e; "$WARD" import "$OUT/export" "$MNT" 2>"$OUT/errors"; code=$?; set -e
                if test -d "$OUT/export/unfinished"; then
                    test $code = 65; grep -q 'was interrupted' "$OUT/errors"
                    "$WARD" export "$MNT" "$OUT/export" -q
                fi
                diff "$OUT/plain" <(backup tree "$OUT/export/files")
                """#, seconds: 400)
            let other = try MountedVolume(as: user)
            try other.backupShell(
                #"""
                FROM='\#(volume.directory)/home'
                for round in 1 2 3; do
                    "$WARD" import "$FROM/export" "$MNT" >/dev/null 2>&1 & child=$!
                    for i in $(seq 500); do
                        test "$(find "$MNT" -type f | wc -l)" -ge $((round * 60)) && break; sleep 0.01
                    done
                    kill -9 $child 2>/dev/null || true; wait $child || true
                    for file in $(find "$MNT" -type f); do cmp "$file" "$FROM/export/files${file#"$MNT"}"; done
                done
                "$WARD" import "$FROM/export" "$MNT" -q
                diff "$FROM/classes" <(backup tree "$MNT" --classes)
                """#, seconds: 400)
        }

        @Test(
            "An import makes its directory; where it can't, the error says why",
            arguments: User.usual)
        func newDirectory(user: User) throws {
            let volume = try MountedVolume(as: user)
            try volume.backupShell(
                #"""
                mkdir -p "$OUT/plain/sub"; echo 1 >"$OUT/plain/sub/f"; chmod 750 "$OUT/plain"
                mkdir "$MNT/A"; "$WARD" class set A "$MNT/A" -q
                "$WARD" import "$OUT/plain" "$MNT/A/new" -q
                test "$(cat "$MNT/A/new/sub/f")" = 1; test "$(stat -c %a "$MNT/A/new")" = 750
                test "$(getfattr -n user.ward.class --only-values "$MNT/A/new/sub/f")" = NSFileProtectionComplete
                "$WARD" import "$OUT/plain" "$MNT/A/new/" --json | grep -q '"files":0,.*"present":1'
                cd "$MNT"; "$WARD" import "$OUT/plain" here/ -q; test -f here/sub/f; cd /

                refuse() { # code, words, arguments
                    set +e; "$WARD" import "${@:3}" >"$OUT/output" 2>"$OUT/errors"; code=$?; set -e
                    test $code = "$1" && grep -q "$2" "$OUT/errors" || { cat "$OUT/errors" >&2; exit 1; }
                }
                refuse 66 "there is no directory $MNT/none" "$OUT/plain" "$MNT/none/deep"
                refuse 10 'it is not in a mounted volume' "$OUT/plain" "$OUT/elsewhere"
                refuse 10 'it is not in a mounted volume' "$OUT/plain" "$OUT"
                refuse 66 'no such file' "$OUT/missing" "$MNT/other"
                test ! -e "$OUT/elsewhere"; test ! -e "$MNT/other"
                """#)
        }

        @Test(
            "An import to a full volume stops, says where room is needed, and goes on later",
            arguments: User.usual)
        func full(user: User) throws {
            let volume = try MountedVolume(as: user)
            try volume.backupShell(
                #"""
                mkdir "$OUT/plain"; for i in $(seq 50); do head -c 300000 /dev/zero | tr '\0' x >"$OUT/plain/$i"; done
                cat >"$OUT/script" <<'END'
                set -eu; cd /
                mkdir "$WARD_TEST_VOLUME/in"; ward fill -q
                ! ward import "$OUT/plain" "$WARD_TEST_VOLUME/in" 2>"$OUT/errors"
                test "$(grep -c '^ward: error:' "$OUT/errors")" = 1
                grep -qx "ward: hint: make room: df -h $WARD_TEST_VOLUME/in, then run it again" "$OUT/errors"
                ward fill --undo -q
                ward import "$OUT/plain" "$WARD_TEST_VOLUME/in" -q
                diff -r "$OUT/plain" "$WARD_TEST_VOLUME/in"
                END
                OUT="$OUT" "$WARD" test -q -- bash "$OUT/script"
                """#)
        }

        @Test("Ctrl-C says how to go on", arguments: User.usual)
        func interruptedByHand(user: User) throws {
            let volume = try MountedVolume(as: user)
            try volume.backupShell(
                #"""
                mkdir "$OUT/plain"
                for i in $(seq 3000); do echo $i >"$OUT/plain/$i"; done
                # bash has background commands ignore SIGINT: env takes that back.
                env --default-signal=INT "$WARD" import "$OUT/plain" "$MNT/in" 2>"$OUT/errors" >/dev/null & child=$!
                until test -n "$(ls "$MNT/in" 2>/dev/null)"; do :; done
                kill -INT $child; set +e; wait $child; code=$?; set -e
                test $code = 130; grep -qx 'ward: note: interrupted: run it again to go on where it was' "$OUT/errors"
                "$WARD" import "$OUT/plain" "$MNT/in" -q
                diff -r "$OUT/plain" "$MNT/in"
                """#)
        }

        @Test(
            "Nothing is overwritten, and a class that can't be had now leaves nothing behind",
            arguments: User.usual)
        func refused(user: User) throws {
            let volume = try MountedVolume(as: user)
            try volume.backupShell(
                #"""
                mkdir -p "$OUT/plain/sub"; echo mine >"$OUT/plain/file"; echo mine >"$OUT/plain/sub/other"; ln -s a "$OUT/plain/link"
                echo yours >"$MNT/file"; mkdir "$MNT/link"; "$WARD" class set D "$MNT" -q
                set +e; "$WARD" import "$OUT/plain" "$MNT" --json >"$OUT/output" 2>"$OUT/errors"; code=$?; set -e
                test $code = 1; grep -q '"files":1,"directories":2,.*"failed":2' "$OUT/output"
                grep -q 'plain/file: there is another file of that name, which is not overwritten' "$OUT/errors"
                test "$(cat "$MNT/file")" = yours; test -d "$MNT/link"
                test "$(getfattr -n user.ward.class --only-values "$MNT/sub/other")" = NSFileProtectionNone

                mkdir "$MNT/A" "$MNT/B"; "$WARD" class set A "$MNT/A" -q; "$WARD" class set B "$MNT/B" -q
                echo secret >"$MNT/A/file"; echo half >"$MNT/B/file"
                "$WARD" export "$MNT" "$OUT/export" -q
                rm -r "$MNT/A" "$MNT/B"
                "$WARD" lock --now "$MNT" -q
                set +e; "$WARD" import "$OUT/export" "$MNT" 2>"$OUT/errors" >/dev/null; code=$?; set -e
                test $code = 1; grep -q 'A/file: its class .* lock state' "$OUT/errors"
                test -z "$(ls -A "$MNT/A")"; test "$(ls "$MNT/B")" = file
                "$WARD" unlock "$MNT" -q --passcode-file '\#(volume.passcodeFile)'
                "$WARD" import "$OUT/export" "$MNT" -q
                test "$(cat "$MNT/A/file" "$MNT/B/file" | tr '\n' ' ')" = 'secret half '
                test "$(getfattr -n user.ward.class --only-values "$MNT/A/file")" = NSFileProtectionComplete
                """#)
        }

        @Test(
            "A name that is taken by another file is nobody's hard link",
            arguments: User.usual)
        func takenNames(user: User) throws {
            let volume = try MountedVolume(as: user)
            try volume.backupShell(
                #"""
                mkdir "$OUT/plain"; cd "$OUT/plain"; echo theirs >a; ln a b; ln a c; mkfifo p; ln p q
                echo mine >"$MNT/a"; echo mine >"$MNT/p"
                set +e; "$WARD" import "$OUT/plain" "$MNT" --json >"$OUT/output" 2>"$OUT/errors"; code=$?; set -e
                test $code = 1; grep -q '"failed":2' "$OUT/output"
                test "$(cat "$MNT/a" "$MNT/b" "$MNT/c" | tr '\n' ' ')" = 'mine theirs theirs '
                test "$(stat -c %i "$MNT/b")" = "$(stat -c %i "$MNT/c")"; test "$(stat -c %h "$MNT/a")" = 1
                test -p "$MNT/q"; test "$(cat "$MNT/p")" = mine
                # Again: the two are known, nothing else is done.
                set +e; "$WARD" import "$OUT/plain" "$MNT" --json >"$OUT/output" 2>/dev/null; set -e
                grep -q '"files":0,.*"failed":2' "$OUT/output"
                test "$(cat "$MNT/a" "$MNT/b" "$MNT/c" | tr '\n' ' ')" = 'mine theirs theirs '
                """#)
        }

        @Test("A place that keeps no attributes keeps the classes: they are in the list")
        func lostAttributes() throws {
            // Only root can mount a file system without attributes.
            let volume = try MountedVolume(as: User.available[0])
            try volume.backupShell(
                #"""
                cd "$MNT"; echo a >a; echo b >b; ln b c; "$WARD" class set A a -q; "$WARD" class set B b -q
                setfattr -n user.note -v 1 a b; mkdir "$OUT/plain"
                unshare -m sh -c '
                    mount -t ramfs none "$OUT/plain"
                    "$WARD" export "$MNT" "$OUT/plain/export" 2>"$OUT/errors"; echo $? >"$OUT/code"
                    cp -a "$OUT/plain/export" "$OUT/export"'
                test "$(cat "$OUT/code")" = 1; grep -q 'cannot keep the attribute user.note' "$OUT/errors"
                grep -qx '{"path":"a","class":"A"}' "$OUT/export/ward-export.jsonl"
                mkdir "$MNT/again"; "$WARD" import "$OUT/export" "$MNT/again" --incomplete -q
                for name in a:A b:B c:B; do "$WARD" class show "$MNT/again/${name%:*}" --json | grep -q "\"letter\":\"${name#*:}\""; done
                """#)
        }

        @Test(
            "Into a directory that is synchronised: what is above C stays out and is told, the rest goes in",
            arguments: User.usual)
        func synchronised(user: User) throws {
            let volume = try MountedVolume(as: user)
            try volume.backupShell(
                #"""
                cd "$MNT"; mkdir A C Shared; "$WARD" class set A A -q; echo a >A/secret; echo c >C/file
                echo c >A/plain; "$WARD" class set C A/plain -q
                "$WARD" export "$MNT" "$OUT/export" -q; "$WARD" sync mark Shared -q
                for option in "" --staged; do
                    set +e; "$WARD" import $option "$OUT/export" "$MNT/Shared" 2>"$OUT/errors" >/dev/null; code=$?; set -e
                    test $code = 1
                    grep -q 'A/secret: class A .* synchronised' "$OUT/errors"
                    test "$(grep -c 'ward: error' "$OUT/errors")" = 1
                    test "$(cat Shared/A/plain Shared/C/file | tr '\n' ' ')" = 'c c '; test ! -e Shared/A/secret
                    test -z "$(ls -A Shared | grep ward-import)"
                    chmod -R u+w Shared; rm -r Shared/*
                done
                """#)
        }

        @Test("Bad places and bad lists: facts and advice")
        func badInput() throws {
            let volume = try MountedVolume(as: User.available[0])
            try volume.backupShell(
                #"""
                cd "$MNT"; echo 1 >file; mkdir "$OUT/full" "$OUT/plain" "$MNT/inside"; touch "$OUT/full/file"
                "$WARD" export "$MNT" "$OUT/good" -q
                for name in newer cut line class; do cp -a "$OUT/good" "$OUT/$name"; done
                sed -i '1s/"version":1/"version":2/' "$OUT/newer/ward-export.jsonl"
                truncate -s -3 "$OUT/cut/ward-export.jsonl"
                echo nonsense >>"$OUT/line/ward-export.jsonl"
                echo '{"path":"file","class":"Z"}' >>"$OUT/class/ward-export.jsonl"
                """#)
            var transcript = Transcript(volume)
            let home = volume.directory + "/home"
            let mount = volume.mountPoint
            try transcript.ward("export", home + "/plain", home + "/new", exit: 10)
            try transcript.ward("export", mount, mount + "/inside", exit: 73)
            try transcript.ward("export", mount, volume.volume + "/inside", exit: 73)
            try transcript.ward("export", mount, home + "/full", exit: 73)
            try transcript.ward("export", mount, home + "/good", exit: 73)
            try transcript.ward("export", mount, home + "/no/where", exit: 66)
            try transcript.ward("export", mount + "/file", home + "/new", exit: 66)
            try transcript.ward("import", home + "/missing", mount, exit: 66)
            try transcript.ward("import", home + "/good", home + "/plain", exit: 10)
            try transcript.ward("import", mount, mount + "/inside", exit: 65)
            for name in ["newer", "cut", "line", "class"] {
                try transcript.ward("import", home + "/" + name, mount, exit: 65)
            }
            try transcript.check("export")
            // Nothing was created anywhere.
            try volume.backupShell(
                #"""
                test "$(ls -A "$MNT" | tr '\n' ' ')" = 'file inside '; test -z "$(find "$MNT/inside" "$OUT/plain" -mindepth 1)"
                test "$(ls "$VOL" | wc -l)" = 8; test ! -e "$OUT/new"
                """#)
        }
    }
}
