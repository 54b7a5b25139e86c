#ifndef C_DATA_PROTECTION_SQLITE_H
#define C_DATA_PROTECTION_SQLITE_H

/* Settings of SQLite that have only variadic functions, which Swift can't call. */

struct sqlite3;

/* SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE: whether closing the last connection of a database leaves its
 * -wal as it is. */
int ward_sqlite_set_checkpoint_on_close(struct sqlite3 *connection, int checkpoints);

/* SQLITE_CONFIG_STMTJRNL_SPILL: statement journals stay in memory, of whatever size.
 * SQLITE_MISUSE (21) where SQLite is in use already. */
int ward_sqlite_keep_statement_journals_in_memory(void);

#endif
