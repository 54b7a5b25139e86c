import DataProtection
import Testing
import WardTestSupport

extension DataProtectionSuite {
    /// `isExcludedFromBackup`, and its effect on `ward backup list`.
    @Suite(.forOrdinaryUser) struct BackupExclusionTests {
        /// The number of names that a backup leaves out.
        private func excluded(_ volume: MountedVolume) throws -> Int {
            let done = try volume.ward("backup", "list", volume.volume, "--excludes", "--json")
            #expect(done.succeeded, "\(done.everything)")
            // Without the files that the daemon is just writing.
            return done.output.split(separator: "\n").count { $0.contains(#""reason":"marked""#) }
        }

        private func exclude(_ url: URL, _ isExcluded: Bool = true) throws {
            var url = url
            var values = URLResourceValues()
            values.isExcludedFromBackup = isExcluded
            try url.setResourceValues(values)
        }

        private func isExcluded(_ url: URL) throws -> Bool? {
            // A new URL, because URLs remember the values that were set.
            try URL(fileURLWithPath: url.path).resourceValues(forKeys: [.isExcludedFromBackupKey])
                .isExcludedFromBackup
        }

        @Test("The mark is what backups leave out, and goes with an atomic write, as on iOS")
        func atomicWrite() throws {
            let volume = try MountedVolume.mine()
            for (name, options) in [
                ("atomic", Data.WritingOptions.atomic),
                ("protected", [.atomic, .completeFileProtection]),
            ] {
                let url = volume.url(name)
                try Data("first".utf8).write(to: url, options: options)
                try exclude(url)
                #expect(try isExcluded(url) == true)
                #expect(try excluded(volume) == 1)
                // A write in place keeps the file and its mark.
                try Data("second".utf8).write(to: url)
                #expect(try isExcluded(url) == true)
                try Data("third".utf8).write(to: url, options: options)
                #expect(try isExcluded(url) == false)
                #expect(try excluded(volume) == 0)
            }
        }

        @Test("A string written atomically, a replaced item, a moved one, and the mark taken back")
        func replacing() throws {
            let volume = try MountedVolume.mine()
            let url = volume.url("file")
            try "first".write(to: url, atomically: true, encoding: .utf8)
            try exclude(url)
            try "second".write(to: url, atomically: true, encoding: .utf8)
            #expect(try isExcluded(url) == false)
            try exclude(url)
            try FileManager.default.moveItem(at: url, to: volume.url("moved"))
            #expect(try isExcluded(volume.url("moved")) == true)
            try "third".write(to: url, atomically: true, encoding: .utf8)
            try FileManager.default.removeItem(at: volume.url("moved"))
            try FileManager.default.moveItem(at: url, to: volume.url("moved"))
            #expect(try excluded(volume) == 0)
            try exclude(volume.url("moved"))
            #expect(try excluded(volume) == 1)
            try exclude(volume.url("moved"), false)
            #expect(try excluded(volume) == 0)
        }

        @Test("A marked directory leaves out all below it; the mark can be set in every state")
        func directory() throws {
            let volume = try MountedVolume.mine()
            try volume.makeDirectory("Downloads", .complete)
            try Data("content".utf8).write(to: volume.url("Downloads/file"))
            for state in LockState.walk {
                try volume.enter(state)
                try exclude(volume.url("Downloads"))
                #expect(try excluded(volume) == 1, "\(state)")
                let kept = try volume.ward("backup", "list", volume.volume).output
                // The root's own files and its record, and `ward.kem` with a key and a capsule.
                #expect(kept.split(separator: "\n").count == 9, "\(state): \(kept)")
                try exclude(volume.url("Downloads"), false)
                #expect(try excluded(volume) == 0, "\(state)")
            }
        }
    }
}
