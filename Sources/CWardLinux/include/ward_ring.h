/* An io_uring of one thread, io_uring(7), for FUSE over io_uring. The part of its ABI that needs
 * C is here: shared counters with barriers, entries of 128 bytes. Swift decides what is sent.
 *
 * The ring lives exactly as long as the thread that opened it. It has no descriptor:
 * IORING_REGISTER_RING_FDS binds it to the thread, and the descriptor is closed. It maps no
 * memory of the kernel (IORING_SETUP_NO_MMAP). A killed process may have a thread that can't die
 * yet. The kernel still ends the rings of all other threads, and programs that wait for a
 * request in one of them go on. */
#ifndef WARD_RING_H
#define WARD_RING_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/* The most commands under way at once; submissions and completions fit a page each. */
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

/* Opens a ring for `entries` commands of the calling thread, which alone may use and close it.
 * Returns 0, or a negative errno: EPERM (the system forbids io_uring), ENOSYS, EINVAL (older
 * than Linux 6.5), ENOMEM, EMFILE. */
int ward_ring_open(struct ward_ring *ring, unsigned entries);
/* Closes the ring and ends its commands under way. Does nothing where it is not open. */
void ward_ring_close(struct ward_ring *ring);

/* FUSE_IO_URING_CMD_REGISTER. There are two `entry_buffers`, the header and the payload. Each
 * request for the entry comes with `tag`. 0, or -EBUSY where `entries` commands wait already. */
int ward_ring_register(struct ward_ring *ring, int device, uint16_t queue, const struct iovec *entry_buffers, uint64_t tag);
/* FUSE_IO_URING_CMD_COMMIT_AND_FETCH. The reply lies in the entry's buffers; the next request
 * comes with `tag`. */
int ward_ring_commit(struct ward_ring *ring, int device, uint16_t queue, uint64_t commit_id, uint64_t tag);
/* Hands the commands to the kernel, which has read their buffers when this returns. Takes no
 * completions. 0, or a negative errno. */
int ward_ring_submit(struct ward_ring *ring);
/* Lets the kernel post completions. 0, or a negative errno. */
int ward_ring_look(struct ward_ring *ring);
/* Waits for a completion. Only `signals` are blocked meanwhile: any other that was sent before
 * is delivered. 0, or a negative errno: EINTR. */
int ward_ring_wait(struct ward_ring *ring, const sigset_t *signals);
/* Takes the next completion: 1, or 0 where there is none. `result`: 0 or a negative errno. */
int ward_ring_next(struct ward_ring *ring, uint64_t *tag, int32_t *result);
/* Reads the completion `number` after the next, and takes none: 1, or 0 where there is none. */
int ward_ring_peek(const struct ward_ring *ring, unsigned number, uint64_t *tag, int32_t *result);

/* Binds the calling thread to one CPU, sched_setaffinity(2); 0 or -1. */
int ward_run_on_cpu(unsigned cpu);
/* Undoes ward_run_on_cpu: the thread may use every CPU that the process's first thread may. 0 or
 * -1. */
int ward_run_anywhere(void);
/* The same for another thread of this process, which also leaves the CPU that it runs on or
 * waits for. 0 or -1. */
int ward_make_leave_cpu(pid_t thread);
/* Whether the process's first thread may use the CPU. */
int ward_may_run_on_cpu(unsigned cpu);
/* Whether the calling thread is bound by ward_run_on_cpu. */
int ward_is_bound(void);
/* The CPU on which a thread of any process ran last; -1 where the system does not tell (proc(5),
 * stat). */
int ward_cpu_of_thread(pid_t thread);
/* Makes the calling thread yield to every other one (SCHED_IDLE, sched(7)), or an ordinary
 * thread again. 0 or -1: a thread that may not set its own niceness to 0 can't undo it. Its I/O
 * priority stays (ioprio_set(2)). */
int ward_give_way(int yes);
/* The same for another thread of this process; 0 or -1. */
int ward_make_give_way(pid_t thread, int yes);
/* Whether a thread of this process yields, as the kernel knows it. */
int ward_thread_gives_way(pid_t thread);
/* Whether the calling thread made itself yield. A thread that it starts meanwhile yields, too. */
int ward_gives_way(void);
/* Whether any thread of this process was ever made to yield. */
int ward_giving_way_is_used(void);
/* The number of CPUs that the calling thread may use; 0 where that can't be known. */
unsigned ward_cpu_count(void);

#endif
