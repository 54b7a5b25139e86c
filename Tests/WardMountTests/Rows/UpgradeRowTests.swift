import Foundation
import Testing
import WardTestSupport

extension MountSuite {
    /// A volume of format 2 through the mount, made by `ward upgrade`.
    @Suite struct UpgradeRowTests {
        private func upgrade(_ volume: MountedVolume, _ options: String...) throws -> Finished {
            try Child.run(
                volume.user.prefix + [TestEnvironment.shared.ward, "upgrade", volume.volume]
                    + options + ["--passcode-file", volume.passcodeFile],
                environment: volume.environment)
        }

        private func expectNothingWrong(_ volume: MountedVolume) throws {
            let check = try volume.ward("check", volume.mountPoint)
            #expect(check.succeeded, "\(check.everything)")
            #expect(try volume.status()["integrityFailures"] as? Int == 0)
        }

        @Test("an upgraded volume: before the first unlock, after it, after a reboot")
        func life() throws {
            let volume = try MountedVolume(as: User.available[0], initArguments: ["--format", "1"])
            let (mount, files) = (volume.mountPoint, FileManager.default)
            try files.createDirectory(
                atPath: mount + "/private/deep", withIntermediateDirectories: true)
            try Data("diary".utf8).write(to: URL(fileURLWithPath: mount + "/private/deep/diary"))
            #expect(try volume.ward("class", "set", "-R", "A", mount + "/private").succeeded)
            #expect(try volume.status()["format"] as? Int == 1)
            try volume.unmount()
            let done = try upgrade(volume)
            #expect(done.succeeded, "\(done.everything)")

            try volume.mount()
            #expect(try volume.status()["format"] as? Int == 2)
            // Before the first unlock: directories are made, and moved.
            try files.createDirectory(atPath: mount + "/early", withIntermediateDirectories: false)
            try files.moveItem(atPath: mount + "/private/deep", toPath: mount + "/early/deep")
            try volume.unlock()
            let diary = mount + "/early/deep/diary"
            #expect(try String(contentsOfFile: diary, encoding: .utf8) == "diary")
            try Data("more".utf8).write(to: URL(fileURLWithPath: mount + "/early/deep/new"))
            let made = try volume.ward("class", "get", mount + "/early/deep/new")
            #expect(made.output.contains("A"), "\(made.everything)")
            try files.moveItem(atPath: mount + "/early/deep", toPath: mount + "/private/deep")
            try volume.lockNow()
            try volume.unlock()
            try volume.reboot()
            try volume.unlock()
            let moved = mount + "/private/deep/diary"
            #expect(try String(contentsOfFile: moved, encoding: .utf8) == "diary")
            try volume.remount()
            #expect(try String(contentsOfFile: moved, encoding: .utf8) == "diary")
            try expectNothingWrong(volume)
        }

        @Test("a root of format 1 that is put back is refused")
        func oldRoot() throws {
            let volume = try MountedVolume(as: User.available[0], initArguments: ["--format", "1"])
            try volume.unmount()
            let files = FileManager.default
            let (record, state) = (volume.volume + "/.ward", volume.volume + "/ward.state")
            let old = (
                try files.destinationOfSymbolicLink(atPath: record),
                try Data(contentsOf: URL(fileURLWithPath: state))
            )
            #expect(try upgrade(volume).succeeded)
            try files.removeItem(atPath: record)
            try files.createSymbolicLink(atPath: record, withDestinationPath: old.0)
            try old.1.write(to: URL(fileURLWithPath: state))
            let mounted = try volume.ward("mount", volume.volume, volume.mountPoint)
            #expect(!mounted.succeeded)
            #expect(mounted.errors.contains("its root says format 1"), "\(mounted.everything)")
        }
    }
}
