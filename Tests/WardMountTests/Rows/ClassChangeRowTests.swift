import Foundation
import Testing

extension MountSuite {
    /// Rows I7 to I12 of semantics.md: changing a class, and databases.
    @Suite struct ClassChangeRowTests {
        @Test(
            "I7: a class change rewrites no content, is durable, and holds after a crash",
            arguments: User.available)
        func i7(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            try volume.shell(
                "head -c 8000000 /dev/urandom > \"$OUT/model\"; cp \"$OUT/model\" \"$MNT/big\"")
            let digest = probe.call("digest", "big")
            #expect(digest.succeeded)
            for fileClass in FileClass.allCases {
                let before = try backingPages(volume)
                #expect(probe.setClass("big", fileClass.letter) == .ok)
                #expect(probe.protectionClass("big") == .data(fileClass.apple))
                let after = try backingPages(volume)
                #expect(before.count == after.count)
                let changed = zip(before, after).enumerated().filter { $1.0 != $1.1 }.map(\.offset)
                #expect(changed.allSatisfy { $0 == 0 }, "pages \(changed) were rewritten")
                #expect(probe.call("digest", "big") == digest, "as \(fileClass.letter)")
            }
            // A stronger class is durable when the call returns.
            #expect(probe.setClass("big", "D") == .ok)
            #expect(probe.setClass("big", "A") == .ok)
            try volume.kill()
            try volume.mount()
            let second = try volume.probe()
            #expect(second.protectionClass("big") == .data(FileClass.complete.apple))
            #expect(second.open("big", "r", as: "fd") == .eperm)
            try volume.unlock()
            #expect(second.call("digest", "big") == digest)
        }

        /// The pages of the largest file in the backing directory, read as its owner.
        private func backingPages(_ volume: MountedVolume) throws -> [Data] {
            let paths = FileManager.default.enumerator(atPath: volume.volume)?.allObjects ?? []
            let files = paths.compactMap { $0 as? String }.map { volume.volume + "/" + $0 }
            let largest = try #require(
                files.compactMap { FileManager.default.contents(atPath: $0) }
                    .max { $0.count < $1.count })
            return stride(from: 0, to: largest.count, by: 4096).map {
                largest.subdata(in: $0..<min($0 + 4096, largest.count))
            }
        }

        @Test(
            "I8: a class change needs the old key and the new one; without data only the new one",
            arguments: User.available)
        func i8(user: User) throws {
            for state in LockState.walk {
                let volume = try MountedVolume(as: user)
                let probe = try volume.probe()
                for old in FileClass.allCases {
                    try StateWalk.makeDirectory(of: old, with: probe)
                    for new in FileClass.allCases {
                        #expect(probe.writeFile("\(old.letter)/to \(new.letter)", "data") == .ok)
                        #expect(probe.writeFile("\(old.letter)/empty to \(new.letter)", "") == .ok)
                    }
                }
                try volume.enter(state)
                for old in FileClass.allCases {
                    for new in FileClass.allCases where new != old {
                        let comment: Comment =
                            "\(old.letter) to \(new.letter) in \(state.rawValue) as \(user.rawValue)"
                        let full = "\(old.letter)/to \(new.letter)"
                        let allowed = state.opens(old) && state.creates(new)
                        #expect(probe.setClass(full, new.letter) == .allowed(allowed), comment)
                        #expect(
                            probe.protectionClass(full) == .data((allowed ? new : old).apple),
                            comment)
                        let empty = "\(old.letter)/empty to \(new.letter)"
                        let possible = state.creates(new)
                        #expect(
                            probe.setClass(empty, new.letter) == .allowed(possible),
                            "without data, \(comment)")
                        #expect(
                            probe.protectionClass(empty) == .data((possible ? new : old).apple),
                            "without data, \(comment)")
                    }
                }
                try volume.unlock()
                for old in FileClass.allCases {
                    for new in FileClass.allCases {
                        #expect(probe.readFile("\(old.letter)/to \(new.letter)") == .data("data"))
                    }
                }
            }
        }

        @Test("I9: reading a class works in every state", arguments: User.available)
        func i9(user: User) throws {
            try StateWalk(user: user).run { probe, fileClass in
                #expect(probe.writeFile("\(fileClass.letter)/empty", "") == .ok)
            } check: { probe, state, fileClass in
                for path in ["", "/f", "/empty"] {
                    #expect(
                        probe.protectionClass(fileClass.letter + path) == .data(fileClass.apple),
                        "\(fileClass.letter + path) in \(state.rawValue)")
                }
            }
        }

        @Test(
            "I10: unknown classes, special files, missing rights, read-only mounts",
            arguments: User.available)
        func i10(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            #expect(probe.writeFile("f", "x") == .ok)
            for unknown in ["", "E", "complete ", "NSFileProtection", "Complete\n"] {
                #expect(probe.setClass("f", unknown) == .einval, "\(unknown.debugDescription)")
            }
            #expect(probe.call("symlink", "f", "link") == .ok)
            #expect(probe.call("lsetxattr", "link", "user.ward.class", "A") == .eperm)
            #expect(probe.call("mkfifo", "fifo") == .ok)
            #expect(probe.setClass("fifo", "A") == .eperm)
            for special in ["link", "fifo"] {
                let answer = probe.call("lgetxattr", special, "user.ward.class")
                #expect(answer == .enodata, "\(special)")
            }
            #expect(probe.call("chmod", "f", 0o444) == .ok)
            #expect(probe.setClass("f", "A") == (user == .root ? .ok : .eacces))
            for virtual in ["user.ward.volume", "user.ward.socket"] {
                #expect(probe.getxattr("f", virtual).succeeded, "\(virtual)")
                #expect(!probe.setxattr("f", virtual, "x").succeeded, "\(virtual)")
            }
            // rsync removes attributes that its source does not have, and stops at an error. So
            // removing the class succeeds and changes nothing.
            let before = probe.protectionClass("f")
            #expect(probe.call("chmod", "f", 0o644) == .ok)
            #expect(probe.call("removexattr", "f", "user.ward.class") == .ok)
            #expect(probe.protectionClass("f") == before)
        }

        @Test("I10: a read-only mount", arguments: User.available)
        func readOnly(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            #expect(probe.writeFile("f", "x") == .ok)
            try volume.unmount()
            try volume.mount(extra: ["--read-only"])
            try volume.unlock()
            #expect(probe.readFile("f") == .data("x"))
            #expect(probe.setClass("f", "A") == .erofs)
            #expect(probe.writeFile("g", "x") == .erofs)
            #expect(probe.open("f", "w", as: "fd") == .erofs)
            #expect(probe.unlink("f") == .erofs)
        }

        @Test(
            "I11: a recursive change goes on after a failure, reports each and can be run again",
            arguments: User.available)
        func i11(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            #expect(probe.call("makedirs", "tree/sub") == .ok)
            for index in 1...4 {
                let fileClass = index % 2 == 0 ? FileClass.complete : .none
                for directory in ["tree", "tree/sub"] {
                    let name = "\(directory)/\(index) \(fileClass.letter)"
                    #expect(probe.writeFile(name, name) == .ok)
                    #expect(probe.setClass(name, fileClass.letter) == .ok)
                }
            }
            try volume.enter(.locked)
            let locked = try volume.ward("class", "set", "C", "-R", volume.mountPoint + "/tree")
            #expect(!locked.succeeded)
            for name in ["tree/2 A", "tree/4 A", "tree/sub/2 A", "tree/sub/4 A"] {
                #expect(locked.errors.contains(name), "\(name) in \(locked.everything)")
                #expect(probe.protectionClass(name) == .data(FileClass.complete.apple))
            }
            let c = FileClass.completeUntilFirstUserAuthentication
            for name in [
                "tree/1 D", "tree/3 D", "tree/sub/1 D", "tree/sub/3 D", "tree", "tree/sub",
            ] {
                #expect(!locked.errors.contains(name + "\n"), "\(name) in \(locked.everything)")
                #expect(probe.protectionClass(name) == .data(c.apple), "\(name)")
            }
            try volume.unlock()
            let again = try volume.ward("class", "set", "C", "-R", volume.mountPoint + "/tree")
            #expect(again.succeeded, "\(again.everything)")
            for name in ["tree/2 A", "tree/sub/4 A"] {
                #expect(probe.protectionClass(name) == .data(c.apple))
                #expect(probe.readFile(name) == .data(name))
            }
        }

        @Test(
            "I10: the owner sets a class whatever the mode: a git repository becomes class A whole",
            arguments: User.available)
        func ownersReadOnly(user: User) throws {
            let volume = try MountedVolume(as: user)
            try volume.shell(
                """
                cd "$MNT"; git init -q tree; cd tree
                git config user.email me@example.org; git config user.name me
                for i in 1 2 3 4 5; do echo $i >f$i; git add .; git commit -qm $i; done
                mkdir -p modules/deep; echo 1 >modules/deep/closed; echo 2 >modules/deep/f
                echo 3 >write-only; : >empty; chmod 0200 write-only; chmod 0444 empty
                chmod 0 modules/deep/closed; chmod 0444 modules/deep/f; chmod 0555 modules/deep modules
                test "$(find .git/objects -type f -perm 0444 | wc -l)" -ge 15
                find . -printf '%P %m\\n' | sort >"$OUT/before"
                """)
            let tree = volume.mountPoint + "/tree"
            for letter in ["A", "D", "A"] {
                let done = try volume.ward("class", "set", "-R", letter, tree)
                #expect(done.succeeded && done.errors.isEmpty, "\(done.everything)")
                #expect(!done.output.contains("failed"), "\(done.everything)")
                // Every file has the class, and all modes are unchanged.
                let others = try volume.shell(
                    """
                    cd "$MNT/tree"; find . -printf '%P %m\\n' | sort | cmp - "$OUT/before" >&2
                    chmod u+r write-only modules/deep/closed
                    find . -type f -o -type d | while read -r path; do
                        class=$(getfattr --only-values -n user.ward.class "$path")
                        test "$class" = \(apple(letter)) || echo "$path $class"
                    done
                    chmod 0200 write-only; chmod 0 modules/deep/closed
                    """)
                #expect(others.isEmpty, "not \(letter): \(others)")
            }
            try volume.shell("cd \"$MNT/tree\"; git fsck --strict; git log --oneline | grep -c .")
        }

        private func apple(_ letter: String) -> String {
            FileClass.allCases.first { $0.letter == letter }!.apple
        }

        @Test("I10: a file takes a class from its owner, root and whoever may write it")
        func othersReadOnly() throws {
            guard geteuid() == 0 else { return }
            let volume = try MountedVolume(as: .root, mountArguments: ["--allow-other"])
            let root = try volume.probe()
            let user = try Probe(as: .ordinaryUser, base: volume.mountPoint)
            #expect(root.call("chmod", "", 0o1777) == .ok)
            #expect(root.writeFile("roots", "x") == .ok)
            #expect(root.writeFile("shared", "x") == .ok)
            #expect(root.call("chmod", "shared", 0o666) == .ok)
            #expect(user.writeFile("own", "x") == .ok)
            #expect(user.call("chmod", "own", 0o444) == .ok)
            let attribute = "system.ward.class"
            #expect(user.setxattr("roots", attribute, "A") == .eacces)
            #expect(user.setxattr("shared", attribute, "A") == .eacces)
            for unknown in ["", "E", "sync 1"] {
                #expect(user.setxattr("own", attribute, unknown) == .einval)
            }
            #expect(user.setxattr("own", attribute, "A") == .ok)
            #expect(user.protectionClass("own") == .data(FileClass.complete.apple))
            #expect(root.setxattr("own", attribute, "D") == .ok)
            #expect(user.protectionClass("own") == .data(FileClass.none.apple))
            #expect(root.protectionClass("roots").text != FileClass.complete.apple)
            // The attribute can't be read, is not listed, and obeys the lock.
            #expect(!user.getxattr("own", attribute).succeeded)
            #expect(!user.call("removexattr", "own", attribute).succeeded)
            #expect(user.setxattr("own", attribute, "A") == .ok)
            try volume.enter(.locked)
            #expect(user.setxattr("own", attribute, "D") == .eperm)
            #expect(user.protectionClass("own") == .data(FileClass.complete.apple))
        }

        @Test("I11: of many failures the first are told one by one, the others by their number")
        func manyFailures() throws {
            let volume = try MountedVolume(as: User.available[0])
            try volume.shell(
                """
                cd "$MNT"; mkdir tree; for i in $(seq 300); do echo $i >tree/$i; done
                ward class set A -R tree -q
                """.replacingOccurrences(of: "ward ", with: TestEnvironment.shared.ward + " "))
            try volume.enter(.locked)
            let done = try volume.ward("class", "set", "C", "-R", volume.mountPoint + "/tree")
            #expect(!done.succeeded)
            let errors = done.errors.split(separator: "\n").filter { $0.hasPrefix("ward: error:") }
            #expect(errors.count == 11, "\(done.errors)")
            #expect(errors.last?.contains(" and 289 more: ") == true, "\(done.errors)")
            #expect(done.output.contains("300 failed"))
            let quiet = try volume.ward(
                "class", "set", "C", "-R", volume.mountPoint + "/tree", "-q")
            let told = quiet.errors.split(separator: "\n")
            #expect(told.count == 2 && told[0].contains(" and 299 more: "), "\(quiet.errors)")
            #expect(told.last == "ward: hint: ward unlock")
        }

        @Test("I12: an open database's side files take its class", arguments: User.available)
        func i12(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            let c = FileClass.completeUntilFirstUserAuthentication
            for fileClass in FileClass.allCases {
                let letter = fileClass.letter
                // In a directory of another class: the side files follow the database, not the
                // directory.
                #expect(probe.mkdir(letter) == .ok)
                #expect(probe.setClass(letter, fileClass == .none ? "C" : "D") == .ok)
                try volume.shell(
                    """
                    cd "$MNT/\(letter)"
                    sqlite3 db 'create table t(x); insert into t values (1)'
                    sqlite3 journal 'create table t(x); insert into t values (1)'
                    """)
                #expect(probe.setClass("\(letter)/db", letter) == .ok)
                #expect(probe.setClass("\(letter)/journal", letter) == .ok)
                let classes = try volume.shell(
                    """
                    cd "$MNT/\(letter)"
                    class="getfattr --only-values -n user.ward.class"
                    sqlite3 -cmd '.output /dev/null' db <<SQL
                    pragma journal_mode = wal;
                    insert into t values (2);
                    .output
                    .shell $class db-wal; echo
                    .shell $class db-shm; echo
                    SQL
                    sqlite3 -cmd '.output /dev/null' journal <<SQL
                    begin immediate;
                    pragma cache_size = 1;
                    insert into t select randomblob(5000) from t, t, t;
                    insert into t select randomblob(5000) from t, t, t;
                    .output
                    .shell $class journal-journal; echo
                    commit;
                    SQL
                    """
                ).split(separator: "\n").map(String.init)
                let shared = fileClass == .none ? FileClass.none : c
                #expect(
                    classes == [fileClass.apple, shared.apple, fileClass.apple],
                    "-wal, -shm and -journal of a database of class \(letter)")
                // A file that is no database gives its class to no other file.
                #expect(probe.writeFile("\(letter)/plain", "not a database") == .ok)
                #expect(probe.setClass("\(letter)/plain", letter) == .ok)
                #expect(probe.open("\(letter)/plain", "r", as: "plain") == .ok)
                #expect(probe.writeFile("\(letter)/plain-wal", "x") == .ok)
                #expect(
                    probe.protectionClass("\(letter)/plain-wal")
                        == .data((fileClass == .none ? c : .none).apple))
                #expect(probe.close("plain") == .ok)
            }
        }

        @Test(
            "I12: beside an open database that can't be looked at, nothing gets a weaker class",
            arguments: User.available)
        func i12Locked(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            #expect(probe.mkdir("d") == .ok)
            #expect(probe.setClass("d", "D") == .ok)
            try volume.shell("sqlite3 \"$MNT/d/db\" 'create table t(x)'")
            #expect(probe.setClass("d/db", "A") == .ok)
            // After a new mount the volume does not know yet that this is a database.
            try volume.remount()
            let second = try volume.probe()
            #expect(second.open("d/db", "rw", as: "db") == .ok)
            try volume.lockNow()
            for name in ["d/db-journal", "d/db-wal"] {
                #expect(second.open(name, "rw+c", as: "side") == .eperm)
                #expect(!second.exists(name))
            }
            #expect(second.writeFile("d/db-shm", "shared") == .ok)
            #expect(
                second.protectionClass("d/db-shm")
                    == .data(FileClass.completeUntilFirstUserAuthentication.apple))
            #expect(second.writeFile("d/other-journal", "x") == .ok)
            try volume.unlock()
            #expect(second.writeFile("d/db-journal", "x") == .ok)
            #expect(second.protectionClass("d/db-journal") == .data(FileClass.complete.apple))
        }

        @Test(
            "I12: a database made new in class A, in every mode: no journal of another class, nothing to be read while locked",
            arguments: User.available)
        func i12New(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            #expect(probe.mkdir("d") == .ok)
            #expect(probe.setClass("d", "D") == .ok)
            try volume.shell(
                """
                cat >"$OUT/new.py" <<'PYTHON'
                import os, sqlite3, sys
                directory, ward = sys.argv[1:]
                def side_files(name):
                    return [n for n in os.listdir(directory) if n.startswith(name + "-")]
                for mode in "delete", "truncate", "persist", "wal", "memory":
                    path = directory + "/" + mode
                    open(path, "w").close()
                    os.setxattr(path, "user.ward.class", b"A")
                    base = sqlite3.connect(path, isolation_level=None)
                    base.execute("pragma journal_mode=" + mode)
                    seen = {}
                    def look():
                        for n in side_files(mode):
                            seen[n] = os.getxattr(directory + "/" + n, "user.ward.class").decode()
                    base.execute("begin")
                    base.execute("create table t(x)")
                    base.execute("insert into t values('first secret')")
                    look()
                    base.execute("commit")
                    base.execute("insert into t values('second secret')")
                    base.execute("begin")
                    base.execute("update t set x = 'third'")
                    look()
                    base.execute("commit")
                    for n, found in seen.items():
                        if not n.endswith("-shm"):
                            assert found == "NSFileProtectionComplete", (n, found)
                    assert bool(seen) == (mode != "memory"), (mode, seen)
                    if mode != "wal":
                        base.close()
                # Two databases in one transaction: a super-journal.
                names = [directory + "/one", directory + "/two"]
                for path in names:
                    open(path, "w").close()
                    os.setxattr(path, "user.ward.class", b"A")
                base = sqlite3.connect(names[0], isolation_level=None)
                base.execute("attach ? as other", (names[1],))
                classes = {}
                def trace(_):
                    for n in os.listdir(directory):
                        if "-" in n:
                            classes[n] = os.getxattr(directory + "/" + n, "user.ward.class").decode()
                base.set_trace_callback(trace)
                base.execute("begin")
                base.execute("create table t(x)")
                base.execute("create table other.t(x)")
                base.execute("insert into t values('secret')")
                base.execute("insert into other.t values('secret')")
                trace("")
                base.execute("commit")
                assert {c for n, c in classes.items() if not n.endswith("-shm")} == {"NSFileProtectionComplete"}, classes
                os._exit(0)
                PYTHON
                '\(TestEnvironment.shared.python)' "$OUT/new.py" "$MNT/d" x
                sqlite3 "$MNT/d/one" 'pragma journal_mode=persist; insert into t values (1)' >/dev/null
                touch "$MNT/d/shell"; '\(TestEnvironment.shared.ward)' class set A "$MNT/d/shell" -q
                sqlite3 "$MNT/d/shell" 'pragma journal_mode=persist; create table t(x); insert into t values (1)' >/dev/null
                """)
            try volume.lockNow()
            let readable = try volume.shell(
                """
                for file in "$MNT"/d/*; do
                    case $file in *-shm) continue ;; esac
                    if cat "$file" >/dev/null 2>&1; then echo "$file"; fi
                done
                """)
            #expect(readable.isEmpty, "\(readable)")
        }

        @Test(
            "I12: a database that is raised takes its journals along, by setxattr and by ward class set",
            arguments: User.available)
        func i12Raised(user: User) throws {
            let volume = try MountedVolume(as: user)
            try volume.shell(
                """
                mkdir "$MNT/d"; cd "$MNT/d"
                for how in setfattr ward; do
                    sqlite3 $how 'pragma journal_mode=persist; create table t(x); insert into t values (1)' >/dev/null
                    test -e $how-journal
                done
                setfattr -n user.ward.class -v A setfattr
                '\(TestEnvironment.shared.ward)' class set A ward -q
                """)
            let probe = try volume.probe()
            for name in ["setfattr", "ward"] {
                #expect(
                    probe.protectionClass("d/\(name)-journal") == .data(FileClass.complete.apple),
                    "\(name)")
            }
            try volume.lockNow()
            for name in ["setfattr-journal", "ward-journal"] {
                #expect(probe.open("d/\(name)", "r", as: "f") == .eperm, "\(name)")
            }
        }

        @Test(
            "I7: --rekey of a file that its owner may only read keeps its attributes and its mark",
            arguments: User.available)
        func rekeyReadOnly(user: User) throws {
            let volume = try MountedVolume(as: user)
            try volume.shell(
                """
                cd "$MNT"; echo content >file; setfattr -n user.note -v kept file
                setfattr -n user.ward.backup-excluded -v 1 file; chmod 400 file
                '\(TestEnvironment.shared.ward)' class set A file --rekey -q
                test "$(cat file)" = content; test "$(stat -c %a file)" = 400
                test "$(getfattr -n user.note --only-values file)" = kept
                getfattr -n user.ward.backup-excluded file
                """)
            #expect(try volume.probe().protectionClass("file") == .data(FileClass.complete.apple))
        }
    }
}
