// io_uring by system calls: reads and writes through a ring, several at once, with and without
// fixed buffers.
#define _GNU_SOURCE
#include "soak.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define ENTRIES 8
#define PIECE_BYTES (MAX_FILE_BYTES / ENTRIES)

static struct {
    int descriptor;
    pid_t owner;
    bool has_fixed_buffer;
    unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
    struct io_uring_sqe *entries;
    struct io_uring_cqe *completions;
    unsigned char *buffer;
} ring = {.descriptor = -1};

// Opens the ring of this process. False without io_uring (kernel.io_uring_disabled, seccomp).
static bool open_ring(struct worker *w) {
    if (ring.descriptor >= 0 && ring.owner == getpid()) return true;
    if (ring.descriptor == -2) return false;
    struct io_uring_params parameters = {0};
    int descriptor = syscall(SYS_io_uring_setup, ENTRIES, &parameters);
    if (descriptor < 0) {
        ring.descriptor = -2;
        return false;
    }
    if (!(parameters.features & IORING_FEAT_SINGLE_MMAP)) {
        close(descriptor);
        ring.descriptor = -2;
        return false;
    }
    size_t sq_bytes = parameters.sq_off.array + parameters.sq_entries * sizeof(unsigned);
    size_t cq_bytes = parameters.cq_off.cqes + parameters.cq_entries * sizeof(struct io_uring_cqe);
    char *queues = mmap(NULL, sq_bytes > cq_bytes ? sq_bytes : cq_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
        descriptor, IORING_OFF_SQ_RING);
    void *entries = mmap(NULL, parameters.sq_entries * sizeof(struct io_uring_sqe), PROT_READ | PROT_WRITE,
        MAP_SHARED | MAP_POPULATE, descriptor, IORING_OFF_SQES);
    unsigned char *buffer = mmap(NULL, MAX_FILE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (queues == MAP_FAILED || entries == MAP_FAILED || buffer == MAP_FAILED) abort();
    fcntl(descriptor, F_SETFD, FD_CLOEXEC);
    ring.descriptor = descriptor;
    ring.owner = getpid();
    ring.sq_tail = (unsigned *)(queues + parameters.sq_off.tail);
    ring.sq_mask = (unsigned *)(queues + parameters.sq_off.ring_mask);
    ring.sq_array = (unsigned *)(queues + parameters.sq_off.array);
    ring.cq_head = (unsigned *)(queues + parameters.cq_off.head);
    ring.cq_tail = (unsigned *)(queues + parameters.cq_off.tail);
    ring.cq_mask = (unsigned *)(queues + parameters.cq_off.ring_mask);
    ring.entries = entries;
    ring.completions = (struct io_uring_cqe *)(queues + parameters.cq_off.cqes);
    ring.buffer = buffer;
    struct iovec fixed = {buffer, MAX_FILE_BYTES};
    // Pinning may exceed this user's limit of locked memory.
    ring.has_fixed_buffer = syscall(SYS_io_uring_register, descriptor, IORING_REGISTER_BUFFERS, &fixed, 1) == 0;
    (void)w;
    return true;
}

// Runs `count` requests at once, and stores their results by position.
static bool run_ring(struct worker *w, int descriptor, bool writes, size_t count, const size_t *offsets,
    const size_t *sizes, int *results) {
    bool fixed = ring.has_fixed_buffer && below(w, 2);
    unsigned tail = *ring.sq_tail;
    for (size_t i = 0; i < count; i++) {
        unsigned at = (tail + i) & *ring.sq_mask;
        struct io_uring_sqe *entry = &ring.entries[at];
        memset(entry, 0, sizeof *entry);
        entry->opcode = writes ? (fixed ? IORING_OP_WRITE_FIXED : IORING_OP_WRITE)
                               : (fixed ? IORING_OP_READ_FIXED : IORING_OP_READ);
        entry->flags = below(w, 3) ? 0 : IOSQE_ASYNC;
        entry->fd = descriptor;
        entry->off = offsets[i];
        entry->addr = (uintptr_t)(ring.buffer + i * PIECE_BYTES);
        entry->len = sizes[i];
        entry->user_data = i;
        ring.sq_array[at] = at;
        results[i] = -EINTR;
    }
    __atomic_store_n(ring.sq_tail, tail + count, __ATOMIC_RELEASE);
    unsigned to_submit = count;
    for (size_t completed = 0; completed < count;) {
        long submitted = syscall(SYS_io_uring_enter, ring.descriptor, to_submit, 1, IORING_ENTER_GETEVENTS, NULL, 0);
        if (submitted > 0) to_submit -= submitted;
        if (submitted < 0 && errno != EINTR && errno != EAGAIN && errno != EBUSY) return false;
        unsigned head = *ring.cq_head;
        while (head != __atomic_load_n(ring.cq_tail, __ATOMIC_ACQUIRE)) {
            struct io_uring_cqe *completion = &ring.completions[head & *ring.cq_mask];
            results[completion->user_data] = completion->res;
            head++;
            completed++;
        }
        __atomic_store_n(ring.cq_head, head, __ATOMIC_RELEASE);
    }
    return true;
}

// Chooses ranges that do not overlap, one in each of `count` equal parts of the file.
static size_t choose_pieces(struct worker *w, const struct file *f, size_t *offsets, size_t *sizes) {
    size_t count = 1 + below(w, 4);
    size_t part = f->bytes / count / WORD_BYTES;
    if (part == 0) return 0;
    for (size_t i = 0; i < count; i++) {
        size_t first = below(w, part);
        sizes[i] = (1 + below(w, part - first)) * WORD_BYTES;
        if (sizes[i] > PIECE_BYTES) sizes[i] = PIECE_BYTES;
        offsets[i] = (i * part + first) * WORD_BYTES;
    }
    return count;
}

static bool begins(struct worker *w, struct file *f, int operation) {
    if (open_ring(w)) return true;
    struct attempt a = begin(w, operation, f, NEED_CONTENT);
    finish(w, &a, OUTCOME_UNAVAILABLE, 0, "io_uring");
    return false;
}

OPERATION(op_ring_read) {
    int descriptor = any_descriptor(w, f, 0);
    size_t offsets[ENTRIES], sizes[ENTRIES];
    int results[ENTRIES];
    if (descriptor < 0 || !begins(w, f, operation)) return;
    size_t count = choose_pieces(w, f, offsets, sizes);
    if (!count) return;
    struct attempt a = begin(w, operation, f, NEED_CONTENT);
    if (!run_ring(w, descriptor, false, count, offsets, sizes, results)) {
        finish(w, &a, OUTCOME_FAILED, errno, "io_uring_enter");
        return;
    }
    for (size_t i = 0; i < count; i++) {
        finish(w, &a, outcome_of(results[i], -results[i]), -results[i], "read");
        if (results[i] > 0) {
            check_words(w, f, ring.buffer + i * PIECE_BYTES, offsets[i] / WORD_BYTES, results[i] / WORD_BYTES, false,
                "io_uring read");
        }
    }
}

OPERATION(op_ring_write) {
    int descriptor = any_descriptor(w, f, O_APPEND | O_DIRECT);
    size_t offsets[ENTRIES], sizes[ENTRIES];
    int results[ENTRIES];
    if (descriptor < 0 || f->is_striped || !begins(w, f, operation)) return;
    size_t count = choose_pieces(w, f, offsets, sizes);
    for (size_t i = 0; i < count; i++) {
        if (!has_room(f, offsets[i] / WORD_BYTES, sizes[i] / WORD_BYTES)) return;
    }
    if (!count) return;
    uint32_t version = ++f->version;
    for (size_t i = 0; i < count; i++) {
        fill_words(w, f, (uint64_t *)(ring.buffer + i * PIECE_BYTES), offsets[i] / WORD_BYTES, sizes[i] / WORD_BYTES,
            version);
    }
    struct attempt a = begin(w, operation, f, NEED_CONTENT);
    bool ran = run_ring(w, descriptor, true, count, offsets, sizes, results);
    for (size_t i = 0; i < count; i++) {
        size_t first = offsets[i] / WORD_BYTES, words = sizes[i] / WORD_BYTES;
        size_t whole = results[i] > 0 ? results[i] / WORD_BYTES : 0;
        commit(f, first, whole, version);
        maybe(f, first + whole, words - whole, version);
        if (ran) finish(w, &a, outcome_of(results[i], -results[i]), -results[i], "write");
    }
    if (!ran) finish(w, &a, OUTCOME_FAILED, errno, "io_uring_enter");
}
