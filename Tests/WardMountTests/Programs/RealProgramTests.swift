import Foundation
import Testing

extension MountSuite {
    /// Common programs on a mount: set up, checked, and checked again after unmount, mount and
    /// unlock.
    @Suite struct RealProgramTests {
        @Test("git: init, commit, clone with hard links, gc, fsck", arguments: User.usual)
        func git(user: User) throws {
            try run(
                as: user,
                """
                git config --global user.name Ward; git config --global user.email ward@example.org
                git config --global init.defaultBranch main
                git init -q repository; cd repository
                for i in $(seq 30); do mkdir -p "dir$((i % 5))"; seq $((i * 40)) > "dir$((i % 5))/file $i"; done
                head -c 300000 /dev/urandom > binary
                git add -A; git commit -qm first
                test -z "$(git status --porcelain)"
                for i in $(seq 8); do echo "$i" >> "dir1/file 1"; git commit -qam "change $i"; done
                cd ..; git clone -q repository clone
                test "$(stat -c %h "$(find clone/.git/objects -type f | head -n 1)")" = 2
                cd clone; git checkout -qb branch; git rm -q binary; git commit -qm removed
                git push -q origin branch
                cd ../repository; git gc -q --prune=now; git merge -q branch; git stash list
                """,
                check: """
                    for tree in repository clone; do
                        cd "$MNT/$tree"
                        git fsck --full --strict 2>&1 | { ! grep -iE 'error|missing|corrupt'; }
                        test -z "$(git status --porcelain)"
                        git log --oneline | wc -l | grep -qx 10
                    done
                    git -C "$MNT/repository" archive HEAD | tar -xO | sha256sum > "$OUT/archive.$ROUND"
                    cmp "$OUT/archive.0" "$OUT/archive.$ROUND"
                    """)
        }

        @Test(
            "SQLite, with a write-ahead log and with a rollback journal", arguments: User.usual)
        func sqlite(user: User) throws {
            try run(
                as: user,
                """
                for mode in wal delete truncate persist; do
                    sqlite3 "$mode.db" "pragma journal_mode=$mode; create table t(id integer primary key, x blob);" > /dev/null
                    for writer in 1 2 3; do
                        for i in $(seq 12); do
                            echo "begin immediate; insert into t(x) values(randomblob(3000)); commit;"
                        done | sqlite3 -cmd '.timeout 20000' "$mode.db" &
                    done
                    wait
                    sqlite3 "$mode.db" "begin; insert into t(x) select x from t; rollback; create index i on t(x);"
                done
                """,
                check: """
                    cd "$MNT"
                    for mode in wal delete truncate persist; do
                        test "$(sqlite3 "$mode.db" 'pragma integrity_check')" = ok
                        test "$(sqlite3 "$mode.db" 'select count(*) from t')" = $((36 + ROUND))
                        sqlite3 "$mode.db" "insert into t(x) values('round')"
                    done
                    """)
        }

        @Test("tar out, and diff -r", arguments: User.usual)
        func tar(user: User) throws {
            try run(
                as: user,
                """
                \(Self.makeTree) "$OUT/source"
                tar -C "$OUT" -cf "$OUT/source.tar" source
                tar -xf "$OUT/source.tar"
                """,
                check: """
                    cd "$MNT"
                    diff -r --no-dereference --exclude=fifo source "$OUT/source"
                    tar -C "$OUT" -df "$OUT/source.tar"
                    tar -df "$OUT/source.tar"
                    tar -cf - source | tar -tf - | wc -l | grep -qx "$(tar -tf "$OUT/source.tar" | wc -l)"
                    """)
        }

        @Test("A C project, compiled in parallel with make", arguments: User.usual)
        func compile(user: User) throws {
            try run(
                as: user,
                #"""
                for i in $(seq 6); do
                    printf 'int part%d(void) { return %d; }\n' $i $i > part$i.c
                    printf 'int part%d(void);\n' $i >> parts.h
                done
                {
                    printf '#include <stdio.h>\n#include "parts.h"\nint main(void) { printf("%%d\\n", 0'
                    for i in $(seq 6); do printf ' + part%d()' $i; done
                    printf '); return 0; }\n'
                } > main.c
                printf 'O = $(patsubst %%.c,%%.o,$(wildcard *.c))\nprogram: $(O)\n\tcc -o $@ $^\n%%.o: %%.c parts.h\n\tcc -c -g -o $@ $<\n' > Makefile
                make -s -j4
                """#,
                check: """
                    cd "$MNT"
                    test "$(./program)" = 21
                    # Nothing is out of date: times survive.
                    make -q
                    touch part1.c; ! make -q; make -s -j4; make -q
                    make -s -B -j4
                    """)
        }

        @Test("rsync -aHAX in and back, with nothing left to do", arguments: User.usual)
        func rsync(user: User) throws {
            try run(
                as: user,
                """
                \(Self.makeTree) "$OUT/source"
                setfattr -n user.origin -v somewhere "$OUT/source/d1/file 1"
                setfacl -m u:1234:r "$OUT/source/d2/file 2"
                # Twice: rsync removes what attributes the source does not have, the class among them.
                rsync -aHAX "$OUT/source/" in/ 2>&1 | tee "$OUT/report"
                rsync -aHAX "$OUT/source/" in/ 2>&1 | tee -a "$OUT/report"
                test ! -s "$OUT/report"
                """,
                check: """
                    options=(-aHAX --itemize-changes)
                    # The class is an attribute that only the mount has; ACLs are not to be compared as attributes.
                    filters=(--filter='-x user.ward.*' --filter='-x system.*')
                    rsync "${options[@]}" "${filters[@]}" "$OUT/source/" "$MNT/in/" | tee "$OUT/report"
                    test ! -s "$OUT/report"
                    rsync "${options[@]}" "${filters[@]}" --checksum "$OUT/source/" "$MNT/in/" | tee "$OUT/report"
                    test ! -s "$OUT/report"
                    rsync "${options[@]}" "$MNT/in/" "$OUT/back$ROUND/" > /dev/null
                    rsync "${options[@]}" "$MNT/in/" "$OUT/back$ROUND/" | tee "$OUT/report"
                    test ! -s "$OUT/report"
                    diff -r --no-dereference --exclude=fifo "$OUT/source" "$OUT/back$ROUND"
                    test "$(getfattr --only-values -n user.origin "$OUT/back$ROUND/d1/file 1")" = somewhere
                    test "$(stat -c %h "$MNT/in/hard")" = 2
                    """)
        }

        @Test("Mapped writes from Python", arguments: User.usual)
        func mappedWrites(user: User) throws {
            try run(
                as: user,
                """
                \(TestEnvironment.shared.python) - mapped <<'PYTHON'
                import mmap, sys
                with open(sys.argv[1], "w+b") as file:
                    file.truncate(3_000_000)
                    with mmap.mmap(file.fileno(), 0) as view:
                        for place in range(0, 3_000_000, 1000):
                            view[place:place + 10] = b"%010d" % place
                        view.flush()
                        view[5:10] = b"later"
                        view[2_999_990:] = b"end of map"
                PYTHON
                """,
                check: """
                    \(TestEnvironment.shared.python) - "$MNT/mapped" <<'PYTHON'
                    import sys
                    data = open(sys.argv[1], "rb").read()
                    assert len(data) == 3_000_000
                    assert data[5:10] == b"later" and data[-10:] == b"end of map"
                    for place in range(1000, 2_999_000, 1000):
                        assert data[place:place + 10] == b"%010d" % place, place
                    PYTHON
                    """)
        }

        @Test("sed -i, and other editors that write beside and rename", arguments: User.usual)
        func edit(user: User) throws {
            try run(
                as: user,
                """
                for i in $(seq 20); do seq 500 > "f$i"; done
                chmod 640 f1
                sed -i 's/^7$/seven/' f*
                perl -i.bak -pe 's/^8$/eight/' f2 2>/dev/null || sed -i.bak 's/^8$/eight/' f2
                sort -r -o f3 f3
                """,
                check: """
                    cd "$MNT"
                    test "$(grep -lx seven f? f?? | wc -l)" = 20
                    test "$(stat -c %a f1)" = 640
                    grep -qx eight f2; grep -qx 8 f2.bak; ! grep -qx 8 f2
                    test "$(head -n 1 f3)" = seven
                    test -z "$(ls | grep sed)"
                    """)
        }

        @Test("Many small files, built in parallel", arguments: User.usual)
        func smallFiles(user: User) throws {
            try run(
                as: user,
                """
                for i in $(seq 150); do echo "source $i" > "$i.src"; done
                printf 'O = $(patsubst %%.src,%%.out,$(wildcard *.src))\\nall: $(O)\\n%%.out: %%.src\\n\\t@sed s/source/built/ $< > $@.tmp && mv $@.tmp $@\\n' > Makefile
                make -s -j8
                """,
                check: """
                    cd "$MNT"
                    make -q
                    for i in $(seq 150); do test "$(cat "$i.out")" = "built $i"; done
                    test "$(ls | wc -l)" = 301
                    """)
        }

        /// Defines a shell function that makes a tree of many kinds of files in the directory of
        /// its argument.
        private static let makeTree = #"""
            make_tree() {
                mkdir -p "$1"/d1 "$1"/d2/deeper "$1"/empty
                for i in 1 2 3 4; do seq $((i * 1000)) > "$1/d1/file $i"; head -c $((i * 4068)) /dev/urandom > "$1/d2/file $i"; done
                : > "$1/d2/nothing"; truncate -s 100000 "$1/d2/deeper/sparse"; echo end >> "$1/d2/deeper/sparse"
                ln "$1/d1/file 1" "$1/hard"; ln -s d1 "$1/soft"; ln -s nowhere "$1/dangling"
                mkfifo "$1/fifo"
                chmod 600 "$1/d1/file 2"; chmod 750 "$1/d2"; chmod 444 "$1/d1/file 3"
                touch -d '2001-02-03 04:05:06.123456789' "$1/d1/file 4" "$1/d2/deeper"
                : > "$1/$(printf 'n%.0s' $(seq 220))"
            }
            make_tree
            """#

        /// Runs `setUp` in the empty mount, then `check` before and after a remount. `$ROUND`
        /// counts the checks.
        private func run(
            as user: User, _ setUp: String, check: String,
            sourceLocation: SourceLocation = #_sourceLocation
        ) throws {
            let volume = try MountedVolume(as: user)
            try volume.shell("cd \"$MNT\"\n" + setUp, sourceLocation: sourceLocation)
            for round in 0..<2 {
                try volume.shell("ROUND=\(round)\n" + check, sourceLocation: sourceLocation)
                try volume.remount()
            }
        }
    }
}
