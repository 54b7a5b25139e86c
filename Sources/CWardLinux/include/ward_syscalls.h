/* Shims for calls that Swift can't make itself: variadic functions, function-like macros,
 * constants that the importer does not see, system calls without a libc wrapper. Most have one
 * to five lines; logic lives in Swift. */
#ifndef WARD_SYSCALLS_H
#define WARD_SYSCALLS_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

/* The functions open(2), openat(2), fcntl(2), ioctl(2) are variadic. */
int ward_openat(int dirfd, const char *path, int flags, mode_t mode);
int ward_fcntl_int(int fd, int command, int argument);
int ward_ioctl_pointer(int fd, unsigned long request, void *argument);

/* Macros the importer does not evaluate. */
static inline long ward_utime_omit(void) { return UTIME_OMIT; }
static inline long ward_utime_now(void) { return UTIME_NOW; }
static inline unsigned ward_makedev_major(dev_t dev) { return major(dev); }
static inline unsigned ward_makedev_minor(dev_t dev) { return minor(dev); }
static inline dev_t ward_makedev(unsigned major_number, unsigned minor_number) {
    return makedev(major_number, minor_number);
}
static inline int ward_wifexited(int status) { return WIFEXITED(status); }
static inline int ward_wexitstatus(int status) { return WEXITSTATUS(status); }
static inline int ward_wifsignaled(int status) { return WIFSIGNALED(status); }
static inline int ward_wtermsig(int status) { return WTERMSIG(status); }
static inline int ward_errno(void) { return errno; }

/* Credentials of the calling thread: the system calls change only those, glibc's wrappers those
 * of every thread. */
int ward_set_thread_fsuid(uid_t uid);
int ward_set_thread_fsgid(gid_t gid);
/* capset(2) for the calling thread: effective := permitted. For use after setfsuid, which takes
 * the file capabilities away. */
int ward_raise_thread_capabilities(void);
/* Writes "/proc/self/fd/N" without an allocation. Calls that refuse O_PATH descriptors take it. */
int ward_proc_fd_path(void *out, size_t capacity, int fd);
/* AT_EMPTY_PATH is behind _GNU_SOURCE; times points to two timespecs. */
int ward_fchownat_empty(int fd, uid_t uid, gid_t gid);
int ward_utimensat_empty(int fd, const void *times);
int ward_utimensat_path(const char *path, const void *times);
/* <sys/xattr.h> is not part of the importer's Glibc module. */
ssize_t ward_getxattr(const char *path, const char *name, void *value, size_t size);
int ward_setxattr(const char *path, const char *name, const void *value, size_t size, int flags);
int ward_removexattr(const char *path, const char *name);
ssize_t ward_listxattr(const char *path, void *list, size_t size);
ssize_t ward_lgetxattr(const char *path, const char *name, void *value, size_t size);
/* getxattrat(2) and listxattrat(2) (Linux 6.13) of a name in `directory`, without following
 * links. Older kernels get a path in /proc. */
ssize_t ward_getxattrat(int directory, const char *file, const char *name, void *value, size_t size);
ssize_t ward_listxattrat(int directory, const char *file, void *list, size_t size);
int ward_gettid(void);
/* The number of times that the calling thread has waited so far: ru_nvcsw of getrusage(2). */
long ward_voluntary_switches(void);
/* statfs(2): the type (a magic number of linux/magic.h), -1 on failure. In Swift the type and
 * the call share a name. */
static inline long ward_file_system_type(const char *path) {
    struct statfs status;
    return statfs(path, &status) == 0 ? (long)status.f_type : -1;
}
/* Calls about a mount whose daemon may never answer, each in a process of its own. A thread that
 * waits for such an answer ends by no signal, and would keep this process from ending.
 *
 * The longest wait is `milliseconds`. After that the other process gets SIGKILL, and this one
 * does not wait for its end. The other process has no descriptors except the one that it asks
 * about.
 *
 * statfs(2), for its error alone: 0 or -1 with errno, ETIMEDOUT where no answer came. */
int ward_statfs_within(const char *path, int milliseconds);
/* getxattr(2) of an open file, O_PATH too: the value's length or -1 with errno, ETIMEDOUT where
 * no answer came. */
ssize_t ward_getxattr_within(int fd, const char *name, void *value, size_t size, int milliseconds);
/* pidfd_open(2) and pidfd_send_signal(2): a process by a descriptor. A number may become another
 * process's. */
int ward_pidfd_open(pid_t process);
int ward_pidfd_send_signal(int pidfd, int signal);
/* glibc declares these only under _GNU_SOURCE, which the importer does not set. */
int ward_fallocate(int fd, int mode, off_t offset, off_t length);
int ward_syncfs(int fd);
/* preadv2(2) of one byte with RWF_NOWAIT. 1: the page cache has the byte; 0: a read would wait.
 * -1: there is no such byte, or the file system can't tell. */
int ward_is_in_memory(int fd, off_t offset);
/* sync_file_range(2) with SYNC_FILE_RANGE_WRITE alone: the kernel begins to write a range, and
 * the caller does not wait. */
int ward_begin_writing(int fd, off_t offset, off_t count);
int ward_pipe2(int ends[2], int flags);
int ward_renameat2(int old_dir, const char *old_path, int new_dir, const char *new_path, unsigned flags);
ssize_t ward_getdents64(int fd, void *buffer, size_t size);
/* Makes all threads use one malloc heap, which grows and shrinks by the megabyte. Heaps of
 * threads would grow by one mprotect(2) for each page. The hot path allocates next to nothing,
 * so threads do not wait for the heap. To be called before there are threads. */
void ward_use_one_heap(void);
/* close_range(2). The libc of Debian 12 has it, too; this header also brings the flags. */
int ward_close_range(unsigned first, unsigned last, unsigned flags);
/* PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS, PR_SET_PDEATHSIG, PR_SET_NAME: prctl(2) is variadic. */
int ward_prctl(int option, unsigned long argument);
/* KEYCTL_JOIN_SESSION_KEYRING, keyctl(2): a new keyring in place of the session's, for this
 * process and its children. */
void ward_new_session_keyring(void);
/* A new pseudoterminal, pty(7): its master, and then its other end (TIOCGPTPEER, ioctl_tty(2)).
 * Neither becomes the controlling terminal; both are close-on-exec. */
int ward_open_terminal(void);
int ward_open_terminal_peer(int master);
/* Writes a line to the system's log, syslog(3), which is variadic. */
void ward_syslog(int priority, const char *text);
/* A limit (RLIMIT_…) of a process, 0: of this one. prlimit(2), which glibc declares only under
 * _GNU_SOURCE. */
int ward_get_limit(pid_t pid, int resource, uint64_t *soft, uint64_t *hard);
/* poll(2), except that a lowered RLIMIT_NOFILE does not stop it. A program of the same user can
 * lower that (prlimit(2)). Then poll(2) refuses more entries than the limit, even of older
 * descriptors (EINVAL). This then waits by pselect6(2), which does not look at the limit. */
int ward_poll(struct pollfd *entries, size_t count, int milliseconds);
/* mlock2(2) with MLOCK_ONFAULT: pages are locked when they are first used. glibc declares it
 * only under _GNU_SOURCE. */
int ward_mlock_on_fault(const void *memory, size_t count);

/* futex(2) on a word of this process, and atomic operations on it. The wait returns at a
 * wake-up, a signal, the time-out (NULL: none), and at once where the word is not `known`. */
int ward_futex_wait(const uint32_t *word, uint32_t known, const struct timespec *timeout);
void ward_futex_wake_all(const uint32_t *word);
static inline uint32_t ward_atomic_load(const uint32_t *word) { return __atomic_load_n(word, __ATOMIC_SEQ_CST); }
static inline int ward_atomic_compare_exchange(uint32_t *word, uint32_t known, uint32_t next) {
    return __atomic_compare_exchange_n(word, &known, next, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}
/* SIGRTMIN, a macro that is a call. */
static inline int ward_first_realtime_signal(void) { return SIGRTMIN; }

/* Zeroes every vector register, in some 3 ns. Ciphers leave round keys and plaintext there. All
 * code that saves registers spreads them: a context switch, a signal, the dynamic linker at the
 * first call of a function, clone(2). */
void ward_scrub_registers(void);
/* The same, and overwrites 6 KiB of dead stack below the caller: AES key expansion and hashing
 * leave copies there. */
void ward_scrub_stack(void);
/* The same for 48 KiB, which covers all that a thread's work can leave. To be called before it
 * sleeps or ends. */
void ward_scrub_thread(void);

/* A pointer for each thread: Swift has no fast thread-local storage on Linux. */
void *ward_thread_context_get(void);
void ward_thread_context_set(void *context);

#endif
