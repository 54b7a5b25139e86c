import DataProtection
import Testing
import WardTestSupport

@testable import DataProtectionLinux

extension DataProtectionSuite {
    /// Files that are written with a class (rows O3, I1, I2 and O15 of semantics.md).
    @Suite struct WritingTests {
        private static let content = Data("content".utf8)

        @Test("Data.write, NSData.write: the class from the first byte, in every state, or nothing")
        func classesAndStates() throws {
            try MountedVolume.walk { volume, state, fileClass in
                let allowed = state.creates(fileClass)
                var expected: [String] = []
                let ways: [(String, (URL) throws -> Void)] = [
                    ("plain", { try Self.content.write(to: $0, options: fileClass.option) }),
                    (
                        "atomic",
                        { try Self.content.write(to: $0, options: [.atomic, fileClass.option]) }
                    ),
                    (
                        "new",
                        {
                            try Self.content.write(
                                to: $0, options: [.withoutOverwriting, fileClass.option])
                        }
                    ),
                    (
                        "NSData",
                        { try (Self.content as NSData).write(to: $0, options: fileClass.option) }
                    ),
                    (
                        "NSData toFile",
                        {
                            try NSData(data: Self.content).write(
                                toFile: $0.path, options: [fileClass.option, .atomic])
                        }
                    ),
                ]
                let directory = "\(state) \(fileClass.letter)"
                try volume.makeDirectory(directory, .none)
                for (name, write) in ways {
                    let path = directory + "/" + name
                    expect(allowed, else: .fileWriteNoPermission, fileClass, state, path) {
                        try write(volume.url(path))
                    }
                    guard allowed else { continue }
                    expected.append(name)
                    #expect(try volume.protection(path) == fileClass.type, "\(path)")
                    if state.opens(fileClass) {
                        #expect(try Data(contentsOf: volume.url(path)) == Self.content, "\(path)")
                    }
                }
                #expect(try volume.names(in: directory) == expected.sorted(), "\(directory)")
            }
        }

        @Test("createFile: the class from the first byte, in every state, or false and nothing")
        func createFile() throws {
            try MountedVolume.walk { volume, state, fileClass in
                let allowed = state.creates(fileClass)
                let directory = "\(state) \(fileClass.letter)"
                try volume.makeDirectory(directory, .none)
                for (name, contents) in [("full", Self.content), ("empty", nil)] {
                    let path = directory + "/" + name
                    let made = FileManager.default.createFile(
                        atPath: volume.url(path).path, contents: contents,
                        attributes: [.protectionKey: fileClass.type, .posixPermissions: 0o640])
                    #expect(made == allowed, "\(path)")
                    guard allowed else { continue }
                    let attributes = try FileManager.default.attributesOfItem(
                        atPath: volume.url(path).path)
                    #expect(attributes[.protectionKey] as? FileProtectionType == fileClass.type)
                    #expect(attributes[.posixPermissions] as? Int == 0o640)
                    #expect(attributes[.size] as? Int == contents?.count ?? 0)
                }
                #expect(
                    try volume.names(in: directory) == (allowed ? ["empty", "full"] : []),
                    "\(directory)")
            }
        }

        @Test(
            "through protocols that Foundation's types are made to conform to, the calls are the library's"
        )
        func protocols() throws {
            let volume = try MountedVolume.mine()
            let data: any WritesFiles = Self.content
            try data.write(to: volume.url("f"), options: .completeFileProtection)
            #expect(try volume.protection("f") == .complete)
            let files: any MakesFiles = FileManager.default
            #expect(
                files.createFile(
                    atPath: volume.url("g").path, contents: Self.content,
                    attributes: [.protectionKey: FileProtectionType.complete]))
            #expect(try volume.protection("g") == .complete)
        }

        @Test(
            "createFile: permissions are exactly those asked for, as Foundation's, and don't stop the class"
        )
        func createFileModes() throws {
            let volume = try MountedVolume.mine(
                mountArguments: geteuid() == 0 ? ["--allow-other"] : [])
            chmod(volume.mountPoint, 0o777)
            for mode in [0o400, 0o666, 0o200] {
                let path = volume.url(String(mode, radix: 8)).path
                let made = asOrdinaryUser {
                    FileManager.default.createFile(
                        atPath: path, contents: Self.content,
                        attributes: [
                            .protectionKey: FileProtectionType.complete, .posixPermissions: mode,
                        ])
                }
                #expect(made)
                chmod(path, mode_t(mode | 0o400))
                let attributes = try FileManager.default.attributesOfItem(atPath: path)
                #expect(attributes[.posixPermissions] as? Int == mode | 0o400)
                #expect(attributes[.protectionKey] as? FileProtectionType == .complete)
            }
            let error = asOrdinaryUser {
                failure {
                    try FileManager.default.createDirectory(
                        at: volume.url("d"), withIntermediateDirectories: true,
                        attributes: [
                            .protectionKey: FileProtectionType.complete, .posixPermissions: 0o500,
                        ])
                }
            }
            #expect(error == nil)
            #expect(try volume.protection("d") == .complete)
            let mode = try FileManager.default.attributesOfItem(atPath: volume.url("d").path)[
                .posixPermissions]
            #expect(mode as? Int == 0o500)
        }

        @Test("bad input: what a path with a NUL begins with is another file, and stays as it is")
        func brokenPaths() throws {
            let volume = try MountedVolume.mine()
            try Self.content.write(to: volume.url("f"), options: .noFileProtection)
            let path = volume.url("f").path + "\0g"
            #expect(
                !FileManager.default.createFile(
                    atPath: path, contents: Data(),
                    attributes: [.protectionKey: FileProtectionType.complete]))
            for options: NSData.WritingOptions in [[], .atomic] {
                let error = failure {
                    try NSData().write(
                        toFile: path, options: options.union(.completeFileProtection))
                }
                #expect(error?.code == CocoaError.fileWriteInvalidFileName.rawValue)
            }
            let error = failure {
                try FileManager.default.setAttributes(
                    [.protectionKey: FileProtectionType.complete], ofItemAtPath: path)
            }
            #expect(error?.code == CocoaError.fileWriteInvalidFileName.rawValue)
            #expect(try Data(contentsOf: volume.url("f")) == Self.content)
            #expect(try volume.protection("f") == FileProtectionType.none)
            #expect(try volume.names() == ["f"])
        }

        @Test("createDirectory: a directory takes any class in every state, and gives it")
        func createDirectory() throws {
            try MountedVolume.walk { volume, state, fileClass in
                let path = "\(state) \(fileClass.letter)/two/three"
                try FileManager.default.createDirectory(
                    atPath: volume.url(path).path, withIntermediateDirectories: true,
                    attributes: [.protectionKey: fileClass.type, .posixPermissions: 0o700])
                var place = path
                while place.contains("/") {
                    #expect(try volume.protection(place) == fileClass.type, "\(place)")
                    place = (place as NSString).deletingLastPathComponent
                }
                expect(
                    state.creates(fileClass), else: .fileWriteNoPermission, fileClass, state, path
                ) {
                    try Self.content.write(to: volume.url(path + "/f"))
                }
                if state.creates(fileClass) {
                    #expect(try volume.protection(path + "/f") == fileClass.type, "\(path)")
                }
            }
        }

        @Test("createDirectory: what is there stays as it is; a missing parent is an error")
        func existingDirectories() throws {
            let volume = try MountedVolume.mine()
            try volume.makeDirectory("there", .none)
            try FileManager.default.createDirectory(
                at: volume.url("there"), withIntermediateDirectories: true,
                attributes: [.protectionKey: FileProtectionType.complete])
            #expect(try volume.protection("there") == FileProtectionType.none)
            let exists = failure { try volume.makeDirectory("there", .complete) }
            #expect(exists?.code == CocoaError.fileWriteFileExists.rawValue)
            let missing = failure { try volume.makeDirectory("not/there", .complete) }
            #expect(missing?.code == CocoaError.fileNoSuchFile.rawValue)
            #expect(try volume.names() == ["there"])
        }

        @Test("without a class: the directory's, also atomically, whatever the file had (I1, I6)")
        func directoryClass() throws {
            try MountedVolume.walk(
                prepare: { volume, fileClass in
                    try volume.makeDirectory(fileClass.letter, fileClass)
                    try Self.content.write(
                        to: volume.url("\(fileClass.letter)/D"), options: .noFileProtection)
                }
            ) { volume, state, fileClass in
                let letter = fileClass.letter
                let allowed = state.creates(fileClass)
                let name = "\(letter)/\(state)"
                let ways: [(String, (URL) throws -> Void)] = [
                    ("write", { try Self.content.write(to: $0) }),
                    ("atomic", { try Self.content.write(to: $0, options: .atomic) }),
                    (
                        "string",
                        { try "text".write(to: $0, atomically: true, encoding: .utf8) }
                    ),
                    (
                        "string to file",
                        { try "text".write(toFile: $0.path, atomically: false, encoding: .utf8) }
                    ),
                ]
                for (way, write) in ways {
                    let path = "\(name) \(way)"
                    expect(allowed, else: .fileWriteNoPermission, fileClass, state, path) {
                        try write(volume.url(path))
                    }
                    if allowed { #expect(try volume.protection(path) == fileClass.type) }
                }
                // Over a file of class none: a file that is overwritten keeps its class, a new one
                // gets the directory's.
                try Self.content.write(to: volume.url("\(letter)/D"))
                #expect(try volume.protection("\(letter)/D") == FileProtectionType.none)
                let copy = "\(letter)/D \(state)"
                try Self.content.write(to: volume.url(copy), options: .noFileProtection)
                expect(allowed, else: .fileWriteNoPermission, fileClass, state, copy) {
                    try Self.content.write(to: volume.url(copy), options: .atomic)
                }
                #expect(
                    try volume.protection(copy)
                        == (allowed ? fileClass.type : FileProtectionType.none), "\(copy)")
            }
        }

        @Test("over a file that is there: its class is changed first (I8), or it stays as it is")
        func overwriting() throws {
            let volume = try MountedVolume.mine()
            for old in FileClass.allCases {
                for new in FileClass.allCases {
                    for state in [LockState.unlocked, .locked, .beforeFirstUnlock] {
                        try volume.unlock()
                        let url = volume.url("\(old.letter) to \(new.letter) in \(state)")
                        try Data("old".utf8).write(to: url, options: old.option)
                        try volume.enter(state)
                        // Row I8: the change needs both keys; to B the public one is enough.
                        let allowed =
                            state.opens(old) && (state.opens(new) || new == .completeUnlessOpen)
                        let error = failure {
                            try Data("newer".utf8).write(to: url, options: new.option)
                        }
                        #expect((error == nil) == allowed, "\(url.lastPathComponent)")
                        if !allowed {
                            #expect(error?.code == 513)
                            #expect(
                                error.flatMap { DataProtectionError($0) }
                                    == .locked(
                                        class: (state.opens(old) ? new : old).type,
                                        state: state.told), "\(url.lastPathComponent)")
                        }
                        try volume.unlock()
                        #expect(
                            try String(contentsOf: url, encoding: .utf8)
                                == (allowed ? "newer" : "old"), "\(url.lastPathComponent)")
                        #expect(
                            try volume.protection(url.lastPathComponent)
                                == (allowed ? new : old).type)
                    }
                }
            }
        }

        @Test("atomic: replaces in one step, keeps the mode, leaves nothing beside it")
        func atomic() throws {
            let volume = try MountedVolume.mine()
            let url = volume.url("f")
            try Data("old".utf8).write(to: url, options: .noFileProtection)
            chmod(url.path, 0o604)
            let reader = try FileHandle(forReadingFrom: url)
            try Self.content.write(to: url, options: [.atomic, .completeFileProtection])
            // A program that had the old file open reads it to its end.
            #expect(try reader.readToEnd() == Data("old".utf8))
            #expect(try Data(contentsOf: url) == Self.content)
            #expect(try volume.protection("f") == .complete)
            let attributes = try FileManager.default.attributesOfItem(atPath: url.path)
            #expect(attributes[.posixPermissions] as? Int == 0o604)
            #expect(try volume.names() == ["f"])
        }

        @Test("withoutOverwriting: 516 for what is there, which stays; also together with atomic")
        func withoutOverwriting() throws {
            let volume = try MountedVolume.mine()
            let url = volume.url("f")
            try Data("old".utf8).write(to: url, options: .noFileProtection)
            for more: Data.WritingOptions in [[], .atomic] {
                let error = failure {
                    try Self.content.write(
                        to: url, options: [.withoutOverwriting, .completeFileProtection, more])
                }
                #expect(error?.code == CocoaError.fileWriteFileExists.rawValue)
                #expect(posix(error) == EEXIST)
            }
            #expect(try Data(contentsOf: url) == Data("old".utf8))
            #expect(try volume.protection("f") == FileProtectionType.none)
            #expect(try volume.names() == ["f"])
        }

        @Test("modes are those of Foundation's own call, under any umask")
        func modes() throws {
            let volume = try MountedVolume.mine()
            for mask: mode_t in [0o022, 0o077, 0o002] {
                // The umask belongs to the process; no other test checks a mode that depends on it.
                let before = umask(mask)
                defer { umask(before) }
                for more: Data.WritingOptions in [[], .atomic, .withoutOverwriting] {
                    let names = ["plain", "class"].map { "\($0) \(mask) \(more.rawValue)" }
                    try Self.content.write(to: volume.url(names[0]), options: more)
                    try Self.content.write(
                        to: volume.url(names[1]), options: [more, .completeFileProtection])
                    let modes = try names.map {
                        try FileManager.default.attributesOfItem(atPath: volume.url($0).path)[
                            .posixPermissions] as? Int
                    }
                    #expect(modes[0] == modes[1], "\(names)")
                }
            }
        }

        @Test("sizes: nothing at all, and more than one request takes")
        func sizes() throws {
            let volume = try MountedVolume.mine()
            for count in [0, 1, 4060, 5_000_000] {
                let content = Data((0..<count).map { UInt8(truncatingIfNeeded: $0 &* 31) })
                for more: Data.WritingOptions in [[], .atomic] {
                    let url = volume.url("\(count) \(more.rawValue)")
                    try content.write(to: url, options: [more, .completeFileProtection])
                    #expect(try Data(contentsOf: url) == content)
                    #expect(try volume.protection(url.lastPathComponent) == .complete)
                }
            }
        }

        @Test("links: written through, replaced by an atomic write, refused by withoutOverwriting")
        func links() throws {
            let volume = try MountedVolume.mine()
            let manager = FileManager.default
            try manager.createSymbolicLink(
                atPath: volume.url("link").path, withDestinationPath: "target")
            try Self.content.write(to: volume.url("link"), options: .completeFileProtection)
            #expect(try volume.protection("target") == .complete)
            #expect(try volume.names() == ["link", "target"])
            let error = failure {
                try Self.content.write(
                    to: volume.url("link"), options: [.noFileProtection, .withoutOverwriting])
            }
            #expect(error?.code == CocoaError.fileWriteFileExists.rawValue)
            try Data().write(to: volume.url("link"), options: [.noFileProtection, .atomic])
            let kind = try manager.attributesOfItem(atPath: volume.url("link").path)[.type]
            #expect(kind as? FileAttributeType == .typeRegular)
            #expect(try Data(contentsOf: volume.url("target")) == Self.content)
            try manager.createSymbolicLink(
                atPath: volume.url("loop").path, withDestinationPath: "loop")
            let loop = failure {
                try Self.content.write(to: volume.url("loop"), options: .completeFileProtection)
            }
            #expect(posix(loop) == ELOOP)
        }

        @Test("errors have Foundation's codes: no directory, one in the way, a name too long")
        func errors() throws {
            let volume = try MountedVolume.mine()
            try volume.makeDirectory("directory", .complete)
            let long = String(repeating: "x", count: 300)
            for name in ["not/there", "directory", long] {
                for more: Data.WritingOptions in [[], .atomic] {
                    let url = volume.url(name)
                    let theirs = failure { try Self.content.write(to: url, options: more) }
                    let ours = failure {
                        try Self.content.write(to: url, options: [more, .completeFileProtection])
                    }
                    #expect(ours != nil)
                    #expect(
                        ours?.code == theirs?.code && ours?.domain == theirs?.domain,
                        "\(name.prefix(20)) \(more): \(ours as Any), \(theirs as Any)")
                    #expect(ours.flatMap { DataProtectionError($0) } == nil)
                }
            }
            #expect(try volume.names() == ["directory"])
            #expect(try volume.names(in: "directory") == [])
        }

        @Test("O15: where a kernel has no unnamed files, a hidden directory does the same")
        func staging() throws {
            try MountedVolume.walk { volume, state, fileClass in
                let directory = "\(state) \(fileClass.letter)"
                try volume.makeDirectory(directory, .none)
                let path = volume.url(directory).path
                var made = false
                if let file = try? UnnamedFile(
                    in: path, protection: fileClass.type, mode: 0o640, staged: true)
                {
                    try Self.content.withUnsafeBytes { try file.write($0) }
                    try file.link(to: path + "/f")
                    made = true
                }
                #expect(made == state.creates(fileClass), "\(directory)")
                #expect(try volume.names(in: directory) == (made ? ["f"] : []), "\(directory)")
                if made { #expect(try volume.protection(directory + "/f") == fileClass.type) }
            }
        }
    }
}

private protocol WritesFiles {
    func write(to url: URL, options: Data.WritingOptions) throws
}

extension Data: WritesFiles {}

private protocol MakesFiles {
    func createFile(
        atPath path: String, contents data: Data?, attributes: [FileAttributeKey: Any]?
    ) -> Bool
}

extension FileManager: MakesFiles {}
