internal import CDataProtectionSQLite
import DataProtection

/// Gives a database another class while nobody has it open.
enum DatabaseClassChange {
    static func perform(_ protection: FileProtectionType, _ path: String) throws {
        do {
            // Who has it open by whatever means; SQLite's locks below know only who uses it now.
            let users = DatabaseFiles.users(of: path)
            guard users.isEmpty else { throw DatabaseInUseError(path: path, users: users) }
            try change(protection, path)
        } catch let error as DatabaseError where error.resultCode == .SQLITE_BUSY {
            throw DatabaseInUseError(path: path, users: DatabaseFiles.users(of: path))
        } catch {
            if let known = DataProtectionError(error) { throw known }
            guard StoreFailure.mayBeALock(error),
                let now = ProtectedData(at: URL(fileURLWithPath: path)).snapshot,
                let found = try DatabaseFiles.protection(path), !now.isAvailable(for: found)
            else { throw error }
            throw DataProtectionError.locked(class: found, state: now.state)
        }
    }

    /// Alone with it by SQLite's own locks, which every connection in WAL mode respects, idle ones
    /// too.
    private static func change(_ protection: FileProtectionType, _ path: String) throws {
        guard try DatabaseFiles.size(path) > 0 else {
            return try FileManager.default.setAttributes(
                [.protectionKey: protection], ofItemAtPath: path)
        }
        var configuration = Configuration().protected(.queue)
        configuration.journalMode = .default
        let database = try DatabaseQueue(path: path, configuration: configuration)
        try database.inDatabase { db in
            try db.execute(sql: "BEGIN EXCLUSIVE; COMMIT")
            // A journal that is there has been played back by now; of a WAL nothing is left behind.
            if try String.fetchOne(db, sql: "PRAGMA journal_mode") == "wal" {
                try db.checkpoint(.truncate)
            }
            // Those that are left are empty.
            try DatabaseFiles.alignSideFiles(path, protection)
            try FileManager.default.setAttributes(
                [.protectionKey: protection], ofItemAtPath: path)
            _ = ward_sqlite_set_checkpoint_on_close(db.sqliteConnection, 1)
        }
        try database.close()
    }
}
