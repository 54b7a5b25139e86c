import CWardLinux
import DataProtection
import Testing
import WardTestSupport

extension DataProtectionSuite {
    /// Calls outside of a ward volume. One test at a time: the policy belongs to the process.
    @Suite(.serialized) struct PolicyTests {
        private static let content = Data("content".utf8)

        /// A directory that is on no volume.
        private final class Elsewhere {
            let path: String
            init() throws { path = try TestEnvironment.shared.makeDirectory("elsewhere") }
            func url(_ name: String) -> URL { URL(fileURLWithPath: path + "/" + name) }
            deinit { try? FileManager.default.removeItem(atPath: path) }
        }

        /// Every call that takes a class. True: the item must exist afterwards.
        private static func calls(
            _ place: Elsewhere, _ fileClass: FileClass
        ) -> [(String, () throws -> Void)] {
            let manager = FileManager.default
            return [
                ("f", { try content.write(to: place.url("f"), options: fileClass.option) }),
                (
                    "atomic",
                    {
                        try content.write(
                            to: place.url("atomic"), options: [.atomic, fileClass.option])
                    }
                ),
                (
                    "NSData",
                    {
                        try NSData(data: content).write(
                            to: place.url("NSData"), options: fileClass.option)
                    }
                ),
                (
                    "created",
                    {
                        guard
                            manager.createFile(
                                atPath: place.url("created").path, contents: content,
                                attributes: [.protectionKey: fileClass.type])
                        else { throw CocoaError(.featureUnsupported) }
                    }
                ),
                (
                    "d",
                    {
                        try manager.createDirectory(
                            at: place.url("d"), withIntermediateDirectories: true,
                            attributes: [.protectionKey: fileClass.type])
                    }
                ),
                (
                    "there",
                    {
                        try manager.setAttributes(
                            [.protectionKey: fileClass.type],
                            ofItemAtPath: place.url("there").path)
                    }
                ),
                (
                    "there",
                    {
                        try (place.url("there") as NSURL).setResourceValue(
                            fileClass.resource, forKey: .fileProtectionKey)
                    }
                ),
                (
                    "there",
                    {
                        try manager.createDirectory(
                            atPath: place.path, withIntermediateDirectories: true,
                            attributes: [.protectionKey: fileClass.type])
                    }
                ),
            ]
        }

        @Test("a path off the volume: featureUnsupported and nothing is made; none is always right")
        func throwing() throws {
            #expect(DataProtection.policy == .throw)
            for fileClass in FileClass.allCases {
                let place = try Elsewhere()
                try Self.content.write(to: place.url("there"))
                for (name, call) in Self.calls(place, fileClass) {
                    let error = failure(call)
                    if fileClass == .none {
                        #expect(error == nil, "\(name)")
                    } else {
                        #expect(error?.domain == NSCocoaErrorDomain, "\(name)")
                        #expect(
                            error?.code == CocoaError.featureUnsupported.rawValue, "\(name)")
                    }
                }
                let names = try FileManager.default.contentsOfDirectory(atPath: place.path)
                #expect(
                    names.sorted()
                        == (fileClass == .none
                            ? ["NSData", "atomic", "created", "d", "f", "there"] : ["there"]))
            }
        }

        @Test(
            "ignore and warnOnce: it goes on without protection", arguments: ["ignore", "warnOnce"])
        func goingOn(policy: String) throws {
            DataProtection.policy = policy == "ignore" ? .ignore : .warnOnce
            defer { DataProtection.policy = .throw }
            let place = try Elsewhere()
            try Self.content.write(to: place.url("there"))
            for (name, call) in Self.calls(place, .complete) {
                #expect(failure(call) == nil, "\(name)")
                #expect(FileManager.default.fileExists(atPath: place.url(name).path))
            }
            #expect(try Data(contentsOf: place.url("f")) == Self.content)
            #expect(
                try FileManager.default.attributesOfItem(atPath: place.url("f").path)[
                    .protectionKey] == nil)
        }

        @Test(
            "a link from a volume to elsewhere: the class is refused, and what is there untouched")
        func links() throws {
            let volume = try MountedVolume.mine()
            let place = try Elsewhere()
            try Data("old".utf8).write(to: place.url("there"))
            for name in ["there", "new"] {
                try FileManager.default.createSymbolicLink(
                    at: volume.url(name), withDestinationURL: place.url(name))
            }
            let calls: [() throws -> Void] = [
                {
                    try Self.content.write(
                        to: volume.url("there"), options: .completeFileProtection)
                },
                { try Self.content.write(to: volume.url("new"), options: .completeFileProtection) },
                {
                    try FileManager.default.setAttributes(
                        [.protectionKey: FileProtectionType.complete],
                        ofItemAtPath: volume.url("there").path)
                },
            ]
            for (index, call) in calls.enumerated() {
                let error = failure(call)
                #expect(error?.code == CocoaError.featureUnsupported.rawValue, "call \(index)")
            }
            #expect(try Data(contentsOf: place.url("there")) == Data("old".utf8))
            #expect(try FileManager.default.contentsOfDirectory(atPath: place.path) == ["there"])
            var value: [UInt8] = [0]
            #expect(ward_getxattr(place.url("there").path, "user.ward.class", &value, 0) < 0)
            // A link from outside leads to the volume, so its target can be protected; so can the
            // mount point.
            try FileManager.default.createSymbolicLink(
                at: place.url("link"), withDestinationURL: volume.url("f"))
            try Self.content.write(to: place.url("link"), options: .completeFileProtection)
            #expect(try volume.protection("f") == .complete)
            try FileManager.default.setAttributes(
                [.protectionKey: FileProtectionType.none], ofItemAtPath: place.url("link").path)
            #expect(try volume.protection("f") == FileProtectionType.none)
            try FileManager.default.setAttributes(
                [.protectionKey: FileProtectionType.completeUnlessOpen],
                ofItemAtPath: volume.mountPoint)
            try Self.content.write(to: volume.url("inherits"))
            #expect(try volume.protection("inherits") == .completeUnlessOpen)
        }

        @Test("a directory elsewhere that one may write to and not read is elsewhere all the same")
        func unreadable() throws {
            let place = try Elsewhere()
            let box = place.url("box")
            try FileManager.default.createDirectory(at: box, withIntermediateDirectories: false)
            try Self.content.write(to: place.url("secret"))
            chmod(place.path, 0o711)
            chmod(box.path, geteuid() == 0 ? 0o733 : 0o300)
            chmod(place.url("secret").path, 0)
            defer { chmod(box.path, 0o700) }
            asOrdinaryUser {
                for options: Data.WritingOptions in [[], .atomic, .withoutOverwriting] {
                    let error = failure {
                        try Self.content.write(
                            to: box.appendingPathComponent("f"),
                            options: options.union(.completeFileProtection))
                    }
                    #expect(error?.code == CocoaError.featureUnsupported.rawValue)
                }
                // Calls that need no right to read work here, too.
                let path = place.url("secret").path
                let attributes = try? FileManager.default.attributesOfItem(atPath: path)
                #expect(attributes?[.size] as? Int == Self.content.count)
                let values = try? place.url("secret").resourceValues(
                    forKeys: [.fileProtectionKey, .fileSizeKey])
                #expect(values?.fileSize == Self.content.count)
            }
            chmod(box.path, 0o700)
            #expect(try FileManager.default.contentsOfDirectory(atPath: box.path) == [])
        }

        @Test("all else is Foundation's, off a volume as on one")
        func foundation() throws {
            let place = try Elsewhere()
            let manager = FileManager.default
            var url = place.url("f")
            try Self.content.write(to: url, options: [.atomic])
            #expect(try Data(contentsOf: url) == Self.content)
            let values = try url.resourceValues(forKeys: [
                .fileProtectionKey, .volumeSupportsFileProtectionKey, .fileSizeKey,
            ])
            #expect(values.fileProtection == nil)
            #expect(values.volumeSupportsFileProtection == false)
            #expect(values.fileSize == Self.content.count)
            try manager.copyItem(at: url, to: place.url("copy"))
            try manager.moveItem(at: place.url("copy"), to: place.url("moved"))
            try manager.replaceItemAt(
                url, withItemAt: place.url("moved"), backupItemName: "backup",
                options: .withoutDeletingBackupItem)
            #expect(
                try manager.contentsOfDirectory(atPath: place.path).sorted() == ["backup", "f"])
            var backup = URLResourceValues()
            backup.isExcludedFromBackup = true
            try url.setResourceValues(backup)
            #expect(
                try url.resourceValues(forKeys: [.isExcludedFromBackupKey]).isExcludedFromBackup
                    == true)
            // An attribute copied from a volume does not make this directory a volume.
            _ = "NSFileProtectionComplete".withCString {
                ward_setxattr(url.path, "user.ward.class", $0, strlen($0), 0)
            }
            #expect(try manager.attributesOfItem(atPath: url.path)[.protectionKey] == nil)
            #expect(ProtectedData(at: url).snapshot == nil)
        }
    }
}
