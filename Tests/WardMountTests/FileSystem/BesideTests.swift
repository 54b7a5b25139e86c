import Foundation
import Testing

extension MountSuite {
    /// A mount behaves like a plain directory of the store's file system, in the same run
    /// (Scripts/beside.py).
    @Suite struct BesideTests {
        /// The users that the daemon serves, and the caches of the kernel that this allows.
        enum Kind: CaseIterable, CustomTestStringConvertible {
            case root, rootShared, ordinaryUser

            static var available: [Kind] { geteuid() == 0 ? allCases : [.ordinaryUser] }

            var testDescription: String {
                switch self {
                case .root: "root, for everybody"
                case .rootShared: "root, for everybody, shared storage"
                case .ordinaryUser: "ordinary user"
                }
            }
            var user: User { self == .ordinaryUser ? .ordinaryUser : .root }
            var mountArguments: [String] {
                (self == .ordinaryUser ? [] : ["--allow-other"])
                    + (self == .rootShared ? ["--shared-storage"] : [])
            }
        }

        private func makeVolume(_ kind: Kind) throws -> MountedVolume {
            let volume = try MountedVolume(as: kind.user, mountArguments: kind.mountArguments)
            // Other users need a way to the mount.
            chmod(volume.directory, 0o711)
            try volume.shell("chmod 755 \"$MNT\"")
            return volume
        }

        /// Runs a scenario in a directory. Returns its lines.
        private func lines(
            _ scenario: String, in directory: String, _ volume: MountedVolume,
            _ arguments: [String]
        ) throws -> [String] {
            let environment = TestEnvironment.shared
            let done = try Child.run(
                volume.user.prefix + [
                    environment.python, environment.script("beside.py"), scenario, directory,
                ] + arguments, environment: volume.environment, seconds: 300)
            #expect(done.succeeded, "\(scenario): \(done.everything)")
            return done.output.split(separator: "\n").map(String.init)
        }

        /// Compares a scenario in a mount and beside its backing store.
        private func compare(
            _ scenario: String, _ volume: MountedVolume, _ arguments: String...,
            besideArguments: [String]? = nil, location: SourceLocation = #_sourceLocation
        ) throws {
            let plain = volume.directory + "/home/plain-\(scenario)"
            mkdir(plain, 0o755)
            chmod(volume.directory + "/home", 0o711)
            chown(plain, volume.user.userID, volume.user.groupID)
            let there = try lines(scenario, in: plain, volume, besideArguments ?? arguments)
            let here = try lines(scenario, in: volume.mountPoint, volume, arguments)
            #expect(!there.isEmpty, sourceLocation: location)
            #expect(here.count == there.count, "\(scenario)", sourceLocation: location)
            let different = zip(here, there).filter { $0 != $1 }
            #expect(
                different.isEmpty,
                """
                \(scenario): \(different.count) of \(there.count) lines; here and there:
                \(different.prefix(12).map { "\($0)\n\($1)" }.joined(separator: "\n"))
                """, sourceLocation: location)
        }

        @Test(
            "Set-ID bits go, for stat and at once, with every kind of change by every kind of caller",
            arguments: Kind.available)
        func setIDBits(kind: Kind) throws {
            try compare("set-id", makeVolume(kind))
        }

        @Test(
            "A mode that an open file gets stays when it is closed, and at a remount",
            arguments: User.available, ["6755", "2666", "4077", "66", "640"])
        func modeOfOpenFile(user: User, mode: String) throws {
            let volume = try MountedVolume(as: user)
            // chmod(1) looks at the file before: then nothing is left for the close to write.
            let modes = try volume.shell(
                """
                cd "$MNT"
                '\(TestEnvironment.shared.python)' - <<'PYTHON'
                import os
                for size in (0, 100, 65536, 65537):
                    with open(f"f{size}", "wb", buffering=0) as file:
                        file.write(bytes(size))
                        os.chmod(f"f{size}", 0o\(mode))
                PYTHON
                stat -c %a f*
                """)
            #expect(modes == String(repeating: "\(mode)\n", count: 4))
            if !TestEnvironment.shared.isPlain { try volume.remount() }
            #expect(try volume.shell(#"cd "$MNT"; stat -c %a f*"#) == modes)
        }

        @Test(
            "Set-ID bits and owners; a set-ID program that somebody has changed runs as who starts it",
            arguments: Kind.available.filter { $0 != .ordinaryUser })
        func setIDPrograms(kind: Kind) throws {
            let volume = try makeVolume(kind)
            try compare("set-id-chown", volume)
            try compare("set-id-run", volume)
        }

        @Test(
            "A directory that was removed or replaced is still there for who has it open or is in it",
            arguments: Kind.available)
        func removedDirectories(kind: Kind) throws {
            try compare("removed-directories", makeVolume(kind))
        }

        @Test(
            "Removed and replaced directories are released; one that is open until it is closed",
            .enabled(if: geteuid() == 0, "only root sees a daemon's descriptors"),
            arguments: User.available)
        func releasedDirectories(user: User) throws {
            let volume = try MountedVolume(as: user)
            guard !TestEnvironment.shared.isPlain else { return }
            try volume.shell(
                """
                cd "$MNT"
                for n in $(seq 60); do
                    mkdir d e; : >d/f; : >e/f; rm d/f; mv -T e d; rm -r d
                done
                mkdir -p a/b/c; ls a/b/c; rm -r a
                """)
            #expect(try deletedDirectories(volume, reach: 0))
            let probe = try volume.probe()
            #expect(probe.mkdir("open") == .ok)
            #expect(probe.open("open", "r", as: "fd") == .ok)
            #expect(probe.call("rmdir", "open") == .ok)
            #expect(probe.stat("fd", "nlink") == .number(0))
            #expect(try deletedDirectories(volume, reach: 1))
            #expect(probe.close("fd") == .ok)
            #expect(try deletedDirectories(volume, reach: 0))
        }

        /// Whether the daemon reaches the wanted number of open directories that were removed. The
        /// kernel's forget requests come later.
        private func deletedDirectories(_ volume: MountedVolume, reach wanted: Int) throws -> Bool {
            let daemon = try #require(volume.daemonProcess())
            return try comesTrue {
                let held = try FileManager.default.contentsOfDirectory(
                    atPath: "/proc/\(daemon)/fd"
                ).compactMap {
                    try? FileManager.default.destinationOfSymbolicLink(
                        atPath: "/proc/\(daemon)/fd/\($0)")
                }.filter { $0.hasPrefix(volume.volume) && $0.hasSuffix(" (deleted)") }
                return Set(held).count == wanted
            }
        }

        @Test(
            "Modes below a default ACL: all of them, files, directories and others",
            arguments: Kind.available.filter { $0 != .rootShared })
        func defaultACLs(kind: Kind) throws {
            try compare("default-acl", makeVolume(kind), "0", "6")
        }

        @Test(
            "Times that were set stay when what a mapping had before is written back",
            arguments: Kind.available)
        func times(kind: Kind) throws {
            try compare("times", makeVolume(kind))
        }

        @Test(
            "They stay at a lock and at a remount, too", arguments: User.available)
        func timesAtLock(user: User) throws {
            let volume = try MountedVolume(as: user)
            guard !TestEnvironment.shared.isPlain else { return }
            let environment = TestEnvironment.shared
            let script =
                "\(environment.python) \(environment.script("beside.py")) times-left \"$MNT/a\""
            let kept = try volume.shell(
                """
                mkdir "$MNT/a"; \(environment.ward) class set A "$MNT/a" --quiet
                coproc LEFT { \(script); }
                left=$LEFT_PID
                output=${LEFT[0]} input=${LEFT[1]}
                read -r line <&"$output"; test "$line" = ready
                \(environment.ward) lock "$MNT" --now --quiet
                \(environment.ward) unlock "$MNT" --passcode-file '\(volume.passcodeFile)' --quiet
                echo >&"$input"; read -r kept <&"$output"; echo "$kept"
                wait "$left"
                """)
            #expect(kept == "True\n")
            try volume.remount()
            let modified = try volume.shell("stat -c %.9Y \"$MNT/a/left\"")
            #expect(modified == "1234567890.123456789\n")
        }

        @Test(
            "No page is stale after a direct write, asynchronous or not, by io_submit or io_uring",
            arguments: Kind.available)
        func directWrites(kind: Kind) throws {
            // Rounds. The plain directory only has to tell the lines of a good file system.
            try compare("stale-pages", makeVolume(kind), "60", besideArguments: ["5"])
        }

        @Test(
            "No descriptor left: what is kept for later goes first, then ENFILE, nothing made, and it is told once",
            arguments: User.available)
        func descriptorLimit(user: User) throws {
            let volume = try MountedVolume(directoryOnlyAs: user)
            guard !TestEnvironment.shared.isPlain else { return }
            try volume.initialize()
            try volume.shell(
                "ulimit -n 600; exec '\(TestEnvironment.shared.ward)' mount '\(volume.volume)' "
                    + "\"$MNT\" --manual-clock")
            try volume.unlock()
            let lines = try lines("descriptor-limit", in: volume.mountPoint, volume, [])
            #expect(
                lines == [
                    "the limit is told by ENFILE", "others give way first True", "errors ENFILE",
                    "made, though it failed:", "not made, though it succeeded:", "moved: True",
                    "and then None 1",
                ])
            let told = try ControlEvent.latest(of: volume).filter {
                $0.fields["detail"]?.contains("limit of open files is used up") == true
            }
            #expect(told.count == 1, "\(told)")
            let leftovers = try volume.shell(
                "find '\(volume.volume)' -mindepth 2 -name '.ward-*' ! -type l")
            #expect(leftovers.isEmpty)
            try volume.unmount()
        }

        @Test(
            "mount -o remount,ro and remount,rw, by the helper that mount(8) calls",
            .enabled(if: geteuid() == 0, "only root may change a mount"))
        func remountOptions() throws {
            let volume = try MountedVolume(as: .root)
            guard !TestEnvironment.shared.isPlain else { return }
            let helper = SecondReader.checkout + "contrib/mount.fuse.ward"
            // In a mount namespace of its own, where the helper is in /sbin.
            let said = try volume.shell(
                """
                cd "$OUT"; mkdir there sbin; sbin=$(readlink -f /sbin)
                cat >inside <<'INSIDE'
                set -eu
                mount --bind "$1" there; ln -s "$PWD"/there/* sbin/; rm -f sbin/mount.fuse.ward
                install -m 755 "$2" sbin/mount.fuse.ward; mount --bind sbin "$1"; cd /
                options() { findmnt -n -o OPTIONS "$MNT"; }
                : >"$MNT/f"; before=$(options)
                mount -o remount,ro "$MNT"
                ! : 2>"$OUT/why" >"$MNT/g"; test -e "$MNT/f"; options | grep -q '^ro,'
                mount -o remount,rw "$MNT"; : >"$MNT/g"
                mount -o remount,ro,noexec "$MNT"; options | grep -q '^ro,.*noexec'
                mount -o remount,rw,exec "$MNT"; test "$(options)" = "$before"
                mount -o remount "$MNT"; test "$(options)" = "$before"
                exec 3>"$MNT/h"
                ! mount -o remount,ro "$MNT" 2>&1; : >"$MNT/g"
                exec 3>&-
                ! mount -t fuse.ward /nowhere /mnt 2>&1
                INSIDE
                unshare -m --propagation private bash inside "$sbin" '\(helper)'
                """)
            #expect(said.contains("busy"), "\(said)")
            #expect(said.contains("ward: error: cannot mount /nowhere on /mnt"), "\(said)")
            #expect(said.contains("ward: hint: ward mount /nowhere /mnt"), "\(said)")
            #expect(try volume.ward("status", volume.mountPoint).succeeded)
        }

        @Test(
            "The owner with another primary group is refused by the kernel",
            .enabled(if: geteuid() == 0, "only root has other groups"))
        func anotherGroup() throws {
            let volume = try MountedVolume(as: .ordinaryUser)
            guard !TestEnvironment.shared.isPlain else { return }
            chmod(volume.directory, 0o755)
            func look(group: gid_t) throws -> Finished {
                try Child.run(
                    [
                        "setpriv", "--reuid=65534", "--regid=\(group)", "--groups=65534", "ls",
                        volume.mountPoint,
                    ], environment: volume.environment)
            }
            #expect(try look(group: 65534).succeeded)
            #expect(try look(group: 60).errors.contains("Permission denied"))
        }
    }
}
