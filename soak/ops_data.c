// Reads and writes through descriptors.
#define _GNU_SOURCE
#include "soak.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

// Chooses a range of whole words in the file, at most `most` words.
static void choose_range(struct worker *w, const struct file *f, size_t most, size_t *first, size_t *count) {
    size_t words = f->bytes / WORD_BYTES;
    *first = below(w, words);
    *count = 1 + below(w, words - *first);
    if (*count > most) *count = most;
    if (f->is_striped) {
        size_t round = *first / STRIPE_WORDS / f->stripes * f->stripes + f->stripe;
        *first = round * STRIPE_WORDS;
        *count = STRIPE_WORDS;
        if (*first + *count > words) *first = f->stripe * STRIPE_WORDS;
    }
}

static void choose_pages(struct worker *w, const struct file *f, size_t *first, size_t *count) {
    size_t pages = f->bytes / PAGE;
    size_t page = below(w, pages);
    size_t number = 1 + below(w, pages - page < 8 ? pages - page : 8);
    *first = page * PAGE / WORD_BYTES;
    *count = number * PAGE / WORD_BYTES;
}

// Checks words that were read against the model. While the volume is certainly unlocked, a read
// must be complete.
static void check_read(struct worker *w, struct file *f, const struct attempt *a, ssize_t got, size_t first, size_t count,
    const char *how) {
    if (got <= 0) return;
    check_words(w, f, w->buffer, first, got / WORD_BYTES, false, how);
    if ((size_t)got < count * WORD_BYTES && kind_of(a->phase) == PHASE_UNLOCKED && current_phase(w) == a->phase) {
        report_loss(w, "%s: %s has %zu bytes and only %zd of %zu came from %zu", how, f->name, f->bytes, got,
            count * WORD_BYTES, first * WORD_BYTES);
    }
}

// Enters a write that returned `done` into the model.
static void note_write(struct worker *w, struct file *f, ssize_t done, size_t first, size_t count, uint32_t version) {
    size_t whole = done > 0 ? done / WORD_BYTES : 0;
    commit(f, first, whole, version);
    maybe(f, first + whole, count - whole, version);
    (void)w;
}

OPERATION(op_read) {
    int descriptor = any_descriptor(w, f, O_DIRECT);
    if (descriptor < 0) return;
    size_t first, count;
    choose_range(w, f, below(w, 4) ? 512 : MAX_WORDS, &first, &count);
    struct attempt a = begin(w, operation, f, NEED_CONTENT);
    ssize_t got = pread(descriptor, w->buffer, count * WORD_BYTES, first * WORD_BYTES);
    finish(w, &a, outcome_of(got, errno), errno, "pread");
    check_read(w, f, &a, got, first, count, "pread");
}

OPERATION(op_write) {
    size_t first, count;
    choose_range(w, f, below(w, 4) ? 512 : MAX_WORDS, &first, &count);
    write_words(w, f, operation, first, count);
}

OPERATION(op_append) {
    int descriptor = -1;
    for (int i = 0; i < MAX_DESCRIPTORS; i++) {
        if (f->descriptors[i] >= 0 && f->descriptor_flags[i] & O_APPEND) descriptor = f->descriptors[i];
    }
    if (descriptor < 0) return;
    size_t first = f->bytes / WORD_BYTES, count = 1 + below(w, 600);
    if (first + count > MAX_WORDS || !has_room(f, first, count)) return;
    // Linux 6.18 loses an append through FUSE with any daemon. A write-back of a dirty mapped last
    // page in between zeroes the data that the append put behind the old end
    // (docs/verification.md). A clean page is not written back.
    if (f->is_mapped_dirty) fsync(descriptor);
    f->is_mapped_dirty = false;
    uint32_t version = ++f->version;
    fill_words(w, f, (uint64_t *)w->buffer, first, count, version);
    struct attempt a = begin(w, operation, f, NEED_CONTENT);
    ssize_t done = write(descriptor, w->buffer, count * WORD_BYTES);
    int error = errno;
    note_write(w, f, done, first, count, version);
    if (done == (ssize_t)(count * WORD_BYTES)) set_size(f, f->bytes + done);
    else settle_size(w, f, done > 0 ? f->bytes + done : (first + count) * WORD_BYTES);
    finish(w, &a, outcome_of(done, error), error, "append");
}

static int direct_descriptor(const struct file *f) {
    for (int i = 0; i < MAX_DESCRIPTORS; i++) {
        if (f->descriptors[i] >= 0 && f->descriptor_flags[i] & O_DIRECT) return f->descriptors[i];
    }
    return -1;
}

OPERATION(op_direct_read) {
    int descriptor = direct_descriptor(f);
    if (descriptor < 0 || f->bytes < PAGE) return;
    size_t first, count;
    choose_pages(w, f, &first, &count);
    struct attempt a = begin(w, operation, f, NEED_CONTENT);
    ssize_t got = pread(descriptor, w->buffer, count * WORD_BYTES, first * WORD_BYTES);
    finish(w, &a, outcome_of(got, errno), errno, "pread, O_DIRECT");
    check_read(w, f, &a, got, first, count, "O_DIRECT pread");
}

OPERATION(op_direct_write) {
    int descriptor = direct_descriptor(f);
    if (descriptor < 0 || f->bytes < PAGE) return;
    size_t first, count;
    choose_pages(w, f, &first, &count);
    if (!has_room(f, first, count)) return;
    uint32_t version = ++f->version;
    fill_words(w, f, (uint64_t *)w->buffer, first, count, version);
    struct attempt a = begin(w, operation, f, NEED_CONTENT);
    ssize_t done = pwrite(descriptor, w->buffer, count * WORD_BYTES, first * WORD_BYTES);
    int error = errno;
    note_write(w, f, done, first, count, version);
    finish(w, &a, outcome_of(done, error), error, "pwrite, O_DIRECT");
}

OPERATION(op_vector) {
    int descriptor = any_descriptor(w, f, O_DIRECT | O_APPEND);
    if (descriptor < 0) return;
    size_t first, count;
    choose_range(w, f, 2048, &first, &count);
    size_t half = count / 2 * WORD_BYTES, whole = count * WORD_BYTES;
    struct iovec parts[2] = {{w->buffer, half}, {w->buffer + half, whole - half}};
    if (below(w, 2)) {
        struct attempt a = begin(w, operation, f, NEED_CONTENT);
        ssize_t got = preadv(descriptor, parts, 2, first * WORD_BYTES);
        finish(w, &a, outcome_of(got, errno), errno, "preadv");
        check_read(w, f, &a, got, first, count, "preadv");
    } else if (has_room(f, first, count)) {
        uint32_t version = ++f->version;
        fill_words(w, f, (uint64_t *)w->buffer, first, count, version);
        struct attempt a = begin(w, operation, f, NEED_CONTENT);
        ssize_t done = pwritev2(descriptor, parts, 2, first * WORD_BYTES, below(w, 3) ? 0 : RWF_DSYNC);
        int error = errno;
        note_write(w, f, done, first, count, version);
        finish(w, &a, outcome_of(done, error), error, "pwritev2");
    }
}

// Reads everything from a pipe or socket, where content of the file was put before.
static ssize_t drain(int descriptor, unsigned char *buffer, size_t wanted) {
    size_t at = 0;
    while (at < wanted) {
        ssize_t got = read(descriptor, buffer + at, wanted - at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        at += got;
    }
    return at;
}

OPERATION(op_sendfile) {
    int descriptor = any_descriptor(w, f, O_DIRECT);
    if (descriptor < 0) return;
    size_t first, count;
    choose_range(w, f, 1024, &first, &count);
    off_t offset = first * WORD_BYTES;
    struct attempt a = begin(w, operation, f, NEED_CONTENT);
    ssize_t sent = sendfile(w->pipe[1], descriptor, &offset, count * WORD_BYTES);
    finish(w, &a, outcome_of(sent, errno), errno, "to a pipe");
    if (sent > 0) check_read(w, f, &a, drain(w->pipe[0], w->buffer, sent), first, sent / WORD_BYTES, "sendfile");
}

OPERATION(op_splice_out) {
    int descriptor = any_descriptor(w, f, O_DIRECT);
    if (descriptor < 0) return;
    size_t first, count;
    choose_range(w, f, 1024, &first, &count);
    loff_t offset = first * WORD_BYTES;
    struct attempt a = begin(w, operation, f, NEED_CONTENT);
    ssize_t moved = splice(descriptor, &offset, w->pipe[1], NULL, count * WORD_BYTES, below(w, 2) ? SPLICE_F_MOVE : 0);
    finish(w, &a, outcome_of(moved, errno), errno, "to a pipe");
    if (moved > 0) check_read(w, f, &a, drain(w->pipe[0], w->buffer, moved), first, moved / WORD_BYTES, "splice");
}

// Moves memory to a pipe with vmsplice(2), and the pipe to the file with splice(2).
OPERATION(op_splice_in) {
    int descriptor = any_descriptor(w, f, O_DIRECT | O_APPEND);
    if (descriptor < 0) return;
    size_t first, count;
    choose_range(w, f, 1024, &first, &count);
    if (!has_room(f, first, count)) return;
    uint32_t version = ++f->version;
    fill_words(w, f, (uint64_t *)w->buffer, first, count, version);
    struct iovec part = {w->buffer, count * WORD_BYTES};
    ssize_t in_pipe = vmsplice(w->pipe[1], &part, 1, 0);
    if (in_pipe <= 0) return;
    count = in_pipe / WORD_BYTES;
    loff_t offset = first * WORD_BYTES;
    struct attempt a = begin(w, operation, f, NEED_CONTENT);
    ssize_t done = splice(w->pipe[0], NULL, descriptor, &offset, in_pipe, 0);
    int error = errno;
    note_write(w, f, done, first, count, version);
    finish(w, &a, outcome_of(done, error), error, "vmsplice and splice");
    drain(w->pipe[0], w->buffer, in_pipe - (done > 0 ? done : 0));
}

// Copies into a scratch file of any class, and reads the copy back if that file's class allows it.
OPERATION(op_copy_range) {
    int descriptor = any_descriptor(w, f, O_DIRECT | O_APPEND);
    enum protection_class target = below(w, CLASS_COUNT);
    if (descriptor < 0 || w->scratch[target] < 0 || w->is_child) return;
    size_t first, count;
    choose_range(w, f, 1024, &first, &count);
    loff_t from = first * WORD_BYTES, to = 0;
    struct attempt a = begin(w, operation, f, NEED_CONTENT);
    struct attempt b = begin_class(w, operation, target, NEED_CONTENT);
    ssize_t copied = copy_file_range(descriptor, &from, w->scratch[target], &to, count * WORD_BYTES, 0);
    int error = errno;
    enum outcome outcome = outcome_of(copied, error);
    if (outcome == OUTCOME_REFUSED) {
        // The class of either file may be the reason.
        finish(w, must_work(w, &a) ? &b : &a, outcome, error, "either side");
        return;
    }
    finish(w, &a, outcome, error, "from");
    if (outcome == OUTCOME_DONE) finish(w, &b, outcome, error, "to");
    if (copied <= 0) return;
    struct attempt c = begin_class(w, operation, target, NEED_CONTENT);
    ssize_t got = pread(w->scratch[target], w->buffer, copied, 0);
    error = errno;
    finish(w, &c, outcome_of(got, error), error, "pread of the copy");
    if (got > 0) check_words(w, f, w->buffer, first, got / WORD_BYTES, false, "copy_file_range");
}

// These need no key (row O9).
OPERATION(op_sync) {
    int descriptor = any_descriptor(w, f, 0);
    if (descriptor < 0) return;
    struct attempt a = begin(w, operation, f, NEED_NOTHING);
    int result = 0;
    const char *what = "";
    switch (below(w, 6)) {
    case 0: what = "fsync", result = fsync(descriptor); break;
    case 1: what = "fdatasync", result = fdatasync(descriptor); break;
    case 2:
        what = "sync_file_range";
        result = sync_file_range(descriptor, 0, 0, SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
        break;
    case 3: what = "fadvise", result = posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED); break;
    case 4: what = "flock", result = flock(descriptor, LOCK_SH) || flock(descriptor, LOCK_UN); break;
    default: what = "readahead", result = 0, readahead(descriptor, 0, f->bytes);
    }
    finish(w, &a, outcome_of(result, errno), errno, what);
}

OPERATION(op_seek) {
    int descriptor = any_descriptor(w, f, 0);
    if (descriptor < 0) return;
    int whence = below(w, 2) ? SEEK_DATA : SEEK_HOLE;
    struct attempt a = begin(w, operation, f, NEED_CONTENT);
    off_t at = lseek(descriptor, 0, whence);
    int error = errno;
    // ENXIO: "no data" is an answer, too.
    enum outcome outcome = at < 0 && error == ENXIO ? OUTCOME_DONE : outcome_of(at, error);
    finish(w, &a, outcome, error, whence == SEEK_DATA ? "data" : "hole");
}
