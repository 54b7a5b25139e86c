import Foundation
import Testing

extension MountSuite {
    /// A volume is locked by two locks, because some stores carry only one of them to other
    /// machines.
    @Suite struct VolumeHoldTests {
        @Test(
            "a volume is refused while another holds the directory's lock, or only that of its file",
            arguments: ["", "/ward.lock"])
        func eitherLock(file: String) throws {
            let volume = try MountedVolume(as: .available[0])
            try volume.unmount()
            let ready = volume.directory + "/ready"
            Glibc.mkfifo(ready, 0o600)
            let holder = try Child(
                [
                    "flock", "--exclusive", "--no-fork", volume.volume + file, "sh", "-c",
                    "echo held >'\(ready)'; exec cat '\(ready)'",
                ], environment: volume.environment)
            let held = try Child.run(["cat", ready], environment: volume.environment)
            #expect(held.output == "held\n")
            for arguments in [
                ["mount", volume.volume, volume.mountPoint],
                ["check", "--locked", volume.volume],
                [
                    "passcode", "change", volume.volume, "--passcode-file", volume.passcodeFile,
                    "--new-passcode-file", volume.passcodeFile,
                ],
            ] {
                let done = try Child.run(
                    volume.user.prefix + [TestEnvironment.shared.ward] + arguments,
                    environment: volume.environment)
                #expect(done.status == 75, "\(arguments): \(done)")
                #expect(done.errors.contains("\(holder.process)"), "\(arguments): \(done)")
            }
            holder.kill()
            try volume.mount()
        }

        @Test("a volume of an earlier version gets the file, and a read-only mount makes none")
        func older() throws {
            let volume = try MountedVolume(as: .available[0])
            try volume.unmount()
            let lock = volume.volume + "/ward.lock"
            unlink(lock)
            try volume.mount(extra: ["--read-only"])
            #expect(access(lock, F_OK) != 0)
            try volume.unmount()
            try volume.mount()
            #expect(access(lock, F_OK) == 0)
            try volume.unmount()
            let checked = try volume.ward("check", "--locked", volume.volume)
            #expect(checked.status == 0 || checked.status == 1, "\(checked)")
            #expect(!checked.everything.contains("ward.lock"), "\(checked)")
        }

        @Test("a store that can't be written to is mounted read-only", .enabled(if: geteuid() == 0))
        func readOnlyStore() throws {
            let volume = try MountedVolume(as: .root)
            try volume.unmount()
            unlink(volume.volume + "/ward.lock")
            let environment = TestEnvironment.shared.variables
            _ = try Child.run(
                ["mount", "--bind", volume.volume, volume.volume], environment: environment)
            _ = try Child.run(
                ["mount", "-o", "remount,bind,ro", volume.volume], environment: environment)
            defer { umount2(volume.volume, Int32(MNT_DETACH)) }
            try volume.mount(extra: ["--read-only"])
            try volume.unlock()
            try volume.unmount()
        }
    }
}
