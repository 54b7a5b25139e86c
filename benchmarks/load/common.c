/* Known and checked content, errors, time, and processes that begin together. */
#include "load.h"

#include <stdarg.h>
#include <sys/wait.h>
#include <time.h>

unsigned char pattern[CHUNK];
unsigned char buffer[CHUNK];
uint64_t random_state = 1;

static _Noreturn void end(const char *what, const char *format, va_list arguments, int error) {
    fputs(what, stderr);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, error ? ": %s\n" : "\n", strerror(error));
    exit(1);
}

void fail(const char *format, ...) {
    int error = errno;
    va_list arguments;
    va_start(arguments, format);
    end("load: ", format, arguments, error);
}

void wrong(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    end("load: wrong content: ", format, arguments, 0);
}

uint64_t mix(uint64_t x) { /* splitmix64 */
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t next_random(void) { return mix(random_state++); }

double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

void report(double elapsed, uint64_t operations) { printf("%.9f %" PRIu64 "\n", elapsed, operations); }

void stamp(unsigned char *block, uint64_t number, uint64_t generation) {
    uint64_t value = mix(number * 2 + generation);
    memcpy(block, &value, sizeof value);
}

void fill_block(unsigned char *block, uint64_t number, uint64_t generation) {
    memcpy(block, pattern + (number % BLOCKS_PER_CHUNK) * BLOCK, BLOCK);
    stamp(block, number, generation);
}

void check_block(const unsigned char *block, uint64_t number, uint64_t generation) {
    static unsigned char expected[BLOCK];
    fill_block(expected, number, generation);
    if (memcmp(block, expected, BLOCK)) wrong("block %" PRIu64 " of generation %" PRIu64, number, generation);
}

int open_or_fail(const char *path, int flags) {
    int fd = open(path, flags | O_CLOEXEC, 0644);
    if (fd < 0) fail("open %s", path);
    return fd;
}

void close_or_fail(int fd) {
    if (close(fd)) fail("close");
}

void pwrite_all(int fd, const void *bytes, size_t count, off_t offset) {
    ssize_t written = pwrite(fd, bytes, count, offset);
    if (written != (ssize_t)count) fail("pwrite of %zu at %jd gave %zd", count, (intmax_t)offset, written);
}

void pread_all(int fd, void *bytes, size_t count, off_t offset) {
    ssize_t got = pread(fd, bytes, count, offset);
    if (got != (ssize_t)count) fail("pread of %zu at %jd gave %zd", count, (intmax_t)offset, got);
}

double in_parallel(uint64_t jobs, void (*body)(uint64_t, const void *), const void *context) {
    int ready[2], start[2];
    if (pipe(ready) || pipe(start)) fail("pipe");
    for (uint64_t job = 0; job < jobs; job++) {
        pid_t child = fork();
        if (child < 0) fail("fork");
        if (child) continue;
        char byte = 0;
        close(start[1]);
        if (write(ready[1], &byte, 1) != 1) fail("write to a pipe");
        (void)!read(start[0], &byte, 1); /* 0 bytes: the parent closed the other end */
        body(job, context);
        _exit(0);
    }
    for (uint64_t job = 0; job < jobs; job++) {
        char byte;
        if (read(ready[0], &byte, 1) != 1) fail("read from a pipe");
    }
    double begin = seconds();
    close(start[1]);
    int failed = 0, status;
    while (wait(&status) > 0) failed |= status != 0;
    double elapsed = seconds() - begin;
    close(ready[0]), close(ready[1]), close(start[0]);
    if (failed) exit(1); /* the job has printed the reason */
    return elapsed;
}
