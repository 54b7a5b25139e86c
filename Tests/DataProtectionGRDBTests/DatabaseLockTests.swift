import DataProtection
import DataProtectionTesting
import Dispatch
import Synchronization
import Testing

@testable import DataProtectionGRDB

/// Closed before the lock, opened again after the unlock, `locked` in between.
@Suite struct DatabaseLockTests {
    /// What a database of each class can do in each state, with both kinds.
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
        // A day is over, and with it the period of class CX.
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

    /// The announcement is enough: it is closed while everything can still be read, with all of it
    /// in the one file.
    @Test(.simulatedDevice()) func closesWithinTheGracePeriod() async throws {
        let device = SimulatedDevice.current
        let database = try await device.database(rows: 20)
        #expect(try device.size("db-wal") > 0)
        try await device.lock()
        try await database.waitUntilLeft()
        await expectLocked(.complete, .locking) { _ = try await database.count() }
        #expect(try await eventually { try await device.holders.isEmpty })
        if try device.names().contains("db-wal") { #expect(try device.size("db-wal") == 0) }
        // Nobody was refused anything: it was in time.
        try await device.advance(by: .seconds(10))
        #expect(try await device.denials.isEmpty)
        try await device.unlock()
        #expect(try await database.count() == 20)
    }

    /// An unlock in the grace period cancels the lock; the database is back without being asked.
    @Test(.simulatedDevice()) func isBackAfterACancelledLock() async throws {
        let device = SimulatedDevice.current
        let database = try await device.database()
        try await device.lock()
        try await database.waitUntilLeft()
        try await device.unlock()
        try await database.waitUntilBack()
        #expect(try await database.count() == 1)
    }

    /// No deadlock, and all or nothing, wherever in a transaction the lock comes.
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
        // Another one does not wait for it.
        await expectLocked(.complete, .locked) { _ = try await database.count() }
        go.signal()
        await expectLocked(.complete, .locked) { try await transaction.value }
        try await device.unlock()
        #expect(try await database.integrity() == "ok")
        #expect(try await database.count() == 1)
        try await database.add("after")
        #expect(try await database.count() == 2)
    }

    /// A transaction that takes its time has most of the grace period: it commits.
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
                // An access in an access is refused, not made to wait for itself.
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

    /// Locked and unlocked in the middle of a transaction: it goes on where it was (row O13) or is
    /// told `locked`.
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
        // Others need not wait until it has ended.
        #expect(try await database.count() == 1)
        go.signal()
        try await transaction.value
        #expect(try await database.count() == 3)
        #expect(try await database.integrity() == "ok")
    }

    /// Every access commits or throws `locked`, whatever comes in between, and what was
    /// acknowledged is there.
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

    /// Nothing of a queue is mapped: even a reboot under it is no more than an error.
    @Test(.simulatedDevice()) func rebootsUnderAQueue() async throws {
        let device = SimulatedDevice.current
        try await load(.queue) { _ in try await device.reboot() }
    }

    /// Refused while SQLite opens it, and unlocked before anybody can ask why: it is opened again,
    /// with nothing to tell.
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

    /// The news of a lock that come when it is over already stop no statement.
    @Test(
        .simulatedDevice(), arguments: [ProtectedDatabase.Kind.pool, .queue],
        [LockTiming.now, .afterGracePeriod])
    func lateNews(_ kind: ProtectedDatabase.Kind, _ timing: LockTiming) async throws {
        let device = SimulatedDevice.current
        try await device.database("db", .complete, kind, rows: 3).close()
        let store = DatabaseStore(
            path: device.file("db"), protection: .complete, kind: kind,
            configuration: Configuration())
        // From the first one on none is missed.
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
                    for _ in 0..<10_000 where keeper.isAvailable != isAvailable { usleep(1000) }
                    #expect(keeper.isAvailable == isAvailable)
                    // What is due at the end of no grace period is done.
                    usleep(50_000)
                }
                while let text = try rows.next() { texts.append(text) }
                return texts
            }
        }
        #expect(texts == ["row 0", "row 1", "row 2"])
    }

    /// What reads nothing more, and so would not notice by itself.
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
                // A minute and more, were it let.
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
                            try await Task.sleep(for: .milliseconds(1))
                        }
                    }
                    return written
                }
            }
            for round in 0..<6 {
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

    /// The process that serves the volume is killed, and another serves it: the database is opened
    /// there.
    @Test(.simulatedDevice(), arguments: [ProtectedDatabase.Kind.pool, .queue])
    func followsTheVolumeToANewMount(_ kind: ProtectedDatabase.Kind) async throws {
        let device = SimulatedDevice.current
        let database = try await device.database("db", .complete, kind)
        try await device.kill()
        // What maps a file of a volume that dies may die with it (docs/databases.md), until the
        // news is here.
        if kind == .pool { try await database.waitUntilLeft() }
        // What SQLite has in its memory it may give still; nobody says that it is locked.
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
