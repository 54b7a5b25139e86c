/* The loads that benchmarks/compare and benchmarks/memory put on a mounted file system, in C so that the loops cost
 * next to nothing beside the system calls they make. Every verb prints one line, "SECONDS OPERATIONS", for its timed
 * part alone, and checks what it reads: a wrong byte ends the run with status 1.
 *
 *   load stream-write FILE BYTES          one file in 1 MiB writes, closed
 *   load stream-read FILE BYTES           the same file in 1 MiB reads; then, untimed, its content is checked
 *   load random-read FILE BYTES COUNT     COUNT distinct blocks of 4 KiB in random order; then checked, untimed
 *   load random-write FILE BYTES COUNT    the same blocks overwritten
 *   load random-check FILE BYTES COUNT    untimed: every block of the file, overwritten or not
 *   load append FILE COUNT                4 KiB appended and fdatasync'ed, COUNT times
 *   load append-check FILE COUNT          untimed
 *   load files-create DIR COUNT           COUNT files of 4 KiB, 100 to a directory
 *   load files-stat|files-read|files-delete DIR COUNT
 *   load mixed DIR SECONDS SEED           one process's share of a mixed run, each result compared with a model
 *
 * Content: block n of a file is block n % 256 of one pseudo-random megabyte, its first 8 bytes replaced by a number
 * made of n and a generation, so that a block from elsewhere, or an older one, is noticed.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 4096, CHUNK = 1 << 20, BLOCKS_PER_CHUNK = CHUNK / BLOCK, FILES_PER_DIRECTORY = 100 };

static unsigned char pattern[CHUNK];
static unsigned char buffer[CHUNK];

static void fail(const char *format, ...) {
    int error = errno;
    va_list arguments;
    va_start(arguments, format);
    fputs("load: ", stderr);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, error ? ": %s\n" : "\n", strerror(error));
    exit(1);
}

static void wrong(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("load: wrong content: ", stderr);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

static uint64_t mix(uint64_t x) { /* splitmix64 */
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t random_state = 1;
static uint64_t next_random(void) { return mix(random_state++); }

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void report(double elapsed, uint64_t operations) { printf("%.9f %" PRIu64 "\n", elapsed, operations); }

static void stamp(unsigned char *block, uint64_t number, uint64_t generation) {
    uint64_t value = mix(number * 2 + generation);
    memcpy(block, &value, sizeof value);
}

static void fill_block(unsigned char *block, uint64_t number, uint64_t generation) {
    memcpy(block, pattern + (number % BLOCKS_PER_CHUNK) * BLOCK, BLOCK);
    stamp(block, number, generation);
}

static void check_block(const unsigned char *block, uint64_t number, uint64_t generation) {
    static unsigned char expected[BLOCK];
    fill_block(expected, number, generation);
    if (memcmp(block, expected, BLOCK)) wrong("block %" PRIu64 " of generation %" PRIu64, number, generation);
}

static int open_or_fail(const char *path, int flags) {
    int fd = open(path, flags | O_CLOEXEC, 0644);
    if (fd < 0) fail("open %s", path);
    return fd;
}

static void close_or_fail(int fd) {
    if (close(fd)) fail("close");
}

static void pwrite_all(int fd, const void *bytes, size_t count, off_t offset) {
    ssize_t written = pwrite(fd, bytes, count, offset);
    if (written != (ssize_t)count) fail("pwrite of %zu at %jd gave %zd", count, (intmax_t)offset, written);
}

static void pread_all(int fd, void *bytes, size_t count, off_t offset) {
    ssize_t got = pread(fd, bytes, count, offset);
    if (got != (ssize_t)count) fail("pread of %zu at %jd gave %zd", count, (intmax_t)offset, got);
}

/* --- one large file -------------------------------------------------------------------------------------------- */

static void stream_write(const char *path, uint64_t bytes) {
    double start = seconds();
    int fd = open_or_fail(path, O_WRONLY | O_CREAT | O_TRUNC);
    for (uint64_t offset = 0; offset < bytes; offset += CHUNK) {
        for (int i = 0; i < BLOCKS_PER_CHUNK; i++) stamp(pattern + i * BLOCK, offset / BLOCK + (uint64_t)i, 0);
        pwrite_all(fd, pattern, CHUNK, (off_t)offset);
    }
    close_or_fail(fd);
    report(seconds() - start, bytes);
}

static void check_file(const char *path, uint64_t bytes, const uint8_t *generations) {
    int fd = open_or_fail(path, O_RDONLY);
    struct stat attributes;
    if (fstat(fd, &attributes)) fail("fstat %s", path);
    if ((uint64_t)attributes.st_size != bytes)
        wrong("%s has %jd bytes instead of %" PRIu64, path, (intmax_t)attributes.st_size, bytes);
    for (uint64_t offset = 0; offset < bytes; offset += BLOCK) {
        pread_all(fd, buffer, BLOCK, (off_t)offset);
        check_block(buffer, offset / BLOCK, generations ? generations[offset / BLOCK] : 0);
    }
    close_or_fail(fd);
}

static void stream_read(const char *path, uint64_t bytes) {
    double start = seconds();
    int fd = open_or_fail(path, O_RDONLY);
    for (uint64_t offset = 0; offset < bytes; offset += CHUNK) {
        ssize_t got = read(fd, buffer, CHUNK);
        if (got != CHUNK) fail("read at %" PRIu64 " gave %zd", offset, got);
    }
    close_or_fail(fd);
    report(seconds() - start, bytes);
    check_file(path, bytes, NULL);
}

/* The first `count` of a shuffled list of all block numbers: distinct, and the same in every run. */
static uint32_t *shuffled_blocks(uint64_t bytes, uint64_t count) {
    uint64_t blocks = bytes / BLOCK;
    if (count > blocks) fail("%" PRIu64 " blocks asked of a file of %" PRIu64, count, blocks);
    uint32_t *list = malloc(blocks * sizeof *list);
    for (uint64_t i = 0; i < blocks; i++) list[i] = (uint32_t)i;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t j = i + next_random() % (blocks - i);
        uint32_t other = list[j];
        list[j] = list[i];
        list[i] = other;
    }
    return list;
}

static void random_read(const char *path, uint64_t bytes, uint64_t count) {
    uint32_t *blocks = shuffled_blocks(bytes, count);
    int fd = open_or_fail(path, O_RDONLY);
    double start = seconds();
    for (uint64_t i = 0; i < count; i++) pread_all(fd, buffer, BLOCK, (off_t)blocks[i] * BLOCK);
    report(seconds() - start, count);
    for (uint64_t i = 0; i < count; i++) {
        pread_all(fd, buffer, BLOCK, (off_t)blocks[i] * BLOCK);
        check_block(buffer, blocks[i], 0);
    }
    close_or_fail(fd);
    free(blocks);
}

static void random_write(const char *path, uint64_t bytes, uint64_t count) {
    uint32_t *blocks = shuffled_blocks(bytes, count);
    int fd = open_or_fail(path, O_RDWR);
    memcpy(buffer, pattern, CHUNK);
    double start = seconds();
    for (uint64_t i = 0; i < count; i++) {
        unsigned char *block = buffer + (blocks[i] % BLOCKS_PER_CHUNK) * BLOCK;
        stamp(block, blocks[i], 1);
        pwrite_all(fd, block, BLOCK, (off_t)blocks[i] * BLOCK);
    }
    close_or_fail(fd);
    report(seconds() - start, count);
    free(blocks);
}

static void random_check(const char *path, uint64_t bytes, uint64_t count) {
    uint32_t *blocks = shuffled_blocks(bytes, count);
    uint8_t *generations = calloc(bytes / BLOCK, 1);
    for (uint64_t i = 0; i < count; i++) generations[blocks[i]] = 1;
    check_file(path, bytes, generations);
    report(0, bytes / BLOCK);
    free(generations);
    free(blocks);
}

static void append(const char *path, uint64_t count) {
    int fd = open_or_fail(path, O_WRONLY | O_CREAT | O_APPEND);
    double start = seconds();
    for (uint64_t i = 0; i < count; i++) {
        fill_block(buffer, i, 0);
        if (write(fd, buffer, BLOCK) != BLOCK) fail("append %" PRIu64, i);
        if (fdatasync(fd)) fail("fdatasync %" PRIu64, i);
    }
    close_or_fail(fd);
    report(seconds() - start, count);
}

/* --- many small files ------------------------------------------------------------------------------------------- */

static const char *file_name(const char *directory, uint64_t number) {
    static char name[4096];
    snprintf(name, sizeof name, "%s/%04" PRIu64 "/file-%06" PRIu64 ".dat", directory, number / FILES_PER_DIRECTORY,
             number);
    return name;
}

static void files_create(const char *directory, uint64_t count) {
    for (uint64_t number = 0; number < count; number += FILES_PER_DIRECTORY) {
        char *name = strdup(file_name(directory, number));
        *strrchr(name, '/') = 0;
        if (mkdir(name, 0755)) fail("mkdir %s", name);
        free(name);
    }
    double start = seconds();
    for (uint64_t number = 0; number < count; number++) {
        int fd = open_or_fail(file_name(directory, number), O_WRONLY | O_CREAT | O_EXCL);
        fill_block(buffer, number, 0);
        if (write(fd, buffer, BLOCK) != BLOCK) fail("write %s", file_name(directory, number));
        close_or_fail(fd);
    }
    report(seconds() - start, count);
}

static void files_stat(const char *directory, uint64_t count) {
    double start = seconds();
    for (uint64_t number = 0; number < count; number++) {
        struct stat attributes;
        const char *name = file_name(directory, number);
        if (stat(name, &attributes)) fail("stat %s", name);
        if (attributes.st_size != BLOCK) wrong("%s has %jd bytes", name, (intmax_t)attributes.st_size);
    }
    report(seconds() - start, count);
}

static void files_read(const char *directory, uint64_t count) {
    double start = seconds();
    for (uint64_t number = 0; number < count; number++) {
        const char *name = file_name(directory, number);
        int fd = open_or_fail(name, O_RDONLY);
        ssize_t got = read(fd, buffer, CHUNK); /* as cat does: more than there is */
        if (got != BLOCK) fail("read %s gave %zd", name, got);
        check_block(buffer, number, 0);
        close_or_fail(fd);
    }
    report(seconds() - start, count);
}

static void files_delete(const char *directory, uint64_t count) {
    double start = seconds();
    for (uint64_t number = 0; number < count; number++)
        if (unlink(file_name(directory, number))) fail("unlink %s", file_name(directory, number));
    report(seconds() - start, count);
}

/* --- a mixed run --------------------------------------------------------------------------------------------------- */

enum { SLOTS = 64, LARGEST = 64 << 10 };

/* What one file should hold. */
static struct slot {
    int exists;
    size_t size;
    unsigned char bytes[LARGEST];
} slots[SLOTS];

static const char *slot_name(const char *directory, uint64_t number) {
    static char names[2][4096];
    static int turn;
    char *name = names[turn ^= 1];
    snprintf(name, sizeof names[0], "%s/document %02" PRIu64, directory, number);
    return name;
}

static void write_slot(struct slot *slot, int fd, size_t offset, size_t count) {
    memcpy(slot->bytes + offset, pattern + next_random() % (CHUNK - LARGEST), count);
    if (offset > slot->size) memset(slot->bytes + slot->size, 0, offset - slot->size);
    if (offset + count > slot->size) slot->size = offset + count;
    if (count) pwrite_all(fd, slot->bytes + offset, count, (off_t)offset);
}

static void check_slot(const char *directory, uint64_t number) {
    const char *name = slot_name(directory, number);
    struct slot *slot = &slots[number];
    int fd = open_or_fail(name, O_RDONLY);
    ssize_t got = read(fd, buffer, CHUNK);
    if (got < 0) fail("read %s", name);
    if ((size_t)got != slot->size || memcmp(buffer, slot->bytes, slot->size))
        wrong("%s: %zd bytes read, %zu expected", name, got, slot->size);
    close_or_fail(fd);
}

static void replace_slot(const char *directory, uint64_t number) {
    char temporary[4096];
    snprintf(temporary, sizeof temporary, "%s/.saving", directory);
    struct slot *slot = &slots[number];
    int fd = open_or_fail(temporary, O_RDWR | O_CREAT | O_TRUNC);
    slot->size = 0;
    write_slot(slot, fd, 0, next_random() % LARGEST);
    if (next_random() % 8 == 0 && fsync(fd)) fail("fsync %s", temporary);
    close_or_fail(fd);
    if (rename(temporary, slot_name(directory, number))) fail("rename %s", temporary);
    slot->exists = 1;
}

static void map_slot(const char *directory, uint64_t number) {
    struct slot *slot = &slots[number];
    if (slot->size == 0) return;
    int fd = open_or_fail(slot_name(directory, number), O_RDWR);
    unsigned char *bytes = mmap(NULL, slot->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED) fail("mmap");
    size_t place = next_random() % slot->size;
    if (bytes[place] != slot->bytes[place]) wrong("mapped byte %zu of %s", place, slot_name(directory, number));
    bytes[place] = slot->bytes[place] = (unsigned char)next_random();
    if (next_random() % 4 == 0 && msync(bytes, slot->size, MS_SYNC)) fail("msync");
    munmap(bytes, slot->size);
    close_or_fail(fd);
}

static void list_slots(const char *directory) {
    int expected = 0, found = 0;
    for (int i = 0; i < SLOTS; i++) expected += slots[i].exists;
    DIR *stream = opendir(directory);
    if (!stream) fail("opendir %s", directory);
    for (struct dirent *entry; (entry = readdir(stream));) found += entry->d_name[0] != '.';
    closedir(stream);
    if (found != expected) wrong("%s lists %d files, %d expected", directory, found, expected);
}

static void change_slot(const char *directory, uint64_t number) {
    struct slot *slot = &slots[number];
    const char *name = slot_name(directory, number);
    switch (next_random() % 12) {
    case 0:
        if (unlink(name)) fail("unlink %s", name);
        slot->exists = 0;
        break;
    case 1: case 2: case 3: { /* overwrite, also past the end: a hole */
        int fd = open_or_fail(name, O_WRONLY);
        size_t offset = next_random() % (LARGEST / 2);
        write_slot(slot, fd, offset, next_random() % (LARGEST / 2));
        close_or_fail(fd);
        break;
    }
    case 4: case 5: { /* append */
        int fd = open_or_fail(name, O_WRONLY);
        size_t room = LARGEST - slot->size;
        if (room) write_slot(slot, fd, slot->size, next_random() % (room < 5000 ? room : 5000));
        if (next_random() % 8 == 0 && fdatasync(fd)) fail("fdatasync %s", name);
        close_or_fail(fd);
        break;
    }
    case 6: { /* shorter or longer */
        size_t size = next_random() % LARGEST;
        if (truncate(name, (off_t)size)) fail("truncate %s", name);
        if (size > slot->size) memset(slot->bytes + slot->size, 0, size - slot->size);
        slot->size = size;
        break;
    }
    case 7: { /* take another file's name */
        uint64_t other = next_random() % SLOTS;
        if (other == number) break;
        if (rename(name, slot_name(directory, other))) fail("rename %s", name);
        memcpy(&slots[other], slot, sizeof *slot);
        slot->exists = 0;
        break;
    }
    case 8: map_slot(directory, number); break;
    case 9: {
        char value[64];
        int length = snprintf(value, sizeof value, "%" PRIx64, next_random()), got;
        if (setxattr(name, "user.mixed", value, (size_t)length, 0)) fail("setxattr %s", name);
        got = (int)getxattr(name, "user.mixed", buffer, sizeof buffer);
        if (got != length || memcmp(buffer, value, (size_t)length)) wrong("attribute of %s", name);
        break;
    }
    case 10: {
        struct stat attributes;
        if (stat(name, &attributes)) fail("stat %s", name);
        if ((size_t)attributes.st_size != slot->size)
            wrong("stat says %jd bytes of %s, %zu expected", (intmax_t)attributes.st_size, name, slot->size);
        break;
    }
    default: replace_slot(directory, number);
    }
}

static void mixed(const char *directory, double duration, uint64_t seed) {
    random_state = mix(seed);
    if (mkdir(directory, 0755)) fail("mkdir %s", directory);
    double start = seconds();
    uint64_t operations = 0;
    while (seconds() - start < duration) {
        uint64_t number = next_random() % SLOTS;
        uint64_t kind = next_random() % 100;
        if (kind == 0) list_slots(directory);
        else if (!slots[number].exists) replace_slot(directory, number);
        else if (kind < 50) check_slot(directory, number);
        else change_slot(directory, number);
        operations++;
    }
    report(seconds() - start, operations);
    for (uint64_t number = 0; number < SLOTS; number++) {
        if (!slots[number].exists) continue;
        check_slot(directory, number);
        if (unlink(slot_name(directory, number))) fail("unlink");
    }
    if (rmdir(directory)) fail("rmdir %s", directory);
}

int main(int count, char **words) {
    const char *verb = count > 1 ? words[1] : "";
    const char *path = count > 2 ? words[2] : "";
    uint64_t first = count > 3 ? strtoull(words[3], NULL, 10) : 0;
    uint64_t second = count > 4 ? strtoull(words[4], NULL, 10) : 0;
    for (size_t i = 0; i < CHUNK; i += sizeof(uint64_t)) {
        uint64_t value = next_random();
        memcpy(pattern + i, &value, sizeof value);
    }
    random_state = 1;
    if (!strcmp(verb, "stream-write")) stream_write(path, first);
    else if (!strcmp(verb, "stream-read")) stream_read(path, first);
    else if (!strcmp(verb, "random-read")) random_read(path, first, second);
    else if (!strcmp(verb, "random-write")) random_write(path, first, second);
    else if (!strcmp(verb, "random-check")) random_check(path, first, second);
    else if (!strcmp(verb, "append")) append(path, first);
    else if (!strcmp(verb, "append-check")) check_file(path, first * BLOCK, NULL), report(0, first);
    else if (!strcmp(verb, "files-create")) files_create(path, first);
    else if (!strcmp(verb, "files-stat")) files_stat(path, first);
    else if (!strcmp(verb, "files-read")) files_read(path, first);
    else if (!strcmp(verb, "files-delete")) files_delete(path, first);
    else if (!strcmp(verb, "mixed")) mixed(path, (double)first, second);
    else {
        fputs("usage: load VERB PATH [NUMBER [NUMBER]]; the verbs stand at the head of load.c\n", stderr);
        return 64;
    }
    return 0;
}
