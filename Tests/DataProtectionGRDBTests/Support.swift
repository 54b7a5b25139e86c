import DataProtection
import DataProtectionGRDB
import DataProtectionTesting
import Testing
import WardTestSupport

extension SimulatedDevice {
    /// A path inside the volume.
    func file(_ name: String) -> String { path + "/" + name }

    /// The class of a file or directory; nil if it has none.
    func protection(_ name: String) -> FileProtectionType? {
        let attributes = try? FileManager.default.attributesOfItem(atPath: file(name))
        return attributes?[.protectionKey] as? FileProtectionType
    }

    func names() throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: path).sorted()
    }

    /// Locks, and lets the grace period end.
    func lockAndWait() async throws {
        try await lock()
        try await advance(by: .seconds(10))
    }

    /// A database with one table and `rows` rows.
    func database(
        _ name: String = "db", _ protection: FileProtectionType = .complete,
        _ kind: ProtectedDatabase.Kind? = nil, rows: Int = 1
    ) async throws -> ProtectedDatabase {
        let database = try await ProtectedDatabase(
            path: file(name), protection: protection, kind: kind)
        try await database.write { db in
            try db.execute(sql: "CREATE TABLE IF NOT EXISTS note (id INTEGER PRIMARY KEY, text)")
        }
        for row in 0..<rows { try await database.add("row \(row)") }
        return database
    }

    /// The size of a file in bytes, by a system call.
    func size(_ name: String) throws -> Int {
        try FileManager.default.attributesOfItem(atPath: file(name))[.size] as? Int ?? -1
    }
}

extension ProtectedDatabase {
    func add(_ text: String) async throws {
        try await write { db in
            try db.execute(sql: "INSERT INTO note (text) VALUES (?)", arguments: [text])
        }
    }

    func count() async throws -> Int {
        try await read { db in try Int.fetchOne(db, sql: "SELECT count(*) FROM note") ?? -1 }
    }

    /// "ok", or the faults that SQLite finds.
    func integrity() async throws -> String? {
        try await read { db in try String.fetchOne(db, sql: "PRAGMA integrity_check") }
    }

    /// Waits until the database has closed because of a lock.
    func waitUntilLeft() async throws {
        #expect(await eventually { !isAvailable }, "the database was not closed")
    }

    func waitUntilBack() async throws {
        #expect(await eventually { isAvailable }, "the database was not opened again")
    }
}

/// The error that `body` threw; nil if it threw none.
func failure(_ body: () async throws -> Void) async -> (any Error)? {
    do {
        try await body()
        return nil
    } catch {
        return error
    }
}

func failure(_ body: () throws -> Void) -> (any Error)? {
    do {
        try body()
        return nil
    } catch {
        return error
    }
}

/// Expects the error `locked` with this class and state.
func expectLocked(
    _ protection: FileProtectionType, _ state: ProtectedData.State,
    sourceLocation: SourceLocation = #_sourceLocation, _ body: () async throws -> Void
) async {
    let error = await failure(body)
    #expect(
        error as? DataProtectionError == .locked(class: protection, state: state),
        "\(String(describing: error))", sourceLocation: sourceLocation)
}

let classes: [FileProtectionType] = [
    .complete, .completeUnlessOpen, .completeUntilFirstUserAuthentication, .none,
    .completeWhenUserInactive,
]
