import Foundation
import Testing

extension MountSuite {
    /// A small file in the backing store that an attacker made as long as the store allows.
    @Suite struct PlantedFileTests {
        /// `plant STORE KIND LENGTH INODE`: changes the backing file with this inode. The mount
        /// shows the same number.
        private static let planter = """
            import os, sys
            store, kind, length, inode = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
            names = [store + "/" + n for n in os.listdir(store)]
            [file] = [n for n in names if os.lstat(n).st_ino == inode]
            fd = os.open(file, os.O_RDWR)
            if kind != "tail":
                os.ftruncate(fd, 0)
                os.pwrite(fd, bytes(4096), 8192)
            os.ftruncate(fd, length)
            if kind == "zero blocks":
                for shift in range(14, 42, 3):
                    os.pwrite(fd, bytes(4096), 1 << shift)
            if kind == "far data":
                os.pwrite(fd, b"x" * 4096, length - 8192)
            """

        @Test(
            "stat, ls, reading, changing, check, export, a backup and removing end soon, and so do lock and unmount",
            arguments: User.usual, ["/tmp", "/dev/shm"])
        func nothingHangs(user: User, place: String) throws {
            let backing = "\(place)/ward-planted-\(UUID().uuidString)"
            #expect(mkdir(backing, 0o700) == 0)
            chown(backing, user.userID, user.groupID)
            defer { try? FileManager.default.removeItem(atPath: backing) }
            let volume = try MountedVolume(as: user, backing: backing)
            let lengths = ["/tmp": "1<<44", "/dev/shm": "1<<62"]
            try volume.shell(
                """
                cat >"$OUT/plant.py" <<'PYTHON'
                \(Self.planter)
                PYTHON
                echo good >"$MNT/good"
                mkdir "$MNT/d"
                cd "$MNT"
                for kind in "zero block" "zero blocks" "far data" tail; do
                    for use in stat read write truncate punch class rm left; do
                        echo content >"$kind-$use"
                        '\(TestEnvironment.shared.python)' "$OUT/plant.py" '\(backing)' "$kind" \
                            $(((\(lengths[place]!)) - 4096)) $(stat -c %i "$kind-$use")
                    done
                done
                """)
            try volume.remount()
            let ward = TestEnvironment.shared.ward
            for kind in ["zero block", "zero blocks", "far data", "tail"] {
                let done = try Child.run(
                    user.prefix + [
                        "bash", "-uc",
                        """
                        cd '\(volume.mountPoint)'
                        try() { timeout -s KILL 15 "$@" >/dev/null 2>&1; [ $? != 137 ] || echo "hangs: $*"; }
                        try stat '\(kind)-stat'
                        try ls -la
                        try head -c 100000 '\(kind)-read'
                        try sh -c "echo more >>'\(kind)-write'"
                        try truncate -s 5 '\(kind)-truncate'
                        try fallocate -p -o 4096 -l 1000000000000 '\(kind)-punch'
                        try '\(ward)' class set A '\(kind)-class'
                        try rm -f '\(kind)-rm'
                        """,
                    ], environment: volume.environment, seconds: 200)
                #expect(!done.timedOut && done.output.isEmpty, "\(kind): \(done.everything)")
            }
            #expect(try volume.probe().readFile("good") == .data("good\n"))
            for arguments in [
                ["check", volume.mountPoint], ["check", volume.mountPoint, "--repair"],
                ["export", volume.mountPoint, volume.directory + "/home/plain"],
                ["backup", "run", volume.mountPoint, "--", "true"],
                ["backup", "list", volume.mountPoint], ["audit", volume.mountPoint],
                ["lock", volume.mountPoint, "--now"],
            ] {
                let done = try Child.run(
                    user.prefix + [ward] + arguments, environment: volume.environment, seconds: 60)
                #expect(!done.timedOut, "ward \(arguments.joined(separator: " "))")
            }
            try volume.unmount()
            let checked = try volume.ward("check", backing, seconds: 60)
            #expect(!checked.timedOut)
        }
    }
}
