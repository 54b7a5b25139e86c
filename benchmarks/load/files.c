/* Many files: 100 in each directory (files-…), or all in one directory (names-…). */
#include "load.h"

#include <dirent.h>

enum { FILES_PER_DIRECTORY = 100 };

static const char *file_name(const char *directory, uint64_t number) {
    static char name[4096];
    snprintf(name, sizeof name, "%s/%04" PRIu64 "/file-%06" PRIu64 ".dat", directory, number / FILES_PER_DIRECTORY,
             number);
    return name;
}

static void create_file(const char *name, uint64_t number, size_t bytes) {
    int fd = open_or_fail(name, O_WRONLY | O_CREAT | O_EXCL);
    if (bytes) {
        fill_block(buffer, number, 0);
        if (write(fd, buffer, bytes) != (ssize_t)bytes) fail("write %s", name);
    }
    close_or_fail(fd);
}

static void read_file(const char *name, uint64_t number, size_t bytes) {
    static unsigned char expected[BLOCK];
    int fd = open_or_fail(name, O_RDONLY);
    ssize_t got = read(fd, buffer, CHUNK); /* like cat, asks for more than there is */
    if (got != (ssize_t)bytes) fail("read %s gave %zd", name, got);
    fill_block(expected, number, 0);
    if (memcmp(buffer, expected, bytes)) wrong("%s", name);
    close_or_fail(fd);
}

static void make_parent(const char *file) {
    char *name = strdup(file);
    *strrchr(name, '/') = 0;
    if (mkdir(name, 0755)) fail("mkdir %s", name);
    free(name);
}

void files_create(const char *directory, uint64_t count) {
    double begin = seconds();
    for (uint64_t number = 0; number < count; number++) {
        if (number % FILES_PER_DIRECTORY == 0) make_parent(file_name(directory, number));
        create_file(file_name(directory, number), number, BLOCK);
    }
    report(seconds() - begin, count);
}

void files_stat(const char *directory, uint64_t count) {
    double begin = seconds();
    for (uint64_t number = 0; number < count; number++) {
        struct stat attributes;
        const char *name = file_name(directory, number);
        if (stat(name, &attributes)) fail("stat %s", name);
        if (attributes.st_size != BLOCK) wrong("%s has %jd bytes", name, (intmax_t)attributes.st_size);
    }
    report(seconds() - begin, count);
}

void files_read(const char *directory, uint64_t count) {
    double begin = seconds();
    for (uint64_t number = 0; number < count; number++) read_file(file_name(directory, number), number, BLOCK);
    report(seconds() - begin, count);
}

/* A tree of small files, made and read in steps of the files from `first` to before `end`. */
enum { SMALL = 100 };

void tree_grow(const char *directory, uint64_t first, uint64_t end) {
    double begin = seconds();
    for (uint64_t number = first; number < end; number++) {
        if (number % FILES_PER_DIRECTORY == 0) make_parent(file_name(directory, number));
        create_file(file_name(directory, number), number, SMALL);
    }
    report(seconds() - begin, end - first);
}

void tree_read(const char *directory, uint64_t first, uint64_t end) {
    double begin = seconds();
    for (uint64_t number = first; number < end; number++) read_file(file_name(directory, number), number, SMALL);
    report(seconds() - begin, end - first);
}

/* --- by the names that directories list, as find and rm -r do --- */

static DIR *open_directory(int at, const char *name) {
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    if (!stream) fail("opendir %s", name);
    return stream;
}

static int is_dots(const char *name) { return !strcmp(name, ".") || !strcmp(name, ".."); }

static uint64_t walk(int at, const char *name) {
    DIR *stream = open_directory(at, name);
    uint64_t files = 0;
    for (struct dirent *entry; (entry = readdir(stream));) {
        struct stat attributes;
        if (is_dots(entry->d_name)) continue;
        if (fstatat(dirfd(stream), entry->d_name, &attributes, AT_SYMLINK_NOFOLLOW)) fail("stat %s", entry->d_name);
        if (S_ISDIR(attributes.st_mode)) files += walk(dirfd(stream), entry->d_name);
        else if (attributes.st_size != BLOCK) wrong("%s has %jd bytes", entry->d_name, (intmax_t)attributes.st_size);
        else files++;
    }
    closedir(stream);
    return files;
}

void files_walk(const char *directory, uint64_t count) {
    double begin = seconds();
    uint64_t found = walk(AT_FDCWD, directory);
    double elapsed = seconds() - begin;
    if (found != count) wrong("%s has %" PRIu64 " files, not %" PRIu64, directory, found, count);
    report(elapsed, count);
}

static uint64_t remove_below(int at, const char *name) {
    DIR *stream = open_directory(at, name);
    uint64_t files = 0;
    for (struct dirent *entry; (entry = readdir(stream));) {
        if (is_dots(entry->d_name)) continue;
        int is_directory = entry->d_type == DT_DIR;
        if (is_directory) files += remove_below(dirfd(stream), entry->d_name);
        else files++;
        if (unlinkat(dirfd(stream), entry->d_name, is_directory ? AT_REMOVEDIR : 0)) fail("unlink %s", entry->d_name);
    }
    closedir(stream);
    return files;
}

void files_remove(const char *directory, uint64_t count) {
    double begin = seconds();
    uint64_t found = remove_below(AT_FDCWD, directory);
    double elapsed = seconds() - begin;
    if (found != count) wrong("%s had %" PRIu64 " files, not %" PRIu64, directory, found, count);
    report(elapsed, count);
}

/* Reads and writes the first block of every file, in place. */
static uint64_t rewrite_below(int at, const char *name) {
    DIR *stream = open_directory(at, name);
    uint64_t files = 0;
    for (struct dirent *entry; (entry = readdir(stream));) {
        if (is_dots(entry->d_name)) continue;
        if (entry->d_type == DT_DIR) files += rewrite_below(dirfd(stream), entry->d_name);
        if (entry->d_type != DT_REG) continue;
        int fd = openat(dirfd(stream), entry->d_name, O_RDWR | O_CLOEXEC);
        if (fd < 0) fail("open %s", entry->d_name);
        ssize_t got = pread(fd, buffer, BLOCK, 0);
        if (got < 0) fail("read %s", entry->d_name);
        pwrite_all(fd, buffer, (size_t)got, 0);
        close_or_fail(fd);
        files++;
    }
    closedir(stream);
    return files;
}

void rewrite_tree(const char *directory) {
    double begin = seconds();
    uint64_t files = rewrite_below(AT_FDCWD, directory);
    int fd = open_or_fail(directory, O_RDONLY);
    if (syncfs(fd)) fail("syncfs %s", directory);
    close_or_fail(fd);
    report(seconds() - begin, files);
}

/* --- all names in one directory --- */

static const char *plain_name(const char *directory, uint64_t number) {
    static char name[4096];
    snprintf(name, sizeof name, "%s/message-%07" PRIu64 ".eml", directory, number);
    return name;
}

void names_create(const char *directory, uint64_t count, uint64_t bytes) {
    double begin = seconds();
    for (uint64_t number = 0; number < count; number++) create_file(plain_name(directory, number), number, bytes);
    report(seconds() - begin, count);
}

void names_look_up(const char *directory, uint64_t count, uint64_t samples) {
    double begin = seconds();
    for (uint64_t i = 0; i < samples; i++) {
        struct stat attributes;
        const char *name = plain_name(directory, mix(i) % count);
        if (stat(name, &attributes)) fail("stat %s", name);
    }
    report(seconds() - begin, samples);
}

void names_list(const char *directory, uint64_t count) {
    double begin = seconds();
    DIR *stream = open_directory(AT_FDCWD, directory);
    uint64_t found = 0;
    for (struct dirent *entry; (entry = readdir(stream));) found += !is_dots(entry->d_name);
    closedir(stream);
    double elapsed = seconds() - begin;
    if (found != count) wrong("%s lists %" PRIu64 " names, not %" PRIu64, directory, found, count);
    report(elapsed, count);
}

void names_check(const char *directory, uint64_t count, uint64_t bytes) {
    for (uint64_t number = 0; number < count; number++) read_file(plain_name(directory, number), number, bytes);
    report(0, count);
}

/* --- many processes, each with its own files --- */

struct work {
    const char *directory;
    uint64_t count;
};

static void process_job(uint64_t job, const void *context) {
    const struct work *work = context;
    char directory[2048];
    snprintf(directory, sizeof directory, "%s/%" PRIu64, work->directory, job);
    if (mkdir(directory, 0755)) fail("mkdir %s", directory);
    for (uint64_t number = 0; number < work->count; number++) {
        const char *name = plain_name(directory, number);
        struct stat attributes;
        create_file(name, number, BLOCK);
        if (stat(name, &attributes)) fail("stat %s", name);
        read_file(name, number, BLOCK);
        if (unlink(name)) fail("unlink %s", name);
    }
    if (rmdir(directory)) fail("rmdir %s", directory);
}

void many_processes(const char *directory, uint64_t count, uint64_t jobs) {
    struct work work = {directory, count / jobs};
    report(in_parallel(jobs, process_job, &work), count / jobs * jobs);
}

/* Does everything once, so that the first-time work of program, daemon and mount is over. */
void warm_up(const char *directory, uint64_t count) {
    char inner[2048];
    snprintf(inner, sizeof inner, "%s/.warm-up", directory);
    if (mkdir(inner, 0755)) fail("mkdir %s", inner);
    for (uint64_t number = 0; number < count; number++) {
        const char *name = plain_name(inner, number);
        create_file(name, number, BLOCK);
        int fd = open_or_fail(name, O_RDWR);
        pwrite_all(fd, buffer, BLOCK, 0);
        if (fsync(fd)) fail("fsync %s", name);
        close_or_fail(fd);
        read_file(name, number, BLOCK);
    }
    uint64_t found = remove_below(AT_FDCWD, inner);
    if (found != count) wrong("%s had %" PRIu64 " files", inner, found);
    if (rmdir(inner)) fail("rmdir %s", inner);
    report(0, count);
}
