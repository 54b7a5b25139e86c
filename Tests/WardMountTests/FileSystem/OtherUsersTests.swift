import Foundation
import Testing

extension MountSuite {
    /// A volume that root serves for all users (`--allow-other`).
    @Suite(.enabled(if: geteuid() == 0)) struct OtherUsersTests {
        @Test("New files belong to who makes them; permissions are the kernel's to check")
        func ownership() throws {
            let volume = try MountedVolume(as: .root, mountArguments: ["--allow-other"])
            let root = try volume.probe()
            let user = try Probe(as: .ordinaryUser, base: volume.mountPoint)
            #expect(root.call("chmod", "", 0o755) == .ok)
            #expect(user.writeFile("f", "x") == .eacces)
            #expect(root.mkdir("open") == .ok)
            #expect(root.call("chmod", "open", 0o1777) == .ok)
            #expect(user.writeFile("open/f", "theirs") == .ok)
            #expect(user.mkdir("open/d") == .ok)
            #expect(user.call("symlink", "to", "open/l") == .ok)
            #expect(user.call("mkfifo", "open/p") == .ok)
            #expect(user.tmpfile("open", as: "t") == .ok)
            #expect(user.linkat("t", "open/t") == .ok)
            #expect(user.close("t") == .ok)
            for name in ["f", "d", "l", "p", "t"] {
                #expect(user.lstat("open/\(name)", "uid") == .number(65534), "\(name)")
                #expect(user.lstat("open/\(name)", "gid") == .number(65534), "\(name)")
            }
            // In a sticky directory the user can't remove or rename another user's file.
            #expect(root.writeFile("open/roots", "x") == .ok)
            #expect(user.unlink("open/roots") == .eperm)
            #expect(user.rename("open/roots", "open/x") == .eperm)
            #expect(root.call("chmod", "open/roots", 0o600) == .ok)
            #expect(user.readFile("open/roots") == .eacces)
            #expect(user.setClass("open/roots", "A") == .eacces)
            #expect(user.call("chmod", "open/roots", 0o777) == .eperm)
            #expect(user.setClass("open/f", "A") == .ok)
            #expect(user.setxattr("open/f", "user.note", "n") == .ok)
            #expect(user.getxattr("open/f", "user.note") == .data("n"))
            // New entries get the group of a set-group-ID directory.
            #expect(root.mkdir("group") == .ok)
            #expect(root.call("chown", "group", 0, 60) == .ok)
            #expect(root.call("chmod", "group", 0o2777) == .ok)
            #expect(user.writeFile("group/f", "x") == .ok)
            #expect(user.mkdir("group/d") == .ok)
            #expect(user.stat("group/f", "gid") == .number(60))
            #expect(user.stat("group/d", "gid") == .number(60))
            #expect(user.stat("group/d", "mode") == .data("2755"))
            try volume.remount()
            let again = try Probe(as: .ordinaryUser, base: volume.mountPoint)
            #expect(again.readFile("open/f") == .data("theirs"))
            #expect(again.protectionClass("open/f") == .data(FileClass.complete.apple))
            // The lock holds for all users, and the event says which user was refused.
            try volume.enter(.locked)
            #expect(again.open("open/f", "r", as: "fd") == .eperm)
            let denied = try ControlEvent.latest(of: volume).last { $0.kind == "denied" }
            #expect(denied?.fields["uid"] == "65534", "\(String(describing: denied))")
        }

        @Test("Who may write may make a class stronger; weaker ones and marks are the owner's")
        func weakening() throws {
            let volume = try MountedVolume(as: .root, mountArguments: ["--allow-other"])
            let root = try volume.probe()
            let user = try Probe(as: .ordinaryUser, base: volume.mountPoint)
            #expect(root.call("chmod", "", 0o755) == .ok)
            for (name, isDirectory) in [("f", false), ("d", true)] {
                if isDirectory {
                    #expect(root.mkdir(name) == .ok)
                } else {
                    #expect(root.writeFile(name, "secret") == .ok)
                }
                #expect(root.call("chmod", name, 0o777) == .ok)
                #expect(root.setClass(name, "C") == .ok)
                #expect(user.setClass(name, "A") == .ok)
                for weaker in ["B", "CX", "C", "D"] {
                    #expect(user.setClass(name, weaker) == .eperm, "\(name) \(weaker)")
                }
                for mark in ["user.ward.backup-excluded", "user.ward.synced", "user.ward.x"] {
                    #expect(user.setxattr(name, mark, "marked") == .eperm, "\(name) \(mark)")
                }
                #expect(root.setxattr(name, "user.ward.backup-excluded", "1") == .ok)
                #expect(user.call("removexattr", name, "user.ward.backup-excluded") == .eperm)
                #expect(user.setxattr(name, "user.note", "theirs") == .ok)
                #expect(root.protectionClass(name) == .data(FileClass.complete.apple))
            }
            let told = try ControlEvent.latest(of: volume).filter { $0.kind == "note" }
            #expect(
                told.contains { "\($0)".contains("65534") && "\($0)".contains("/f") }, "\(told)")
            // A copy belongs to the user who made it, and has the class of its source.
            try volume.shell(
                """
                chmod 777 "$MNT/d"
                setpriv --reuid 65534 --regid 65534 --clear-groups cp -a "$MNT/f" "$MNT/d/copy"
                """)
            #expect(user.stat("d/copy", "uid") == .number(65534))
            #expect(user.protectionClass("d/copy") == .data(FileClass.complete.apple))
            #expect(user.setClass("d/copy", "D") == .ok)
            try volume.lockNow()
            #expect(root.open("f", "r", as: "f") == .eperm)
        }

        @Test("A whiteout belongs to who renamed, as a device file to who makes it")
        func whiteouts() throws {
            let volume = try MountedVolume(as: .root, mountArguments: ["--allow-other"])
            let root = try volume.probe()
            let user = try Probe(as: .ordinaryUser, base: volume.mountPoint)
            #expect(root.call("chmod", "", 0o777) == .ok)
            let long = String(repeating: "n", count: 250)
            #expect(user.writeFile("file", "x") == .ok)
            #expect(user.writeFile(long, "x") == .ok)
            for name in ["directory", "empty"] { #expect(user.mkdir(name) == .ok) }
            let whiteout = 4
            for (old, new) in [("file", "moved"), (long, "short"), ("directory", "empty")] {
                #expect(user.call("rename2", old, new, whiteout) == .ok, "\(old)")
                #expect(user.lstat(old, "uid") == .number(65534), "\(old)")
                #expect(user.lstat(old, "gid") == .number(65534), "\(old)")
                #expect(user.lstat(new, "uid") == .number(65534), "\(new)")
            }
        }

        @Test(
            "A journal beside another user's database has the database's class, or its directory's")
        func journals() throws {
            let volume = try MountedVolume(as: .root, mountArguments: ["--allow-other"])
            try volume.shell(
                """
                cd "$MNT"; chmod 755 .; mkdir weak strong; chmod 777 weak strong
                setfattr -n user.ward.class -v complete strong
                for place in weak strong; do printf 'SQLite format 3\\0rest' >$place/db; done
                setfattr -n user.ward.class -v complete weak/db
                setfattr -n user.ward.class -v none strong/db
                chmod 666 weak/db strong/db
                """)
            let user = try Probe(as: .ordinaryUser, base: volume.mountPoint)
            for place in ["weak", "strong"] {
                #expect(user.readFile(place + "/db").text.hasPrefix("SQLite format 3"))
                #expect(user.open(place + "/db", "rw", as: place) == .ok)
                #expect(user.writeFile(place + "/db-journal", "pages") == .ok)
                #expect(
                    user.protectionClass(place + "/db-journal")
                        == .data(FileClass.complete.apple), "\(place)")
            }
        }

        @Test("Default ACLs and umasks of other users")
        func accessControlLists() throws {
            let volume = try MountedVolume(as: .root, mountArguments: ["--allow-other"])
            try volume.shell(
                "cd \"$MNT\"; chmod 755 .; mkdir acl plain; chmod 777 acl plain; setfacl -d -m u:1234:rwx,o::- acl"
            )
            let user = try Probe(as: .ordinaryUser, base: volume.mountPoint)
            #expect(user.call("umask", 0o077) == .ok)
            #expect(user.writeFile("plain/f", "x", mode: 0o666) == .ok)
            #expect(user.stat("plain/f", "mode") == .data("600"))
            #expect(user.mkdir("plain/d", mode: 0o777) == .ok)
            #expect(user.stat("plain/d", "mode") == .data("700"))
            #expect(user.writeFile("acl/f", "x", mode: 0o666) == .ok)
            #expect(user.stat("acl/f", "mode") == .data("660"))
            try volume.shell("getfacl -cn \"$MNT/acl/f\" | grep -q '^user:1234:rwx'")
            // An ACL that names the user gives the user access.
            #expect(user.readFile("acl/f") == .data("x"))
            try volume.shell("cd \"$MNT\"; echo secret > s; chmod 600 s; setfacl -m u:65534:r s")
            #expect(user.readFile("s") == .data("secret\n"))
            #expect(user.open("s", "w", as: "fd") == .eacces)
        }

        @Test("Without it, nobody else gets in, root included", arguments: [User.ordinaryUser])
        func closed(user: User) throws {
            let volume = try MountedVolume(as: user)
            #expect(try volume.probe().writeFile("f", "x") == .ok)
            let root = try Probe(as: .root, base: volume.mountPoint)
            #expect(root.readFile("f") == .eacces)
        }
    }
}
