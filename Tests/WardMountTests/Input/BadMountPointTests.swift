import Foundation
import Testing

extension MountSuite {
    /// ward's messages about places where it can't mount.
    @Suite struct BadMountPointTests {
        @Test("Missing, not a directory, not empty, busy", arguments: User.usual)
        func unsuitable(user: User) throws {
            let volume = try MountedVolume(as: user)
            try volume.unmount()
            let home = volume.directory + "/home"
            try volume.shell("mkdir $OUT/full $OUT/other; touch $OUT/full/f $OUT/file")
            var transcript = Transcript(volume)
            try transcript.ward("mount", volume.volume, home + "/missing", exit: 66)
            try transcript.ward("mount", volume.volume, home + "/file", exit: 73)
            try transcript.ward("mount", volume.volume, home + "/full", exit: 73)
            try volume.mount()
            transcript.remark("mounted at /DIR/mnt")
            try transcript.ward("mount", volume.volume, volume.mountPoint, exit: 75)
            try transcript.ward("mount", volume.volume, home + "/other", exit: 75)
            let second = volume.directory + "/home/second"
            try transcript.ward(
                "init", second, "--passcode-file", volume.passcodeFile, "--passcode-cost", "1024",
                exit: 0)
            let done = try transcript.ward("mount", second, volume.mountPoint, exit: 75)
            #expect(done.errors.contains(volume.mountPoint))
            try transcript.check("unsuitable-mount-point")
            #expect(try volume.shell("ls \"$MNT\"") == "", "the first mount still serves")
        }

        @Test("Inside each other", arguments: User.usual)
        func insideEachOther(user: User) throws {
            let volume = try MountedVolume(directoryOnlyAs: user)
            let home = volume.directory + "/home"
            var transcript = Transcript(volume)
            let arguments = ["--passcode-file", volume.passcodeFile, "--passcode-cost", "1024"]
            try transcript.ward(
                "init", home + "/outer/volume", arguments[0], arguments[1], arguments[2],
                arguments[3], exit: 66)
            try volume.shell("mkdir $OUT/outer $OUT/link-target; ln -s outer $OUT/link")
            try volume.initialize()
            try volume.shell("mv '\(volume.volume)' $OUT/outer/volume; mkdir $OUT/outer/volume/mnt")
            transcript.remark("a volume below its own mount point")
            try transcript.ward("mount", home + "/outer/volume", home + "/outer", exit: 73)
            try transcript.ward("mount", home + "/link/volume", home + "/outer", exit: 73)
            transcript.remark("a mount point inside its own volume")
            try transcript.ward(
                "mount", home + "/outer/volume", home + "/outer/volume/mnt", exit: 73)
            try transcript.ward("mount", home + "/outer/volume", home + "/outer/volume", exit: 73)
            transcript.remark("the state directory below the mount point")
            try transcript.ward("mount", home + "/outer/volume", volume.stateDirectory, exit: 73)
            try transcript.check("inside-each-other")
        }

        @Test("What used a killed daemon's mount gets an error", arguments: User.usual)
        func killedDaemon(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            try StateWalk.makeDirectory(of: .complete, with: probe)
            #expect(probe.open("A/f", "rw", as: "fd") == .ok)
            #expect(probe.mmap("fd", 4096, "rw", as: "map") == .ok)
            #expect(probe.poke("map", "C") == .ok)
            try volume.kill()
            // The kernel may still show pages that it holds. Every call that needs the daemon
            // fails, and none hangs.
            #expect(!probe.pread("fd", 10).text.hasPrefix("probe"))
            #expect(!probe.touch("map", at: 0, 1).text.hasPrefix("probe"))
            let size = probe.seek("fd", 0, SEEK_END)
            #expect(["ENOTCONN", "ECONNABORTED"].contains(size.text), "\(size)")
            #expect(!probe.pwrite("fd", "x").succeeded)
            #expect(!probe.open("A/f", "r", as: "again").succeeded)
            probe.kill()
            try volume.mount()
            try volume.unlock()
            #expect(try volume.probe().stat("A/f", "size") == .number(12))
            try volume.unmount()
        }

        @Test("A dead mount is replaced by the next", arguments: User.usual)
        func deadMount(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            try StateWalk.makeDirectory(of: .complete, with: probe)
            #expect(probe.open("A/f", "rw", as: "fd") == .ok)
            // Kills the watchdog first, which would clean up.
            let daemon = try #require(volume.daemonProcess())
            for watchdog in TestEnvironment.shared.children(of: daemon) {
                Glibc.kill(watchdog, SIGKILL)
            }
            try volume.kill()
            let stat = probe.stat("A/f", "size")
            #expect(["ENOTCONN", "ECONNABORTED"].contains(stat.text), "\(stat)")
            var transcript = Transcript(volume)
            transcript.remark("the daemon was killed")
            try transcript.ward("status", volume.mountPoint, exit: 69)
            try transcript.ward("mount", volume.volume, volume.mountPoint, exit: 0)
            try transcript.check("killed-daemon")
            try volume.unlock()
            #expect(try volume.probe().readFile("A/f") == .data("content of A"))
            let mounts = TestEnvironment.shared.mounts().filter { $0 == volume.mountPoint }
            #expect(mounts.count == 1, "the dead mount is detached, not covered")
            probe.kill()
            try volume.unmount()
        }

        @Test("SIGTERM unmounts cleanly", arguments: User.usual)
        func terminate(user: User) throws {
            let volume = try MountedVolume(as: user)
            #expect(try volume.probe().writeFile("f", "kept") == .ok)
            let daemon = try #require(volume.daemonProcess())
            Glibc.kill(daemon, SIGTERM)
            #expect(
                comesTrue(within: 60) {
                    !TestEnvironment.shared.mounts().contains(volume.mountPoint)
                }, "the mount goes")
            try MountedVolume.waitForEnd(of: daemon)
            #expect(volume.record() == nil, "the record beside the socket is gone")
            try volume.mount()
            try volume.unlock()
            #expect(try volume.probe().readFile("f") == .data("kept"))
        }

        @Test("Unmounting a mount that is in use", arguments: User.usual)
        func busy(user: User) throws {
            let volume = try MountedVolume(as: user)
            let probe = try volume.probe()
            #expect(probe.open("f", "rw+c", as: "fd") == .ok)
            #expect(probe.write("fd", "kept") == .number(4))
            var transcript = Transcript(volume)
            try transcript.ward("unmount", volume.mountPoint, exit: 75)
            #expect(probe.pread("fd", 4) == .data("kept"), "it still serves")
            try transcript.ward("unmount", volume.mountPoint, "--force", exit: 0)
            try transcript.check("busy")
            probe.kill()
            try volume.mount()
            try volume.unlock()
            #expect(try volume.probe().readFile("f") == .data("kept"))
        }
    }
}
