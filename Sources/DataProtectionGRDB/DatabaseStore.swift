import DataProtection

/// The files of one database, and in which states of the volume it is open.
struct DatabaseStore: Sendable {
    let path: String
    let protection: FileProtectionType
    let kind: ProtectedDatabase.Kind
    let configuration: Configuration

    var url: URL { URL(fileURLWithPath: path) }

    /// The lock state of its volume, asked of its directory: the file may not be there yet.
    var volume: ProtectedData { ProtectedData(at: url.deletingLastPathComponent()) }

    // MARK: States

    /// Whether a database that is open stays so.
    func keepsOpen(in now: ProtectedData.Snapshot) -> Bool {
        switch protection {
        // The announcement is the state: it closes as long as that can be done in order.
        case .complete: now.isAvailable(for: .complete) && now.state != .locking
        // What is open stays usable, but for a reboot, which takes every key.
        case .completeUnlessOpen: now.state != .beforeFirstUnlock
        default: now.isAvailable(for: protection)
        }
    }

    /// Whether one that is closed can be opened.
    func canBeOpened(in now: ProtectedData.Snapshot) -> Bool {
        now.isAvailable(for: protection) && keepsOpen(in: now)
    }

    /// Whether everything of it can be read and written now, as far as anybody says.
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

    /// Opens the database. The first time it is made where there is none, and given its class where
    /// it has another.
    func open(isFirst: Bool) throws -> OpenDatabase {
        _ = Configuration.keepsStatementJournalsInMemory
        var configuration = configuration.protected(kind)
        if isFirst, try prepare() == .forSQLiteToMake {
            let path = path
            let protection = protection
            configuration.prepareDatabase { db in
                // Empty as yet; a file without data needs only the new key (row I8).
                try FileManager.default.setAttributes(
                    [.protectionKey: protection], ofItemAtPath: path)
                // No journal before the file says what it is (row I12).
                try db.execute(sql: "PRAGMA journal_mode = MEMORY")
            }
        }
        let writer: any DatabaseWriter =
            switch kind {
            case .pool: try DatabasePool(path: path, configuration: configuration)
            case .queue: try DatabaseQueue(path: path, configuration: configuration)
            }
        // Now there is a -wal.
        try writer.read { db in _ = try Int.fetchOne(db, sql: "SELECT 1 FROM sqlite_master") }
        return OpenDatabase(writer: writer, sentinel: Sentinel(path))
    }

    private enum Preparation { case ready, forSQLiteToMake }

    private func prepare() throws -> Preparation {
        let now = volume.snapshot
        if !FileManager.default.fileExists(atPath: path), !configuration.readonly {
            if kind == .queue, protection == .completeUnlessOpen, now?.state == .locked {
                // Nobody may open a file of class B a second time now, so whoever makes it has to
                // keep it.
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

    /// The whole of an empty database in one step: a journal that is written before the file says
    /// what it is has the directory's class (row I12).
    private func make() throws {
        let empty = try DatabaseQueue(configuration: configuration).write { db in
            try DatabaseFiles.serialized(db)
        }
        do {
            try empty.write(to: url, options: [.withoutOverwriting, protection.writingOption])
        } catch let error as CocoaError where error.code == .fileWriteFileExists {
            // Somebody else was faster.
        }
    }

    // MARK: Errors

    /// `locked` where that is why it could not be opened. `mayBeOver`: it may have been, and the
    /// volume says that it can be now.
    func explained(_ error: any Error) -> (error: any Error, mayBeOver: Bool) {
        if let known = DataProtectionError(error) { return (known, false) }
        guard StoreFailure.mayBeALock(error) else { return (error, false) }
        if let now = volume.snapshot {
            return canBeOpened(in: now) ? (error, true) : (locked(now.state), false)
        }
        // The daemon tells this program nothing; opening may.
        return (DatabaseFiles.isRefused(path) ? locked(.unknown) : error, false)
    }
}
