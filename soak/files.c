// The files of one adversary: making, opening, mapping and closing them.
#define _GNU_SOURCE
#include "soak.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

const char *const class_letters[CLASS_COUNT] = {"A", "B", "C", "D", "CX"};
const char *const class_names[CLASS_COUNT] = {"NSFileProtectionComplete", "NSFileProtectionCompleteUnlessOpen",
    "NSFileProtectionCompleteUntilFirstUserAuthentication", "NSFileProtectionNone",
    "NSFileProtectionCompleteWhenUserInactive"};

void path_of(const struct worker *w, const struct file *f, char *out, size_t bytes) {
    snprintf(out, bytes, "%s%s", w->prefix, f->name);
}

struct file *free_file(struct worker *w) {
    for (int i = 0; i < MAX_FILES; i++) {
        if (!w->files[i].is_used) return &w->files[i];
    }
    return NULL;
}

int add_descriptor(struct file *f, int descriptor, int flags) {
    for (int i = 0; i < MAX_DESCRIPTORS; i++) {
        if (f->descriptors[i] < 0) {
            f->descriptors[i] = descriptor;
            f->descriptor_flags[i] = flags;
            return descriptor;
        }
    }
    close(descriptor);
    return -1;
}

int any_descriptor(struct worker *w, struct file *f, int without_flags) {
    int found[MAX_DESCRIPTORS], count = 0;
    for (int i = 0; i < MAX_DESCRIPTORS; i++) {
        if (f->descriptors[i] >= 0 && !(f->descriptor_flags[i] & without_flags)) found[count++] = f->descriptors[i];
    }
    return count ? found[below(w, count)] : -1;
}

struct mapping *any_mapping(struct worker *w, struct file *f, enum mapping_kind kind) {
    struct mapping *found[MAX_MAPPINGS];
    int count = 0;
    for (int i = 0; i < MAX_MAPPINGS; i++) {
        struct mapping *m = &f->mappings[i];
        if (m->kind != MAPPING_NONE && (kind == MAPPING_NONE || m->kind == kind)) found[count++] = m;
    }
    return count ? found[below(w, count)] : NULL;
}

void unmap(struct mapping *m) {
    if (m->kind != MAPPING_NONE) munmap(m->address, m->bytes);
    m->kind = MAPPING_NONE;
}

void close_file(struct worker *w, struct file *f) {
    (void)w;
    for (int i = 0; i < MAX_MAPPINGS; i++) unmap(&f->mappings[i]);
    for (int i = 0; i < MAX_DESCRIPTORS; i++) {
        if (f->descriptors[i] >= 0) close(f->descriptors[i]);
        f->descriptors[i] = -1;
    }
}

void second_path_of(const struct worker *w, const struct file *f, char *out, size_t bytes) {
    snprintf(out, bytes, "%sC/l%u", w->prefix, f->id & 0xfffff);
}

void drop_file(struct worker *w, struct file *f) {
    close_file(w, f);
    if (f->has_second_name) {
        char path[700];
        second_path_of(w, f, path, sizeof path);
        unlink(path);
    }
    if (w->in_flight_file == f - w->files) w->in_flight_file = -2;  // received and closed later
    f->is_used = false;
}

void set_size(struct file *f, size_t bytes) {
    size_t before = f->bytes;
    f->bytes = bytes;
    if (bytes >= before) return;
    commit(f, bytes / WORD_BYTES, MAX_WORDS - bytes / WORD_BYTES, 0);
    // Private copies of the pages that were cut off are gone, too.
    for (int i = 0; i < MAX_MAPPINGS; i++) {
        size_t kept = (bytes + PAGE - 1) / PAGE;
        memset(f->mappings[i].owner + kept, PAGE_CACHED, sizeof f->mappings[i].owner - kept);
    }
}

void settle_size(struct worker *w, struct file *f, size_t wanted) {
    struct stat status;
    int descriptor = any_descriptor(w, f, 0);
    char path[700];
    path_of(w, f, path, sizeof path);
    if (descriptor >= 0 ? fstat(descriptor, &status) : stat(path, &status)) return;
    size_t found = status.st_size;
    if (found != f->bytes && found != wanted) {
        report_loss(w, "%s is %zu bytes long, neither %zu nor %zu", f->name, found, f->bytes, wanted);
    }
    set_size(f, found);
}

int open_again(struct worker *w, struct file *f, int operation, int flags) {
    char path[700];
    path_of(w, f, path, sizeof path);
    struct attempt a = begin(w, operation, f, NEED_OPEN);
    int descriptor = open(path, flags | O_CLOEXEC);
    enum outcome outcome = outcome_of(descriptor, errno);
    // If the phase changed, the open may be refused or not, and later reads are judged.
    finish(w, &a, outcome, errno, "open");
    return descriptor >= 0 ? add_descriptor(f, descriptor, flags) : -1;
}

static bool is_boot(uint32_t phase) { return kind_of(phase) == PHASE_BOOT || kind_of(phase) == PHASE_RACE_BOOT; }

bool write_words(struct worker *w, struct file *f, int operation, size_t first, size_t count) {
    int descriptor = any_descriptor(w, f, O_APPEND | O_DIRECT);
    if (descriptor < 0 || !has_room(f, first, count)) return false;
    uint32_t version = ++f->version;
    fill_words(w, f, (uint64_t *)w->buffer, first, count, version);
    bool is_first = f->bytes == 0;
    struct attempt a = begin(w, operation, f, NEED_CONTENT);
    if (is_first) a.made_in_boot = true;
    ssize_t done = pwrite(descriptor, w->buffer, count * WORD_BYTES, first * WORD_BYTES);
    size_t whole = done > 0 ? done / WORD_BYTES : 0;
    int error = errno;
    // An empty file gets its key now. In class B that also makes it usable after a reboot since its
    // creation or truncation.
    if (is_first && is_boot(current_phase(w))) f->was_made_in_boot = true;
    commit(f, first, whole, version);
    maybe(f, first + whole, count - whole, version);
    size_t end = (first + count) * WORD_BYTES;
    if (end > f->bytes) {
        // The size after a short write tells how far it came.
        if (whole == count) f->bytes = end;
        else settle_size(w, f, done > 0 ? first * WORD_BYTES + done : end);
    }
    return finish(w, &a, outcome_of(done, error), error, "pwrite") == OUTCOME_DONE && whole == count;
}

void clear_file(struct worker *w, struct file *f, enum protection_class class) {
    struct candidates *model = f->model;
    memset(f, 0, sizeof *f);
    f->model = model;
    for (int i = 0; i < MAX_DESCRIPTORS; i++) f->descriptors[i] = -1;
    commit(f, 0, MAX_WORDS, 0);
    f->class = class;
    f->id = w->index << 20 | ++w->files_made;
}

struct file *make_file(struct worker *w, enum protection_class class, size_t bytes) {
    struct file *f = free_file(w);
    if (!f) return NULL;
    clear_file(w, f, class);
    snprintf(f->name, sizeof f->name, "%s/f%u", class_letters[class], w->files_made);
    char path[700];
    path_of(w, f, path, sizeof path);
    int operation = operation_named("create");
    struct attempt a = begin_class(w, operation, class, NEED_CREATE);
    int descriptor = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int error = errno;
    enum outcome outcome = finish(w, &a, outcome_of(descriptor, error), error, "open(O_CREAT)");
    if (outcome != OUTCOME_DONE) {
        // Row O3: no name is left behind.
        struct stat status;
        if (outcome == OUTCOME_REFUSED && lstat(path, &status) == 0) {
            report_wrong(w, "creating %s was refused and left its name behind", f->name);
            unlink(path);
        }
        return NULL;
    }
    f->is_used = f->has_name = true;
    f->was_made_in_boot = is_boot(a.phase) || is_boot(current_phase(w));
    add_descriptor(f, descriptor, O_RDWR);
    for (size_t at = 0; at < bytes / WORD_BYTES;) {
        size_t count = bytes / WORD_BYTES - at;
        if (!write_words(w, f, operation, at, count)) break;
        at += count;
    }
    if (f->bytes < MIN_FILE_BYTES) {
        // A lock came between the creation and the write. An empty file has no content to withhold.
        unlink(path);
        drop_file(w, f);
        return NULL;
    }
    return f;
}
