/* Declarations for the parts of the load generator (load/main.c lists the verbs). */
#ifndef LOAD_H
#define LOAD_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { BLOCK = 4096, CHUNK = 1 << 20, BLOCKS_PER_CHUNK = CHUNK / BLOCK };

/* One pseudo-random megabyte, of which all content is made. */
extern unsigned char pattern[CHUNK];
extern unsigned char buffer[CHUNK];

_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));

uint64_t mix(uint64_t x);
extern uint64_t random_state;
uint64_t next_random(void);

double seconds(void);
/* Prints the one line of output: seconds of the timed part, and its number of operations or
 * bytes. */
void report(double elapsed, uint64_t operations);

/* Block n of a file is block n % 256 of the pattern. Its first 8 bytes are computed from n and a
 * generation. */
void stamp(unsigned char *block, uint64_t number, uint64_t generation);
void fill_block(unsigned char *block, uint64_t number, uint64_t generation);
void check_block(const unsigned char *block, uint64_t number, uint64_t generation);

int open_or_fail(const char *path, int flags);
void close_or_fail(int fd);
void pwrite_all(int fd, const void *bytes, size_t count, off_t offset);
void pread_all(int fd, void *bytes, size_t count, off_t offset);

/* Runs `body` in `jobs` processes that begin together. Returns the seconds from that moment to
 * the end of the last process. */
double in_parallel(uint64_t jobs, void (*body)(uint64_t job, const void *context), const void *context);

void stream_write(const char *path, uint64_t bytes);
void stream_read(const char *path, uint64_t bytes);
void fill(const char *path, uint64_t bytes, uint64_t jobs);
void check(const char *path, uint64_t bytes, uint64_t jobs);
void random_read(const char *path, uint64_t bytes, uint64_t count, uint64_t jobs);
void random_write(const char *path, uint64_t bytes, uint64_t count, uint64_t jobs);
void random_check(const char *path, uint64_t bytes, uint64_t count, uint64_t jobs);
void share(const char *path, uint64_t bytes, uint64_t count, uint64_t jobs);
void share_check(const char *path, uint64_t bytes, uint64_t count, uint64_t jobs);
void append(const char *path, uint64_t count);
void append_check(const char *path, uint64_t count);
void sparse_write(const char *path, uint64_t bytes, uint64_t count);
void sparse_read(const char *path, uint64_t bytes, uint64_t count);

void files_create(const char *directory, uint64_t count);
void files_stat(const char *directory, uint64_t count);
void files_read(const char *directory, uint64_t count);
void files_walk(const char *directory, uint64_t count);
void rewrite_tree(const char *directory);
void files_remove(const char *directory, uint64_t count);
void tree_grow(const char *directory, uint64_t first, uint64_t end);
void tree_read(const char *directory, uint64_t first, uint64_t end);
void names_create(const char *directory, uint64_t count, uint64_t bytes);
void names_look_up(const char *directory, uint64_t count, uint64_t samples);
void names_list(const char *directory, uint64_t count);
void names_check(const char *directory, uint64_t count, uint64_t bytes);
void many_processes(const char *directory, uint64_t count, uint64_t jobs);
void warm_up(const char *directory, uint64_t count);

void sqlite_run(const char *path, uint64_t count, const char *journal);
void sqlite_check(const char *path, uint64_t count);

void mixed(const char *directory, double duration, uint64_t seed);

#endif
