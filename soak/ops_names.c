// Names, sizes and classes: opening, creating, truncating, replacing, linking, unlinking, changing
// the class.
#define _GNU_SOURCE
#include "soak.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define CLASS_ATTRIBUTE "user.ward.class"

static size_t choose_size(struct worker *w) {
    return MIN_FILE_BYTES + below(w, (MAX_FILE_BYTES - MIN_FILE_BYTES) / WORD_BYTES) * WORD_BYTES;
}

// MARK: Sizes

static void resized(struct worker *w, struct file *f, int result, size_t bytes) {
    if (result == 0) set_size(f, bytes);
    else settle_size(w, f, bytes);
}

OPERATION(op_truncate) {
    int descriptor = any_descriptor(w, f, 0);
    if (descriptor < 0) return;
    size_t bytes = choose_size(w);
    struct attempt a = begin(w, operation, f, NEED_CONTENT);
    int result = ftruncate(descriptor, bytes), error = errno;
    resized(w, f, result, bytes);
    finish(w, &a, outcome_of(result, error), error, "ftruncate");
}

OPERATION(op_truncate_path) {
    if (!f->has_name) return;
    size_t bytes = choose_size(w);
    char path[700];
    path_of(w, f, path, sizeof path);
    struct attempt a = begin(w, operation, f, NEED_OPEN);
    int result = truncate(path, bytes), error = errno;
    resized(w, f, result, bytes);
    finish(w, &a, outcome_of(result, error), error, "truncate");
}

OPERATION(op_allocate) {
    int descriptor = any_descriptor(w, f, O_APPEND);
    if (descriptor < 0) return;
    size_t bytes = choose_size(w);
    int mode = below(w, 2) ? FALLOC_FL_KEEP_SIZE : 0;
    struct attempt a = begin(w, operation, f, NEED_CONTENT);
    int result = fallocate(descriptor, mode, 0, bytes), error = errno;
    if (mode == 0 && bytes > f->bytes) resized(w, f, result, bytes);
    finish(w, &a, outcome_of(result, error), error, "fallocate");
}

OPERATION(op_punch) {
    int descriptor = any_descriptor(w, f, O_APPEND);
    if (descriptor < 0) return;
    size_t first = below(w, f->bytes / WORD_BYTES), count = 1 + below(w, f->bytes / WORD_BYTES - first);
    if (!has_room(f, first, count)) return;
    int mode = below(w, 2) ? FALLOC_FL_PUNCH_HOLE : FALLOC_FL_ZERO_RANGE;
    struct attempt a = begin(w, operation, f, NEED_CONTENT);
    int result = fallocate(descriptor, mode | FALLOC_FL_KEEP_SIZE, first * WORD_BYTES, count * WORD_BYTES);
    int error = errno;
    if (result == 0) commit(f, first, count, 0);
    else maybe(f, first, count, 0);
    finish(w, &a, outcome_of(result, error), error, mode == FALLOC_FL_PUNCH_HOLE ? "punch" : "zero");
}

// MARK: Opening

OPERATION(op_open) {
    static const int flags[] = {O_RDWR, O_RDWR, O_RDWR | O_APPEND, O_RDWR | O_DIRECT};
    if (!f->has_name) return;
    open_again(w, f, operation, flags[below(w, f->is_striped ? 2 : 4)]);
}

// Opens with O_TRUNC. A refusal comes before the truncation (row O1).
OPERATION(op_open_truncating) {
    if (!f->has_name || below(w, 4)) return;
    size_t before = f->bytes;
    char path[700];
    path_of(w, f, path, sizeof path);
    struct attempt a = begin(w, operation, f, NEED_OPEN);
    int descriptor = open(path, O_RDWR | O_TRUNC | O_CLOEXEC), error = errno;
    resized(w, f, descriptor < 0 ? -1 : 0, 0);
    finish(w, &a, outcome_of(descriptor, error), error, "open(O_TRUNC)");
    if (descriptor >= 0) add_descriptor(f, descriptor, O_RDWR);
    if (f->bytes == 0) {
        // An empty file has no content to withhold, and the kernel answers for it. Give it content
        // again.
        if (!write_words(w, f, operation_named("write"), 0, before / WORD_BYTES) && f->bytes < MIN_FILE_BYTES) {
            drop_file(w, f);
            unlink(path);
        }
    }
}

OPERATION(op_reopen_proc) {
    int from = any_descriptor(w, f, 0);
    if (from < 0) return;
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", from);
    struct attempt a = begin(w, operation, f, NEED_OPEN);
    int descriptor = open(path, O_RDWR | O_CLOEXEC), error = errno;
    finish(w, &a, outcome_of(descriptor, error), error, "open of /proc/self/fd");
    if (descriptor >= 0) add_descriptor(f, descriptor, O_RDWR);
}

OPERATION(op_close) {
    int count = 0;
    for (int i = 0; i < MAX_DESCRIPTORS; i++) count += f->descriptors[i] >= 0;
    // The last descriptor mostly stays open, because descriptors from before a lock are the subject
    // of this test.
    if (f->is_striped || count == 0 || (count == 1 && below(w, 20))) return;
    int i = below(w, MAX_DESCRIPTORS);
    if (f->descriptors[i] < 0) return;
    struct attempt a = begin(w, operation, f, NEED_NOTHING);
    int result = close(f->descriptors[i]), error = errno;
    f->descriptors[i] = -1;
    // The file was made while locked, and a stronger class was refused since. The close succeeds,
    // but returns that error.
    if (f->is_weaker && result && error == EPERM) result = error = 0;
    finish(w, &a, outcome_of(result, error), error, "close");
    if (count == 1 && !f->has_name) drop_file(w, f);
}

// MARK: Names

OPERATION(op_create) {
    (void)f;
    (void)operation;
    make_file(w, below(w, CLASS_COUNT), choose_size(w));
}

// Makes a file without a name. It gets its class before its first data, and its name last (row
// O15).
OPERATION(op_create_unnamed) {
    struct file *made = free_file(w);
    enum protection_class class = below(w, CLASS_COUNT);
    (void)f;
    if (!made) return;
    char directory[700], path[700], proc[64];
    snprintf(directory, sizeof directory, "%sD", w->prefix);
    struct attempt a = begin_class(w, operation, CLASS_D, NEED_CREATE);
    int descriptor = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600), error = errno;
    if (finish(w, &a, outcome_of(descriptor, error), error, "open(O_TMPFILE)") != OUTCOME_DONE) return;
    a = begin_class(w, operation, class, NEED_CREATE);
    int result = fsetxattr(descriptor, CLASS_ATTRIBUTE, class_letters[class], strlen(class_letters[class]), 0);
    error = errno;
    if (finish(w, &a, outcome_of(result, error), error, "class of an unnamed file") != OUTCOME_DONE) {
        close(descriptor);
        return;
    }
    clear_file(w, made, class);
    snprintf(made->name, sizeof made->name, "D/u%u", w->files_made);
    made->was_made_in_boot = true;
    add_descriptor(made, descriptor, O_RDWR);
    if (!write_words(w, made, operation, 0, 2 * PAGE / WORD_BYTES)) {
        close_file(w, made);
        return;
    }
    path_of(w, made, path, sizeof path);
    snprintf(proc, sizeof proc, "/proc/self/fd/%d", descriptor);
    a = begin_class(w, operation, class, NEED_CREATE);
    result = linkat(AT_FDCWD, proc, AT_FDCWD, path, AT_SYMLINK_FOLLOW);
    error = errno;
    if (finish(w, &a, outcome_of(result, error), error, "linkat of an unnamed file") != OUTCOME_DONE) {
        close_file(w, made);
        return;
    }
    made->is_used = made->has_name = true;
}

// Renames a new file over an old one, which its descriptors keep (rows I5, I6).
OPERATION(op_replace) {
    if (!f->has_name || f->has_second_name || f->is_striped) return;
    struct file *made = make_file(w, below(w, 3) ? CLASS_A : CLASS_C, choose_size(w));
    if (!made) return;
    char from[700], to[700];
    path_of(w, made, from, sizeof from);
    path_of(w, f, to, sizeof to);
    struct attempt a = begin(w, operation, made, NEED_NOTHING);
    int result = rename(from, to), error = errno;
    if (finish(w, &a, outcome_of(result, error), error, "rename over") != OUTCOME_DONE) return;
    memcpy(made->name, f->name, sizeof made->name);
    f->has_name = false;
    if (any_descriptor(w, f, 0) < 0) drop_file(w, f);
}

OPERATION(op_link) {
    if (!f->has_name) return;
    char from[700], to[700];
    path_of(w, f, from, sizeof from);
    second_path_of(w, f, to, sizeof to);
    struct attempt a = begin(w, operation, f, NEED_NOTHING);
    if (f->has_second_name) {
        // The other name leads to the same file, with the same class.
        struct attempt b = begin(w, operation_named("open"), f, NEED_OPEN);
        int descriptor = open(to, O_RDWR | O_CLOEXEC), error = errno;
        finish(w, &b, outcome_of(descriptor, error), error, "by another name");
        if (descriptor >= 0) add_descriptor(f, descriptor, O_RDWR);
        if (below(w, 2)) return;
        int result = unlink(to);
        finish(w, &a, outcome_of(result, errno), errno, "unlink of a link");
        f->has_second_name = false;
    } else {
        int result = link(from, to), error = errno;
        struct stat status;
        // Linux 6.18 drops the link count of a LINK answer if another process's GETATTR is answered
        // in between, with any daemon. The next unlink(2) then makes the count 0, and link(2) fails
        // until a stat(2) (docs/verification.md).
        if (result < 0 && error == ENOENT && f->is_striped && stat(from, &status) == 0) {
            result = link(from, to);
            error = errno;
        }
        f->has_second_name = finish(w, &a, outcome_of(result, error), error, "link") == OUTCOME_DONE;
    }
}

OPERATION(op_rename) {
    if (!f->has_name || f->is_striped) return;
    char from[700], to[700], name[sizeof f->name];
    path_of(w, f, from, sizeof from);
    snprintf(name, sizeof name, "%s/r%u", class_letters[below(w, CLASS_COUNT)], ++w->files_made);
    snprintf(to, sizeof to, "%s%s", w->prefix, name);
    struct attempt a = begin(w, operation, f, NEED_NOTHING);
    int result = rename(from, to), error = errno;
    if (finish(w, &a, outcome_of(result, error), error, "rename") == OUTCOME_DONE) memcpy(f->name, name, sizeof name);
}

// Unlinks a file. An open file goes on without a name.
OPERATION(op_unlink) {
    if (!f->has_name || f->has_second_name || f->is_striped) return;
    int used = 0;
    for (int i = 0; i < MAX_FILES; i++) used += w->files[i].is_used;
    if (used < MAX_FILES - 2 && below(w, 4)) return;
    char path[700];
    path_of(w, f, path, sizeof path);
    struct attempt a = begin(w, operation, f, NEED_NOTHING);
    int result = unlink(path), error = errno;
    if (finish(w, &a, outcome_of(result, error), error, "unlink") != OUTCOME_DONE) return;
    f->has_name = false;
    if (any_descriptor(w, f, 0) < 0 || below(w, 3) == 0) drop_file(w, f);
}

static bool is_class(const char *value, ssize_t length, enum protection_class class) {
    return length == (ssize_t)strlen(class_names[class]) && memcmp(value, class_names[class], length) == 0;
}

// Reads and sets attributes (rows O10 and O11).
OPERATION(op_attributes) {
    if (!f->has_name) return;
    char path[700], value[64];
    path_of(w, f, path, sizeof path);
    struct stat status;
    struct attempt a = begin(w, operation, f, NEED_NOTHING);
    int result = stat(path, &status), error = errno;
    finish(w, &a, outcome_of(result, error), error, "stat");
    if (result == 0 && (size_t)status.st_size != f->bytes) {
        report_loss(w, "%s %s is %zu bytes long instead of %zu after %s", class_letters[f->class], f->name,
            (size_t)status.st_size, f->bytes, history_of(f));
        f->bytes = status.st_size;
    }
    switch (below(w, 3)) {
    case 0: result = chmod(path, below(w, 2) ? 0600 : 0640); break;
    case 1: result = setxattr(path, "user.soak", "value", 5, 0); break;
    default:
        result = getxattr(path, CLASS_ATTRIBUTE, value, sizeof value);
        if (result >= 0 && !is_class(value, result, f->class)) {
            report_wrong(w, "%s says class %.*s instead of %s", f->name, result, value, class_letters[f->class]);
        }
        result = result < 0 ? -1 : 0;
    }
    error = errno;
    finish(w, &a, outcome_of(result, error), error, "attributes");
}

OPERATION(op_list) {
    (void)f;
    char path[700];
    snprintf(path, sizeof path, "%sA", w->prefix);
    struct attempt a = begin_class(w, operation, CLASS_A, NEED_NOTHING);
    DIR *directory = opendir(path);
    int error = errno;
    if (finish(w, &a, outcome_of(directory ? 0 : -1, error), error, "opendir") != OUTCOME_DONE) return;
    size_t found = 0, expected = 0;
    for (struct dirent *entry; (entry = readdir(directory));) {
        char name[300];
        snprintf(name, sizeof name, "A/%s", entry->d_name);
        for (int i = 0; i < MAX_FILES; i++) {
            found += w->files[i].is_used && w->files[i].has_name && strcmp(w->files[i].name, name) == 0;
        }
    }
    closedir(directory);
    for (int i = 0; i < MAX_FILES; i++) {
        expected += w->files[i].is_used && w->files[i].has_name && strncmp(w->files[i].name, "A/", 2) == 0;
    }
    if (found != expected) report_wrong(w, "%zu names of %zu were listed in %s", found, expected, path);
}

// MARK: Classes

// Changes the class between A, C and D. Afterwards the file has the old or the new class (rows I7,
// I8).
OPERATION(op_class) {
    int descriptor = any_descriptor(w, f, 0);
    static const enum protection_class classes[] = {CLASS_A, CLASS_C, CLASS_D};
    enum protection_class from = f->class, to = classes[below(w, 3)];
    if (descriptor < 0 || f->is_striped || from == to || from == CLASS_B || from == CLASS_CX) return;
    // The change needs both keys. The rule of A is the strictest, then that of C.
    enum protection_class judge = from == CLASS_A || to == CLASS_A ? CLASS_A : CLASS_C;
    struct attempt a = begin_class(w, operation, judge, NEED_OPEN);
    int result = fsetxattr(descriptor, CLASS_ATTRIBUTE, class_letters[to], strlen(class_letters[to]), 0);
    int error = errno;
    char value[64];
    ssize_t length = fgetxattr(descriptor, CLASS_ATTRIBUTE, value, sizeof value);
    if (result && error == EPERM) f->is_weaker = true;
    if (is_class(value, length, to)) {
        f->class = to;
        f->is_weaker = false;
    } else if (result == 0 || !is_class(value, length, from)) {
        report_wrong(w, "%s is of class %.*s after a change from %s to %s that %s", f->name, length < 0 ? 1 : (int)length,
            length < 0 ? "?" : value, class_letters[from], class_letters[to], result ? "failed" : "succeeded");
    }
    finish(w, &a, outcome_of(result, error), error, "change of class");
}
