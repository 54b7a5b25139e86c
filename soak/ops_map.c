// Mappings: loads and stores, and the kernel's own accesses to mapped memory.
#define _GNU_SOURCE
#include "soak.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef SYS_cachestat
#define SYS_cachestat 451  // Linux 6.5
#endif

// The number of words of the mapping that lie in the file.
static size_t mapped_words(const struct file *f, const struct mapping *m) {
    return (f->bytes < m->bytes ? f->bytes : m->bytes) / WORD_BYTES;
}

static enum need need_of(const struct mapping *m, size_t page) {
    // A private copy belongs to the process (row L1).
    return m->kind == MAPPING_PRIVATE && m->owner[page] == PAGE_OWN ? NEED_NOTHING : NEED_CONTENT;
}

OPERATION(op_load) {
    struct mapping *m = any_mapping(w, f, MAPPING_NONE);
    if (!m || !mapped_words(f, m)) return;
    volatile size_t index = below(w, mapped_words(f, m));
    size_t page = index * WORD_BYTES / PAGE;
    if (m->kind == MAPPING_PRIVATE && m->owner[page] == PAGE_UNKNOWN) return;
    struct attempt a = begin(w, operation, f, need_of(m, page));
    if (TOUCHES) {
        uint64_t word = ((volatile uint64_t *)m->address)[index];
        touched();
        bool echo = is_echo(w, &a, f->accepted_version, &word, 1);
        finish(w, &a, echo ? OUTCOME_UNKNOWN : OUTCOME_DONE, 0, m->kind == MAPPING_PRIVATE ? "private" : "shared");
        if (a.need == NEED_CONTENT) check_words(w, f, &word, index, 1, false, "mapped load");
    } else {
        finish(w, &a, OUTCOME_BUS_ERROR, 0, "load");
    }
}

OPERATION(op_store) {
    struct mapping *m = any_mapping(w, f, MAPPING_SHARED);
    if (!m || !mapped_words(f, m)) return;
    size_t words = mapped_words(f, m);
    size_t first = below(w, words), count = 1 + below(w, 64);
    if (f->is_striped) {
        first = (first / STRIPE_WORDS / f->stripes * f->stripes + f->stripe) * STRIPE_WORDS;
        count = STRIPE_WORDS;
        if (first + count > words) first = f->stripe * STRIPE_WORDS;
    }
    if (first + count > words) count = words - first;
    if (!has_room(f, first, count)) return;
    uint32_t version = ++f->version;
    fill_words(w, f, (uint64_t *)w->buffer, first, count, version);
    volatile size_t done = 0;
    struct attempt a = begin(w, operation, f, NEED_CONTENT);
    if (TOUCHES) {
        volatile uint64_t *to = (volatile uint64_t *)m->address + first;
        for (size_t i = 0; i < count; i++) {
            to[i] = ((uint64_t *)w->buffer)[i];
            done = i + 1;
        }
        touched();
        finish(w, &a, OUTCOME_DONE, 0, "store");
    } else {
        finish(w, &a, OUTCOME_BUS_ERROR, 0, "store");
    }
    // A store without a signal is accepted (row L2). The store that raised the signal did not
    // happen.
    commit(f, first, done, version);
    f->is_mapped_dirty = true;
    if (below(w, 3)) return;
    struct attempt b = begin(w, operation, f, NEED_NOTHING);
    int result = msync(m->address, m->bytes, below(w, 2) ? MS_SYNC : MS_ASYNC);
    finish(w, &b, outcome_of(result, errno), errno, "msync");
}

static struct mapping *free_mapping(struct file *f) {
    for (int i = 0; i < MAX_MAPPINGS; i++) {
        if (f->mappings[i].kind == MAPPING_NONE) return &f->mappings[i];
    }
    return NULL;
}

// mlock(2) and MAP_POPULATE of an unreadable page do not fail: the kernel retries for ever, until
// SIGKILL or the unlock. It drops the mapping's lock while it waits for the page, and then forgets
// that it tried (`__mm_populate` in mm/gup.c, VM_FAULT_RETRY of `filemap_fault`). So few
// adversaries do it, seldom while locked, and the driver does not wait for them.
static bool may_populate(struct worker *w, const struct file *f) {
    if (f->class == CLASS_D || w->is_plain) return true;
    enum phase_kind kind = kind_of(current_phase(w));
    return w->index % 4 == 2 && ((kind != PHASE_LOCKED && kind != PHASE_BOOT) || below(w, 100) == 0);
}

OPERATION(op_map) {
    struct mapping *m = free_mapping(f);
    int descriptor = any_descriptor(w, f, O_DIRECT | O_APPEND);
    if (!m || descriptor < 0) return;
    enum mapping_kind kind = MAPPING_SHARED + below(w, 3);
    int flags = kind == MAPPING_PRIVATE ? MAP_PRIVATE : MAP_SHARED;
    bool populates = below(w, 3) == 0 && may_populate(w, f);
    int protection = kind == MAPPING_READ_ONLY ? PROT_READ : PROT_READ | PROT_WRITE;
    // The kernel does not ask the daemon at mmap(2); the first touch counts (row O7).
    struct attempt a = begin(w, operation, f, NEED_NOTHING);
    size_t bytes = (f->bytes + PAGE - 1) / PAGE * PAGE;
    w->slot->is_populating = populates;
    void *address = mmap(NULL, bytes, protection, flags | (populates ? MAP_POPULATE : 0), descriptor, 0);
    int error = errno;
    w->slot->is_populating = 0;
    if (address == MAP_FAILED) {
        a.need = NEED_CONTENT;
        finish(w, &a, outcome_of(-1, error), error, "mmap");
        return;
    }
    finish(w, &a, OUTCOME_DONE, 0, "mmap");
    m->kind = kind;
    m->address = address;
    m->bytes = bytes;
    // Populating a writable private mapping copies its pages.
    memset(m->owner, kind == MAPPING_PRIVATE && populates ? PAGE_UNKNOWN : PAGE_CACHED, sizeof m->owner);
    if (below(w, 2)) op_load(w, f, operation_named("load"));
}

OPERATION(op_unmap) {
    struct mapping *m = any_mapping(w, f, MAPPING_NONE);
    if (!m || f->is_striped) return;
    // A mapping may be the last reference that keeps a file of class B open.
    struct attempt a = begin(w, operation, f, NEED_NOTHING);
    unmap(m);
    finish(w, &a, OUTCOME_DONE, 0, "munmap");
}

OPERATION(op_remap) {
    struct mapping *m = any_mapping(w, f, MAPPING_NONE);
    if (!m || f->is_striped) return;
    size_t before = m->bytes, bytes = PAGE * (1 + below(w, MAX_FILE_BYTES / PAGE));
    struct attempt a = begin(w, operation, f, NEED_NOTHING);
    // Pages added to a mapping that is locked in memory are populated.
    w->slot->is_populating = 1;
    void *address = mremap(m->address, m->bytes, bytes, MREMAP_MAYMOVE);
    int error = errno;
    w->slot->is_populating = 0;
    finish(w, &a, outcome_of(address == MAP_FAILED ? -1 : 0, error), error, "mremap");
    if (address == MAP_FAILED) return;
    m->address = address;
    m->bytes = bytes;
    // Pages added to a private mapping that is locked in memory are copied at once.
    size_t kept = (before < bytes ? before : bytes) / PAGE;
    memset(m->owner + kept, m->kind == MAPPING_PRIVATE ? PAGE_UNKNOWN : PAGE_CACHED, sizeof m->owner - kept);
    op_load(w, f, operation_named("load"));
}

// A page of class A must go at a lock even if it is locked in memory.
OPERATION(op_map_locked) {
    struct mapping *m = any_mapping(w, f, MAPPING_NONE);
    if (!m) return;
    if (below(w, 4) == 0) {
        munlock(m->address, m->bytes);
        return;
    }
    // Locks the whole mapping or nothing: mremap(2) refuses a mapping of two parts.
    if (!may_populate(w, f) || m->bytes > (f->bytes + PAGE - 1) / PAGE * PAGE) return;
    struct attempt a = begin(w, operation, f, NEED_CONTENT);
    w->slot->is_populating = 1;
    int result = mlock(m->address, m->bytes);
    int error = errno;
    w->slot->is_populating = 0;
    if (m->kind == MAPPING_PRIVATE) {
        for (size_t i = 0; i < sizeof m->owner; i++) {
            if (m->owner[i] == PAGE_CACHED) m->owner[i] = PAGE_UNKNOWN;
        }
        return;
    }
    if (result == 0) {
        finish(w, &a, OUTCOME_DONE, 0, "mlock");
    } else if (error == EPERM) {
        finish(w, &a, OUTCOME_UNAVAILABLE, 0, "mlock");
    } else if (error == ENOMEM || error == EAGAIN || error == EFAULT) {
        // Over this user's limit, or an unreadable page: mlock(2) does not tell which.
        finish(w, &a, must_work(w, &a) ? OUTCOME_UNAVAILABLE : OUTCOME_BUS_ERROR, error, "mlock");
    } else {
        finish(w, &a, OUTCOME_FAILED, error, "mlock");
    }
    op_load(w, f, operation_named("load"));
}

OPERATION(op_private_store) {
    struct mapping *m = any_mapping(w, f, MAPPING_PRIVATE);
    if (!m || !mapped_words(f, m)) return;
    size_t index = below(w, mapped_words(f, m)), page = index * WORD_BYTES / PAGE;
    if (m->owner[page] == PAGE_UNKNOWN) return;
    struct attempt a = begin(w, operation, f, need_of(m, page));
    if (TOUCHES) {
        ((volatile uint64_t *)m->address)[index] = 1;
        touched();
        finish(w, &a, OUTCOME_DONE, 0, "private store");
        m->owner[page] = PAGE_OWN;
    } else {
        finish(w, &a, OUTCOME_BUS_ERROR, 0, "private store");
    }
}

// Has the kernel read the mapping: for a pipe, /proc/self/mem, process_vm_readv(2), vmsplice(2) or
// MADV_POPULATE_READ.
OPERATION(op_map_by_kernel) {
    struct mapping *m = any_mapping(w, f, MAPPING_NONE);
    if (!m || m->kind == MAPPING_PRIVATE || !mapped_words(f, m)) return;
    size_t index = below(w, mapped_words(f, m)), count = 1 + below(w, 64);
    if (index + count > mapped_words(f, m)) count = mapped_words(f, m) - index;
    size_t bytes = count * WORD_BYTES;
    unsigned char *from = m->address + index * WORD_BYTES;
    struct iovec remote = {from, bytes}, local = {w->buffer, bytes};
    ssize_t got = -1;
    const char *what = "";
    struct attempt a = begin(w, operation, f, NEED_CONTENT);
    switch (below(w, 5)) {
    case 0:
        what = "write to a pipe";
        got = write(w->pipe[1], from, bytes);
        break;
    case 1:
        what = "vmsplice";
        got = vmsplice(w->pipe[1], &remote, 1, 0);
        break;
    case 2: {
        what = "/proc/self/mem";
        int memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
        if (memory < 0) return;
        got = pread(memory, w->buffer, bytes, (off_t)(uintptr_t)from);
        if (got < 0 && errno == EIO) errno = EFAULT;
        int error = errno;
        close(memory);
        errno = error;
        break;
    }
    case 3:
        what = "process_vm_readv";
        got = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
        break;
    default: {
        what = "MADV_POPULATE_READ";
        size_t page = (uintptr_t)from % PAGE;
        got = madvise(from - page, PAGE, MADV_POPULATE_READ);
        if (got == 0 && kind_of(a.phase) == PHASE_LOCKED && f->class == CLASS_A) {
            // A page of a refused write (judge.c) disappears a moment later.
            usleep(5000);
            got = madvise(from - page, PAGE, MADV_POPULATE_READ);
        }
        int error = errno;
        if (got < 0 && (error == EINVAL || error == ENOSYS)) {
            finish(w, &a, OUTCOME_UNAVAILABLE, error, what);
        } else {
            finish(w, &a, outcome_of(got, error), error, what);
        }
        return;
    }
    }
    int error = errno;
    if (got > 0 && (what[0] == 'w' || what[0] == 'v') && read(w->pipe[0], w->buffer, got) != got) return;
    bool echo = got > 0 && is_echo(w, &a, f->accepted_version, w->buffer, got / WORD_BYTES);
    finish(w, &a, echo ? OUTCOME_UNKNOWN : outcome_of(got, error), error, what);
    if (got <= 0) return;
    check_words(w, f, w->buffer, index, got / WORD_BYTES, false, what);
}

// Checks that after a lock no page of a class A file is in the page cache.
OPERATION(op_resident) {
    struct mapping *m = any_mapping(w, f, MAPPING_NONE);
    int descriptor = any_descriptor(w, f, 0);
    if (!m || descriptor < 0 || f->class != CLASS_A || m->kind == MAPPING_PRIVATE) return;
    unsigned char resident[MAX_FILE_BYTES / PAGE + 1];
    struct attempt a = begin(w, operation, f, NEED_CONTENT);
    size_t bytes = mapped_words(f, m) * WORD_BYTES;
    if (!bytes || mincore(m->address, bytes, resident)) return;
    size_t pages = 0;
    for (size_t i = 0; i < (bytes + PAGE - 1) / PAGE; i++) pages += resident[i] & 1;
    if (pages && kind_of(a.phase) == PHASE_LOCKED) {
        // A page of a refused write (judge.c) disappears a moment later.
        usleep(5000);
        if (mincore(m->address, bytes, resident)) return;
        pages = 0;
        for (size_t i = 0; i < (bytes + PAGE - 1) / PAGE; i++) pages += resident[i] & 1;
    }
    // No resident page counts as a refusal.
    finish(w, &a, pages ? OUTCOME_DONE : OUTCOME_UNKNOWN, 0, "mincore: resident");
    if (pages == 0 && kind_of(a.phase) == PHASE_LOCKED && current_phase(w) == a.phase) {
        w->slot->judged_locked[operation]++;
    }
    struct { uint64_t offset, bytes; } range = {0, 0};
    struct { uint64_t cached, dirty, writeback, evicted, recently_evicted; } state;
    a = begin(w, operation, f, NEED_CONTENT);
    if (syscall(SYS_cachestat, descriptor, &range, &state, 0)) {
        finish(w, &a, OUTCOME_UNAVAILABLE, errno, "cachestat");
        return;
    }
    // A refused read leaves an empty page, which this call counts as cached, and mincore(2) does
    // not.
    finish(w, &a, state.dirty + state.writeback ? OUTCOME_DONE : OUTCOME_UNKNOWN, 0, "cachestat: dirty pages");
}
