import DataProtection
import DataProtectionGRDB
import DataProtectionTesting
import Testing

/// A lock is never mistaken for corruption, and corruption never for a lock.
@Suite struct DatabaseErrorTests {
    /// Plain SQLite, without translation, reports a lock by errors that programs have taken for
    /// damage.
    @Test(.simulatedDevice()) func plainSQLiteCallsItDamage() async throws {
        let device = SimulatedDevice.current
        try await device.database().close()
        let plain = try DatabaseQueue(path: device.file("db"))
        try await device.lockAndWait()
        let reading = await failure {
            _ = try await plain.read { db in try String.fetchAll(db, sql: "SELECT text FROM note") }
        }
        #expect((reading as? DatabaseError)?.resultCode == .SQLITE_IOERR)
        let opening = failure { _ = try DatabaseQueue(path: device.file("db")) }
        #expect((opening as? DatabaseError)?.resultCode == .SQLITE_CANTOPEN)
    }

    /// With every error code: `locked` while the class is locked, else the error itself.
    @Test(.simulatedDevice())
    func everyCode() async throws {
        let device = SimulatedDevice.current
        let database = try await device.database()
        let codes: [ResultCode] = [
            .SQLITE_IOERR, .SQLITE_IOERR_READ, .SQLITE_AUTH, .SQLITE_CANTOPEN, .SQLITE_READONLY,
            .SQLITE_CORRUPT, .SQLITE_NOTADB, .SQLITE_PERM,
        ]
        for code in codes {
            let unlocked = await failure {
                try await database.read { _ in throw DatabaseError(resultCode: code) }
            }
            #expect((unlocked as? DatabaseError)?.extendedResultCode == code)
        }
        // Locked while the access was under way.
        for code in codes {
            await expectLocked(.complete, .locked) {
                try database.withWriter { _ in
                    try block { try await device.lock(.now) }
                    throw DatabaseError(resultCode: code)
                }
            }
            try await device.unlock()
        }
        // An error of the program itself, or of SQL, stays as it is.
        struct Own: Error {}
        for error in [Own(), DatabaseError(resultCode: .SQLITE_CONSTRAINT)] as [any Error] {
            let thrown = failure {
                try database.withWriter { _ in
                    try block { try await device.lock(.now) }
                    throw error
                }
            }
            #expect(thrown != nil && !(thrown is DataProtectionError))
            try await device.unlock()
        }
    }

    /// Damage while unlocked is reported as damage, when the database is opened and later.
    @Test(.simulatedDevice()) func corruptionStaysCorruption() async throws {
        let device = SimulatedDevice.current
        try await device.database("late", rows: 200).close()
        let late = try await ProtectedDatabase(path: device.file("late"), protection: .complete)
        try damage(device.file("late"), from: 4096)
        let reading = await failure {
            _ = try await late.read { db in try String.fetchAll(db, sql: "SELECT text FROM note") }
        }
        #expect((reading as? DatabaseError)?.resultCode == .SQLITE_CORRUPT)
        try await device.database("early").close()
        try damage(device.file("early"), from: 0)
        let opening = await failure {
            _ = try await ProtectedDatabase(path: device.file("early"), protection: .complete)
        }
        #expect((opening as? DatabaseError)?.resultCode == .SQLITE_NOTADB)
        // No file was deleted because of it.
        #expect(try await device.removedUnread.isEmpty)
    }

    /// A full disk is reported as a full disk.
    @Test(.simulatedDevice()) func fullStaysFull() async throws {
        let device = SimulatedDevice.current
        let database = try await device.database()
        try await device.runOutOfSpace()
        let error = await failure { try await database.add(String(repeating: "x", count: 1 << 20)) }
        #expect((error as? DatabaseError)?.resultCode == .SQLITE_FULL)
        try await device.makeSpace()
        try await database.add("there is room")
        #expect(try await database.count() == 2)
        #expect(try await database.integrity() == "ok")
    }

    /// Overwrites the file from `offset` to its end.
    private func damage(_ path: String, from offset: Int) throws {
        var bytes = try Data(contentsOf: URL(fileURLWithPath: path))
        bytes.replaceSubrange(offset..., with: Data(repeating: 0xAA, count: bytes.count - offset))
        let file = try FileHandle(forWritingTo: URL(fileURLWithPath: path))
        try file.write(contentsOf: bytes)
    }
}

/// Runs asynchronous code from a synchronous closure, and waits. It uses its own thread, because
/// all tests' tasks share a few threads and the others may be waiting, too.
func block(_ body: @escaping @Sendable () async throws -> Void) throws {
    let done = DispatchSemaphore(value: 0)
    let result = ResultBox()
    Task(executorPreference: OwnThread()) {
        do { try await body() } catch { result.error = error }
        done.signal()
    }
    done.wait()
    if let error = result.error { throw error }
}

private final class OwnThread: TaskExecutor {
    private let queue = DispatchQueue(label: "block")

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        queue.async { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
    }
}

/// Sendable: written before the semaphore is signalled, read after that.
private final class ResultBox: @unchecked Sendable { var error: (any Error)? }
