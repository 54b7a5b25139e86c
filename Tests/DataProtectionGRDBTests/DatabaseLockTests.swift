import DataProtection
import DataProtectionTesting
import Dispatch
import Synchronization
import Testing
import WardTestSupport

@testable import DataProtectionGRDB

/// A database closes before the lock and opens again after the unlock; in between it throws
/// `locked`.
@Suite struct DatabaseLockTests {
    /// The access that a database of each class allows in each state, with both kinds.
    @Test(
        .simulatedDevice(), arguments: classes,
        [ProtectedDatabase.Kind.pool, ProtectedDatabase.Kind.queue])
    func everyClass(_ protection: FileProtectionType, _ kind: ProtectedDatabase.Kind) async throws {
        let device = SimulatedDevice.current
        let database = try await device.database("db", protection, kind)
        var rows = 1

        func check(_ isOpen: Bool, _ state: ProtectedData.State) async throws {
            if isOpen {
                try await database.add("while \(state)")
                rows += 1
                #expect(try await database.count() == rows, "\(state)")
            } else {
                await expectLocked(protection, state) { _ = try await database.count() }
                await expectLocked(protection, state) { try await database.add("no") }
            }
        }

        try await device.lockAndWait()
        try await check(protection != .complete, .locked)
        try await device.unlock()
        try await check(true, .unlocked)
        // A day is over, and so is the period of class CX.
        try await device.lock()
        try await device.advance(by: .seconds(25 * 3600))
        try await check(![.complete, .completeWhenUserInactive].contains(protection), .locked)
        try await device.unlock()
        try await check(true, .unlocked)
        try await device.reboot()
        try await check(protection == .none, .beforeFirstUnlock)
        try await device.unlock()
        try await check(true, .unlocked)
        #expect(try await database.integrity() == "ok")
        try database.close()
    }

    /// The announcement is enough: the database closes while everything can still be read, with all
    /// its content in one file.
    @Test(.simulatedDevice()) func closesWithinTheGracePeriod() async throws {
        let device = SimulatedDevice.current
        let database = try await device.database(rows: 20)
        #expect(try device.size("db-wal") > 0)
        try await device.lock()
        try await database.waitUntilLeft()
        await expectLocked(.complete, .locking) { _ = try await database.count() }
        #expect(
            try await eventually { try await device.holders.isEmpty },
            "the database's files are closed")
        if try device.names().contains("db-wal") { #expect(try device.size("db-wal") == 0) }
        // It closed in time, so no access was denied.
        try await device.advance(by: .seconds(10))
        #expect(try await device.denials.isEmpty)
        try await device.unlock()
        #expect(try await database.count() == 20)
    }

    /// An unlock in the grace period cancels the lock; the database opens again by itself.
    @Test(.simulatedDevice()) func isBackAfterACancelledLock() async throws {
        let device = SimulatedDevice.current
        let database = try await device.database()
        try await device.lock()
        try await database.waitUntilLeft()
        try await device.unlock()
        try await database.waitUntilBack()
        #expect(try await database.count() == 1)
    }

    /// A lock at any point of a transaction gives no deadlock, and the transaction happens whole or
    /// not at all.
    @Test(
        .simulatedDevice(),
        arguments: [ProtectedDatabase.Kind.pool, .queue], [LockTiming.now, .afterGracePeriod])
    func lockInATransaction(_ kind: ProtectedDatabase.Kind, _ timing: LockTiming) async throws {
        let device = SimulatedDevice.current
        let database = try await device.database("db", .complete, kind)
        let inside = DispatchSemaphore(value: 0)
        let go = DispatchSemaphore(value: 0)
        let transaction = Task {
            try await database.write { db in
                for row in 0..<500 {
                    try db.execute(
                        sql: "INSERT INTO note (text) VALUES (?)",
                        arguments: [String(repeating: "\(row) ", count: 500)])
                    if row == 100 {
                        inside.signal()
                        go.wait()
                    }
                }
            }
        }
        await wait(for: inside)
        try await device.lock(timing)
        if timing == .afterGracePeriod { try await device.advance(by: .seconds(10)) }
        // Another access does not wait for the transaction.
        await expectLocked(.complete, .locked) { _ = try await database.count() }
        go.signal()
        await expectLocked(.complete, .locked) { try await transaction.value }
        try await device.unlock()
        #expect(try await database.integrity() == "ok")
        #expect(try await database.count() == 1)
        try await database.add("after")
        #expect(try await database.count() == 2)
    }

    /// A long transaction has most of the grace period: it commits.
    @Test(.simulatedDevice()) func whatRunsIsFinishedInTheGracePeriod() async throws {
        let device = SimulatedDevice.current
        let database = try await device.database()
        let inside = DispatchSemaphore(value: 0)
        let go = DispatchSemaphore(value: 0)
        let transaction = Task {
            try await database.write { db in
                inside.signal()
                go.wait()
                try db.execute(sql: "INSERT INTO note (text) VALUES ('late')")
                // An access within an access is refused; it would wait for itself.
                #expect(throws: DataProtectionError.self) {
                    try database.read { db in try Int.fetchOne(db, sql: "SELECT 1") }
                }
            }
        }
        await wait(for: inside)
        try await device.lock()
        try await database.waitUntilLeft()
        go.signal()
        try await transaction.value
        try await device.advance(by: .seconds(10))
        await expectLocked(.complete, .locked) { _ = try await database.count() }
        try await device.unlock()
        #expect(try await database.count() == 2)
    }

    /// Locked and unlocked in the middle of a transaction: it goes on where it was (row O13), or
    /// throws `locked`.
    @Test(.simulatedDevice()) func unlockedAgainInATransaction() async throws {
        let device = SimulatedDevice.current
        let database = try await device.database()
        let inside = DispatchSemaphore(value: 0)
        let go = DispatchSemaphore(value: 0)
        let transaction = Task {
            try await database.write { db in
                try db.execute(sql: "INSERT INTO note (text) VALUES ('one')")
                inside.signal()
                go.wait()
                try db.execute(sql: "INSERT INTO note (text) VALUES ('two')")
            }
        }
        await wait(for: inside)
        try await device.lockAndWait()
        try await device.unlock()
        // Other accesses do not wait for its end.
        #expect(try await database.count() == 1)
        go.signal()
        try await transaction.value
        #expect(try await database.count() == 3)
        #expect(try await database.integrity() == "ok")
    }

    /// Every access commits or throws `locked`, at any moment of a lock, and acknowledged rows are
    /// there.
    @Test(.simulatedDevice(), arguments: [ProtectedDatabase.Kind.pool, .queue])
    func locksUnderLoad(_ kind: ProtectedDatabase.Kind) async throws {
        let device = SimulatedDevice.current
        try await load(kind) { round in
            if round.isMultiple(of: 2) {
                try await device.lock(.now)
            } else {
                try await device.lockAndWait()
            }
        }
    }

    /// A queue maps no file, so even a reboot meanwhile is only an error.
    @Test(.simulatedDevice()) func rebootsUnderAQueue() async throws {
        let device = SimulatedDevice.current
        try await load(.queue) { _ in try await device.reboot() }
    }

    /// Refused while SQLite opens it, and unlocked before the library asks why: it is opened again
    /// without an error.
    @Test(.simulatedDevice(), arguments: [ProtectedDatabase.Kind.pool, .queue])
    func rebootsWhileItIsOpened(_ kind: ProtectedDatabase.Kind) async throws {
        let device = SimulatedDevice.current
        try await device.database("db", .complete, kind).close()
        let openings = Atomic(0)
        var configuration = Configuration()
        configuration.prepareDatabase { db in
            guard openings.add(1, ordering: .relaxed).newValue == 1 else { return }
            try block { try await device.reboot() }
            let error = failure { try db.execute(sql: "SELECT * FROM note") }
            try block { try await device.unlock() }
            throw try #require(error)
        }
        let database = try await ProtectedDatabase(
            path: device.file("db"), protection: .complete, configuration: configuration,
            kind: kind)
        #expect(openings.load(ordering: .relaxed) > 1)
        #expect(try await database.count() == 1)
        #expect(try await database.integrity() == "ok")
    }

    /// Late news of a lock that is already over stop no statement.
    @Test(
        .simulatedDevice(), arguments: [ProtectedDatabase.Kind.pool, .queue],
        [LockTiming.now, .afterGracePeriod])
    func lateNews(_ kind: ProtectedDatabase.Kind, _ timing: LockTiming) async throws {
        let device = SimulatedDevice.current
        try await device.database("db", .complete, kind, rows: 3).close()
        let store = DatabaseStore(
            path: device.file("db"), protection: .complete, kind: kind,
            configuration: Configuration())
        // After the first event none is missed.
        var events = store.volume.events.makeAsyncIterator()
        var news = [try #require(await events.next())]
        try await device.lock(timing)
        if timing == .afterGracePeriod { try await device.advance(by: .seconds(10)) }
        try await device.unlock()
        while !news.contains(where: { $0.snapshot?.state == .locked })
            || news.last?.snapshot?.state != .unlocked
        {
            news.append(try #require(await events.next()))
        }
        let unlocked = news.removeLast()
        let keeper = DatabaseKeeper(store)
        try await keeper.openFirst()
        defer { keeper.abandon() }
        let texts = try keeper.access { [news] database in
            try database.read { db in
                let rows = try String.fetchCursor(db, sql: "SELECT text FROM note ORDER BY id")
                var texts = [try rows.next()]
                for (events, isAvailable) in [(news, false), ([unlocked], true)] {
                    for event in events { keeper.follow(event) }
                    #expect(
                        comesTrue { keeper.isAvailable == isAvailable },
                        "the keeper follows the news: \(isAvailable)")
                    // Time for the work at the end of a grace period of zero. It changes nothing.
                    #expect(!comesTrue(within: 0.05) { keeper.isAvailable != isAvailable })
                }
                while let text = try rows.next() { texts.append(text) }
                return texts
            }
        }
        #expect(texts == ["row 0", "row 1", "row 2"])
    }

    /// A statement that reads nothing more would not notice the lock by itself.
    @Test(.simulatedDevice(), arguments: [ProtectedDatabase.Kind.pool, .queue], [true, false])
    func statementsAreStopped(_ kind: ProtectedDatabase.Kind, _ byReboot: Bool) async throws {
        let device = SimulatedDevice.current
        let database = try await device.database("db", .complete, kind)
        let inside = DispatchSemaphore(value: 0)
        let statement = Task {
            try await database.read { db in
                let began = Atomic(false)
                db.add(
                    function: DatabaseFunction("go", argumentCount: 0) { _ in
                        if !began.exchange(true, ordering: .relaxed) { inside.signal() }
                        return 1
                    })
                // It would run for a minute and more.
                return try Int.fetchOne(
                    db,
                    sql: """
                        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + go() FROM n LIMIT 100000000)
                        SELECT count(*) FROM n
                        """)
            }
        }
        await wait(for: inside)
        if byReboot { try await device.reboot() } else { try await device.lock(.now) }
        await expectLocked(.complete, byReboot ? .beforeFirstUnlock : .locked) {
            _ = try await statement.value
        }
    }

    /// Three tasks write and read; six times the volume is interrupted and unlocked.
    private func load(
        _ kind: ProtectedDatabase.Kind, interrupt: (_ round: Int) async throws -> Void
    ) async throws {
        let device = SimulatedDevice.current
        let database = try await device.database("db", .complete, kind, rows: 0)
        let written = try await withThrowingTaskGroup(of: Int.self) { group in
            for _ in 0..<3 {
                group.addTask {
                    var written = 0
                    for _ in 0..<300 {
                        do {
                            try await database.add(String(repeating: "x", count: 3000))
                            written += 1
                            _ = try await database.count()
                        } catch let error as DataProtectionError {
                            guard case .locked(class: .complete, _) = error else { throw error }
                            // The pace of a program that tries again.
                            try await Task.sleep(for: .milliseconds(1))
                        }
                    }
                    return written
                }
            }
            for round in 0..<6 {
                // The instant of the interruption, while the tasks work.
                try await Task.sleep(for: .milliseconds(30))
                try await interrupt(round)
                try await device.unlock()
            }
            return try await group.reduce(0, +)
        }
        #expect(try await database.count() == written)
        #expect(try await database.integrity() == "ok")
        #expect(try await device.removedUnread.isEmpty)
    }

    /// The process that serves the volume is killed, and another one serves it: the database is
    /// opened there.
    @Test(.simulatedDevice(), arguments: [ProtectedDatabase.Kind.pool, .queue])
    func followsTheVolumeToANewMount(_ kind: ProtectedDatabase.Kind) async throws {
        let device = SimulatedDevice.current
        let database = try await device.database("db", .complete, kind)
        try await device.kill()
        // A program that maps a file of a dead volume may be killed (docs/databases.md), until it
        // has the news.
        if kind == .pool { try await database.waitUntilLeft() }
        // SQLite may still answer from its memory; no error says that the database is locked.
        let error = await failure { try await database.add("lost") }
        #expect(error is DatabaseError, "\(String(describing: error))")
        try await device.restart()
        await expectLocked(.complete, .beforeFirstUnlock) { _ = try await database.count() }
        try await device.unlock()
        #expect(try await database.count() == 1)
        #expect(try await database.integrity() == "ok")
    }

    private func wait(for semaphore: DispatchSemaphore) async {
        await withCheckedContinuation { continuation in
            DispatchQueue.global().async {
                semaphore.wait()
                continuation.resume()
            }
        }
    }
}
