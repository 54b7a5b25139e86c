#define _GNU_SOURCE
#include "ward_ring.h"
#include "ward_fuse.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/ioprio.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Missing in the headers of Debian 12 (Linux 6.1). */
#ifndef IORING_SETUP_NO_MMAP
#define IORING_SETUP_NO_MMAP (1U << 14)
#endif
#ifndef IORING_REGISTER_USE_REGISTERED_RING
#define IORING_REGISTER_USE_REGISTERED_RING (1U << 31)
#endif

#define PAGE 4096

struct submission {
    struct io_uring_sqe entry;
    char more[64]; /* IORING_SETUP_SQE128 */
};

_Static_assert(sizeof(struct submission) * WARD_RING_MOST_ENTRIES <= PAGE, "submissions fit a page");
_Static_assert(sizeof(struct io_cqring_offsets) == 40 && sizeof(struct io_sqring_offsets) == 40, "ABI");
_Static_assert(offsetof(struct io_uring_sqe, addr3) == 48, "where a command's own bytes begin");

int ward_ring_open(struct ward_ring *ring, unsigned entries) {
    *ring = (struct ward_ring){.memory = NULL};
    if (entries == 0 || entries > WARD_RING_MOST_ENTRIES) return -EINVAL;
    char *memory = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) return -errno;
    struct io_uring_params p = {
        .flags = IORING_SETUP_NO_MMAP | IORING_SETUP_SQE128 | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
    };
    /* The last members of cq_off and sq_off: "user_addr" in the headers of Linux 6.5 and later,
     * "resv2" before. */
    uint64_t rings = (uintptr_t)memory, submissions = (uintptr_t)(memory + PAGE);
    memcpy((char *)&p.cq_off + sizeof p.cq_off - sizeof rings, &rings, sizeof rings);
    memcpy((char *)&p.sq_off + sizeof p.sq_off - sizeof submissions, &submissions, sizeof submissions);
    int fd = (int)syscall(SYS_io_uring_setup, entries, &p);
    if (fd < 0) {
        int reason = -errno;
        munmap(memory, 2 * PAGE);
        return reason;
    }
    struct io_uring_rsrc_update bind = {.offset = UINT32_MAX, .data = (uint64_t)fd};
    long bound = syscall(SYS_io_uring_register, fd, IORING_REGISTER_RING_FDS, &bind, 1);
    int reason = bound == 1 ? 0 : bound < 0 ? -errno : -ENOMEM;
    close(fd);
    if (reason != 0) {
        munmap(memory, 2 * PAGE);
        return reason;
    }
    ring->memory = memory;
    ring->index = (int)bind.offset;
    ring->submission_tail = (unsigned *)(memory + p.sq_off.tail);
    ring->submission_mask = *(unsigned *)(memory + p.sq_off.ring_mask);
    ring->completion_head = (unsigned *)(memory + p.cq_off.head);
    ring->completion_tail = (unsigned *)(memory + p.cq_off.tail);
    ring->completion_mask = *(unsigned *)(memory + p.cq_off.ring_mask);
    ring->completions = memory + p.cq_off.cqes;
    /* Submission n is always entry n. */
    unsigned *array = (unsigned *)(memory + p.sq_off.array);
    for (unsigned i = 0; i < p.sq_entries; i++) array[i] = i;
    return 0;
}

void ward_ring_close(struct ward_ring *ring) {
    if (ring->memory == NULL) return;
    struct io_uring_rsrc_update unbind = {.offset = (uint32_t)ring->index};
    syscall(SYS_io_uring_register, ring->index, IORING_UNREGISTER_RING_FDS | IORING_REGISTER_USE_REGISTERED_RING,
            &unbind, 1);
    /* The kernel holds the pages until the ring has ended. */
    munmap(ring->memory, 2 * PAGE);
    ring->memory = NULL;
}

static int prepare(struct ward_ring *ring, int device, uint32_t operation, const struct iovec *buffers, uint64_t commit_id,
                   uint16_t queue, uint64_t tag) {
    if (ring->unsubmitted > ring->submission_mask) return -EBUSY;
    unsigned tail = *ring->submission_tail;
    struct submission *submission = (struct submission *)((char *)ring->memory + PAGE) + (tail & ring->submission_mask);
    memset(submission, 0, sizeof *submission);
    submission->entry.opcode = IORING_OP_URING_CMD;
    submission->entry.fd = device;
    submission->entry.cmd_op = operation;
    submission->entry.user_data = tag;
    if (buffers != NULL) {
        submission->entry.addr = (uint64_t)(uintptr_t)buffers;
        submission->entry.len = 2;
    }
    struct fuse_uring_cmd_req command = {.commit_id = commit_id, .qid = queue};
    memcpy((char *)submission + offsetof(struct io_uring_sqe, addr3), &command, sizeof command);
    __atomic_store_n(ring->submission_tail, tail + 1, __ATOMIC_RELEASE);
    ring->unsubmitted++;
    return 0;
}

int ward_ring_register(struct ward_ring *ring, int device, uint16_t queue, const struct iovec *entry_buffers, uint64_t tag) {
    return prepare(ring, device, FUSE_IO_URING_CMD_REGISTER, entry_buffers, 0, queue, tag);
}

int ward_ring_commit(struct ward_ring *ring, int device, uint16_t queue, uint64_t commit_id, uint64_t tag) {
    return prepare(ring, device, FUSE_IO_URING_CMD_COMMIT_AND_FETCH, NULL, commit_id, queue, tag);
}

static long enter(struct ward_ring *ring, unsigned submit, unsigned wait, unsigned flags, void *argument, size_t count) {
    return syscall(SYS_io_uring_enter, ring->index, submit, wait, flags | IORING_ENTER_REGISTERED_RING, argument, count);
}

int ward_ring_submit(struct ward_ring *ring) {
    for (int vain = 0; ring->unsubmitted > 0;) {
        long count = enter(ring, ring->unsubmitted, 0, 0, NULL, 0);
        if (count > 0) {
            ring->unsubmitted -= (unsigned)count;
        } else if (count < 0 && (errno == EINTR || errno == EAGAIN) && ++vain < 10000) {
            sched_yield(); /* no memory for a moment */
        } else {
            return count == 0 ? -EIO : -errno;
        }
    }
    return 0;
}

int ward_ring_look(struct ward_ring *ring) {
    return enter(ring, 0, 0, IORING_ENTER_GETEVENTS, NULL, 0) < 0 ? -errno : 0;
}

int ward_ring_wait(struct ward_ring *ring, const sigset_t *signals) {
    struct io_uring_getevents_arg argument = {
        .sigmask = (uint64_t)(uintptr_t)signals,
        .sigmask_sz = 8, /* the kernel's sigset_t */
    };
    long result = enter(ring, 0, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, &argument, sizeof argument);
    return result < 0 ? -errno : 0;
}

int ward_ring_peek(const struct ward_ring *ring, unsigned number, uint64_t *tag, int32_t *result) {
    unsigned head = *ring->completion_head;
    if (number >= __atomic_load_n(ring->completion_tail, __ATOMIC_ACQUIRE) - head) return 0;
    const struct io_uring_cqe *completion =
        (const struct io_uring_cqe *)ring->completions + ((head + number) & ring->completion_mask);
    *tag = completion->user_data;
    *result = completion->res;
    return 1;
}

int ward_ring_next(struct ward_ring *ring, uint64_t *tag, int32_t *result) {
    if (!ward_ring_peek(ring, 0, tag, result)) return 0;
    __atomic_store_n(ring->completion_head, *ring->completion_head + 1, __ATOMIC_RELEASE);
    return 1;
}

/* One bit for each CPU. A machine may have more than a cpu_set_t holds: the kernel takes a mask
 * of any length (CPU_SET(3), CPU_SET_S). */
struct ward_cpus {
    cpu_set_t mask[8];
};

static __thread int is_bound;

static int set_cpus(pid_t thread, const struct ward_cpus *cpus) {
    return (int)syscall(SYS_sched_setaffinity, thread, sizeof cpus->mask, cpus->mask);
}

static int get_cpus(pid_t thread, struct ward_cpus *cpus) {
    memset(cpus, 0, sizeof *cpus);
    return syscall(SYS_sched_getaffinity, thread, sizeof cpus->mask, cpus->mask) < 0 ? -1 : 0;
}

int ward_run_on_cpu(unsigned cpu) {
    struct ward_cpus cpus = {{{{0}}}};
    CPU_SET_S(cpu, sizeof cpus.mask, cpus.mask);
    if (set_cpus(0, &cpus) != 0) return -1; /* EINVAL also where there is no such CPU */
    is_bound = 1;
    return 0;
}

int ward_run_anywhere(void) {
    struct ward_cpus cpus;
    if (get_cpus(getpid(), &cpus) != 0 || set_cpus(0, &cpus) != 0) return -1;
    is_bound = 0;
    return 0;
}

int ward_make_leave_cpu(pid_t thread) {
    struct ward_cpus all;
    if (get_cpus(getpid(), &all) != 0) return -1;
    /* A thread that waits for its CPU does not move when it may run elsewhere, too
     * (kernel/sched/core.c, __set_cpus_allowed_ptr_locked). So this CPU is forbidden first. */
    int cpu = ward_cpu_of_thread(thread);
    if (cpu >= 0) {
        struct ward_cpus others = all;
        CPU_CLR_S(cpu, sizeof others.mask, others.mask);
        (void)set_cpus(thread, &others); /* EINVAL: there is no other CPU */
    }
    return set_cpus(thread, &all);
}

int ward_may_run_on_cpu(unsigned cpu) {
    struct ward_cpus cpus;
    return get_cpus(getpid(), &cpus) == 0 && CPU_ISSET_S(cpu, sizeof cpus.mask, cpus.mask);
}

int ward_is_bound(void) { return is_bound; }

int ward_cpu_of_thread(pid_t thread) {
    char text[1024];
    /* The file of the thread: /proc/PID/stat adds up the whole process. */
    snprintf(text, sizeof text, "/proc/%d/task/%d/stat", (int)thread, (int)thread);
    int file = thread > 0 ? open(text, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return -1;
    ssize_t count = read(file, text, sizeof text - 1);
    close(file);
    if (count <= 0) return -1;
    text[count] = 0;
    /* "1234 (name) R 1 ...": the name may hold any character. The state is field 3, the CPU 39. */
    char *at = strrchr(text, ')');
    for (int field = 2; at && field < 39; field++) at = strchr(at + 1, ' ');
    if (!at) return -1;
    char *end;
    long cpu = strtol(at + 1, &end, 10);
    return end > at + 1 && cpu >= 0 && cpu <= 65535 ? (int)cpu : -1;
}

static __thread int gives_way;
static int giving_way_is_used;

static int set_policy(pid_t thread, int policy) {
    struct sched_param none = {.sched_priority = 0};
    return sched_setscheduler(thread, policy, &none);
}

/* Gives a thread the I/O priority that it has as an ordinary thread. Without one of its own it
 * has that of its niceness, but none while it yields (__get_task_ioprio,
 * include/linux/ioprio.h). For such a thread Linux 5.15 to 5.19 report the usual priority. */
static int keep_io_priority(pid_t thread) {
    long priority = syscall(SYS_ioprio_get, IOPRIO_WHO_PROCESS, thread);
    if (priority < 0) return errno == ENOSYS ? 0 : -1; /* ENOSYS: a kernel without disks */
    if (IOPRIO_PRIO_CLASS(priority) != IOPRIO_CLASS_NONE
        && priority != IOPRIO_PRIO_VALUE(IOPRIO_CLASS_BE, IOPRIO_BE_NORM))
        return 0;
    errno = 0;
    int niceness = getpriority(PRIO_PROCESS, (id_t)thread);
    if (niceness == -1 && errno != 0) return -1;
    int own = IOPRIO_PRIO_VALUE(IOPRIO_CLASS_BE, (niceness + 20) / 5);
    return syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, thread, own) == 0 ? 0 : -1;
}

int ward_make_give_way(pid_t thread, int yes) {
    if (yes) {
        if (keep_io_priority(thread) != 0) return -1;
        __atomic_store_n(&giving_way_is_used, 1, __ATOMIC_RELAXED);
    }
    return set_policy(thread, yes ? SCHED_IDLE : SCHED_OTHER);
}

int ward_giving_way_is_used(void) { return __atomic_load_n(&giving_way_is_used, __ATOMIC_RELAXED); }

int ward_thread_gives_way(pid_t thread) { return sched_getscheduler(thread) == SCHED_IDLE; }

int ward_give_way(int yes) {
    if (ward_make_give_way(0, yes) != 0) return -1;
    gives_way = yes != 0;
    return 0;
}

int ward_gives_way(void) { return gives_way; }

unsigned ward_cpu_count(void) {
    struct ward_cpus cpus;
    return get_cpus(0, &cpus) == 0 ? (unsigned)CPU_COUNT_S(sizeof cpus.mask, cpus.mask) : 0;
}
