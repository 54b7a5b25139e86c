import DataProtection
import DataProtectionGRDB
import DataProtectionTesting
import Testing

/// One call gives a database and its side files a class.
@Suite struct DatabaseOpeningTests {
    /// The files' class follows row I12 and the call, not the directory's class.
    @Test(
        .simulatedDevice(), arguments: classes,
        [FileProtectionType.complete, FileProtectionType.none])
    func allFilesHaveTheClass(
        _ protection: FileProtectionType, _ ofDirectory: FileProtectionType
    ) async throws {
        let device = SimulatedDevice.current
        try FileManager.default.createDirectory(
            atPath: device.file("d"), withIntermediateDirectories: false,
            attributes: [.protectionKey: ofDirectory])
        let database = try await device.database("d/db", protection, .pool, rows: 50)
        #expect(device.protection("d/db") == protection)
        #expect(device.protection("d/db-wal") == protection)
        #expect(
            device.protection("d/db-shm")
                == (protection == .none ? protection : .completeUntilFirstUserAuthentication))
        try await device.expectCleanAudit()
        try database.close()
        try await device.expectCleanAudit()
    }

    /// A queue maps nothing, so it has no index file.
    @Test(.simulatedDevice()) func aQueueHasNoIndexFile() async throws {
        let device = SimulatedDevice.current
        let database = try await device.database("db", .complete, .queue)
        #expect(try device.names() == ["db", "db-wal"])
        try database.close()
        #expect(try device.names() == ["db"])
    }

    /// It throws `locked` and creates nothing; row I2.
    @Test(.simulatedDevice()) func lockedMakesNothing() async throws {
        let device = SimulatedDevice.current
        try await device.database("there", .complete).close()
        let before = try device.names()

        func check(_ protection: FileProtectionType, _ state: ProtectedData.State) async throws {
            await expectLocked(protection, state) {
                _ = try await ProtectedDatabase(path: device.file("new"), protection: protection)
            }
            let after = try device.names()
            #expect(after == before, "\(protection.rawValue)")
        }
        try await device.lockAndWait()
        try await check(.complete, .locked)
        await expectLocked(.complete, .locked) {
            _ = try await ProtectedDatabase(path: device.file("there"), protection: .complete)
        }
        // The change needs the old key, too.
        await expectLocked(.complete, .locked) {
            _ = try await ProtectedDatabase(path: device.file("there"), protection: .none)
        }
        try await device.reboot()
        for protection in classes where protection != .none {
            try await check(protection, .beforeFirstUnlock)
        }
        #expect(device.protection("there") == .complete)
    }

    /// Row O3: new files of class B can always be created, and an open database keeps working.
    @Test(.simulatedDevice()) func aNewDatabaseOfClassBWhileLocked() async throws {
        let device = SimulatedDevice.current
        try await device.lockAndWait()
        let database = try await device.database("track", .completeUnlessOpen, rows: 30)
        #expect(device.protection("track") == .completeUnlessOpen)
        #expect(device.protection("track-wal") == .completeUnlessOpen)
        #expect(try await database.count() == 30)
        // After it is closed, it needs the unlock.
        try database.close()
        await expectLocked(.completeUnlessOpen, .locked) {
            _ = try await ProtectedDatabase(
                path: device.file("track"), protection: .completeUnlessOpen)
        }
        try await device.unlock()
        let again = try await device.database("track", .completeUnlessOpen, rows: 0)
        #expect(try await again.count() == 30)
        #expect(try await again.integrity() == "ok")
    }

    /// Core Data's option, and the other values that may stand there.
    @Test(.simulatedDevice()) func persistentStoreOption() async throws {
        let device = SimulatedDevice.current
        let values: [(any Sendable)?] = [
            FileProtectionType.complete, FileProtectionType.complete.rawValue, nil,
        ]
        for (number, value) in values.enumerated() {
            var options: [String: any Sendable] = [:]
            options[NSPersistentStoreFileProtectionKey] = value
            _ = try await ProtectedDatabase(path: device.file("\(number)"), options: options)
            #expect(
                device.protection("\(number)")
                    == (value == nil ? .completeUntilFirstUserAuthentication : .complete))
        }
        let error = await failure {
            _ = try await ProtectedDatabase(
                path: device.file("bad"),
                options: [NSPersistentStoreFileProtectionKey: "NSFileProtectionSome"])
        }
        #expect(error as? DataProtectionError == .unknownClass("NSFileProtectionSome"))
        #expect(try !device.names().contains("bad"))
    }

    /// Outside of a volume nothing would protect it.
    @Test func elsewhere() async throws {
        let path = NSTemporaryDirectory() + "/ward-" + UUID().uuidString
        let error = await failure {
            _ = try await ProtectedDatabase(path: path, protection: .complete)
        }
        #expect((error as? CocoaError)?.code == .featureUnsupported)
        #expect(!FileManager.default.fileExists(atPath: path))
    }

    /// The settings that docs/databases.md explains.
    @Test(.simulatedDevice(), arguments: [ProtectedDatabase.Kind.pool, .queue])
    func settings(_ kind: ProtectedDatabase.Kind) async throws {
        let device = SimulatedDevice.current
        var configuration = Configuration()
        configuration.prepareDatabase { db in
            try db.execute(sql: "PRAGMA page_size = 8192; PRAGMA mmap_size = 100000000")
        }
        let database = try await ProtectedDatabase(
            path: device.file("db"), protection: .complete, configuration: configuration, kind: kind
        )
        let settings = try await database.read { db in
            try ["page_size", "journal_mode", "synchronous", "temp_store", "locking_mode"].map {
                try String.fetchOne(db, sql: "PRAGMA \($0)") ?? ""
            }
        }
        // SQLite gives no row if mapping is compiled out.
        let mapped = try await database.read { db in try Int.fetchOne(db, sql: "PRAGMA mmap_size") }
        #expect(mapped ?? 0 == 0)
        let locking = kind == .queue ? "exclusive" : "normal"
        #expect(settings[..<2] == ["8192", "wal"])
        #expect(settings[3...] == ["2", locking])
    }
}
