#define _GNU_SOURCE
#include "ward_syscalls.h"

#include <linux/capability.h>
#include <linux/futex.h>
#include <limits.h>
#include <malloc.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <syslog.h>

int ward_openat(int dirfd, const char *path, int flags, mode_t mode) { return openat(dirfd, path, flags, mode); }
int ward_fcntl_int(int fd, int command, int argument) { return fcntl(fd, command, argument); }
int ward_ioctl_pointer(int fd, unsigned long request, void *argument) { return ioctl(fd, request, argument); }

int ward_set_thread_fsuid(uid_t uid) { return (int)syscall(SYS_setfsuid, uid); }
int ward_set_thread_fsgid(gid_t gid) { return (int)syscall(SYS_setfsgid, gid); }

int ward_raise_thread_capabilities(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &header, data) != 0) return -1;
    data[0].effective = data[0].permitted;
    data[1].effective = data[1].permitted;
    return (int)syscall(SYS_capset, &header, data);
}

int ward_fallocate(int fd, int mode, off_t offset, off_t length) { return fallocate(fd, mode, offset, length); }
ssize_t ward_getdents64(int fd, void *buffer, size_t size) { return getdents64(fd, buffer, size); }
void ward_use_one_heap(void) {
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_TOP_PAD, 1 << 20);
    mallopt(M_TRIM_THRESHOLD, 4 << 20);
}
int ward_syncfs(int fd) { return syncfs(fd); }
int ward_is_in_memory(int fd, off_t offset) {
    char byte;
    struct iovec one = {&byte, 1};
    ssize_t got = preadv2(fd, &one, 1, offset, RWF_NOWAIT);
    return got == 1 ? 1 : got < 0 && errno == EAGAIN ? 0 : -1;
}
int ward_begin_writing(int fd, off_t offset, off_t count) {
    return sync_file_range(fd, offset, count, SYNC_FILE_RANGE_WRITE);
}
int ward_pipe2(int ends[2], int flags) { return pipe2(ends, flags); }
int ward_renameat2(int old_dir, const char *old_path, int new_dir, const char *new_path, unsigned flags) {
    return (int)syscall(SYS_renameat2, old_dir, old_path, new_dir, new_path, flags);
}
int ward_proc_fd_path(void *out, size_t capacity, int fd) { return snprintf(out, capacity, "/proc/self/fd/%d", fd); }
int ward_fchownat_empty(int fd, uid_t uid, gid_t gid) { return fchownat(fd, "", uid, gid, AT_EMPTY_PATH); }
int ward_utimensat_empty(int fd, const void *times) { return utimensat(fd, "", times, AT_EMPTY_PATH); }
int ward_utimensat_path(const char *path, const void *times) { return utimensat(AT_FDCWD, path, times, 0); }
ssize_t ward_getxattr(const char *path, const char *name, void *value, size_t size) {
    return getxattr(path, name, value, size);
}
int ward_setxattr(const char *path, const char *name, const void *value, size_t size, int flags) {
    return setxattr(path, name, value, size, flags);
}
int ward_removexattr(const char *path, const char *name) { return removexattr(path, name); }
ssize_t ward_listxattr(const char *path, void *list, size_t size) { return listxattr(path, list, size); }
ssize_t ward_lgetxattr(const char *path, const char *name, void *value, size_t size) {
    return lgetxattr(path, name, value, size);
}
/* From linux/xattr.h (struct xattr_args) and asm-generic/unistd.h, of Linux 6.13: the libc of
 * Debian 12 is older. */
struct ward_xattr_args { uint64_t value; uint32_t size, flags; };
enum { WARD_GETXATTRAT = 464, WARD_LISTXATTRAT = 465 };

/* Whether the kernel lacks the call. A forbidden call (seccomp) says EPERM, and so may an
 * attribute: then the caller asks once more through /proc. */
static int is_without(atomic_int *known, ssize_t result) {
    if (result >= 0 || (errno != ENOSYS && errno != EPERM)) return 0;
    if (errno == ENOSYS) atomic_store_explicit(known, 1, memory_order_relaxed);
    return 1;
}
static const char *place_of(char place[static 320], int directory, const char *file) {
    snprintf(place, 320, "/proc/self/fd/%d/%s", directory, file);
    return place;
}
ssize_t ward_getxattrat(int directory, const char *file, const char *name, void *value, size_t size) {
    static atomic_int is_missing;
    if (!atomic_load_explicit(&is_missing, memory_order_relaxed)) {
        struct ward_xattr_args args = {(uintptr_t)value, (uint32_t)size, 0};
        ssize_t result = syscall(WARD_GETXATTRAT, directory, file, AT_SYMLINK_NOFOLLOW, name, &args, sizeof args);
        if (!is_without(&is_missing, result)) return result;
    }
    char place[320];
    return lgetxattr(place_of(place, directory, file), name, value, size);
}
ssize_t ward_listxattrat(int directory, const char *file, void *list, size_t size) {
    static atomic_int is_missing;
    if (!atomic_load_explicit(&is_missing, memory_order_relaxed)) {
        ssize_t result = syscall(WARD_LISTXATTRAT, directory, file, AT_SYMLINK_NOFOLLOW, list, size);
        if (!is_without(&is_missing, result)) return result;
    }
    char place[320];
    return llistxattr(place_of(place, directory, file), list, size);
}
int ward_gettid(void) { return (int)syscall(SYS_gettid); }
long ward_voluntary_switches(void) {
    struct rusage usage;
    return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nvcsw : 0;
}
int ward_futex_wait(const uint32_t *word, uint32_t known, const struct timespec *timeout) {
    return (int)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, known, timeout, NULL, 0);
}

void ward_futex_wake_all(const uint32_t *word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0); }

int ward_pidfd_open(pid_t process) { return (int)syscall(SYS_pidfd_open, process, 0); }
int ward_pidfd_send_signal(int pidfd, int signal) {
    return (int)syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0);
}

/* The answer: the asking process writes it, and the waiting one reads it. */
struct question {
    _Atomic int is_answered;
    int error;
    ssize_t result;
    char value[];
};

/* Maps the memory that both processes share. NULL where there is none. */
static struct question *new_question(size_t size) {
    void *shared =
        mmap(NULL, sizeof(struct question) + size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED ? NULL : shared;
}

/* Starts a process without an exit signal: only the wait4(2) of await_answer sees its end.
 * Returns -1 where none can be started, and 0 in the new process. */
static pid_t start_asking(int *pidfd) {
    /* No handler of this process runs in the other: all signals stay blocked there. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t process = (pid_t)syscall(SYS_clone, CLONE_PIDFD, NULL, pidfd, NULL, NULL);
    int error = errno;
    if (process != 0) pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return process;
}

/* ThreadSanitizer's runtime may be locked by a thread that this process does not have. */
__attribute__((no_sanitize("thread"))) static void answer_question(struct question *question, ssize_t result) {
    question->error = errno;
    question->result = result;
    atomic_store_explicit(&question->is_answered, 1, memory_order_release);
    syscall(SYS_exit_group, 0);
}

/* Waits for the answer. Then releases the process, its descriptor and the mapping. */
static ssize_t await_answer(struct question *question, size_t size, pid_t process, int pidfd, int milliseconds,
                            void *value) {
    ssize_t result = -1;
    int error = ETIMEDOUT;
    if (process < 0) {
        error = errno;
    } else {
        struct timespec start, now;
        clock_gettime(CLOCK_MONOTONIC, &start);
        int left = milliseconds;
        struct pollfd ended = {pidfd, POLLIN, 0};
        while (poll(&ended, 1, left) < 0 && errno == EINTR) {
            clock_gettime(CLOCK_MONOTONIC, &now);
            long passed = (now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000;
            left = passed < milliseconds ? milliseconds - (int)passed : 0;
        }
        if (atomic_load_explicit(&question->is_answered, memory_order_acquire)) {
            result = question->result;
            error = question->error;
            if (result > 0 && value) memcpy(value, question->value, (size_t)result);
        } else {
            ward_pidfd_send_signal(pidfd, SIGKILL);
            /* It ends now, unless the server has begun with its request. */
            poll(&ended, 1, 100);
        }
        int status;
        syscall(SYS_wait4, process, &status, ended.revents ? __WALL : __WALL | WNOHANG, NULL);
        close(pidfd);
    }
    munmap(question, sizeof *question + size);
    errno = error;
    return result;
}

int ward_statfs_within(const char *path, int milliseconds) {
    struct question *question = new_question(0);
    if (!question) return -1;
    int pidfd = -1;
    pid_t process = start_asking(&pidfd);
    if (process == 0) {
        syscall(SYS_close_range, 0, ~0U, 0);
        struct statfs status;
        answer_question(question, syscall(SYS_statfs, path, &status));
    }
    return (int)await_answer(question, 0, process, pidfd, milliseconds, NULL);
}

ssize_t ward_getxattr_within(int fd, const char *name, void *value, size_t size, int milliseconds) {
    struct question *question = new_question(size);
    if (!question) return -1;
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int pidfd = -1;
    pid_t process = start_asking(&pidfd);
    if (process == 0) {
        if (fd > 0) syscall(SYS_close_range, 0, fd - 1, 0);
        syscall(SYS_close_range, fd + 1, ~0U, 0);
        answer_question(question, syscall(SYS_getxattr, path, name, question->value, size));
    }
    return await_answer(question, size, process, pidfd, milliseconds, value);
}

int ward_close_range(unsigned first, unsigned last, unsigned flags) {
    return (int)syscall(SYS_close_range, first, last, flags);
}
int ward_open_terminal(void) { return posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC); }
int ward_open_terminal_peer(int master) {
    return unlockpt(master) ? -1 : ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
}
void ward_new_session_keyring(void) { syscall(SYS_keyctl, 1 /* KEYCTL_JOIN_SESSION_KEYRING */, NULL); }
int ward_prctl(int option, unsigned long argument) { return prctl(option, argument, 0, 0, 0); }

void ward_syslog(int priority, const char *text) {
    openlog("ward", LOG_PID, LOG_AUTH);
    syslog(priority, "%s", text);
}

int ward_get_limit(pid_t pid, int resource, uint64_t *soft, uint64_t *hard) {
    struct rlimit limit;
    if (prlimit(pid, resource, NULL, &limit) != 0) return -1;
    *soft = limit.rlim_cur;
    *hard = limit.rlim_max;
    return 0;
}

/* The three bit maps of pselect6(2), each of `words` words: readable, writable, exceptional. */
static int is_in(const unsigned long *map, size_t words, size_t which, int fd) {
    size_t bits = 8 * sizeof *map;
    return (map[which * words + (size_t)fd / bits] >> ((size_t)fd % bits)) & 1;
}

static void put_in(unsigned long *map, size_t words, size_t which, int fd) {
    size_t bits = 8 * sizeof *map;
    map[which * words + (size_t)fd / bits] |= 1UL << ((size_t)fd % bits);
}

int ward_poll(struct pollfd *entries, size_t count, int milliseconds) {
    int ready = poll(entries, count, milliseconds);
    if (ready >= 0 || errno != EINVAL) return ready;
    int highest = -1;
    for (size_t i = 0; i < count; i++) {
        if (entries[i].fd > highest) highest = entries[i].fd;
        entries[i].revents = 0;
    }
    size_t words = (size_t)(highest + 1) / (8 * sizeof(unsigned long)) + 1;
    unsigned long *map = calloc(3 * words, sizeof *map);
    if (!map) return -1;
    for (size_t i = 0; i < count; i++) {
        if (entries[i].fd < 0) continue;
        if (entries[i].events & POLLIN) put_in(map, words, 0, entries[i].fd);
        if (entries[i].events & POLLOUT) put_in(map, words, 1, entries[i].fd);
        if (entries[i].events & POLLPRI) put_in(map, words, 2, entries[i].fd);
    }
    struct timespec wait = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    ready = (int)syscall(SYS_pselect6, highest + 1, map, map + words, map + 2 * words,
                         milliseconds < 0 ? NULL : &wait, NULL);
    int found = ready < 0 ? ready : 0;
    for (size_t i = 0; ready > 0 && i < count; i++) {
        if (entries[i].fd < 0) continue;
        if (is_in(map, words, 0, entries[i].fd)) entries[i].revents |= entries[i].events & POLLIN;
        if (is_in(map, words, 1, entries[i].fd)) entries[i].revents |= entries[i].events & POLLOUT;
        if (is_in(map, words, 2, entries[i].fd)) entries[i].revents |= entries[i].events & POLLPRI;
        if (entries[i].revents) found++;
    }
    int reason = errno;
    free(map);
    errno = reason;
    return found;
}

int ward_mlock_on_fault(const void *memory, size_t count) { return mlock2(memory, count, MLOCK_ONFAULT); }

#if defined(__x86_64__)
#define LOW_REGISTERS "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7"
#define MIDDLE_REGISTERS "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"
#define HIGH_REGISTERS                                                                                             \
    "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26", "xmm27",     \
        "xmm28", "xmm29", "xmm30", "xmm31"
#define CLEAR(n) "vpxord %%xmm" #n ", %%xmm" #n ", %%xmm" #n "\n\t"
#define CLEAR_SSE(n) "pxor %%xmm" #n ", %%xmm" #n "\n\t"

/* A write to the low part of an EVEX register zeroes the rest of it. */
__attribute__((noinline, target("avx512f,avx512vl"))) static void scrub_avx512(void) {
    __asm__ volatile("vzeroall\n\t" CLEAR(16) CLEAR(17) CLEAR(18) CLEAR(19) CLEAR(20) CLEAR(21) CLEAR(22) CLEAR(23)
                         CLEAR(24) CLEAR(25) CLEAR(26) CLEAR(27) CLEAR(28) CLEAR(29) CLEAR(30) CLEAR(31)
                     :
                     :
                     : LOW_REGISTERS, MIDDLE_REGISTERS, HIGH_REGISTERS);
}

__attribute__((noinline, target("avx"))) static void scrub_avx(void) {
    __asm__ volatile("vzeroall" : : : LOW_REGISTERS, MIDDLE_REGISTERS);
}

void ward_scrub_registers(void) {
    if (__builtin_cpu_supports("avx512vl")) {
        scrub_avx512();
    } else if (__builtin_cpu_supports("avx")) {
        scrub_avx();
    } else {
        __asm__ volatile(CLEAR_SSE(0) CLEAR_SSE(1) CLEAR_SSE(2) CLEAR_SSE(3) CLEAR_SSE(4) CLEAR_SSE(5) CLEAR_SSE(6)
                             CLEAR_SSE(7) CLEAR_SSE(8) CLEAR_SSE(9) CLEAR_SSE(10) CLEAR_SSE(11) CLEAR_SSE(12)
                                 CLEAR_SSE(13) CLEAR_SSE(14) CLEAR_SSE(15)
                         :
                         :
                         : LOW_REGISTERS, MIDDLE_REGISTERS);
    }
}
#elif defined(__aarch64__)
#define CLEAR(n) "movi v" #n ".2d, #0\n\t"
void ward_scrub_registers(void) {
    __asm__ volatile(CLEAR(0) CLEAR(1) CLEAR(2) CLEAR(3) CLEAR(4) CLEAR(5) CLEAR(6) CLEAR(7) CLEAR(8) CLEAR(9)
                         CLEAR(10) CLEAR(11) CLEAR(12) CLEAR(13) CLEAR(14) CLEAR(15) CLEAR(16) CLEAR(17) CLEAR(18)
                             CLEAR(19) CLEAR(20) CLEAR(21) CLEAR(22) CLEAR(23) CLEAR(24) CLEAR(25) CLEAR(26) CLEAR(27)
                                 CLEAR(28) CLEAR(29) CLEAR(30) CLEAR(31)
                     :
                     :
                     : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14",
                       "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28",
                       "v29", "v30", "v31");
}
#else
#error "write down how this processor's vector registers are zeroed"
#endif

__attribute__((noinline)) void ward_scrub_stack(void) {
    unsigned char dead[6144];
    explicit_bzero(dead, sizeof dead);
    ward_scrub_registers();
}

__attribute__((noinline)) void ward_scrub_thread(void) {
    unsigned char dead[49152];
    explicit_bzero(dead, sizeof dead);
    ward_scrub_registers();
}

static __thread void *thread_context;
void *ward_thread_context_get(void) { return thread_context; }
void ward_thread_context_set(void *context) { thread_context = context; }
