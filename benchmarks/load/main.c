/* The loads that the benchmarks put on a mounted file system. They are in C, so that the loops
 * cost almost nothing beside their system calls. Every verb prints one line, "SECONDS
 * OPERATIONS", for its timed part alone. It checks what it reads: a wrong byte ends the run with
 * status 1. Verbs that only check print 0 seconds.
 *
 *     load stream-write|stream-read FILE BYTES
 *                             FILE.0 in pieces of 1 MiB; writing ends with fsync
 *     load fill|check FILE BYTES JOBS
 *                             FILE.0 … FILE.JOBS-1, of BYTES together
 *     load random-read|random-write FILE BYTES COUNT JOBS
 *                             COUNT distinct blocks of 4 KiB; writing ends with one fsync
 *     load random-check FILE BYTES COUNT JOBS
 *     load share|share-check FILE BYTES COUNT JOBS
 *                             16 KiB at a time, 70 % of them reads, fsync at the end
 *     load append|append-check FILE COUNT
 *                             4 KiB appended and fdatasync'ed, COUNT times
 *     load sparse-write|sparse-read FILE BYTES COUNT
 *                             blocks of 4 KiB anywhere in a file of holes
 *     load files-create|files-stat|files-read|files-walk|files-remove DIR COUNT
 *                             4 KiB each, 100 in each directory
 *     load rewrite-tree DIR    the first block of every file below
 *     load tree-grow|tree-read DIR FIRST END
 *                             files of 100 bytes, 100 in each directory
 *     load names-create|names-check DIR COUNT BYTES
 *                             COUNT files in one directory
 *     load names-list DIR COUNT, names-look-up DIR COUNT SAMPLES
 *     load processes DIR COUNT JOBS
 *                             create, stat, read, unlink: COUNT files by JOBS processes
 *     load sqlite-wal|sqlite-rollback|sqlite-check FILE COUNT
 *     load mixed DIR SECONDS SEED
 *                             one process's share of a mixed run, compared with a model
 *     load warm-up DIR COUNT */
#include "load.h"

int main(int count, char **words) {
    const char *verb = count > 1 ? words[1] : "";
    const char *path = count > 2 ? words[2] : "";
    uint64_t numbers[3] = {0, 0, 0};
    for (int i = 0; i < 3 && i + 3 < count; i++) numbers[i] = strtoull(words[i + 3], NULL, 10);
    uint64_t first = numbers[0], second = numbers[1], third = numbers[2];
    for (size_t i = 0; i < CHUNK; i += sizeof(uint64_t)) {
        uint64_t value = next_random();
        memcpy(pattern + i, &value, sizeof value);
    }
    random_state = 1;
    if (!strcmp(verb, "stream-write")) stream_write(path, first);
    else if (!strcmp(verb, "stream-read")) stream_read(path, first);
    else if (!strcmp(verb, "fill")) fill(path, first, second);
    else if (!strcmp(verb, "check")) check(path, first, second);
    else if (!strcmp(verb, "random-read")) random_read(path, first, second, third);
    else if (!strcmp(verb, "random-write")) random_write(path, first, second, third);
    else if (!strcmp(verb, "random-check")) random_check(path, first, second, third);
    else if (!strcmp(verb, "share")) share(path, first, second, third);
    else if (!strcmp(verb, "share-check")) share_check(path, first, second, third);
    else if (!strcmp(verb, "append")) append(path, first);
    else if (!strcmp(verb, "append-check")) append_check(path, first);
    else if (!strcmp(verb, "sparse-write")) sparse_write(path, first, second);
    else if (!strcmp(verb, "sparse-read")) sparse_read(path, first, second);
    else if (!strcmp(verb, "files-create")) files_create(path, first);
    else if (!strcmp(verb, "files-stat")) files_stat(path, first);
    else if (!strcmp(verb, "files-read")) files_read(path, first);
    else if (!strcmp(verb, "files-walk")) files_walk(path, first);
    else if (!strcmp(verb, "rewrite-tree")) rewrite_tree(path);
    else if (!strcmp(verb, "files-remove")) files_remove(path, first);
    else if (!strcmp(verb, "tree-grow")) tree_grow(path, first, second);
    else if (!strcmp(verb, "tree-read")) tree_read(path, first, second);
    else if (!strcmp(verb, "names-create")) names_create(path, first, second);
    else if (!strcmp(verb, "names-check")) names_check(path, first, second);
    else if (!strcmp(verb, "names-list")) names_list(path, first);
    else if (!strcmp(verb, "names-look-up")) names_look_up(path, first, second);
    else if (!strcmp(verb, "processes")) many_processes(path, first, second);
    else if (!strcmp(verb, "sqlite-wal")) sqlite_run(path, first, "WAL");
    else if (!strcmp(verb, "sqlite-rollback")) sqlite_run(path, first, "DELETE");
    else if (!strcmp(verb, "sqlite-check")) sqlite_check(path, first);
    else if (!strcmp(verb, "mixed")) mixed(path, (double)first, second);
    else if (!strcmp(verb, "warm-up")) warm_up(path, first);
    else {
        fputs("usage: load VERB PATH [NUMBER [NUMBER [NUMBER]]]; the verbs stand at the head of load/main.c\n", stderr);
        return 64;
    }
    return 0;
}
