internal import CDataProtectionSQLite
import DataProtection

/// GRDB's object for a database, with the sentinel of its file.
struct OpenDatabase: Sendable {
    let writer: any DatabaseWriter
    let sentinel: Sentinel

    /// Waits for the accesses that run, and closes. `checkpointing`: the whole database can be read
    /// and written, so the -wal is emptied. Otherwise both files stay as they are, and the mapped
    /// index, which a reboot takes away, is not used.
    func close(checkpointing: Bool) throws {
        if checkpointing {
            // Another program that reads can keep this checkpoint from finishing; a later one will.
            writer.writeWithoutTransaction { db in
                _ = try? db.checkpoint(.truncate)
                _ = ward_sqlite_set_checkpoint_on_close(db.sqliteConnection, 1)
            }
        }
        try writer.close()
    }
}

extension Configuration {
    /// The settings for a database that will be locked. They come after the caller's settings, and
    /// override them.
    func protected(_ kind: ProtectedDatabase.Kind) -> Configuration {
        var configuration = self
        configuration.journalMode = .wal
        configuration.prepareDatabase { db in
            // Closing must work when the file can't be read. In SQLite's place,
            // `OpenDatabase.close` makes the checkpoint.
            _ = ward_sqlite_set_checkpoint_on_close(db.sqliteConnection, 0)
            // Touching a mapped page of a locked file raises SIGBUS; a read returns an error (row
            // O8).
            try db.execute(sql: "PRAGMA mmap_size = 0")
            // Sorting and temporary tables would write protected data to /var/tmp.
            try db.execute(sql: "PRAGMA temp_store = MEMORY")
            if kind == .queue {
                // Set before the first access, it keeps the index of the WAL in memory, and no -shm
                // is mapped.
                try db.execute(sql: "PRAGMA locking_mode = EXCLUSIVE")
            }
        }
        return configuration
    }

    /// Keeps statement journals in memory, too. SQLite takes this setting of the whole process only
    /// before its first use. False where it was too late.
    static let keepsStatementJournalsInMemory: Bool =
        ward_sqlite_keep_statement_journals_in_memory() == 0
}
