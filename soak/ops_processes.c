// Several processes: passed and stolen descriptors, memory of others, fork with everything mapped.
#define _GNU_SOURCE
#include "soak.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static int receive_descriptor(int socket) {
    char byte, control[CMSG_SPACE(sizeof(int))];
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) <= 0) return -1;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (!header || header->cmsg_type != SCM_RIGHTS) return -1;
    int descriptor;
    memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
    return descriptor;
}

// Passes one descriptor through a socket, where it may lie across a lock.
OPERATION(op_pass) {
    if (w->is_child) return;
    struct attempt a = begin(w, operation, f, NEED_NOTHING);
    if (w->in_flight_file != -1) {
        int descriptor = receive_descriptor(w->pair[0]);
        if (descriptor < 0) {
            finish(w, &a, OUTCOME_FAILED, errno, "receive");
        } else if (w->in_flight_file < 0 || !w->files[w->in_flight_file].is_used) {
            close(descriptor);
        } else {
            struct file *owner = &w->files[w->in_flight_file];
            if (add_descriptor(owner, descriptor, w->in_flight_flags) >= 0) {
                op_read(w, owner, operation_named("read"));
            }
        }
        w->in_flight_file = -1;
        return;
    }
    int i = below(w, MAX_DESCRIPTORS), number = f - w->files;
    if (f->descriptors[i] < 0 || f->is_striped) return;
    char byte = 0, control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &f->descriptors[i], sizeof(int));
    ssize_t sent = sendmsg(w->pair[1], &message, MSG_DONTWAIT);
    finish(w, &a, outcome_of(sent, errno), errno, "send");
    if (sent <= 0) return;
    w->in_flight_file = number;
    w->in_flight_flags = f->descriptor_flags[i];
    int others = 0;
    for (int j = 0; j < MAX_DESCRIPTORS; j++) others += j != i && f->descriptors[j] >= 0;
    if (others) {
        close(f->descriptors[i]);
        f->descriptors[i] = -1;
    }
}

// Forks a child that has everything mapped and open, and reads for a while. The parent waits,
// because both use the same counters.
OPERATION(op_fork) {
    if (w->is_child || below(w, 8)) return;
    struct attempt a = begin(w, operation, f, NEED_NOTHING);
    uint32_t phase = current_phase(w);
    pid_t child = fork();
    if (child < 0) {
        finish(w, &a, OUTCOME_UNAVAILABLE, errno, "fork");
        return;
    }
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        w->is_child = w->only_reads = true;
        for (int round = 0; round < 20; round++) {
            uint32_t now = current_phase(w);
            if (kind_of(now) == PHASE_QUIESCE || kind_of(now) == PHASE_QUIT) break;
            run_operations(w, now, 10);
            // Waits for the next lock, if it comes soon.
            if (now == phase && kind_of(now) != PHASE_LOCKED) usleep(2000);
        }
        _exit(0);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    finish(w, &a, status == 0 ? OUTCOME_DONE : OUTCOME_FAILED, ECHILD, "child");
}

// MARK: Thieves

struct victim {
    struct slot *slot;
    struct published entry;
    uint32_t sequence;
    pid_t pid;
};

static bool choose_victim(struct worker *w, struct victim *v) {
    v->slot = &w->shared->slots[below(w, w->shared->slot_count)];
    v->pid = __atomic_load_n(&v->slot->pid, __ATOMIC_ACQUIRE);
    v->sequence = __atomic_load_n(&v->slot->sequence, __ATOMIC_ACQUIRE);
    if (v->slot == w->slot || v->pid == 0 || v->sequence & 1) return false;
    v->entry = v->slot->published[below(w, MAX_PUBLISHED)];
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return v->entry.descriptor >= 0 && __atomic_load_n(&v->slot->sequence, __ATOMIC_ACQUIRE) == v->sequence;
}

static bool is_unchanged(const struct victim *v) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return __atomic_load_n(&v->slot->sequence, __ATOMIC_ACQUIRE) == v->sequence;
}

// Checks that stolen words are words of the file. Only its owner knows the right version, and may
// be writing the next one.
static void check_stolen(struct worker *w, const struct victim *v, size_t first, ssize_t got, const char *how) {
    for (ssize_t i = 0; i < got / WORD_BYTES; i++) {
        uint64_t word = ((uint64_t *)w->buffer)[i];
        if (!is_word_of_other(w->seed, v->entry.file_id, first + i, word, v->entry.accepted_version)) {
            report_loss(w, "%s: word %zu of file %x of another process is %016llx", how, (size_t)(first + i),
                v->entry.file_id, (unsigned long long)word);
            return;
        }
    }
    w->slot->verified_words += got / WORD_BYTES;
}

// Steals through /proc/PID/fd or pidfd_getfd(2).
OPERATION(op_steal) {
    struct victim v;
    (void)f;
    if (!choose_victim(w, &v)) return;
    struct attempt a = begin_class(w, operation, v.entry.protection_class, NEED_OPEN);
    bool reopens = below(w, 2);
    int descriptor;
    if (reopens) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/fd/%d", v.pid, v.entry.descriptor);
        descriptor = open(path, O_RDONLY | O_CLOEXEC);
    } else {
        a.need = NEED_CONTENT;
        int process = syscall(SYS_pidfd_open, v.pid, 0);
        if (process < 0) return;
        descriptor = syscall(SYS_pidfd_getfd, process, v.entry.descriptor, 0);
        int error = errno;
        close(process);
        errno = error;
    }
    int error = errno;
    if (descriptor < 0) {
        // The process may have ended, or the kernel forbids it (ptrace_scope).
        if (!reopens || error != EPERM) return;
        if (is_unchanged(&v)) finish(w, &a, OUTCOME_REFUSED, error, "/proc/PID/fd");
        return;
    }
    size_t first = below(w, v.entry.words), count = 1 + below(w, v.entry.words - first);
    a.need = NEED_CONTENT;
    ssize_t got = pread(descriptor, w->buffer, count * WORD_BYTES, first * WORD_BYTES);
    error = errno;
    close(descriptor);
    // A thief does not know the rights of B's owner, nor which files were made before first unlock.
    if (!is_unchanged(&v) || got == 0 || (a.class == CLASS_B && got < 0)) return;
    // An entry from before the lock does not have the last accepted version.
    if (got > 0 && kind_of(a.phase) == PHASE_LOCKED && v.entry.phase != a.phase) return;
    bool echo = got > 0 && is_echo(w, &a, v.entry.accepted_version, w->buffer, got / WORD_BYTES);
    finish(w, &a, echo ? OUTCOME_UNKNOWN : outcome_of(got, error), error, reopens ? "/proc/PID/fd" : "pidfd_getfd");
    check_stolen(w, &v, first, got, "stolen descriptor");
}

// Steals through /proc/PID/mem or process_vm_readv(2).
OPERATION(op_steal_memory) {
    struct victim v;
    (void)f;
    if (!choose_victim(w, &v) || v.entry.address == 0) return;
    size_t mapped = v.entry.bytes / WORD_BYTES < v.entry.words ? v.entry.bytes / WORD_BYTES : v.entry.words;
    if (mapped == 0) return;
    size_t first = below(w, mapped), count = 1 + below(w, 64);
    if (first + count > mapped) count = mapped - first;
    uint64_t from = v.entry.address + first * WORD_BYTES;
    struct attempt a = begin_class(w, operation, v.entry.protection_class, NEED_CONTENT);
    ssize_t got;
    bool by_call = below(w, 2);
    if (by_call) {
        struct iovec local = {w->buffer, count * WORD_BYTES}, remote = {(void *)(uintptr_t)from, count * WORD_BYTES};
        got = process_vm_readv(v.pid, &local, 1, &remote, 1, 0);
    } else {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/mem", v.pid);
        int memory = open(path, O_RDONLY | O_CLOEXEC);
        if (memory < 0) return;
        got = pread(memory, w->buffer, count * WORD_BYTES, from);
        int error = errno;
        close(memory);
        errno = error == EIO ? EFAULT : error;
    }
    int error = errno;
    if (!is_unchanged(&v) || got == 0 || (got < 0 && error != EFAULT) || (a.class == CLASS_B && got < 0)) return;
    if (got > 0 && kind_of(a.phase) == PHASE_LOCKED && v.entry.phase != a.phase) return;
    bool echo = got > 0 && is_echo(w, &a, v.entry.accepted_version, w->buffer, got / WORD_BYTES);
    finish(w, &a, echo ? OUTCOME_UNKNOWN : outcome_of(got, error), error, by_call ? "process_vm_readv" : "/proc/PID/mem");
    check_stolen(w, &v, first, got, "stolen memory");
}
