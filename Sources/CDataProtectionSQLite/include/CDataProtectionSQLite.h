#ifndef C_DATA_PROTECTION_SQLITE_H
#define C_DATA_PROTECTION_SQLITE_H

/* Settings of SQLite that have only variadic functions, which Swift can't call. Each function
 * returns SQLite's result code. */

struct sqlite3;

/* Whether closing the last connection of a database checkpoints its -wal (the reverse of
 * SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE). */
int ward_sqlite_set_checkpoint_on_close(struct sqlite3 *connection, int checkpoints);

/* Keeps statement journals of any size in memory (SQLITE_CONFIG_STMTJRNL_SPILL). Returns
 * SQLITE_MISUSE (21) where SQLite is already in use. */
int ward_sqlite_keep_statement_journals_in_memory(void);

#endif
