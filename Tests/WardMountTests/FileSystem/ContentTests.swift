import Foundation
import Testing

extension MountSuite {
    /// The rules of POSIX and Linux for the content of files, on a mount.
    @Suite struct ContentTests {
        @Test("Holes are holes, to read and to seek", arguments: User.usual)
        func holes(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            let far = 5 << 30
            #expect(probe.open("sparse", "rw+c", as: "fd") == .ok)
            #expect(probe.pwrite("fd", "end", at: far) == .number(3))
            #expect(probe.stat("sparse", "size") == .number(far + 3))
            #expect(probe.pread("fd", 3, at: far) == .data("end"))
            #expect(probe.pread("fd", 4, at: far / 2) == .data("\0\0\0\0"))
            if let blocks = Int(probe.stat("sparse", "blocks").text) {
                #expect(blocks < 1000, "a hole takes no space")
            }
            // The first page may count as data, because it holds the header.
            let data = probe.seek("fd", 8192, 3)
            #expect((Int(data.text) ?? 0) > far - 70_000, "first data at \(data)")
            #expect(probe.seek("fd", 8192, 4) == .number(8192))
            #expect(probe.seek("fd", far, 4) == .number(far + 3))
            #expect(probe.seek("fd", far + 3, 3) == .enxio)
            #expect(probe.fallocate("fd", mode: 3, far, 3) == .ok)
            #expect(probe.pread("fd", 3, at: far) == .data("\0\0\0"))
            #expect(probe.stat("sparse", "size") == .number(far + 3))
            #expect(probe.close("fd") == .ok)
            try volume.remount()
            #expect(probe.stat("sparse", "size") == .number(far + 3))
            #expect(probe.open("sparse", "r", as: "again") == .ok)
            #expect(probe.pread("again", 10, at: far) == .data("\0\0\0"))
        }

        @Test("A change of length that fails changes nothing", arguments: User.usual)
        func tooLong(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            for content in ["", "content"] {
                #expect(probe.writeFile("f", content) == .ok)
                #expect(probe.open("f", "rw", as: "fd") == .ok)
                #expect(probe.ftruncate("fd", 1 << 62) == .failure("EFBIG"))
                #expect(probe.pwrite("fd", "x", at: 1 << 62) == .failure("EFBIG"))
                #expect(probe.fallocate("fd", 1 << 62, 4096) == .failure("EFBIG"))
                // A little longer than the longest file of the backing store: the error comes from
                // the store.
                #expect(!probe.ftruncate("fd", (1 << 44) + (1 << 43)).succeeded)
                #expect(!probe.pwrite("fd", "x", at: (1 << 44) + (1 << 43)).succeeded)
                #expect(probe.stat("f", "size") == .number(content.utf8.count))
                #expect(probe.close("fd") == .ok)
                #expect(probe.readFile("f") == .data(content))
            }
        }

        @Test("Appends of several processes neither overwrite nor tear", arguments: User.usual)
        func append(user: User) throws {
            let volume = try MountedVolume(as: user)
            try volume.shell(
                """
                cd "$MNT"
                for writer in 1 2 3 4; do
                    for line in $(seq 200); do printf '%s-%s\\n' $writer $line; done \
                        | while read -r text; do printf '%s\\n' "$text" >> log; done &
                done
                wait
                test "$(wc -l < log)" = 800
                for writer in 1 2 3 4; do
                    diff <(grep "^$writer-" log) <(for line in $(seq 200); do echo $writer-$line; done)
                done
                """)
        }

        @Test("O_DIRECT reads and writes what others see", arguments: User.usual)
        func direct(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            let block = String(repeating: "0123456789abcdef", count: 512)
            #expect(probe.open("f", "rw+c+direct", as: "direct") == .ok)
            #expect(probe.call("directWrite", "direct", block, 0) == .number(8192))
            #expect(
                probe.call("directRead", "direct", 4096, 4096) == .data(String(block.prefix(4096))))
            #expect(probe.readFile("f") == .data(block))
            #expect(probe.open("f", "rw", as: "cached") == .ok)
            #expect(probe.pwrite("cached", "X", at: 0) == .number(1))
            let first = "X" + String(block.dropFirst().prefix(4095))
            #expect(probe.call("directRead", "direct", 4096, 0) == .data(first))
            let other = String(repeating: "Y", count: 4096)
            #expect(probe.call("directWrite", "direct", other, 0) == .number(4096))
            #expect(probe.pread("cached", 4097) == .data(other + "0"))
        }

        @Test("Stores through a mapping reach the file", arguments: User.usual)
        func mapping(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            #expect(probe.open("f", "rw+c", as: "fd") == .ok)
            #expect(probe.ftruncate("fd", 100_000) == .ok)
            #expect(probe.mmap("fd", 100_000, "rw", as: "map") == .ok)
            for offset in [0, 4090, 50_000, 99_990] {
                #expect(probe.poke("map", at: offset, "mapped") == .ok)
            }
            #expect(probe.call("msync", "map") == .ok)
            for offset in [0, 4090, 50_000, 99_990] {
                #expect(probe.pread("fd", 6, at: offset) == .data("mapped"))
            }
            #expect(probe.poke("map", at: 200, "late") == .ok)
            #expect(probe.call("munmap", "map") == .ok)
            #expect(probe.close("fd") == .ok)
            try volume.remount()
            #expect(probe.open("f", "r", as: "fd") == .ok)
            #expect(probe.pread("fd", 4, at: 200) == .data("late"))
            #expect(probe.pread("fd", 6, at: 99_990) == .data("mapped"))
            #expect(probe.stat("f", "size") == .number(100_000))
        }

        @Test("A file without names stays usable while it is open", arguments: User.usual)
        func unlinked(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            #expect(probe.open("f", "rw+c", as: "fd") == .ok)
            #expect(probe.write("fd", "before") == .number(6))
            #expect(probe.unlink("f") == .ok)
            #expect(probe.stat("fd", "nlink") == .number(0))
            #expect(probe.pread("fd", 6) == .data("before"))
            #expect(probe.pwrite("fd", "after and longer", at: 0) == .number(16))
            #expect(probe.stat("fd", "size") == .number(16))
            #expect(probe.ftruncate("fd", 5) == .ok)
            #expect(probe.call("chmod", "fd", 0o600) == .ok)
            #expect(probe.writeFile("f", "another") == .ok)
            #expect(probe.pread("fd", 16) == .data("after"))
            #expect(probe.close("fd") == .ok)
            #expect(probe.readFile("f") == .data("another"))
            // A file that is replaced while it is open: the old content stays with its descriptor.
            #expect(probe.open("f", "r", as: "old") == .ok)
            #expect(probe.writeFile("g", "new") == .ok)
            #expect(probe.rename("g", "f") == .ok)
            #expect(probe.pread("old", 20) == .data("another"))
            #expect(probe.readFile("f") == .data("new"))
        }

        @Test("A program can be run from the mount", arguments: User.usual)
        func execute(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            try volume.shell("cp /bin/echo \"$MNT/echo\"; chmod 755 \"$MNT/echo\"")
            #expect(probe.call("run", "echo", "from the mount") == .data("from the mount\n"))
            try volume.remount()
            #expect(probe.call("run", "echo", "again") == .data("again\n"))
        }
    }
}
