#include "CDataProtectionSQLite.h"

#include <sqlite3.h>

int ward_sqlite_set_checkpoint_on_close(struct sqlite3 *connection, int checkpoints) {
    return sqlite3_db_config(connection, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, !checkpoints, (int *)0);
}

int ward_sqlite_keep_statement_journals_in_memory(void) {
    return sqlite3_config(SQLITE_CONFIG_STMTJRNL_SPILL, -1);
}
