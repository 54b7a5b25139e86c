import DataProtection
import Testing
import WardTestSupport

extension DataProtectionSuite {
    /// Code from Apple's documentation and well-known articles. Only the import is changed, and the
    /// error handling, so that the test sees the error.
    // swift-format-ignore
    @Suite(.forOrdinaryUser) struct AppleSampleTests {
        @Test("Encrypting Your App's Files: create and encrypt a new file in one step")
        func newFile() throws {
            let volume = try MountedVolume.mine()
            let data = Data("secret".utf8)
            let fileURL = volume.url("f")
            do {
               try data.write(to: fileURL, options: .completeFileProtection)
            }
            catch {
               throw error
            }
            #expect(try volume.protection("f") == .complete)
        }

        @Test("Encrypting Your App's Files: change the level of an existing file")
        func existingFile() throws {
            let volume = try MountedVolume.mine()
            let fileURL = volume.url("f")
            try Data("secret".utf8).write(to: fileURL)
            do {
               try (fileURL as NSURL).setResourceValue(
                              URLFileProtection.complete,
                              forKey: .fileProtectionKey)
            }
            catch {
               throw error
            }
            #expect(try volume.protection("f") == .complete)
        }

        @Test("How to Use iOS Data Protection: a file, new files in a directory, the store's option")
        func article() throws {
            let volume = try MountedVolume.mine()
            let url = volume.url("f")
            let data = Data("secret".utf8)

            try data.write(to: url, options: .completeFileProtection)
            try FileManager.default.setAttributes([.protectionKey: FileProtectionType.completeUnlessOpen], ofItemAtPath: url.path)
            #expect(try volume.protection("f") == .completeUnlessOpen)

            let directoryURL = volume.url("directory")
            try FileManager.default.createDirectory(at: directoryURL, withIntermediateDirectories: true, attributes: [.protectionKey: FileProtectionType.complete])
            try data.write(to: directoryURL.appendingPathComponent("new"))
            #expect(try volume.protection("directory/new") == .complete)

            let storeOptions = [NSPersistentStoreFileProtectionKey: FileProtectionType.complete]
            #expect(storeOptions[NSPersistentStoreFileProtectionKey] == .complete)
        }

        @Test("How to Use iOS Data Protection: all existing files of a directory")
        func existingFiles() throws {
            let volume = try MountedVolume.mine()
            for name in ["a", "b", "c"] {
                try FileManager.default.createDirectory(at: volume.url("directory/" + name), withIntermediateDirectories: true)
                try Data("secret".utf8).write(to: volume.url("directory/\(name)/f"))
            }
            let url = volume.url("directory")
            var errors: [any Error] = []

            guard let directoryEnumerator = FileManager.default.enumerator(at: url, includingPropertiesForKeys: [.fileProtectionKey], options: [], errorHandler: { url, error in
                errors.append(error)
                return true
            }) else {
                Issue.record("no enumerator")
                return
            }

            for case let fileURL as URL in directoryEnumerator {
                do {
                    let resourceValues = try fileURL.resourceValues(forKeys: [.fileProtectionKey])
                    if resourceValues.fileProtection != .complete {
                        try (fileURL as NSURL).setResourceValue(URLFileProtection.complete, forKey: .fileProtectionKey)
                    }
                } catch {
                    errors.append(error)
                }
            }

            #expect(errors.isEmpty)
            for name in ["a", "b", "c"] {
                #expect(try volume.protection("directory/\(name)") == .complete)
                #expect(try volume.protection("directory/\(name)/f") == .complete)
            }
        }

        @Test("excluding from backups, as the documentation of isExcludedFromBackup has it")
        func backups() throws {
            let volume = try MountedVolume.mine()
            var url = volume.url("f")
            try Data("secret".utf8).write(to: url)
            var resourceValues = URLResourceValues()
            resourceValues.isExcludedFromBackup = true
            try url.setResourceValues(resourceValues)
            #expect(
                try url.resourceValues(forKeys: [.isExcludedFromBackupKey]).isExcludedFromBackup
                    == true)
        }
    }
}
