/* An io_uring of one thread, io_uring(7), for FUSE over io_uring: what its ABI asks of C (shared
 * counters with barriers, entries of 128 bytes). What is sent and why is Swift's.
 *
 * The ring lives exactly as long as the thread that opened it: it has no descriptor
 * (IORING_REGISTER_RING_FDS binds it to the thread, and the descriptor is closed) and no mapping
 * of the kernel's memory (IORING_SETUP_NO_MMAP). So when the process is killed while one of its
 * threads can't die yet, the kernel still ends the rings of all the others, and whoever waits
 * for a request that lies in one of them is let go. */
#ifndef WARD_RING_H
#define WARD_RING_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/* Commands that can be under way at once; submissions and completions fit a page each. */
#define WARD_RING_MOST_ENTRIES 16

struct ward_ring {
    void *memory;         /* a page for the counters and completions, one for the submissions; NULL: not open */
    int index;            /* among the rings of this thread */
    unsigned unsubmitted; /* commands that the kernel has not been told of */
    unsigned *submission_tail;
    unsigned submission_mask;
    unsigned *completion_head;
    unsigned *completion_tail;
    unsigned completion_mask;
    void *completions;
};

/* A ring for `entries` commands of the calling thread, which alone may use and close it. 0, or a
 * negative errno: EPERM (the system forbids io_uring), ENOSYS, EINVAL (older than Linux 6.5),
 * ENOMEM, EMFILE. */
int ward_ring_open(struct ward_ring *ring, unsigned entries);
/* Ends what is under way, too. Nothing where it is not open. */
void ward_ring_close(struct ward_ring *ring);

/* FUSE_IO_URING_CMD_REGISTER: `entry_buffers` are two, the header and the payload. `tag` comes
 * back with each request for the entry. 0, or -EBUSY where `entries` commands wait already. */
int ward_ring_register(struct ward_ring *ring, int device, uint16_t queue, const struct iovec *entry_buffers, uint64_t tag);
/* FUSE_IO_URING_CMD_COMMIT_AND_FETCH: the reply lies in the entry's buffers; the next request
 * comes with `tag`. */
int ward_ring_commit(struct ward_ring *ring, int device, uint16_t queue, uint64_t commit_id, uint64_t tag);
/* Tells the kernel of the commands; their buffers have been read when it returns. Completions do
 * not come by this. 0, or a negative errno. */
int ward_ring_submit(struct ward_ring *ring);
/* Lets completions come. 0, or a negative errno. */
int ward_ring_look(struct ward_ring *ring);
/* Waits for a completion. Meanwhile `signals` are blocked instead of those that were; one that
 * was sent before is delivered now. 0, or a negative errno: EINTR. */
int ward_ring_wait(struct ward_ring *ring, const sigset_t *signals);
/* The next completion: 1, or 0 where there is none. `result`: 0 or a negative errno. */
int ward_ring_next(struct ward_ring *ring, uint64_t *tag, int32_t *result);
/* The one that comes `number` after the next, and all stay: 1, or 0 where there are not so many. */
int ward_ring_peek(const struct ward_ring *ring, unsigned number, uint64_t *tag, int32_t *result);

/* Binds the calling thread to one CPU, sched_setaffinity(2); 0 or -1. */
int ward_run_on_cpu(unsigned cpu);
/* Undoes that: it may use every CPU that the process's first thread may. 0 or -1. */
int ward_run_anywhere(void);
/* The same for another thread of this process, which is moved away from the CPU that it runs on
 * or waits for; 0 or -1. */
int ward_make_leave_cpu(pid_t thread);
/* Whether the process's first thread may use it. */
int ward_may_run_on_cpu(unsigned cpu);
/* Whether the calling thread is bound by ward_run_on_cpu. */
int ward_is_bound(void);
/* The CPU on which a thread, of whatever process, ran last; -1 where the system does not tell
 * (proc(5), stat). */
int ward_cpu_of_thread(pid_t thread);
/* Whether every other thread goes before the calling one (SCHED_IDLE, sched(7)), or not any
 * more; 0 or -1: who may not set its own niceness to 0 can't undo it. At the disk it keeps its
 * place (ioprio_set(2)). */
int ward_give_way(int yes);
/* The same for another thread of this process; 0 or -1. */
int ward_make_give_way(pid_t thread, int yes);
/* Whether a thread of this process does, as the kernel knows it. */
int ward_thread_gives_way(pid_t thread);
/* Whether the calling thread has asked for it. What it starts begins so, too. */
int ward_gives_way(void);
/* Whether any thread of this process was ever made to give way. */
int ward_giving_way_is_used(void);
/* How many CPUs the calling thread may use; 0 where that can't be known. */
unsigned ward_cpu_count(void);

#endif
