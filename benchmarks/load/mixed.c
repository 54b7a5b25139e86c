/* A mixed run: one process works on files in random order, and compares each result with a
 * model. */
#include "load.h"

#include <dirent.h>
#include <sys/mman.h>
#include <sys/xattr.h>

enum { SLOTS = 64, LARGEST = 64 << 10 };

/* The content that one file should have. */
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
    if (!count) return; /* nothing is written, and the file does not grow */
    memcpy(slot->bytes + offset, pattern + next_random() % (CHUNK - LARGEST), count);
    if (offset > slot->size) memset(slot->bytes + slot->size, 0, offset - slot->size);
    if (offset + count > slot->size) slot->size = offset + count;
    pwrite_all(fd, slot->bytes + offset, count, (off_t)offset);
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

void mixed(const char *directory, double duration, uint64_t seed) {
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

