/* A backing store at the other end of a network: libfuse's passthrough_ll, with a pause before
 * each answer.
 *
 *     DELAY_MICROSECONDS=1000 delay -o source=DIRECTORY MOUNTPOINT
 *
 * Up to ten requests wait at the same time (libfuse's threads). The kernel caches names and
 * attributes for a second, as NFS does. Build it with -I of the directory of libfuse's examples
 * (Debian: libfuse3-dev). */
#define FUSE_USE_VERSION 34
#define _GNU_SOURCE
#include <fuse_lowlevel.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

static struct fuse_session *session_with_pauses(struct fuse_args *arguments, void *data);
#define fuse_session_new(arguments, operations, size, data) session_with_pauses(arguments, data)
#include "passthrough_ll.c"
#undef fuse_session_new

static struct timespec delay;

static void wait_for_network(void) { clock_nanosleep(CLOCK_MONOTONIC, 0, &delay, NULL); }

#define PAUSED(name, parameters, ...) \
    static void paused_##name parameters { \
        wait_for_network(); \
        lo_##name(__VA_ARGS__); \
    }

typedef fuse_req_t R;
typedef fuse_ino_t N;
typedef struct fuse_file_info F;

PAUSED(lookup, (R r, N n, const char *name), r, n, name)
PAUSED(mkdir, (R r, N n, const char *name, mode_t mode), r, n, name, mode)
PAUSED(mknod, (R r, N n, const char *name, mode_t mode, dev_t device), r, n, name, mode, device)
PAUSED(symlink, (R r, const char *target, N n, const char *name), r, target, n, name)
PAUSED(link, (R r, N n, N parent, const char *name), r, n, parent, name)
PAUSED(unlink, (R r, N n, const char *name), r, n, name)
PAUSED(rmdir, (R r, N n, const char *name), r, n, name)
PAUSED(getattr, (R r, N n, F *f), r, n, f)
PAUSED(setattr, (R r, N n, struct stat *values, int valid, F *f), r, n, values, valid, f)
PAUSED(readlink, (R r, N n), r, n)
PAUSED(opendir, (R r, N n, F *f), r, n, f)
PAUSED(readdir, (R r, N n, size_t size, off_t offset, F *f), r, n, size, offset, f)
PAUSED(readdirplus, (R r, N n, size_t size, off_t offset, F *f), r, n, size, offset, f)
PAUSED(fsyncdir, (R r, N n, int only_data, F *f), r, n, only_data, f)
PAUSED(create, (R r, N n, const char *name, mode_t mode, F *f), r, n, name, mode, f)
PAUSED(open, (R r, N n, F *f), r, n, f)
PAUSED(flush, (R r, N n, F *f), r, n, f)
PAUSED(fsync, (R r, N n, int only_data, F *f), r, n, only_data, f)
PAUSED(read, (R r, N n, size_t size, off_t offset, F *f), r, n, size, offset, f)
PAUSED(write_buf, (R r, N n, struct fuse_bufvec *bytes, off_t offset, F *f), r, n, bytes, offset, f)
PAUSED(statfs, (R r, N n), r, n)
PAUSED(fallocate, (R r, N n, int mode, off_t offset, off_t length, F *f), r, n, mode, offset, length, f)
PAUSED(getxattr, (R r, N n, const char *name, size_t size), r, n, name, size)
PAUSED(listxattr, (R r, N n, size_t size), r, n, size)
PAUSED(setxattr, (R r, N n, const char *name, const char *value, size_t size, int flags), r, n, name, value, size, flags)
PAUSED(removexattr, (R r, N n, const char *name), r, n, name)
PAUSED(lseek, (R r, N n, off_t offset, int from, F *f), r, n, offset, from, f)

/* The example refuses flags. ward needs RENAME_NOREPLACE to move a directory to a free name. */
static void paused_rename(R r, N n, const char *name, N m, const char *new, unsigned flags) {
    wait_for_network();
    fuse_reply_err(r, renameat2(lo_fd(r, n), name, lo_fd(r, m), new, flags) ? errno : 0);
}

/* There is no delay for requests that the kernel does not wait for (forget, release). File locks
 * have none either, because they stay in the kernel. */
static struct fuse_session *session_with_pauses(struct fuse_args *arguments, void *data) {
    static struct fuse_lowlevel_ops operations;
    const char *given = getenv("DELAY_MICROSECONDS");
    long microseconds = given ? strtol(given, NULL, 10) : 0;
    delay = (struct timespec){microseconds / 1000000, microseconds % 1000000 * 1000};
    prctl(PR_SET_TIMERSLACK, 1000); /* threads inherit it */
    operations = lo_oper;
#define USE(name) operations.name = paused_##name
    USE(lookup), USE(mkdir), USE(mknod), USE(symlink), USE(link), USE(unlink), USE(rmdir), USE(rename), USE(getattr);
    USE(setattr), USE(readlink), USE(opendir), USE(readdir), USE(readdirplus), USE(fsyncdir), USE(create), USE(open);
    USE(flush), USE(fsync), USE(read), USE(write_buf), USE(statfs), USE(fallocate), USE(getxattr), USE(listxattr);
    USE(setxattr), USE(removexattr), USE(lseek);
    return fuse_session_new(arguments, &operations, sizeof operations, data);
}
