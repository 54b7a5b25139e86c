internal import CDataProtectionSQLite
import DataProtection

/// GRDB's object for a database, and what is known of the file under it.
struct OpenDatabase: Sendable {
    let writer: any DatabaseWriter
    let sentinel: Sentinel

    /// Waits for the accesses that run. `checkpointing`: whether everything of it can be read and
    /// written; else it is left as it is, in two files, and its index, which a reboot takes from
    /// under a mapping, is not looked at.
    func close(checkpointing: Bool) throws {
        if checkpointing {
            // Another program that reads keeps a checkpoint from finishing: the next one will.
            writer.writeWithoutTransaction { db in
                _ = try? db.checkpoint(.truncate)
                _ = ward_sqlite_set_checkpoint_on_close(db.sqliteConnection, 1)
            }
        }
        try writer.close()
    }
}

extension Configuration {
    /// What a database needs that is to be locked. Set after the settings of whoever uses it, so
    /// that it holds.
    func protected(_ kind: ProtectedDatabase.Kind) -> Configuration {
        var configuration = self
        configuration.journalMode = .wal
        configuration.prepareDatabase { db in
            // Closing must be possible when nothing can be read: `OpenDatabase.close` does what
            // SQLite would.
            _ = ward_sqlite_set_checkpoint_on_close(db.sqliteConnection, 0)
            // A page of a locked file that is touched through a mapping is a SIGBUS, not an error
            // (row O8).
            try db.execute(sql: "PRAGMA mmap_size = 0")
            // Sorting and temporary tables would write what is protected to /var/tmp.
            try db.execute(sql: "PRAGMA temp_store = MEMORY")
            if kind == .queue {
                // Before the first access: then the index of the WAL lies in memory, and no -shm is
                // mapped.
                try db.execute(sql: "PRAGMA locking_mode = EXCLUSIVE")
            }
        }
        return configuration
    }

    /// The same for statement journals, a setting of the whole process that SQLite takes only
    /// before its first use.
    static let keepsStatementJournalsInMemory: Bool =
        ward_sqlite_keep_statement_journals_in_memory() == 0
}
