import DataProtection
import Testing
import WardTestSupport

extension DataProtectionSuite {
    /// Copies and replacements (rows I5, I6 and I13 of semantics.md).
    @Suite struct CopyTests {
        private static let content = Data("content".utf8)

        @Test("copyItem: a copy has its source's class, files and directories, and all else")
        func copies() throws {
            let volume = try MountedVolume.mine()
            let manager = FileManager.default
            try volume.makeDirectory("all", .none)
            for fileClass in FileClass.allCases {
                try volume.makeDirectory("all/\(fileClass.letter)", fileClass)
                let url = volume.url("all/\(fileClass.letter)/f")
                try Self.content.write(to: url)
                try manager.setAttributes(
                    [
                        .posixPermissions: 0o604,
                        .modificationDate: Date(timeIntervalSince1970: 1_000_000_000),
                    ], ofItemAtPath: url.path)
                try (url as NSURL).setResourceValue(true, forKey: .isExcludedFromBackupKey)
            }
            try manager.createSymbolicLink(
                atPath: volume.url("all/link").path, withDestinationPath: "A/f")
            try volume.makeDirectory("to", .completeUnlessOpen)
            try manager.copyItem(at: volume.url("all"), to: volume.url("to/copy"))
            #expect(try volume.protection("to/copy") == FileProtectionType.none)
            for fileClass in FileClass.allCases {
                #expect(try volume.protection("to/copy/\(fileClass.letter)") == fileClass.type)
                let name = "to/copy/\(fileClass.letter)/f"
                let attributes = try manager.attributesOfItem(atPath: volume.url(name).path)
                #expect(attributes[.protectionKey] as? FileProtectionType == fileClass.type)
                #expect(attributes[.posixPermissions] as? Int == 0o604)
                #expect(
                    attributes[.modificationDate] as? Date
                        == Date(timeIntervalSince1970: 1_000_000_000))
                #expect(
                    try volume.url(name).resourceValues(forKeys: [.isExcludedFromBackupKey])
                        .isExcludedFromBackup == true)
                #expect(try Data(contentsOf: volume.url(name)) == Self.content)
            }
            #expect(
                try manager.destinationOfSymbolicLink(atPath: volume.url("to/copy/link").path)
                    == "A/f")
            let exists = failure {
                try manager.copyItem(at: volume.url("all/A/f"), to: volume.url("to/copy/D/f"))
            }
            #expect(exists?.code == CocoaError.fileWriteFileExists.rawValue)
            #expect(try volume.protection("to/copy/D/f") == FileProtectionType.none)
        }

        @Test("copyItem: in every state, what can't be read or made is not there")
        func copiesInStates() throws {
            try MountedVolume.walk(prepare: { volume, fileClass in
                try Self.content.write(
                    to: volume.url(fileClass.letter), options: fileClass.option)
            }) { volume, state, fileClass in
                let name = "\(state) \(fileClass.letter)"
                let error = failure {
                    try FileManager.default.copyItem(
                        at: volume.url(fileClass.letter), to: volume.url(name))
                }
                let allowed = state.opens(fileClass)
                #expect((error == nil) == allowed, "\(name)")
                let names = try volume.names()
                #expect(names.contains(name) == allowed)
                if allowed {
                    let copied = try volume.protection(name)
                    #expect(copied == fileClass.type)
                } else {
                    #expect(error?.code == 257)
                    #expect(
                        error.flatMap { DataProtectionError($0) }
                            == .locked(class: fileClass.type, state: state.told))
                }
            }
        }

        @Test("copyItem off the volume: a plain copy, and nothing where the source is locked")
        func offVolume() throws {
            let volume = try MountedVolume.mine()
            let place = try TestEnvironment.shared.makeDirectory("elsewhere")
            defer { try? FileManager.default.removeItem(atPath: place) }
            try Self.content.write(to: volume.url("f"), options: .completeFileProtection)
            try FileManager.default.copyItem(atPath: volume.url("f").path, toPath: place + "/f")
            let copy = try FileManager.default.attributesOfItem(atPath: place + "/f")
            #expect(copy[.protectionKey] == nil)
            #expect(copy[.size] as? Int == Self.content.count)
            try volume.enter(.locked)
            let error = failure {
                try FileManager.default.copyItem(
                    atPath: volume.url("f").path, toPath: place + "/g")
            }
            #expect(
                error.flatMap { DataProtectionError($0) }
                    == .locked(class: .complete, state: .locked))
            #expect(try FileManager.default.contentsOfDirectory(atPath: place) == ["f"])
        }

        @Test("copyItem: content with holes, and more than one piece")
        func holes() throws {
            let volume = try MountedVolume.mine()
            let url = volume.url("f")
            try Data().write(to: url, options: .completeFileProtection)
            let file = try FileHandle(forWritingTo: url)
            try file.write(contentsOf: Data("begin".utf8))
            try file.seek(toOffset: 3_000_000)
            try file.write(contentsOf: Data("middle".utf8))
            try file.truncate(atOffset: 5_000_000)
            try file.close()
            try FileManager.default.copyItem(at: url, to: volume.url("copy"))
            #expect(try Data(contentsOf: volume.url("copy")) == Data(contentsOf: url))
            #expect(try Data(contentsOf: url).count == 5_000_000)
            #expect(try volume.protection("copy") == .complete)
        }

        @Test("copyItem asks its delegate, once for each item")
        func delegate() throws {
            let volume = try MountedVolume.mine()
            try volume.makeDirectory("d", .complete)
            for name in ["yes", "no"] { try Self.content.write(to: volume.url("d/" + name)) }
            try FileManager.default.createSymbolicLink(
                atPath: volume.url("d/link").path, withDestinationPath: "yes")
            let choosing = ChoosingDelegate()
            let manager = FileManager()
            manager.delegate = choosing
            try manager.copyItem(at: volume.url("d"), to: volume.url("copy"))
            #expect(try volume.names(in: "copy") == ["link", "yes"])
            #expect(choosing.asked.sorted() == ["d", "link", "no", "yes"])
        }

        @Test("I5: moveItem keeps the class, also to another volume")
        func moves() throws {
            let volume = try MountedVolume.mine()
            let other = try MountedVolume.mine()
            for fileClass in FileClass.allCases {
                let letter = fileClass.letter
                try Self.content.write(to: volume.url(letter), options: fileClass.option)
                try FileManager.default.moveItem(
                    at: volume.url(letter), to: volume.url(letter + " moved"))
                #expect(try volume.protection(letter + " moved") == fileClass.type)
                try FileManager.default.moveItem(
                    at: volume.url(letter + " moved"), to: other.url(letter))
                #expect(try other.protection(letter) == fileClass.type)
                #expect(try Data(contentsOf: other.url(letter)) == Self.content)
            }
            #expect(try volume.names() == [])
            // An item that can't be created there stays here.
            try Self.content.write(to: volume.url("A"), options: .completeFileProtection)
            try FileManager.default.removeItem(at: other.url("A"))
            try other.enter(.locked)
            let error = failure {
                try FileManager.default.moveItem(at: volume.url("A"), to: other.url("A"))
            }
            #expect(error?.code == 513)
            #expect(
                error.flatMap { DataProtectionError($0) }
                    == .locked(class: .complete, state: .locked))
            #expect(try volume.names() == ["A"])
            #expect(try !other.names().contains("A"))
        }

        @Test("I2: moveItem and copyItem to a locked volume make nothing, and leave the source")
        func movesIntoLocked() throws {
            let volume = try MountedVolume.mine()
            let other = try MountedVolume.mine()
            let manager = FileManager.default
            try volume.makeDirectory("d", .completeUntilFirstUserAuthentication)
            for item in ["f", "d/f"] {
                try Self.content.write(to: volume.url(item), options: .completeFileProtection)
            }
            try Self.content.write(to: volume.url("d/plain"))
            try other.enter(.locked)
            for item in ["f", "d"] {
                expect(false, else: .fileWriteNoPermission, .complete, .locked, item) {
                    try manager.moveItem(at: volume.url(item), to: other.url(item))
                }
                expect(false, else: .fileWriteNoPermission, .complete, .locked, item) {
                    try manager.copyItem(at: volume.url(item), to: other.url(item))
                }
            }
            #expect(try other.names().allSatisfy { $0 == "d" })
            #expect(try Data(contentsOf: volume.url("f")) == Self.content)
            #expect(try volume.names(in: "d") == ["f", "plain"])
            #expect(try volume.protection("d/f") == .complete)
        }

        @Test("moveItem to another volume: a delegate that leaves out copies loses nothing")
        func movesWithDelegate() throws {
            let volume = try MountedVolume.mine()
            let other = try MountedVolume.mine()
            try volume.makeDirectory("d", .complete)
            for name in ["d/no", "d/yes", "no"] { try Self.content.write(to: volume.url(name)) }
            let manager = FileManager()
            let choosing = ChoosingDelegate()
            manager.delegate = choosing
            for name in ["d", "no"] {
                try manager.moveItem(at: volume.url(name), to: other.url(name))
            }
            #expect(choosing.asked == [])
            #expect(try volume.names() == [])
            #expect(try other.names(in: "d") == ["no", "yes"])
            #expect(try Data(contentsOf: other.url("no")) == Self.content)
            #expect(try other.protection("d/no") == .complete)
        }

        @Test("copyItem of a directory into itself ends")
        func copiesIntoItself() throws {
            let volume = try MountedVolume.mine()
            try volume.makeDirectory("d", .complete)
            try Self.content.write(to: volume.url("d/f"))
            try FileManager.default.copyItem(at: volume.url("d"), to: volume.url("d/copy"))
            #expect(try volume.names(in: "d") == ["copy", "f"])
            #expect(try volume.names(in: "d/copy") == ["f"])
        }

        @Test("copyItem from a directory that one may not read: the class goes along")
        func copiesUnreadable() throws {
            let volume = try MountedVolume.mine(
                mountArguments: geteuid() == 0 ? ["--allow-other"] : [])
            chmod(volume.mountPoint, 0o777)
            try volume.makeDirectory("from", .none)
            try volume.makeDirectory("to", .none)
            chmod(volume.url("to").path, 0o777)
            try Self.content.write(to: volume.url("from/f"), options: .completeFileProtection)
            chmod(volume.url("from/f").path, 0o4755)
            chmod(volume.url("from").path, 0o311)
            defer { chmod(volume.url("from").path, 0o700) }
            let error = asOrdinaryUser {
                failure {
                    try FileManager.default.copyItem(
                        at: volume.url("from/f"), to: volume.url("to/f"))
                }
            }
            #expect(error == nil)
            #expect(try volume.protection("to/f") == .complete)
            // A set-user-ID program of one user must not get the same right from another one.
            let attributes = try FileManager.default.attributesOfItem(
                atPath: volume.url("to/f").path)
            #expect(attributes[.posixPermissions] as? Int == (geteuid() == 0 ? 0o755 : 0o4755))
        }

        @Test("replaceItemAt with the item itself leaves it there")
        func replacingWithItself() throws {
            let volume = try MountedVolume.mine()
            let url = volume.url("f")
            try Self.content.write(to: url, options: .completeFileProtection)
            try FileManager.default.replaceItemAt(url, withItemAt: url)
            try FileManager.default.replaceItemAt(url, withItemAt: url, backupItemName: "backup")
            #expect(try Data(contentsOf: url) == Self.content)
            #expect(try volume.names() == ["f"])
        }

        @Test("I6: replaceItemAt gives the new item's class, with and without a backup")
        func replacing() throws {
            let volume = try MountedVolume.mine()
            let manager = FileManager.default
            for options: FileManager.ItemReplacementOptions in [
                [], .usingNewMetadataOnly, .withoutDeletingBackupItem,
            ] {
                for backup in [nil, "backup"] {
                    let place = "\(options.rawValue) \(backup ?? "none")"
                    try volume.makeDirectory(place, .none)
                    let original = volume.url(place + "/original")
                    let new = volume.url(place + "/new")
                    try Data("old".utf8).write(to: original, options: .completeFileProtection)
                    chmod(original.path, 0o604)
                    try Self.content.write(
                        to: new, options: .completeFileProtectionUntilFirstUserAuthentication)
                    let result = try manager.replaceItemAt(
                        original, withItemAt: new, backupItemName: backup, options: options)
                    #expect(result?.path == original.path)
                    #expect(try Data(contentsOf: original) == Self.content)
                    #expect(
                        try volume.protection(place + "/original")
                            == .completeUntilFirstUserAuthentication)
                    let mode = try manager.attributesOfItem(atPath: original.path)[
                        .posixPermissions]
                    #expect((mode as? Int == 0o604) == (options != .usingNewMetadataOnly))
                    let keeps = backup != nil && options == .withoutDeletingBackupItem
                    #expect(
                        try volume.names(in: place)
                            == (keeps ? ["backup", "original"] : ["original"]))
                    if keeps {
                        #expect(try volume.protection(place + "/backup") == .complete)
                        #expect(
                            try Data(contentsOf: volume.url(place + "/backup"))
                                == Data("old".utf8))
                    }
                }
            }
        }

        @Test("replaceItemAt works while locked (O12), and loses nothing where it can't work")
        func replacingLocked() throws {
            let volume = try MountedVolume.mine()
            try Data("old".utf8).write(
                to: volume.url("original"), options: .completeFileProtection)
            try volume.enter(.locked)
            try Self.content.write(
                to: volume.url("new"),
                options: .completeFileProtectionUntilFirstUserAuthentication)
            try FileManager.default.replaceItemAt(
                volume.url("original"), withItemAt: volume.url("new"))
            #expect(try Data(contentsOf: volume.url("original")) == Self.content)
            let missing = failure {
                try FileManager.default.replaceItemAt(
                    volume.url("original"), withItemAt: volume.url("missing"),
                    backupItemName: "backup")
            }
            #expect(missing != nil)
            #expect(try Data(contentsOf: volume.url("original")) == Self.content)
            #expect(try volume.names() == ["original"])
        }
    }
}
