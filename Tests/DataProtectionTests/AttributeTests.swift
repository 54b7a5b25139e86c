import CWardLinux
import DataProtection
import Testing
import WardTestSupport

extension DataProtectionSuite {
    /// Classes of existing items (rows I4 and I7 to I10 of semantics.md), and other attributes.
    @Suite(.forOrdinaryUser) struct AttributeTests {
        private static let content = Data("content".utf8)

        @Test("setAttributes, setResourceValue: I8 in every state, and what can't be stays")
        func changes() throws {
            try MountedVolume.walk(
                prepare: { volume, fileClass in
                    for state in LockState.allCases {
                        for new in FileClass.allCases {
                            for way in ["attribute", "resource"] {
                                try Self.content.write(
                                    to: volume.url(Self.name(fileClass, new, state, way)),
                                    options: fileClass.option)
                            }
                        }
                    }
                }
            ) { volume, state, old in
                for new in FileClass.allCases {
                    let allowed =
                        old == new
                        || state.opens(old) && (state.opens(new) || new == .completeUnlessOpen)
                    let missing = state.opens(old) ? new : old
                    for way in ["attribute", "resource"] {
                        let name = Self.name(old, new, state, way)
                        let url = volume.url(name)
                        expect(allowed, else: .fileWriteNoPermission, missing, state, name) {
                            if way == "attribute" {
                                try FileManager.default.setAttributes(
                                    [.protectionKey: new.type], ofItemAtPath: url.path)
                            } else {
                                try (url as NSURL).setResourceValue(
                                    new.resource, forKey: .fileProtectionKey)
                            }
                        }
                        // Row I9: the class can be read in every state.
                        let now = allowed ? new : old
                        let attribute = try volume.protection(name)
                        #expect(attribute == now.type, "\(name)")
                        let values = try url.resourceValues(forKeys: [.fileProtectionKey])
                        #expect(values.fileProtection == now.resource, "\(name)")
                    }
                }
            }
        }

        private static func name(
            _ old: FileClass, _ new: FileClass, _ state: LockState, _ way: String
        ) -> String {
            "\(old.letter) to \(new.letter) in \(state.rawValue) by \(way)"
        }

        @Test("I4: a directory's class is for what is created in it afterwards")
        func directories() throws {
            let volume = try MountedVolume.mine()
            try volume.makeDirectory("d", .none)
            try Self.content.write(to: volume.url("d/before"))
            try FileManager.default.setAttributes(
                [.protectionKey: FileProtectionType.complete], ofItemAtPath: volume.url("d").path)
            try Self.content.write(to: volume.url("d/after"))
            #expect(try volume.protection("d/before") == FileProtectionType.none)
            #expect(try volume.protection("d/after") == .complete)
            // The same for the root of the volume, which has no parent in the volume.
            try FileManager.default.setAttributes(
                [.protectionKey: FileProtectionType.completeUnlessOpen],
                ofItemAtPath: volume.mountPoint)
            try Self.content.write(to: volume.url("after"))
            #expect(try volume.protection("after") == .completeUnlessOpen)
        }

        @Test("setAttributes: the others of the dictionary are set as well; nothing is set without")
        func otherAttributes() throws {
            let volume = try MountedVolume.mine()
            try Self.content.write(to: volume.url("f"))
            let date = Date(timeIntervalSince1970: 1_000_000_000)
            try FileManager.default.setAttributes(
                [
                    .protectionKey: FileProtectionType.complete, .posixPermissions: 0o600,
                    .modificationDate: date,
                ], ofItemAtPath: volume.url("f").path)
            try FileManager.default.setAttributes([:], ofItemAtPath: volume.url("f").path)
            let attributes = try FileManager.default.attributesOfItem(
                atPath: volume.url("f").path)
            #expect(attributes[.protectionKey] as? FileProtectionType == .complete)
            #expect(attributes[.posixPermissions] as? Int == 0o600)
            #expect(attributes[.modificationDate] as? Date == date)
            #expect(attributes[.size] as? Int == Self.content.count)
        }

        @Test("attributes that were read, changed and are set again give the class said last")
        func roundTrip() throws {
            let volume = try MountedVolume.mine()
            let manager = FileManager.default
            for old in FileClass.allCases {
                for new in FileClass.allCases {
                    let name = "\(old.letter) to \(new.letter)"
                    let file = volume.url("f \(name)")
                    try Self.content.write(to: file, options: old.option)
                    let directory = volume.url("d \(name)")
                    try volume.makeDirectory("d \(name)", old)
                    for item in [file, directory] {
                        // The user's own attribute beside ward's: it is copied, too.
                        try setAttribute("user.mine", "1", of: item.path)
                        try (item as NSURL).setResourceValue(true, forKey: .isExcludedFromBackupKey)
                        var attributes = try manager.attributesOfItem(atPath: item.path)
                        attributes[.protectionKey] = new.type
                        try manager.setAttributes(attributes, ofItemAtPath: item.path)
                        #expect(try volume.protection(item.lastPathComponent) == new.type)
                        let made = volume.url("made of \(item.lastPathComponent)")
                        if item == file {
                            #expect(
                                manager.createFile(
                                    atPath: made.path, contents: Self.content,
                                    attributes: attributes))
                        } else {
                            try manager.createDirectory(
                                at: made, withIntermediateDirectories: false,
                                attributes: attributes)
                        }
                        #expect(try volume.protection(made.lastPathComponent) == new.type)
                        for carried in [item, made] {
                            #expect(attribute("user.mine", of: carried.path) == "1")
                            #expect(
                                try carried.resourceValues(forKeys: [.isExcludedFromBackupKey])
                                    .isExcludedFromBackup == true)
                        }
                        // Without a class the item keeps its present one, not the one of the moment
                        // when the attributes were read.
                        attributes[.protectionKey] = nil
                        try manager.setAttributes(attributes, ofItemAtPath: item.path)
                        #expect(try volume.protection(item.lastPathComponent) == new.type)
                    }
                }
            }
        }

        @Test("attributes that Foundation read, or anybody's dictionary, bring no class along")
        func roundTripOfOthers() throws {
            let volume = try MountedVolume.mine()
            let manager = FileManager.default
            try Self.content.write(to: volume.url("f"), options: .noFileProtection)
            // Once as Foundation's attributesOfItem gives them, once as a bridged dictionary holds
            // them.
            let key = FileAttributeKey(rawValue: "NSFileExtendedAttributes")
            let old = Data(FileProtectionType.none.rawValue.utf8)
            let extended: [Any] = [
                ["user.ward.class": old] as [String: Data],
                NSDictionary(dictionary: ["user.ward.class": old]),
                ["user.ward.class.unsynced": old, "user.ward.synced": Data("marked".utf8)],
                ["system.ward.class": old] as [String: Data],
            ]
            for value in extended {
                try manager.setAttributes(
                    [.protectionKey: FileProtectionType.complete, key: value],
                    ofItemAtPath: volume.url("f").path)
                #expect(try volume.protection("f") == .complete, "\(value)")
            }
            // The class is not among the attributes that are read, so writing them back does not
            // set it.
            let read = try manager.attributesOfItem(atPath: volume.url("f").path)
            #expect((read[key] as? [String: Any])?.keys.contains("user.ward.class") != true)
        }

        @Test("attributes that were read are set again while locked: permissions change")
        func roundTripLocked() throws {
            try MountedVolume.walk(
                prepare: { volume, fileClass in
                    try Self.content.write(
                        to: volume.url(fileClass.letter), options: fileClass.option)
                    try volume.makeDirectory("d" + fileClass.letter, fileClass)
                }
            ) { volume, state, fileClass in
                for name in [fileClass.letter, "d" + fileClass.letter] {
                    let path = volume.url(name).path
                    var attributes = try FileManager.default.attributesOfItem(atPath: path)
                    for mode in [0o700, 0o750] {
                        attributes[.posixPermissions] = mode
                        try FileManager.default.setAttributes(attributes, ofItemAtPath: path)
                        let now = try FileManager.default.attributesOfItem(atPath: path)
                        #expect(now[.posixPermissions] as? Int == mode, "\(name) \(state)")
                    }
                    #expect(try volume.protection(name) == fileClass.type)
                }
            }
        }

        @Test("the owner sets a class on what is read-only, as a mode; others do not")
        func readOnly() throws {
            let volume = try MountedVolume.mine()
            let manager = FileManager.default
            for bits in [0o444, 0o400, 0o000, 0o200] {
                let file = volume.url("f\(bits)")
                try Self.content.write(to: file)
                let directory = volume.url("d\(bits)")
                try manager.createDirectory(at: directory, withIntermediateDirectories: false)
                for item in [file, directory] {
                    chmod(item.path, mode_t(bits))
                    try manager.setAttributes(
                        [.protectionKey: FileProtectionType.complete], ofItemAtPath: item.path)
                    chmod(item.path, 0o755)
                    #expect(try volume.protection(item.lastPathComponent) == .complete)
                    chmod(item.path, mode_t(bits))
                    try (item as NSURL).setResourceValue(
                        URLFileProtection.none, forKey: .fileProtectionKey)
                    #expect(try mode(item.path) == bits)
                    chmod(item.path, 0o755)
                    let weakest = FileProtectionType.none
                    #expect(try volume.protection(item.lastPathComponent) == weakest)
                }
            }
        }

        private func mode(_ path: String) throws -> Int {
            try #require(
                FileManager.default.attributesOfItem(atPath: path)[.posixPermissions] as? Int)
        }

        private func setAttribute(_ name: String, _ value: String, of path: String) throws {
            let bytes = Array(value.utf8)
            try #require(ward_setxattr(path, name, bytes, bytes.count, 0) == 0)
        }

        private func attribute(_ name: String, of path: String) -> String? {
            var buffer = [UInt8](repeating: 0, count: 256)
            let count = ward_getxattr(path, name, &buffer, buffer.count)
            return count < 0 ? nil : String(decoding: buffer[..<count], as: UTF8.self)
        }

        @Test("names and raw values are Apple's")
        func names() throws {
            let types: [(FileProtectionType, URLFileProtection, String)] = [
                (.complete, .complete, "Complete"),
                (.completeUnlessOpen, .completeUnlessOpen, "CompleteUnlessOpen"),
                (
                    .completeUntilFirstUserAuthentication, .completeUntilFirstUserAuthentication,
                    "CompleteUntilFirstUserAuthentication"
                ),
                (
                    .completeWhenUserInactive, .completeWhenUserInactive,
                    "CompleteWhenUserInactive"
                ),
                (.none, .none, "None"),
            ]
            for (type, resource, name) in types {
                #expect(type.rawValue == "NSFileProtection" + name)
                #expect(resource.rawValue == "NSURLFileProtection" + name)
            }
            #expect(Set(types.map(\.0)).count == 5, "FileProtectionType is Hashable, as on iOS")
            #expect(FileAttributeKey.protectionKey.rawValue == "NSFileProtectionKey")
            #expect(URLResourceKey.fileProtectionKey.rawValue == "NSURLFileProtectionKey")
            #expect(
                URLResourceKey.volumeSupportsFileProtectionKey.rawValue
                    == "NSURLVolumeSupportsFileProtectionKey")
            #expect(
                URLResourceKey.isExcludedFromBackupKey.rawValue == "NSURLIsExcludedFromBackupKey")
            let options: [(Data.WritingOptions, UInt)] = [
                (.noFileProtection, 0x1000_0000), (.completeFileProtection, 0x2000_0000),
                (.completeFileProtectionUnlessOpen, 0x3000_0000),
                (.completeFileProtectionUntilFirstUserAuthentication, 0x4000_0000),
                (.completeFileProtectionWhenUserInactive, 0x5000_0000),
                (.fileProtectionMask, 0xf000_0000),
            ]
            for (option, value) in options { #expect(option.rawValue == value) }
            #expect(CocoaError.fileReadNoPermission.rawValue == 257)
            #expect(CocoaError.fileWriteNoPermission.rawValue == 513)
            #expect(NSPersistentStoreFileProtectionKey == "NSPersistentStoreFileProtectionKey")
        }

        @Test("a class may be a FileProtectionType, a URLFileProtection or the string of either")
        func spellings() throws {
            let volume = try MountedVolume.mine()
            try Self.content.write(to: volume.url("f"))
            for fileClass in FileClass.allCases {
                var values: [Any] = [
                    fileClass.type, fileClass.resource, fileClass.type.rawValue,
                    fileClass.resource.rawValue, NSString(string: fileClass.type.rawValue),
                    fileClass.type as NSObject, fileClass.type as NSString,
                    fileClass.resource as NSObject,
                ]
                if fileClass == .completeUnlessOpen { values.append("NSFileProtectionWriteOnly") }
                if fileClass == .completeUntilFirstUserAuthentication {
                    values.append("NSFileProtectionCompleteUntilUserAuthentication")
                }
                for value in values {
                    try FileManager.default.setAttributes(
                        [.protectionKey: FileProtectionType.none],
                        ofItemAtPath: volume.url("f").path)
                    try FileManager.default.setAttributes(
                        [.protectionKey: value], ofItemAtPath: volume.url("f").path)
                    #expect(try volume.protection("f") == fileClass.type, "\(value)")
                    try (volume.url("f") as NSURL).setResourceValue(
                        URLFileProtection.none, forKey: .fileProtectionKey)
                    try (volume.url("f") as NSURL).setResourceValue(
                        value, forKey: .fileProtectionKey)
                    #expect(try volume.protection("f") == fileClass.type, "\(value)")
                }
            }
        }

        @Test("what is read is a class, a string and an object, as on Apple's platforms")
        func bridging() throws {
            let volume = try MountedVolume.mine()
            for fileClass in FileClass.allCases {
                try Self.content.write(to: volume.url("f"), options: fileClass.option)
                let attributes = try FileManager.default.attributesOfItem(
                    atPath: volume.url("f").path)
                let value = attributes[.protectionKey]
                #expect(value as? FileProtectionType == fileClass.type)
                #expect(value as? String == fileClass.type.rawValue)
                #expect(value as? NSString == NSString(string: fileClass.type.rawValue))
                #expect(value as? NSObject == fileClass.type as NSObject)
                let url = volume.url("f") as NSURL
                let resource = try url.resourceValues(forKeys: [.fileProtectionKey])[
                    .fileProtectionKey]
                #expect(resource as? URLFileProtection == fileClass.resource)
                #expect(resource as? String == fileClass.resource.rawValue)
                var object: AnyObject?
                try url.getResourceValue(&object, forKey: .fileProtectionKey)
                #expect(object as? URLFileProtection == fileClass.resource)
                #expect(object as? String == fileClass.resource.rawValue)
            }
            #expect((["x": 1] as [String: Any])["x"] as? FileProtectionType == nil)
        }

        @Test("bad input: what is no class is unknownClass, changes nothing and creates nothing")
        func unknownClasses() throws {
            let volume = try MountedVolume.mine()
            try Self.content.write(to: volume.url("f"), options: .noFileProtection)
            let values: [Any] = [
                "", "Complete", "complete", "A", "NSFileProtectionComplete ", 1, Date(),
                FileProtectionType(rawValue: "NSFileProtectionPartial"),
                URLFileProtection(rawValue: "NSURLFileProtection"), "NSURLFileProtectionA\0",
            ]
            let manager = FileManager.default
            for value in values {
                let calls: [() throws -> Void] = [
                    {
                        try manager.setAttributes(
                            [.protectionKey: value], ofItemAtPath: volume.url("f").path)
                    },
                    {
                        try (volume.url("f") as NSURL).setResourceValue(
                            value, forKey: .fileProtectionKey)
                    },
                    {
                        try manager.createDirectory(
                            at: volume.url("d"), withIntermediateDirectories: true,
                            attributes: [.protectionKey: value])
                    },
                ]
                for call in calls {
                    let error = failure(call)
                    #expect(error?.domain == NSCocoaErrorDomain && error?.code == 512, "\(value)")
                    #expect(posix(error) == EINVAL)
                    guard case .unknownClass? = error.flatMap({ DataProtectionError($0) }) else {
                        Issue.record("\(value): \(error as Any)")
                        continue
                    }
                }
                #expect(
                    !manager.createFile(
                        atPath: volume.url("new").path, contents: nil,
                        attributes: [.protectionKey: value]), "\(value)")
            }
            for bits: UInt in [0x6000_0000, 0x9000_0000, 0xf000_0000] {
                let error = failure {
                    try Self.content.write(to: volume.url("new"), options: .init(rawValue: bits))
                }
                #expect(error?.code == 512)
                #expect(
                    error.flatMap { DataProtectionError($0) }
                        == .unknownClass("Data.WritingOptions(rawValue: \(bits))"))
            }
            #expect(try volume.names() == ["f"])
            #expect(try volume.protection("f") == FileProtectionType.none)
        }

        @Test("bad input: a file that is not there, a class on a symbolic link")
        func missingAndLinks() throws {
            let volume = try MountedVolume.mine()
            let manager = FileManager.default
            let complete: [FileAttributeKey: Any] = [.protectionKey: FileProtectionType.complete]
            let missing = volume.url("missing")
            #expect(
                failure { try manager.setAttributes(complete, ofItemAtPath: missing.path) }?.code
                    == CocoaError.fileNoSuchFile.rawValue)
            #expect(
                failure {
                    try (missing as NSURL).setResourceValue(
                        URLFileProtection.complete, forKey: .fileProtectionKey)
                }?.code == CocoaError.fileNoSuchFile.rawValue)
            #expect(
                failure { _ = try missing.resourceValues(forKeys: [.fileProtectionKey]) }?.code
                    == CocoaError.fileReadNoSuchFile.rawValue)
            #expect(
                failure { _ = try manager.attributesOfItem(atPath: missing.path) }?.code
                    == CocoaError.fileReadNoSuchFile.rawValue)

            try Self.content.write(to: volume.url("f"), options: .noFileProtection)
            try manager.createSymbolicLink(
                atPath: volume.url("link").path, withDestinationPath: "f")
            // A resource value belongs to the link itself, which can have none (row I10). In every
            // state that is the reason, not a lock.
            for state in [LockState.unlocked, .locked] {
                try volume.enter(state)
                let error = failure {
                    try (volume.url("link") as NSURL).setResourceValue(
                        URLFileProtection.complete, forKey: .fileProtectionKey)
                }
                #expect(error?.code == CocoaError.fileWriteNoPermission.rawValue)
                #expect(posix(error) == EPERM)
            }
            try volume.unlock()
            let values = try volume.url("link").resourceValues(forKeys: [
                .fileProtectionKey, .volumeSupportsFileProtectionKey, .isSymbolicLinkKey,
            ])
            #expect(values.fileProtection == nil)
            #expect(values.volumeSupportsFileProtection == true)
            #expect(values.isSymbolicLink == true)
            #expect(
                try manager.attributesOfItem(atPath: volume.url("link").path)[.protectionKey] == nil
            )
            // Attributes are set on the link's target, like permissions.
            try manager.setAttributes(complete, ofItemAtPath: volume.url("link").path)
            #expect(try volume.protection("f") == .complete)
        }

        @Test("URL and NSURL resource values: those of Foundation beside those of the library")
        func resourceValues() throws {
            let volume = try MountedVolume.mine()
            try Self.content.write(to: volume.url("f"), options: .completeFileProtection)
            var url = volume.url("f")
            let values = try url.resourceValues(forKeys: [
                .fileProtectionKey, .volumeSupportsFileProtectionKey, .isExcludedFromBackupKey,
                .fileSizeKey, .isRegularFileKey, .nameKey,
            ])
            #expect(values.fileProtection == .complete)
            #expect(values.volumeSupportsFileProtection == true)
            #expect(values.isExcludedFromBackup == false)
            #expect(values.fileSize == Self.content.count)
            #expect(values.isRegularFile == true)
            #expect(values.name == "f")
            #expect(values.allValues[.fileProtectionKey] as? URLFileProtection == .complete)
            #expect(values.allValues[.fileSizeKey] as? Int == Self.content.count)
            #expect(try url.resourceValues(forKeys: [.fileSizeKey]).fileProtection == nil)

            var backup = URLResourceValues()
            backup.isExcludedFromBackup = true
            backup.contentModificationDate = Date(timeIntervalSince1970: 1_000_000_000)
            try url.setResourceValues(backup)
            let after = try url.resourceValues(forKeys: [
                .isExcludedFromBackupKey, .contentModificationDateKey,
            ])
            #expect(after.isExcludedFromBackup == true)
            #expect(after.contentModificationDate == Date(timeIntervalSince1970: 1_000_000_000))
            try (url as NSURL).setResourceValue(false, forKey: .isExcludedFromBackupKey)
            #expect(
                try url.resourceValues(forKeys: [.isExcludedFromBackupKey]).isExcludedFromBackup
                    == false)
            // Setting it twice is no error.
            try (url as NSURL).setResourceValue(NSNumber(false), forKey: .isExcludedFromBackupKey)

            try (url as NSURL).setResourceValues([
                .fileProtectionKey: URLFileProtection.none, .isExcludedFromBackupKey: true,
            ])
            let objects = try (url as NSURL).resourceValues(forKeys: [
                .fileProtectionKey, .isExcludedFromBackupKey, .fileSizeKey,
            ])
            #expect(objects[.fileProtectionKey] as? URLFileProtection == URLFileProtection.none)
            #expect(objects[.isExcludedFromBackupKey] as? Bool == true)
            #expect(objects[.fileSizeKey] as? Int == Self.content.count)
            var value: AnyObject?
            try (url as NSURL).getResourceValue(&value, forKey: .fileProtectionKey)
            #expect((value as? NSString)?.isEqual(to: "NSURLFileProtectionNone") == true)
        }

        @Test("directory enumerators hand out URLs for which all of it works")
        func enumerators() throws {
            let volume = try MountedVolume.mine()
            for fileClass in FileClass.allCases {
                try volume.makeDirectory(fileClass.letter, fileClass)
                try Self.content.write(to: volume.url("\(fileClass.letter)/f"))
            }
            let enumerator = try #require(
                FileManager.default.enumerator(
                    at: volume.url(""), includingPropertiesForKeys: [.fileProtectionKey]))
            var found: [String: URLFileProtection] = [:]
            for case let url as URL in enumerator {
                let name = url.pathComponents.suffix(2).joined(separator: "/")
                found[name] = try url.resourceValues(forKeys: [.fileProtectionKey]).fileProtection
                try (url as NSURL).setResourceValue(
                    URLFileProtection.completeUnlessOpen, forKey: .fileProtectionKey)
            }
            for fileClass in FileClass.allCases {
                #expect(found["\(fileClass.letter)/f"] == fileClass.resource)
                #expect(try volume.protection("\(fileClass.letter)/f") == .completeUnlessOpen)
            }
        }
    }
}
