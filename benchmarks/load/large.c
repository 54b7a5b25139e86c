/* Large files. With several jobs, job n has the file PATH.n to itself, with its share of the
 * bytes. */
#include "load.h"

struct work {
    const char *path;
    uint64_t bytes; /* size of each job's file */
    uint64_t count; /* operations of each job */
    uint32_t *blocks[64]; /* for each job, chosen before the clock starts */
};

static const char *job_path(const char *path, uint64_t job) {
    static char name[4096];
    snprintf(name, sizeof name, "%s.%" PRIu64, path, job);
    return name;
}

static void write_stream(const char *name, uint64_t bytes) {
    int fd = open_or_fail(name, O_WRONLY | O_CREAT | O_TRUNC);
    for (uint64_t offset = 0; offset < bytes; offset += CHUNK) {
        for (int i = 0; i < BLOCKS_PER_CHUNK; i++) stamp(pattern + i * BLOCK, offset / BLOCK + (uint64_t)i, 0);
        pwrite_all(fd, pattern, CHUNK, (off_t)offset);
    }
    if (fsync(fd)) fail("fsync %s", name);
    close_or_fail(fd);
}

void stream_write(const char *path, uint64_t bytes) {
    double begin = seconds();
    write_stream(job_path(path, 0), bytes);
    report(seconds() - begin, bytes);
}

void fill(const char *path, uint64_t bytes, uint64_t jobs) {
    for (uint64_t job = 0; job < jobs; job++) write_stream(job_path(path, job), bytes / jobs);
    report(0, bytes);
}

void stream_read(const char *path, uint64_t bytes) {
    double begin = seconds();
    int fd = open_or_fail(job_path(path, 0), O_RDONLY);
    for (uint64_t offset = 0; offset < bytes; offset += CHUNK) {
        ssize_t got = read(fd, buffer, CHUNK);
        if (got != CHUNK) fail("read at %" PRIu64 " gave %zd", offset, got);
        for (int i = 0; i < BLOCKS_PER_CHUNK; i++) { /* the stamps alone, which costs nothing; `check` looks at the rest */
            uint64_t value = mix((offset / BLOCK + (uint64_t)i) * 2);
            if (memcmp(buffer + i * BLOCK, &value, sizeof value)) wrong("block %d after %" PRIu64, i, offset);
        }
    }
    close_or_fail(fd);
    report(seconds() - begin, bytes);
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

void check(const char *path, uint64_t bytes, uint64_t jobs) {
    for (uint64_t job = 0; job < jobs; job++) check_file(job_path(path, job), bytes / jobs, NULL);
    report(0, bytes);
}

/* --- random blocks --- */

/* The first `count` numbers of a shuffled list of all blocks: distinct, and the same in every
 * run. */
static uint32_t *shuffled_blocks(uint64_t bytes, uint64_t count, uint64_t seed) {
    uint64_t blocks = bytes / BLOCK;
    if (count > blocks) fail("%" PRIu64 " blocks asked of a file of %" PRIu64, count, blocks);
    uint32_t *list = malloc(blocks * sizeof *list);
    random_state = mix(seed);
    for (uint64_t i = 0; i < blocks; i++) list[i] = (uint32_t)i;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t j = i + next_random() % (blocks - i);
        uint32_t other = list[j];
        list[j] = list[i];
        list[i] = other;
    }
    return list;
}

static void random_read_job(uint64_t job, const void *context) {
    const struct work *work = context;
    const uint32_t *blocks = work->blocks[job];
    int fd = open_or_fail(job_path(work->path, job), O_RDONLY);
    for (uint64_t i = 0; i < work->count; i++) {
        pread_all(fd, buffer, BLOCK, (off_t)blocks[i] * BLOCK);
        check_block(buffer, blocks[i], 0);
    }
    close_or_fail(fd);
}

static void random_write_job(uint64_t job, const void *context) {
    const struct work *work = context;
    const uint32_t *blocks = work->blocks[job];
    const char *name = job_path(work->path, job);
    int fd = open_or_fail(name, O_RDWR);
    for (uint64_t i = 0; i < work->count; i++) {
        unsigned char *block = pattern + (blocks[i] % BLOCKS_PER_CHUNK) * BLOCK;
        stamp(block, blocks[i], 1);
        pwrite_all(fd, block, BLOCK, (off_t)blocks[i] * BLOCK);
    }
    if (fsync(fd)) fail("fsync %s", name);
    close_or_fail(fd);
}

static void in_jobs(void (*body)(uint64_t, const void *), const char *path, uint64_t bytes, uint64_t count, uint64_t jobs) {
    struct work work = {path, bytes / jobs, count / jobs, {NULL}};
    if (jobs > sizeof work.blocks / sizeof work.blocks[0]) fail("%" PRIu64 " jobs are too many", jobs);
    for (uint64_t job = 0; job < jobs; job++) work.blocks[job] = shuffled_blocks(work.bytes, work.count, job);
    report(in_parallel(jobs, body, &work), work.count * jobs);
}

void random_read(const char *path, uint64_t bytes, uint64_t count, uint64_t jobs) {
    in_jobs(random_read_job, path, bytes, count, jobs);
}

void random_write(const char *path, uint64_t bytes, uint64_t count, uint64_t jobs) {
    in_jobs(random_write_job, path, bytes, count, jobs);
}

void random_check(const char *path, uint64_t bytes, uint64_t count, uint64_t jobs) {
    for (uint64_t job = 0; job < jobs; job++) {
        uint32_t *blocks = shuffled_blocks(bytes / jobs, count / jobs, job);
        uint8_t *generations = calloc(bytes / jobs / BLOCK, 1);
        for (uint64_t i = 0; i < count / jobs; i++) generations[blocks[i]] = 1;
        check_file(job_path(path, job), bytes / jobs, generations);
        free(generations);
        free(blocks);
    }
    report(0, bytes / BLOCK);
}

/* --- 16 KiB at a time, 70 % of them reads --- */

enum { UNIT = 4 * BLOCK };

/* Chooses the next step: returns whether it is a write, and sets its place. The same in every
 * run. */
static int next_unit(uint64_t bytes, uint64_t *unit) {
    uint64_t chance = next_random();
    *unit = (chance >> 8) % (bytes / UNIT);
    return (chance & 0xff) >= 179; /* 30 % */
}

static void share_job(uint64_t job, const void *context) {
    const struct work *work = context;
    const char *name = job_path(work->path, job);
    uint8_t *generations = calloc(work->bytes / BLOCK, 1);
    int fd = open_or_fail(name, O_RDWR);
    random_state = mix(job + 100);
    for (uint64_t i = 0; i < work->count; i++) {
        uint64_t unit, first;
        int writes = next_unit(work->bytes, &unit);
        first = unit * (UNIT / BLOCK);
        if (writes) {
            for (uint64_t b = 0; b < UNIT / BLOCK; b++) {
                fill_block(buffer + b * BLOCK, first + b, 1);
                generations[first + b] = 1;
            }
            pwrite_all(fd, buffer, UNIT, (off_t)(unit * UNIT));
        } else {
            pread_all(fd, buffer, UNIT, (off_t)(unit * UNIT));
            for (uint64_t b = 0; b < UNIT / BLOCK; b++)
                check_block(buffer + b * BLOCK, first + b, generations[first + b]);
        }
    }
    if (fsync(fd)) fail("fsync %s", name);
    close_or_fail(fd);
    free(generations);
}

void share(const char *path, uint64_t bytes, uint64_t count, uint64_t jobs) {
    struct work work = {path, bytes / jobs, count / jobs, {NULL}};
    report(in_parallel(jobs, share_job, &work), count);
}

void share_check(const char *path, uint64_t bytes, uint64_t count, uint64_t jobs) {
    for (uint64_t job = 0; job < jobs; job++) {
        uint8_t *generations = calloc(bytes / jobs / BLOCK, 1);
        random_state = mix(job + 100);
        for (uint64_t i = 0; i < count / jobs; i++) {
            uint64_t unit;
            if (next_unit(bytes / jobs, &unit)) memset(generations + unit * (UNIT / BLOCK), 1, UNIT / BLOCK);
        }
        check_file(job_path(path, job), bytes / jobs, generations);
        free(generations);
    }
    report(0, bytes / BLOCK);
}

/* --- appends --- */

void append(const char *path, uint64_t count) {
    int fd = open_or_fail(path, O_WRONLY | O_CREAT | O_APPEND);
    double begin = seconds();
    for (uint64_t i = 0; i < count; i++) {
        fill_block(buffer, i, 0);
        if (write(fd, buffer, BLOCK) != BLOCK) fail("append %" PRIu64, i);
        if (fdatasync(fd)) fail("fdatasync %" PRIu64, i);
    }
    close_or_fail(fd);
    report(seconds() - begin, count);
}

void append_check(const char *path, uint64_t count) {
    check_file(path, count * BLOCK, NULL);
    report(0, count);
}

/* --- a file with holes, of any length --- */

/* Computes the block number from the counter alone, so that the reader knows it, too. */
static uint64_t sparse_block(uint64_t bytes, uint64_t i) { return mix(i) % (bytes / BLOCK); }

void sparse_write(const char *path, uint64_t bytes, uint64_t count) {
    int fd = open_or_fail(path, O_RDWR | O_CREAT);
    if (ftruncate(fd, (off_t)bytes)) fail("ftruncate %s", path);
    double begin = seconds();
    for (uint64_t i = 0; i < count; i++) {
        uint64_t block = sparse_block(bytes, i);
        fill_block(buffer, block, 0);
        pwrite_all(fd, buffer, BLOCK, (off_t)(block * BLOCK));
    }
    if (fsync(fd)) fail("fsync %s", path);
    report(seconds() - begin, count);
    close_or_fail(fd);
}

void sparse_read(const char *path, uint64_t bytes, uint64_t count) {
    int fd = open_or_fail(path, O_RDONLY);
    double begin = seconds();
    for (uint64_t i = 0; i < count; i++) {
        uint64_t block = sparse_block(bytes, i);
        pread_all(fd, buffer, BLOCK, (off_t)(block * BLOCK));
        check_block(buffer, block, 0);
    }
    report(seconds() - begin, count);
    close_or_fail(fd);
}
