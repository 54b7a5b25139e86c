/* SQLite: transactions of ten rows, each durable after its commit. */
#include "load.h"

#include <sqlite3.h>

enum { ROWS = 10, ROW_BYTES = 200 };

static void must(sqlite3 *database, int result, const char *what) {
    if (result != SQLITE_OK && result != SQLITE_DONE && result != SQLITE_ROW) {
        errno = 0;
        fail("%s: %s", what, sqlite3_errmsg(database));
    }
}

static void execute(sqlite3 *database, const char *statement) {
    must(database, sqlite3_exec(database, statement, NULL, NULL, NULL), statement);
}

static sqlite3 *open_database(const char *path) {
    sqlite3 *database;
    if (sqlite3_open(path, &database)) fail("sqlite3_open %s", path);
    return database;
}

/* The file and its table are made before the clock starts. */
void sqlite_run(const char *path, uint64_t count, const char *journal) {
    char pragma[64];
    snprintf(pragma, sizeof pragma, "PRAGMA journal_mode=%s", journal);
    sqlite3 *database = open_database(path);
    execute(database, pragma);
    execute(database, "PRAGMA synchronous=FULL");
    execute(database, "CREATE TABLE notes(id INTEGER PRIMARY KEY, bytes BLOB)");
    sqlite3_stmt *insert;
    must(database, sqlite3_prepare_v2(database, "INSERT INTO notes VALUES(?, ?)", -1, &insert, NULL), "prepare");
    double begin = seconds();
    for (uint64_t i = 0; i < count; i++) {
        execute(database, "BEGIN");
        for (uint64_t row = i * ROWS; row < (i + 1) * ROWS; row++) {
            fill_block(buffer, row, 0);
            must(database, sqlite3_bind_int64(insert, 1, (sqlite3_int64)row), "bind");
            must(database, sqlite3_bind_blob(insert, 2, buffer, ROW_BYTES, SQLITE_TRANSIENT), "bind");
            must(database, sqlite3_step(insert), "insert");
            must(database, sqlite3_reset(insert), "reset");
        }
        execute(database, "COMMIT");
    }
    report(seconds() - begin, count);
    sqlite3_finalize(insert);
    must(database, sqlite3_close(database), "close");
}

void sqlite_check(const char *path, uint64_t count) {
    sqlite3 *database = open_database(path);
    sqlite3_stmt *statement;
    must(database, sqlite3_prepare_v2(database, "PRAGMA integrity_check", -1, &statement, NULL), "prepare");
    if (sqlite3_step(statement) != SQLITE_ROW || strcmp((const char *)sqlite3_column_text(statement, 0), "ok"))
        wrong("%s is damaged", path);
    sqlite3_finalize(statement);
    must(database, sqlite3_prepare_v2(database, "SELECT id, bytes FROM notes ORDER BY id", -1, &statement, NULL), "prepare");
    uint64_t row = 0;
    for (; sqlite3_step(statement) == SQLITE_ROW; row++) {
        fill_block(buffer, row, 0);
        if ((uint64_t)sqlite3_column_int64(statement, 0) != row || sqlite3_column_bytes(statement, 1) != ROW_BYTES ||
            memcmp(sqlite3_column_blob(statement, 1), buffer, ROW_BYTES))
            wrong("row %" PRIu64 " of %s", row, path);
    }
    sqlite3_finalize(statement);
    if (row != count * ROWS) wrong("%s has %" PRIu64 " rows", path, row);
    must(database, sqlite3_close(database), "close");
    report(0, count);
}
