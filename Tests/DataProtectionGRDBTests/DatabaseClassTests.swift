import DataProtection
import DataProtectionGRDB
import DataProtectionTesting
import Testing
import WardTestSupport

/// The class of a store is not changed while the store is open elsewhere. Else the class of all its
/// files is changed.
@Suite struct DatabaseClassTests {
    @Test(.simulatedDevice(), arguments: [ProtectedDatabase.Kind.pool, .queue])
    func isRefusedWhileOpenHere(_ kind: ProtectedDatabase.Kind) async throws {
        let device = SimulatedDevice.current
        let database = try await device.database("db", .completeUntilFirstUserAuthentication, kind)
        let error = failure {
            try ProtectedDatabase.setProtection(.complete, ofDatabaseAt: device.file("db"))
        }
        let refusal = try #require(error as? DatabaseInUseError, "\(String(describing: error))")
        #expect(refusal.users.contains { $0.contains("(\(getpid()))") }, "\(refusal)")
        // Opening it with another class is refused, too.
        let opening = await failure {
            _ = try await ProtectedDatabase(path: device.file("db"), protection: .complete)
        }
        #expect(opening is DatabaseInUseError)
        #expect(device.protection("db") == .completeUntilFirstUserAuthentication)
        #expect(try await database.count() == 1)
    }

    /// In WAL mode SQLite's locks show the other program, too; in rollback mode an idle connection
    /// holds none.
    @Test(.simulatedDevice(), arguments: ["wal", "delete"])
    func isRefusedWhileOpenInAnotherProgram(_ mode: String) async throws {
        let device = SimulatedDevice.current
        try await device.database("db", .completeUntilFirstUserAuthentication).close()
        let (input, output) = (try Child.pipe(), try Child.pipe())
        let other = try Child(
            ["sqlite3", device.file("db")], environment: ProcessInfo.processInfo.environment,
            input: input.reading, output: output.writing)
        close(input.reading)
        close(output.writing)
        let asking = FileHandle(fileDescriptor: input.writing, closeOnDealloc: true)
        let answers = FileHandle(fileDescriptor: output.reading, closeOnDealloc: true)
        asking.write(Data("PRAGMA journal_mode = \(mode); SELECT count(*) FROM note;\n".utf8))
        #expect(!answers.availableData.isEmpty)
        let error = failure {
            try ProtectedDatabase.setProtection(.complete, ofDatabaseAt: device.file("db"))
        }
        let refusal = try #require(error as? DatabaseInUseError, "\(String(describing: error))")
        #expect(refusal.description.contains("sqlite3 (\(other.process))"), "\(refusal)")
        try asking.close()
        #expect(other.wait(seconds: 30) == 0)
        try ProtectedDatabase.setProtection(.complete, ofDatabaseAt: device.file("db"))
        #expect(device.protection("db") == .complete)
    }

    /// A database and its side files after a crash, in the wrong classes.
    @Test(.simulatedDevice(), arguments: classes)
    func changesEverything(_ protection: FileProtectionType) async throws {
        let device = SimulatedDevice.current
        let database = try await device.database("live", .none, .pool, rows: 20)
        for suffix in ["", "-wal"] {
            try Data(contentsOf: URL(fileURLWithPath: device.file("live" + suffix)))
                .write(to: URL(fileURLWithPath: device.file("db" + suffix)))
        }
        try database.close()
        for name in try device.names() where name.hasPrefix("live") {
            try FileManager.default.removeItem(atPath: device.file(name))
        }
        #expect(device.protection("db-wal") == .completeUntilFirstUserAuthentication)
        let changed = try await device.database("db", protection, rows: 0)
        #expect(device.protection("db") == protection)
        #expect(device.protection("db-wal") == protection)
        #expect(try await changed.count() == 20)
        #expect(try await changed.integrity() == "ok")
        try await device.expectCleanAudit()
    }

    /// Side files left by a crash, or by another way of copying, beside a database of the right
    /// class.
    @Test(.simulatedDevice()) func leftoversGetTheClass() async throws {
        let device = SimulatedDevice.current
        let database = try await device.database("live", .complete, .pool, rows: 20)
        for suffix in ["", "-wal", "-shm"] {
            try FileManager.default.copyItem(
                atPath: device.file("live" + suffix), toPath: device.file("db" + suffix))
        }
        try database.close()
        try FileManager.default.setAttributes(
            [.protectionKey: FileProtectionType.none], ofItemAtPath: device.file("db-wal"))
        try FileManager.default.setAttributes(
            [.protectionKey: FileProtectionType.complete], ofItemAtPath: device.file("db-shm"))
        let again = try await device.database("db", .complete, .pool, rows: 0)
        #expect(try await again.count() == 20)
        #expect(device.protection("db-wal") == .complete)
        #expect(device.protection("db-shm") == .completeUntilFirstUserAuthentication)
        try await device.expectCleanAudit()
    }

    /// A change of class needs both keys (row I8).
    @Test(.simulatedDevice()) func needsBothClasses() async throws {
        let device = SimulatedDevice.current
        try await device.database("a", .complete).close()
        try await device.database("c", .completeUntilFirstUserAuthentication).close()
        try await device.lockAndWait()
        await expectLocked(.complete, .locked) {
            try ProtectedDatabase.setProtection(.none, ofDatabaseAt: device.file("a"))
        }
        await expectLocked(.complete, .locked) {
            try ProtectedDatabase.setProtection(.complete, ofDatabaseAt: device.file("c"))
        }
        #expect(device.protection("a") == .complete)
        #expect(device.protection("c") == .completeUntilFirstUserAuthentication)
        try await device.unlock()
        try ProtectedDatabase.setProtection(.complete, ofDatabaseAt: device.file("c"))
        #expect(device.protection("c") == .complete)
    }
}
