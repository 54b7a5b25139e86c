internal import CDataProtectionSQLite
import DataProtection

/// Gives a database another class. No program may have it open.
enum DatabaseClassChange {
    static func perform(_ protection: FileProtectionType, _ path: String) throws {
        do {
            // Asks for all programs that have it open. SQLite's locks below know only those that
            // use it now.
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

    /// Changes the class with an exclusive lock of SQLite's, which every connection in WAL mode
    /// respects, also an idle one.
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
            // By now a journal has been rolled back. The checkpoint empties a WAL.
            if try String.fetchOne(db, sql: "PRAGMA journal_mode") == "wal" {
                try db.checkpoint(.truncate)
            }
            // The remaining side files are empty.
            try DatabaseFiles.alignSideFiles(path, protection)
            try FileManager.default.setAttributes(
                [.protectionKey: protection], ofItemAtPath: path)
            _ = ward_sqlite_set_checkpoint_on_close(db.sqliteConnection, 1)
        }
        try database.close()
    }
}
