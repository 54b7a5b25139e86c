import DataProtection
import Testing
import WardTestSupport

extension DataProtectionSuite {
    /// The reason of a failure: "locked" is never mistaken for "corrupt" or "missing".
    @Suite struct ErrorTests {
        private static let content = Data("content".utf8)

        @Test("Foundation's own reading calls: 257, EPERM underneath, and locked when asked")
        func reading() throws {
            try MountedVolume.walk(prepare: { volume, fileClass in
                try Self.content.write(
                    to: volume.url(fileClass.letter), options: fileClass.option)
            }) { volume, state, fileClass in
                let url = volume.url(fileClass.letter)
                let allowed = state.opens(fileClass)
                let calls: [(String, () throws -> Void)] = [
                    ("Data(contentsOf:)", { _ = try Data(contentsOf: url) }),
                    (
                        "String(contentsOf:)",
                        { _ = try String(contentsOf: url, encoding: .utf8) }
                    ),
                    ("FileHandle", { try FileHandle(forReadingFrom: url).close() }),
                ]
                for (name, call) in calls {
                    let what = "\(name) of \(fileClass.letter) in \(state)"
                    expect(allowed, else: .fileReadNoPermission, fileClass, state, what, call)
                }
            }
        }

        @Test("bad input: EACCES is 257 and 513 too, and not locked")
        func permissions() throws {
            // Root may open everything, so a thread of it becomes another user.
            let volume = try MountedVolume.mine(
                mountArguments: geteuid() == 0 ? ["--allow-other"] : [])
            try Self.content.write(to: volume.url("f"), options: .noFileProtection)
            try volume.makeDirectory("d", .none)
            chmod(volume.url("f").path, 0)
            chmod(volume.url("d").path, 0o500)
            chmod(volume.mountPoint, 0o755)
            for state in [LockState.unlocked, .locked] {
                try volume.enter(state)
                let reading = asOrdinaryUser {
                    failure { _ = try Data(contentsOf: volume.url("f")) }
                }
                #expect(reading?.code == 257)
                #expect(posix(reading) == EACCES)
                #expect(reading.flatMap { DataProtectionError($0) } == nil)
                let writing = asOrdinaryUser {
                    failure {
                        try Self.content.write(
                            to: volume.url("d/f"), options: .noFileProtection)
                    }
                }
                #expect(writing?.code == 513)
                #expect(posix(writing) == EACCES)
                #expect(writing.flatMap { DataProtectionError($0) } == nil)
            }
            chmod(volume.url("d").path, 0o700)
        }

        @Test("bad input: a socket of somebody else's: locked all the same, in an unknown state")
        func foreignSocket() throws {
            guard geteuid() == 0 else { return }
            let volume = try MountedVolume.mine(mountArguments: ["--allow-other"])
            for name in ["A", "D"] {
                try Self.content.write(
                    to: volume.url(name),
                    options: name == "A" ? .completeFileProtection : .noFileProtection)
                chmod(volume.url(name).path, 0o644)
            }
            chmod(volume.mountPoint, 0o755)
            asOrdinaryUser {
                #expect(ProtectedData(at: volume.url("A")).snapshot == nil)
                #expect(!ProtectedData(at: volume.url("A")).isAvailable)
                #expect(failure { _ = try Data(contentsOf: volume.url("A")) } == nil)
            }
            try volume.enter(.locked)
            asOrdinaryUser {
                let error = failure { _ = try Data(contentsOf: volume.url("A")) }
                #expect(error?.code == 257)
                #expect(
                    error.flatMap { DataProtectionError($0) }
                        == .locked(class: .complete, state: .unknown))
                // Changing the mode of another user's file is EPERM for another reason.
                let other = failure {
                    try FileManager.default.setAttributes(
                        [.posixPermissions: 0o600], ofItemAtPath: volume.url("D").path)
                }
                #expect(other?.code == 513)
                #expect(other.flatMap { DataProtectionError($0) } == nil)
            }
        }

        @Test("bad input: a daemon that is gone: no class, no lock, an error and no hang")
        func deadDaemon() throws {
            let volume = try MountedVolume.mine()
            try Self.content.write(to: volume.url("f"), options: .completeFileProtection)
            try volume.kill()
            let calls: [() throws -> Void] = [
                { _ = try Data(contentsOf: volume.url("f")) },
                { try Self.content.write(to: volume.url("g"), options: .completeFileProtection) },
                { _ = try FileManager.default.attributesOfItem(atPath: volume.url("f").path) },
                { _ = try volume.url("f").resourceValues(forKeys: [.fileProtectionKey]) },
                {
                    try FileManager.default.setAttributes(
                        [.protectionKey: FileProtectionType.none],
                        ofItemAtPath: volume.url("f").path)
                },
            ]
            for (index, call) in calls.enumerated() {
                let error = failure(call)
                #expect(error != nil, "call \(index)")
                #expect(error.flatMap { DataProtectionError($0) } == nil, "call \(index)")
            }
            #expect(ProtectedData(at: volume.url("f")).snapshot == nil)
            // It is served again, and nothing was lost.
            try volume.mount()
            try volume.unlock()
            #expect(try Data(contentsOf: volume.url("f")) == Self.content)
            #expect(try volume.names() == ["f"])
        }

        @Test("an error is asked for what it knows; of what it does not know the answer is nil")
        func questions() throws {
            let volume = try MountedVolume.mine()
            let missing = failure { _ = try Data(contentsOf: volume.url("missing")) }
            #expect(missing.flatMap { DataProtectionError($0) } == nil)
            #expect(DataProtectionError(CancellationError()) == nil)
            let locked = DataProtectionError.locked(class: .complete, state: .locked)
            #expect(DataProtectionError(locked) == locked)
            #expect(locked.localizedDescription.contains("NSFileProtectionComplete"))
            // An error that said "locked" still says so after an unlock.
            try volume.enter(.locked)
            let writing = failure {
                try Self.content.write(to: volume.url("f"), options: .completeFileProtection)
            }
            try volume.unlock()
            #expect(writing.flatMap { DataProtectionError($0) } == locked)
            #expect(writing?.localizedFailureReason == locked.errorDescription)
        }
    }
}
