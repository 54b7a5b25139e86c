import Foundation
import Testing

extension MountSuite {
    /// Names, links and directories on a mount.
    @Suite struct NameTests {
        @Test("Names of every length up to 255 bytes", arguments: User.usual)
        func longNames(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            let lengths = [1, 2, 100, 174, 175, 176, 177, 190, 191, 192, 254, 255]
            let name = { (length: Int, letter: String) in String(repeating: letter, count: length) }
            #expect(probe.mkdir("d") == .ok)
            for length in lengths {
                #expect(probe.writeFile("d/" + name(length, "a"), "\(length)") == .ok, "\(length)")
                #expect(probe.mkdir("d/" + name(length, "d")) == .ok, "\(length)")
                #expect(
                    probe.writeFile("d/\(name(length, "d"))/in", "\(length)") == .ok, "\(length)")
                #expect(probe.call("symlink", "to", "d/" + name(length, "s")) == .ok, "\(length)")
            }
            #expect(probe.writeFile(name(256, "a"), "") == .failure("ENAMETOOLONG"))
            try volume.remount()
            #expect(probe.call("count", "d") == .number(lengths.count * 3))
            let listed = Set(probe.list("d").text.split(separator: " ").map(String.init))
            for length in lengths {
                for letter in ["a", "d", "s"] {
                    #expect(listed.contains(name(length, letter)), "\(length) \(letter)")
                }
                let old = "d/" + name(length, "a")
                let new = "d/" + name(length, "b")
                #expect(probe.readFile(old) == .data("\(length)"))
                #expect(probe.readFile("d/\(name(length, "d"))/in") == .data("\(length)"))
                #expect(probe.link(old, new) == .ok, "\(length)")
                #expect(probe.stat(old, "nlink") == .number(2))
                #expect(probe.unlink(old) == .ok, "\(length)")
                #expect(!probe.exists(old))
                #expect(probe.rename(new, old) == .ok, "\(length)")
                #expect(probe.readFile(old) == .data("\(length)"))
            }
            // Renames between long and short names, over existing names of both kinds, and
            // exchanges.
            let long = "d/" + name(255, "a")
            let short = "d/" + name(1, "a")
            #expect(probe.call("rename2", long, short, 2) == .ok)
            #expect(probe.readFile(short) == .data("255"))
            #expect(probe.readFile(long) == .data("1"))
            #expect(probe.rename(long, short) == .ok)
            #expect(!probe.exists(long))
            #expect(probe.rename(short, long) == .ok)
            #expect(probe.rename("d/" + name(254, "d"), "d/" + name(253, "d")) == .ok)
            for length in lengths where length != 254 {
                #expect(probe.unlink("d/\(name(length, "d"))/in") == .ok)
                #expect(probe.call("rmdir", "d/" + name(length, "d")) == .ok, "\(length)")
            }
            try volume.remount()
            #expect(probe.readFile(long) == .data("1"))
            #expect(!probe.exists(short))
            #expect(probe.readFile("d/\(name(253, "d"))/in") == .data("254"))
            try volume.shell("rm -r \"$MNT/d\"; test -z \"$(ls -A \"$MNT\")\"")
            try leavesNoRemains(volume)
        }

        /// The files that hold long names are removed with them: an empty volume has only its own
        /// files.
        private func leavesNoRemains(_ volume: MountedVolume) throws {
            guard !TestEnvironment.shared.isPlain else { return }
            try volume.unmount()
            let own = ["README", "ward.kem", "ward.keybag", "ward.lock", "ward.state", ".ward"]
            let left = try FileManager.default.contentsOfDirectory(atPath: volume.volume)
                .filter { name in !own.contains { name.hasPrefix($0) } }
            #expect(left.isEmpty, "left in the backing directory: \(left)")
        }

        @Test(
            "Names are bytes: spaces, quotes, newlines, dots, any encoding",
            arguments: User.usual)
        func oddNames(user: User) throws {
            let volume = try MountedVolume(as: user)
            try volume.shell(
                #"""
                cd "$MNT"
                names=(' ' "it's" $'new\nline' $'\xff\xfe' '...' '.hidden' '-rf' 'ward.keybag' '.ward' \
                    'ward.state' README 'über' $'u\u0308ber' '*' '\' '.fuse_hidden0001')
                for name in "${names[@]}"; do printf '%s' "$name" > "./$name"; done
                test "$(ls -A | wc -l)" = $((${#names[@]} + 1))
                for name in "${names[@]}"; do test "$(cat "./$name")" = "$name"; done
                """#)
            try volume.remount()
            try volume.shell(
                #"""
                cd "$MNT"
                for name in .hidden ward.keybag .ward ward.state README $'\xff\xfe'; do
                    test "$(cat "./$name")" = "$name"
                    rm "./$name"
                done
                test "$(find . -mindepth 1 -print0 | tr -dc '\0' | wc -c)" = 10
                """#)
        }

        @Test("Rename without replacing, exchanging, and into itself", arguments: User.usual)
        func renameFlags(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            #expect(probe.writeFile("a", "a") == .ok)
            #expect(probe.writeFile("b", "b") == .ok)
            #expect(probe.call("rename2", "a", "b", 1) == .eexist)
            #expect(probe.call("rename2", "a", "c", 1) == .ok)
            #expect(probe.call("rename2", "b", "c", 2) == .ok)
            #expect(probe.readFile("b") == .data("a"))
            #expect(probe.readFile("c") == .data("b"))
            #expect(probe.call("rename2", "b", "missing", 2) == .enoent)
            #expect(probe.mkdir("d") == .ok)
            #expect(probe.writeFile("d/in", "in") == .ok)
            #expect(probe.call("rename2", "d", "b", 2) == .ok)
            #expect(probe.readFile("b/in") == .data("in"))
            #expect(probe.readFile("d") == .data("a"))
            #expect(probe.mkdir("b/sub") == .ok)
            #expect(probe.rename("b", "b/sub/b") == .einval)
            #expect(probe.rename("b", "d") == .failure("ENOTDIR"))
            #expect(probe.rename("d", "b") == .failure("EISDIR"))
            #expect(probe.mkdir("full") == .ok)
            #expect(probe.rename("full", "b") == .failure("ENOTEMPTY"))
            #expect(probe.rename("b", "full") == .ok)
            #expect(probe.readFile("full/in") == .data("in"))
        }

        @Test("Hard links are one file through every name", arguments: User.usual)
        func hardLinks(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            #expect(probe.writeFile("a", "one file") == .ok)
            #expect(probe.mkdir("d") == .ok)
            #expect(probe.link("a", "d/b") == .ok)
            let long = String(repeating: "l", count: 200)
            #expect(probe.link("a", long) == .ok)
            for name in ["a", "d/b", long] {
                #expect(probe.stat(name, "nlink") == .number(3))
                #expect(probe.stat(name, "ino") == probe.stat("a", "ino"))
                #expect(probe.open(name, "w+a", as: "fd") == .ok)
                #expect(probe.write("fd", "+") == .number(1))
                for other in ["a", "d/b", long] {
                    #expect(probe.stat(other, "size") == probe.stat(name, "size"))
                }
                #expect(probe.close("fd") == .ok)
            }
            #expect(probe.setxattr("a", "user.x", "through a") == .ok)
            #expect(probe.getxattr("d/b", "user.x") == .data("through a"))
            #expect(probe.unlink("a") == .ok)
            try volume.remount()
            #expect(probe.readFile("d/b") == .data("one file+++"))
            #expect(probe.readFile(long) == .data("one file+++"))
            #expect(probe.stat(long, "nlink") == .number(2))
            #expect(probe.getxattr(long, "user.x") == .data("through a"))
        }

        @Test("Symbolic links", arguments: User.usual)
        func symbolicLinks(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            for length in [1, 10, 59, 60, 61, 200, 1000, 2500] {
                let target = String(repeating: "t", count: length)
                #expect(probe.call("symlink", target, "l\(length)") == .ok, "\(length)")
                #expect(probe.lstat("l\(length)", "size") == .number(length), "\(length)")
            }
            #expect(probe.mkdir("d") == .ok)
            #expect(probe.writeFile("d/f", "followed") == .ok)
            #expect(probe.call("symlink", "d", "to") == .ok)
            #expect(probe.readFile("to/f") == .data("followed"))
            #expect(probe.link("to", "linked") == .ok)
            #expect(probe.call("readlink", "linked") == .data("d"))
            try volume.remount()
            for length in [1, 10, 59, 60, 61, 200, 1000, 2500] {
                let target = String(repeating: "t", count: length)
                #expect(probe.call("readlink", "l\(length)") == .data(target), "\(length)")
                #expect(probe.lstat("l\(length)", "size") == .number(length), "\(length)")
            }
        }

        @Test("Link counts of directories, deep paths", arguments: User.usual)
        func directories(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            #expect(probe.mkdir("d") == .ok)
            #expect(probe.stat("d", "nlink") == .number(2))
            for index in 0..<3 { #expect(probe.mkdir("d/\(index)") == .ok) }
            #expect(probe.stat("d", "nlink") == .number(5))
            #expect(probe.call("rmdir", "d/0") == .ok)
            #expect(probe.rename("d/1", "1") == .ok)
            #expect(probe.stat("d", "nlink") == .number(3))
            #expect(probe.call("rmdir", "d") == .failure("ENOTEMPTY"))
            #expect(probe.unlink("d").succeeded == false)
            let deep = (0..<60).map { "level\($0)" }.joined(separator: "/")
            #expect(probe.call("makedirs", deep) == .ok)
            #expect(probe.writeFile(deep + "/f", "deep") == .ok)
            #expect(probe.rename("level0/level1", "moved") == .ok)
            try volume.remount()
            let moved = deep.replacingOccurrences(of: "level0/level1/", with: "moved/")
            #expect(probe.readFile(moved + "/f") == .data("deep"))
        }

        @Test("A directory of 5,000 names is listed completely", arguments: User.usual)
        func largeDirectory(user: User) throws {
            let volume = try MountedVolume(as: user)
            try volume.shell(
                """
                \(TestEnvironment.shared.python) - "$MNT" <<'PYTHON'
                import os, sys
                top = sys.argv[1] + "/large"
                os.mkdir(top)
                names = set("name %d %s" % (i, "x" * (i % 200)) for i in range(5000))
                for name in names:
                    os.close(os.open(top + "/" + name, os.O_CREAT | os.O_WRONLY))
                assert set(os.listdir(top)) == names, "incomplete"
                assert set(os.listdir(top)) == names, "incomplete from a cache"
                # Deleting while reading: every other name is seen exactly once.
                seen = []
                victims = set(sorted(names)[::2])
                with os.scandir(top) as entries:
                    for number, entry in enumerate(entries):
                        seen.append(entry.name)
                        if number == 100:
                            for name in victims:
                                os.unlink(top + "/" + name)
                            # The kernel may forget what it keeps of a listing.
                            listing = os.open(top, os.O_RDONLY)
                            os.posix_fadvise(listing, 0, 0, os.POSIX_FADV_DONTNEED)
                            os.close(listing)
                assert len(seen) == len(set(seen)), "a name was listed twice"
                assert set(seen) >= names - victims, "names were left out"
                assert set(os.listdir(top)) == names - victims
                PYTHON
                """)
            try volume.remount()
            try volume.shell("test $(ls \"$MNT/large\" | wc -l) = 2500; rm -r \"$MNT/large\"")
        }
    }
}
