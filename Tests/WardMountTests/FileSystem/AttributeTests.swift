import Foundation
import Testing

extension MountSuite {
    /// Modes, owners, times, attributes, ACLs and special files on a mount.
    @Suite struct AttributeTests {
        @Test(
            "Times to the nanosecond, also when set before the last close",
            arguments: User.available)
        func times(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            let stamp = 1_234_567_890_123_456_789
            #expect(probe.open("f", "rw+c", as: "fd") == .ok)
            #expect(probe.write("fd", String(repeating: "x", count: 10_000)) == .number(10_000))
            #expect(probe.call("utime", "fd", stamp, stamp + 1) == .ok)
            #expect(probe.close("fd") == .ok)
            #expect(probe.stat("f", "mtime_ns") == .number(stamp + 1))
            #expect(probe.stat("f", "atime_ns") == .number(stamp))
            #expect(probe.mkdir("d") == .ok)
            #expect(probe.call("utime", "d", stamp, stamp + 2) == .ok)
            // A class or an attribute is no content, so the time stays.
            #expect(probe.setClass("f", "D").succeeded || TestEnvironment.shared.isPlain)
            #expect(probe.setxattr("f", "user.x", "y") == .ok)
            #expect(probe.stat("f", "mtime_ns") == .number(stamp + 1))
            try volume.remount()
            #expect(probe.stat("f", "mtime_ns") == .number(stamp + 1))
            #expect(probe.stat("d", "mtime_ns") == .number(stamp + 2))
            #expect(probe.stat("f", "size") == .number(10_000))
            // fstat before the close and stat after it must agree: git and make depend on it.
            #expect(probe.open("g", "rw+c", as: "fd") == .ok)
            #expect(probe.write("fd", "content") == .number(7))
            let before = ["mtime_ns", "ctime_ns", "size", "ino", "mode"].map {
                probe.stat("fd", $0)
            }
            // A time taken at the close would be a later one: the kernel's clock goes on meanwhile.
            usleep(20_000)
            #expect(probe.close("fd") == .ok)
            let after = ["mtime_ns", "ctime_ns", "size", "ino", "mode"].map { probe.stat("g", $0) }
            #expect(before == after)
            // Content written later has a later time.
            #expect(probe.writeFile("g", "more") == .ok)
            #expect(probe.stat("g", "mtime_ns") != before[0])
        }

        @Test("Modes, also those that would lock out the daemon", arguments: User.available)
        func modes(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            let modes = [0o000, 0o444, 0o400, 0o200, 0o111, 0o777, 0o4755, 0o2755, 0o1644, 0o640]
            let octal = { (mode: Int) in String(mode, radix: 8) }
            for mode in modes {
                let name = "f\(octal(mode))"
                #expect(probe.writeFile(name, "x") == .ok)
                #expect(probe.call("chmod", name, mode) == .ok)
                #expect(probe.mkdir("d\(octal(mode))") == .ok)
                #expect(probe.writeFile("d\(octal(mode))/in", "in") == .ok)
                #expect(probe.call("chmod", "d\(octal(mode))", mode) == .ok)
                // Created with this mode; the descriptor works with every mode.
                #expect(probe.open("c\(octal(mode))", "rw+c", as: "fd", mode: mode & 0o777) == .ok)
                #expect(probe.write("fd", "created") == .number(7))
                #expect(probe.close("fd") == .ok)
            }
            for round in ["before", "after a remount"] {
                for mode in modes {
                    let name = octal(mode)
                    let comment: Comment = "\(name), \(round), as \(user.rawValue)"
                    #expect(probe.stat("f\(name)", "mode") == .data(name), comment)
                    #expect(probe.stat("d\(name)", "mode") == .data(name), comment)
                    let created = octal(mode & 0o777 & ~0o022)
                    #expect(probe.stat("c\(name)", "mode") == .data(created), comment)
                    let readable = user == .root || mode & 0o400 != 0
                    let writable = user == .root || mode & 0o200 != 0
                    let searchable = user == .root || mode & 0o100 != 0
                    #expect(
                        probe.readFile("f\(name)") == (readable ? .data("x") : .eacces), comment)
                    let opened = probe.open("f\(name)", "w", as: "fd")
                    #expect(opened == (writable ? .ok : .eacces), comment)
                    if opened.succeeded { #expect(probe.close("fd") == .ok) }
                    #expect(
                        probe.list("d\(name)") == (readable ? .data("in") : .eacces), comment)
                    #expect(
                        probe.readFile("d\(name)/in") == (searchable ? .data("in") : .eacces),
                        comment)
                    // The owner changes the mode, the class and the times with every mode.
                    #expect(probe.call("utime", "f\(name)", 1, 1) == .ok, comment)
                }
                try volume.remount()
            }
            for mode in modes {
                #expect(probe.call("chmod", "d\(octal(mode))", 0o755) == .ok)
                #expect(probe.readFile("d\(octal(mode))/in") == .data("in"))
                #expect(probe.unlink("f\(octal(mode))") == .ok)
            }
        }

        @Test("Writing and truncating take set-user-ID away", arguments: User.available)
        func setUserID(user: User) throws {
            guard user == .ordinaryUser else { return }
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            for how in ["write", "truncate", "ftruncate"] {
                #expect(probe.writeFile(how, "x") == .ok)
                #expect(probe.call("chmod", how, 0o6755) == .ok)
                #expect(probe.open(how, "rw", as: "fd") == .ok)
                switch how {
                case "write": #expect(probe.pwrite("fd", "y") == .number(1))
                case "truncate": #expect(probe.truncate(how, 10) == .ok)
                default: #expect(probe.ftruncate("fd", 10) == .ok)
                }
                #expect(probe.stat(how, "mode") == .data("755"), "\(how)")
                #expect(probe.close("fd") == .ok)
                #expect(probe.stat(how, "mode") == .data("755"), "\(how)")
            }
        }

        @Test("Extended attributes: values, names, flags, many of them", arguments: User.available)
        func extendedAttributes(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            #expect(probe.writeFile("f", "x") == .ok)
            #expect(probe.mkdir("d") == .ok)
            for name in user == .root ? ["user.", "trusted."] : ["user."] {
                #expect(probe.setxattr("f", name, "x") == .failure("EINVAL"), "\(name)")
                #expect(probe.getxattr("d", name) == .failure("EINVAL"), "\(name)")
                #expect(probe.call("removexattr", "f", name) == .failure("EINVAL"), "\(name)")
            }
            // Linux takes names of 255 bytes; the backing store may only take shorter ones, because
            // names grow when encrypted.
            let long = "user." + String(repeating: "n", count: 250)
            let values = ["", "v", "\0\u{ff}\n", String(repeating: "v", count: 1000)]
            for path in ["f", "d"] {
                for (index, value) in values.enumerated() {
                    #expect(probe.setxattr(path, "user.\(index)", value) == .ok, "\(path) \(index)")
                }
                #expect(probe.setxattr(path, long, "long") == .ok, "\(path)")
                #expect(probe.setxattr(path, "user.0", "x", flags: 1) == .eexist)
                #expect(probe.setxattr(path, "user.new", "x", flags: 2) == .enodata)
                #expect(probe.setxattr(path, "user.1", "replaced", flags: 2) == .ok)
                #expect(probe.getxattr(path, "user.absent") == .enodata)
                #expect(probe.call("removexattr", path, "user.absent") == .enodata)
            }
            try volume.remount()
            for path in ["f", "d"] {
                for (index, value) in values.enumerated() where index != 1 {
                    #expect(
                        probe.getxattr(path, "user.\(index)") == .data(value), "\(path) \(index)")
                }
                #expect(probe.getxattr(path, "user.1") == .data("replaced"))
                #expect(probe.getxattr(path, long) == .data("long"))
                let names = ["user.0", "user.1", "user.2", "user.3", long]
                let listed = probe.call("listxattr", path).text.split(separator: " ")
                    .map(String.init).filter { $0 != "user.ward.class" }
                #expect(listed == names, "\(path)")
                for name in names { #expect(probe.call("removexattr", path, name) == .ok) }
            }
            #expect(probe.call("listxattr", "f").text.split(separator: " ").count <= 1)
        }

        @Test("POSIX ACLs, inherited by default, with the umask", arguments: User.available)
        func accessControlLists(user: User) throws {
            let volume = try MountedVolume(as: user)
            for round in 0..<2 {
                try volume.shell(
                    """
                    cd "$MNT"
                    if [ \(round) = 0 ]; then
                        umask 022
                        touch f; setfacl -m u:1234:rw,g:42:r f
                        mkdir d; setfacl -d -m u:1234:rwx,g::rx,o::- d
                        umask 077
                        touch d/f; mkdir d/sub; touch d/sub/f
                        umask 027
                        touch plain; mkdir plaindir
                    fi
                    getfacl -cn f | grep -qx 'user:1234:rw-'
                    getfacl -cn f | grep -qx 'mask::rw-'
                    test "$(stat -c %a f)" = 664
                    getfacl -cn d | grep -qx 'default:user:1234:rwx'
                    # The default ACL applies instead of the umask.
                    getfacl -cn d/f | grep -q '^user:1234:rwx'
                    test "$(stat -c %a d/f)" = 660
                    getfacl -cn d/sub | grep -qx 'default:user:1234:rwx'
                    test "$(stat -c %a d/sub)" = 770
                    test "$(stat -c %a d/sub/f)" = 660
                    test "$(stat -c %a plain)" = 640
                    test "$(stat -c %a plaindir)" = 750
                    chmod 600 f; getfacl -cn f | grep -qx 'mask::---'; chmod 664 f
                    """)
                try volume.remount()
            }
            try volume.shell("cd \"$MNT\"; setfacl -b f d; test -z \"$(getfacl -cns f d)\"")
        }

        @Test("Set-group-ID directories and files of other users", arguments: User.available)
        func ownership(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            #expect(probe.mkdir("shared") == .ok)
            if user == .root {
                #expect(probe.call("chown", "shared", 5, 60) == .ok)
                #expect(probe.call("chmod", "shared", 0o2775) == .ok)
                #expect(probe.writeFile("shared/f", "x") == .ok)
                #expect(probe.mkdir("shared/sub") == .ok)
                #expect(probe.stat("shared/f", "gid") == .number(60))
                #expect(probe.stat("shared/sub", "gid") == .number(60))
                #expect(probe.stat("shared/sub", "mode") == .data("2755"))
            }
            #expect(probe.writeFile("own", "x") == .ok)
            #expect(probe.stat("own", "uid") == .number(Int(user.userID)))
            #expect(probe.stat("own", "gid") == .number(Int(user.groupID)))
            if user == .ordinaryUser {
                #expect(probe.call("chown", "own", 0, 0) == .eperm)
            }
        }

        @Test("FIFOs, sockets and device nodes", arguments: User.available)
        func specialFiles(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            #expect(probe.call("mkfifo", "fifo") == .ok)
            #expect(probe.call("socket", "socket") == .ok)
            #expect(probe.close("socket:socket") == .ok)
            if user == .root {
                #expect(probe.call("mknod", "null", 0o020666, 0x103) == .ok)
                #expect(probe.call("mknod", "block", 0o060600, 0x700) == .ok)
            } else {
                #expect(probe.call("mknod", "null", 0o020666, 0x103) == .eperm)
            }
            for round in 0..<2 {
                #expect(probe.lstat("fifo", "type") == .data("p"))
                #expect(probe.lstat("socket", "type") == .data("s"))
                #expect(probe.call("fifo", "fifo", "through") == .data("through"))
                if user == .root {
                    #expect(probe.lstat("null", "type") == .data("c"))
                    #expect(probe.lstat("null", "rdev") == .number(0x103))
                    #expect(probe.lstat("block", "type") == .data("b"))
                }
                #expect(probe.call("chmod", "fifo", 0o600) == .ok)
                #expect(probe.lstat("fifo", "mode") == .data("600"), "round \(round)")
                try volume.remount()
            }
            #expect(probe.rename("fifo", "renamed") == .ok)
            #expect(probe.link("socket", "linked") == .ok)
            for name in ["renamed", "socket", "linked"] { #expect(probe.unlink(name) == .ok) }
        }

        @Test("statfs tells of the backing file system", arguments: User.available)
        func statfs(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            #expect((Int(probe.call("statvfs", "", "blocks").text) ?? 0) > 0)
            #expect((Int(probe.call("statvfs", "", "bavail").text) ?? 0) > 0)
            #expect(probe.call("statvfs", "", "namemax") == .number(255))
        }
    }
}
