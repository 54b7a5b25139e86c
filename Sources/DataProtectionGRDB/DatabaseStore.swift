import DataProtection

/// The files of one database, and the states of the volume in which it is open.
struct DatabaseStore: Sendable {
    let path: String
    let protection: FileProtectionType
    let kind: ProtectedDatabase.Kind
    let configuration: Configuration

    var url: URL { URL(fileURLWithPath: path) }

    /// The lock state of the volume. The directory is asked, because the file may not exist yet.
    var volume: ProtectedData { ProtectedData(at: url.deletingLastPathComponent()) }

    // MARK: States

    /// Whether an open database stays open.
    func keepsOpen(in now: ProtectedData.Snapshot) -> Bool {
        switch protection {
        // The state `locking` announces the lock. The database closes while it can still be
        // checkpointed.
        case .complete: now.isAvailable(for: .complete) && now.state != .locking
        // An open file stays usable, except after a reboot, which removes every key.
        case .completeUnlessOpen: now.state != .beforeFirstUnlock
        default: now.isAvailable(for: protection)
        }
    }

    /// Whether a closed database can be opened.
    func canBeOpened(in now: ProtectedData.Snapshot) -> Bool {
        now.isAvailable(for: protection) && keepsOpen(in: now)
    }

    /// Whether the whole database can be read and written now; false where no daemon answers.
    var isReadable: Bool {
        volume.snapshot.map {
            $0.isAvailable(for: protection)
                || protection == .completeUnlessOpen && keepsOpen(in: $0)
        } ?? false
    }

    func locked(_ state: ProtectedData.State) -> DataProtectionError {
        .locked(class: protection, state: state)
    }

    // MARK: Opening

    /// How often a failed opening is tried.
    private static let openings = 4

    /// Opens the database. Tries again where an opening failed without a known reason: a lock in
    /// between may already be over.
    func openTryingAgain(isFirst: Bool) throws -> OpenDatabase {
        var attempt = 1
        while true {
            do {
                return try open(isFirst: isFirst)
            } catch {
                let (explained, mayBeOver) = explained(error)
                guard mayBeOver, attempt < Self.openings else { throw explained }
                attempt += 1
            }
        }
    }

    /// Opens the database. With `isFirst` it makes a missing database, and changes the class of a
    /// database of another class.
    private func open(isFirst: Bool) throws -> OpenDatabase {
        _ = Configuration.keepsStatementJournalsInMemory
        var configuration = configuration.protected(kind)
        if isFirst, try prepare() == .forSQLiteToMake {
            let path = path
            let protection = protection
            configuration.prepareDatabase { db in
                // The file is empty, and a file without data needs only the new key (row I8).
                try FileManager.default.setAttributes(
                    [.protectionKey: protection], ofItemAtPath: path)
                // A journal beside an empty file would get the directory's class (row I12).
                try db.execute(sql: "PRAGMA journal_mode = MEMORY")
            }
        }
        let writer: any DatabaseWriter =
            switch kind {
            case .pool: try DatabasePool(path: path, configuration: configuration)
            case .queue: try DatabaseQueue(path: path, configuration: configuration)
            }
        // Makes sure that there is a -wal.
        try writer.read { db in _ = try Int.fetchOne(db, sql: "SELECT 1 FROM sqlite_master") }
        return OpenDatabase(writer: writer, sentinel: Sentinel(path))
    }

    private enum Preparation { case ready, forSQLiteToMake }

    private func prepare() throws -> Preparation {
        let now = volume.snapshot
        if !FileManager.default.fileExists(atPath: path), !configuration.readonly {
            if kind == .queue, protection == .completeUnlessOpen, now?.state == .locked {
                // While locked, a file of class B can't be opened a second time, so the connection
                // that makes the file must keep it.
                return .forSQLiteToMake
            }
            if let now, !canBeOpened(in: now) { throw locked(now.state) }
            try make()
        }
        if let now, !canBeOpened(in: now) { throw locked(now.state) }
        if try DatabaseFiles.protection(path) != protection {
            try DatabaseClassChange.perform(protection, path)
        }
        try DatabaseFiles.alignSideFiles(path, protection)
        return .ready
    }

    /// Makes an empty database in one step. SQLite itself would write a journal beside an empty
    /// file, and that journal gets the directory's class (row I12).
    private func make() throws {
        let empty = try DatabaseQueue(configuration: configuration).write { db in
            try DatabaseFiles.serialized(db)
        }
        do {
            try empty.write(to: url, options: [.withoutOverwriting, protection.writingOption])
        } catch let error as CocoaError where error.code == .fileWriteFileExists {
            // Another program was faster.
        }
    }

    // MARK: Errors

    /// The error of a failed opening: `locked` where a lock is the reason. With `mayBeOver`, a lock
    /// may have been the reason, but the volume is available now.
    func explained(_ error: any Error) -> (error: any Error, mayBeOver: Bool) {
        if let known = DataProtectionError(error) { return (known, false) }
        guard StoreFailure.mayBeALock(error) else { return (error, false) }
        if let now = volume.snapshot {
            return canBeOpened(in: now) ? (error, true) : (locked(now.state), false)
        }
        // The daemon does not answer this program. Opening the file tells.
        return (DatabaseFiles.isRefused(path) ? locked(.unknown) : error, false)
    }
}
