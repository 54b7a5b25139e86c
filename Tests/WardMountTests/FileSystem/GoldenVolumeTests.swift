import Foundation
import Testing

extension MountSuite {
    /// Volumes that earlier versions made: this version reads, writes and checks them
    /// (docs/format.md §10). They are never made anew; a version that changes the format adds its
    /// own.
    @Suite struct GoldenVolumeTests {
        @Test(
            "A volume of an earlier version is read as it was, by ward and by the second reader, and goes on being written",
            arguments: User.available,
            ["v1-4096", "v1-512", "v1-synchronised", "v2-4096", "v2-512"])
        func everyVersion(user: User, name: String) throws {
            // Its passcode is the passcode of all volumes in these tests.
            let volume = try MountedVolume(directoryOnlyAs: user)
            let reader = try SecondReader(for: volume)
            let golden = SecondReader.checkout + "Tests/GoldenVolumes/" + name
            try unpack(golden + ".tar.gz", for: volume)
            let manifest = volume.directory + "/home/golden"
            try FileManager.default.copyItem(atPath: golden + ".manifest", toPath: manifest)

            try reader.extractAndCompare(manifest)
            try reader.expectMarks(manifest)
            try reader.extractAndCompare(
                manifest,
                keys: [
                    "--recovery-kit", volume.directory + "/recovery.kit", "--recovery-code-file",
                    volume.directory + "/recovery.code",
                ])

            try volume.mount()
            try volume.unlock()
            let later = try useAndCompare(volume, reader, manifest)
            try reader.expectMarks(later)
        }

        @Test(
            "A volume of version 1 is upgraded, and is read as it was, by ward and by the second reader",
            arguments: ["v1-4096", "v1-512", "v1-synchronised"])
        func upgraded(name: String) throws {
            let volume = try MountedVolume(directoryOnlyAs: User.available[0])
            let reader = try SecondReader(for: volume)
            let golden = SecondReader.checkout + "Tests/GoldenVolumes/" + name
            try unpack(golden + ".tar.gz", for: volume)
            let manifest = volume.directory + "/home/golden"
            try FileManager.default.copyItem(atPath: golden + ".manifest", toPath: manifest)

            try volume.mount()
            try expectFormat(1, isUpgrading: false, volume)
            let mounted = try upgrade(volume)
            #expect(mounted.status == 75, "it is mounted: \(mounted.everything)")
            try volume.unmount()
            let done = try upgrade(volume)
            #expect(done.status == 0, "\(done.everything)")
            #expect(done.output.contains("\"done\":true"), "\(done.everything)")
            let again = try upgrade(volume)
            #expect(again.status == 0 && again.output.contains("\"upgraded\":0"))

            try reader.extractAndCompare(manifest)
            try reader.expectMarks(manifest)
            try volume.mount()
            try volume.unlock()
            try expectFormat(2, isUpgrading: false, volume)
            _ = try useAndCompare(volume, reader, manifest)
        }

        /// Compares an unlocked volume with the manifest, works on it, and compares what ward and
        /// the second reader then find. Unmounts it. Returns the manifest of the later content.
        private func useAndCompare(
            _ volume: MountedVolume, _ reader: SecondReader, _ manifest: String
        ) throws -> String {
            try reader.features("compare", manifest, volume.mountPoint, "--any-owner")
            try reader.features("continue", volume.mountPoint)
            let later = try reader.manifest("later")
            try volume.remount()
            try reader.features("compare", later, volume.mountPoint)
            try expectNothingFound(volume)
            try volume.unmount()
            try reader.extractAndCompare(later)
            return later
        }

        private func upgrade(_ volume: MountedVolume) throws -> Finished {
            try volume.ward(
                "upgrade", volume.volume, "--passcode-file", volume.passcodeFile, "--json",
                seconds: 180)
        }

        private func expectFormat(
            _ format: Int, isUpgrading: Bool, _ volume: MountedVolume
        ) throws {
            let status = try volume.status()
            #expect(status["format"] as? Int == format)
            #expect(status["upgrading"] as? Bool == isUpgrading)
        }

        /// Checks the mounted and unlocked volume: everything was read, and nothing is damaged,
        /// left over or foreign.
        private func expectNothingFound(_ volume: MountedVolume) throws {
            let checked = try volume.ward("check", volume.mountPoint, "--json", seconds: 180)
            #expect(checked.status == 0, "\(checked.everything)")
            let lines = checked.output.split(separator: "\n")
            let line = try #require(lines.last, "\(checked.everything)")
            let json = try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any]
            let report = try #require(json?["report"] as? [String: Any], "\(checked.everything)")
            #expect(lines.count == 1, "findings: \(checked.everything)")
            #expect(report["complete"] as? Bool == true, "\(checked.everything)")
            #expect((report["unread"] as? [Any] ?? []).isEmpty, "\(checked.everything)")
        }

        /// Unpacks volume, state directory, kit and code into this volume's directories. The
        /// content belongs to an ordinary user, the daemon's directories to the daemon's user.
        /// chown(2) would remove set-user-ID bits.
        private func unpack(_ archive: String, for volume: MountedVolume) throws {
            let owner = "\(volume.user.userID):\(volume.user.groupID)"
            for command in [
                [
                    "tar", "-C", volume.directory, "-p", "--numeric-owner", "--xattrs",
                    "--xattrs-include=*", "--acls", "-xzf", archive,
                ],
                ["chown", owner, volume.directory, volume.volume],
                ["chown", "-R", owner, volume.stateDirectory],
            ] {
                let done = try Child.run(command, environment: volume.environment)
                try #require(done.succeeded, "\(done.everything)")
            }
        }
    }
}
