/* The kernel's FUSE protocol up to version 7.44, as far as ward speaks it.
 *
 * Names and layouts are those of the kernel's include/uapi/linux/fuse.h. Distributions ship it
 * in older versions than the kernels that people run. The kernel promises that names and layouts
 * never change. Every structure ends at a multiple of eight bytes.
 *
 * A request is `fuse_in_header`, then the structure of its opcode, then names, each ended by a
 * zero byte, or data. A reply is `fuse_out_header`, then the structure of the opcode or data.
 * Comments say where requests differ from that. */
#ifndef WARD_FUSE_H
#define WARD_FUSE_H

#include <stdint.h>

#define FUSE_KERNEL_VERSION 7
#define FUSE_KERNEL_MINOR_VERSION 44
#define FUSE_ROOT_ID 1
/* The kernel refuses to fill a smaller buffer. */
#define FUSE_MIN_READ_BUFFER 8192

enum fuse_opcode {
    FUSE_LOOKUP = 1,
    FUSE_FORGET = 2, /* no reply */
    FUSE_GETATTR = 3,
    FUSE_SETATTR = 4,
    FUSE_READLINK = 5,
    FUSE_SYMLINK = 6, /* name, target */
    FUSE_MKNOD = 8,
    FUSE_MKDIR = 9,
    FUSE_UNLINK = 10,
    FUSE_RMDIR = 11,
    FUSE_RENAME = 12,
    FUSE_LINK = 13,
    FUSE_OPEN = 14,
    FUSE_READ = 15,
    FUSE_WRITE = 16,
    FUSE_STATFS = 17,
    FUSE_RELEASE = 18,
    FUSE_FSYNC = 20,
    FUSE_SETXATTR = 21, /* name, value */
    FUSE_GETXATTR = 22,
    FUSE_LISTXATTR = 23,
    FUSE_REMOVEXATTR = 24,
    FUSE_FLUSH = 25,
    FUSE_INIT = 26,
    FUSE_OPENDIR = 27,
    FUSE_READDIR = 28,
    FUSE_RELEASEDIR = 29,
    FUSE_FSYNCDIR = 30,
    FUSE_GETLK = 31,
    FUSE_SETLK = 32,
    FUSE_SETLKW = 33,
    FUSE_ACCESS = 34,
    FUSE_CREATE = 35,
    FUSE_INTERRUPT = 36, /* no reply */
    FUSE_BMAP = 37,
    FUSE_DESTROY = 38,
    FUSE_IOCTL = 39,
    FUSE_POLL = 40,
    FUSE_NOTIFY_REPLY = 41, /* no reply */
    FUSE_BATCH_FORGET = 42, /* no reply */
    FUSE_FALLOCATE = 43,
    FUSE_READDIRPLUS = 44,
    FUSE_RENAME2 = 45,
    FUSE_LSEEK = 46,
    FUSE_COPY_FILE_RANGE = 47,
    FUSE_SETUPMAPPING = 48,
    FUSE_REMOVEMAPPING = 49,
    FUSE_SYNCFS = 50,
    FUSE_TMPFILE = 51,
    FUSE_STATX = 52,
};

/* Codes of messages that the daemon sends unasked, in `fuse_out_header.error`, with `unique` 0. */
enum fuse_notify_code {
    FUSE_NOTIFY_POLL = 1,
    FUSE_NOTIFY_INVAL_INODE = 2,
    FUSE_NOTIFY_INVAL_ENTRY = 3,
    FUSE_NOTIFY_STORE = 4,
    FUSE_NOTIFY_RETRIEVE = 5,
    FUSE_NOTIFY_DELETE = 6,
    FUSE_NOTIFY_RESEND = 7,
    FUSE_NOTIFY_INC_EPOCH = 8,
};

/* Capabilities of INIT; bits 32 and up travel in `flags2`, under FUSE_INIT_EXT. */
#define FUSE_ASYNC_READ (1ULL << 0)
#define FUSE_POSIX_LOCKS (1ULL << 1)
#define FUSE_FILE_OPS (1ULL << 2)
#define FUSE_ATOMIC_O_TRUNC (1ULL << 3)
#define FUSE_EXPORT_SUPPORT (1ULL << 4)
#define FUSE_BIG_WRITES (1ULL << 5)
#define FUSE_DONT_MASK (1ULL << 6)
#define FUSE_SPLICE_WRITE (1ULL << 7)
#define FUSE_SPLICE_MOVE (1ULL << 8)
#define FUSE_SPLICE_READ (1ULL << 9)
#define FUSE_FLOCK_LOCKS (1ULL << 10)
#define FUSE_HAS_IOCTL_DIR (1ULL << 11)
#define FUSE_AUTO_INVAL_DATA (1ULL << 12)
#define FUSE_DO_READDIRPLUS (1ULL << 13)
#define FUSE_READDIRPLUS_AUTO (1ULL << 14)
#define FUSE_ASYNC_DIO (1ULL << 15)
#define FUSE_WRITEBACK_CACHE (1ULL << 16)
#define FUSE_NO_OPEN_SUPPORT (1ULL << 17)
#define FUSE_PARALLEL_DIROPS (1ULL << 18)
#define FUSE_HANDLE_KILLPRIV (1ULL << 19)
#define FUSE_POSIX_ACL (1ULL << 20)
#define FUSE_ABORT_ERROR (1ULL << 21)
#define FUSE_MAX_PAGES (1ULL << 22)
#define FUSE_CACHE_SYMLINKS (1ULL << 23)
#define FUSE_NO_OPENDIR_SUPPORT (1ULL << 24)
#define FUSE_EXPLICIT_INVAL_DATA (1ULL << 25)
#define FUSE_MAP_ALIGNMENT (1ULL << 26)
#define FUSE_SUBMOUNTS (1ULL << 27)
#define FUSE_HANDLE_KILLPRIV_V2 (1ULL << 28)
#define FUSE_SETXATTR_EXT (1ULL << 29)
#define FUSE_INIT_EXT (1ULL << 30)
#define FUSE_SECURITY_CTX (1ULL << 32)
#define FUSE_HAS_INODE_DAX (1ULL << 33)
#define FUSE_CREATE_SUPP_GROUP (1ULL << 34)
#define FUSE_HAS_EXPIRE_ONLY (1ULL << 35)
#define FUSE_DIRECT_IO_ALLOW_MMAP (1ULL << 36)
#define FUSE_PASSTHROUGH (1ULL << 37)
#define FUSE_NO_EXPORT_SUPPORT (1ULL << 38)
#define FUSE_HAS_RESEND (1ULL << 39)
#define FUSE_ALLOW_IDMAP (1ULL << 40)
#define FUSE_OVER_IO_URING (1ULL << 41)
#define FUSE_REQUEST_TIMEOUT (1ULL << 42)

/* fuse_setattr_in.valid */
#define FATTR_MODE (1U << 0)
#define FATTR_UID (1U << 1)
#define FATTR_GID (1U << 2)
#define FATTR_SIZE (1U << 3)
#define FATTR_ATIME (1U << 4)
#define FATTR_MTIME (1U << 5)
#define FATTR_FH (1U << 6)
#define FATTR_ATIME_NOW (1U << 7)
#define FATTR_MTIME_NOW (1U << 8)
#define FATTR_LOCKOWNER (1U << 9)
#define FATTR_CTIME (1U << 10)
#define FATTR_KILL_SUIDGID (1U << 11)

/* fuse_open_out.open_flags */
#define FOPEN_DIRECT_IO (1U << 0)
#define FOPEN_KEEP_CACHE (1U << 1)
#define FOPEN_NONSEEKABLE (1U << 2)
#define FOPEN_CACHE_DIR (1U << 3)
#define FOPEN_STREAM (1U << 4)
#define FOPEN_NOFLUSH (1U << 5)
#define FOPEN_PARALLEL_DIRECT_WRITES (1U << 6)
#define FOPEN_PASSTHROUGH (1U << 7)

/* fuse_open_in.open_flags, fuse_create_in.open_flags */
#define FUSE_OPEN_KILL_SUIDGID (1U << 0)
/* fuse_getattr_in.getattr_flags */
#define FUSE_GETATTR_FH (1U << 0)
/* fuse_write_in.write_flags */
#define FUSE_WRITE_CACHE (1U << 0)
#define FUSE_WRITE_LOCKOWNER (1U << 1)
#define FUSE_WRITE_KILL_SUIDGID (1U << 2)
/* fuse_fsync_in.fsync_flags */
#define FUSE_FSYNC_FDATASYNC (1U << 0)
/* fuse_setxattr_in.setxattr_flags */
#define FUSE_SETXATTR_ACL_KILL_SGID (1U << 0)
/* fuse_notify_inval_entry_out.flags */
#define FUSE_EXPIRE_ONLY (1U << 0)

struct fuse_in_header {
    uint32_t len;
    uint32_t opcode;
    uint64_t unique;
    uint64_t nodeid;
    uint32_t uid;
    uint32_t gid;
    uint32_t pid;
    uint16_t total_extlen;
    uint16_t padding;
};

struct fuse_out_header {
    uint32_t len;
    int32_t error; /* 0 or -errno, above -512 */
    uint64_t unique;
};

struct fuse_init_in {
    uint32_t major;
    uint32_t minor;
    uint32_t max_readahead;
    uint32_t flags;
    uint32_t flags2; /* from 7.36 on; before, the request ends at `flags` */
    uint32_t unused[11];
};

struct fuse_init_out {
    uint32_t major;
    uint32_t minor;
    uint32_t max_readahead;
    uint32_t flags;
    uint16_t max_background;
    uint16_t congestion_threshold;
    uint32_t max_write;
    uint32_t time_gran;
    uint16_t max_pages;
    uint16_t map_alignment;
    uint32_t flags2;
    uint32_t max_stack_depth;
    uint16_t request_timeout; /* seconds */
    uint16_t unused[11];
};

struct fuse_attr {
    uint64_t ino;
    uint64_t size;
    uint64_t blocks;
    uint64_t atime;
    uint64_t mtime;
    uint64_t ctime;
    uint32_t atimensec;
    uint32_t mtimensec;
    uint32_t ctimensec;
    uint32_t mode;
    uint32_t nlink;
    uint32_t uid;
    uint32_t gid;
    uint32_t rdev;
    uint32_t blksize;
    uint32_t flags;
};

struct fuse_entry_out {
    uint64_t nodeid; /* 0: there is no such name, and the kernel may remember that */
    uint64_t generation;
    uint64_t entry_valid;
    uint64_t attr_valid;
    uint32_t entry_valid_nsec;
    uint32_t attr_valid_nsec;
    struct fuse_attr attr;
};

struct fuse_forget_in {
    uint64_t nlookup;
};

struct fuse_forget_one {
    uint64_t nodeid;
    uint64_t nlookup;
};

/* `count` times fuse_forget_one follow */
struct fuse_batch_forget_in {
    uint32_t count;
    uint32_t dummy;
};

struct fuse_getattr_in {
    uint32_t getattr_flags;
    uint32_t dummy;
    uint64_t fh;
};

struct fuse_attr_out {
    uint64_t attr_valid;
    uint32_t attr_valid_nsec;
    uint32_t dummy;
    struct fuse_attr attr;
};

struct fuse_setattr_in {
    uint32_t valid;
    uint32_t padding;
    uint64_t fh;
    uint64_t size;
    uint64_t lock_owner;
    uint64_t atime;
    uint64_t mtime;
    uint64_t ctime;
    uint32_t atimensec;
    uint32_t mtimensec;
    uint32_t ctimensec;
    uint32_t mode;
    uint32_t unused4;
    uint32_t uid;
    uint32_t gid;
    uint32_t unused5;
};

struct fuse_mknod_in {
    uint32_t mode;
    uint32_t rdev; /* minor 0-7, major 8-19, minor 20-31 */
    uint32_t umask;
    uint32_t padding;
};

struct fuse_mkdir_in {
    uint32_t mode;
    uint32_t umask;
};

/* the old and the new name follow; fuse_rename2_in adds flags */
struct fuse_rename_in {
    uint64_t newdir;
};

struct fuse_rename2_in {
    uint64_t newdir;
    uint32_t flags;
    uint32_t padding;
};

struct fuse_link_in {
    uint64_t oldnodeid;
};

struct fuse_open_in {
    uint32_t flags;
    uint32_t open_flags;
};

struct fuse_open_out {
    uint64_t fh;
    uint32_t open_flags;
    int32_t backing_id;
};

/* CREATE and TMPFILE; both are answered by fuse_entry_out and fuse_open_out */
struct fuse_create_in {
    uint32_t flags;
    uint32_t mode;
    uint32_t umask;
    uint32_t open_flags;
};

struct fuse_release_in {
    uint64_t fh;
    uint32_t flags;
    uint32_t release_flags;
    uint64_t lock_owner;
};

struct fuse_flush_in {
    uint64_t fh;
    uint32_t unused;
    uint32_t padding;
    uint64_t lock_owner;
};

/* READ, READDIR, READDIRPLUS */
struct fuse_read_in {
    uint64_t fh;
    uint64_t offset;
    uint32_t size;
    uint32_t read_flags;
    uint64_t lock_owner;
    uint32_t flags;
    uint32_t padding;
};

struct fuse_write_in {
    uint64_t fh;
    uint64_t offset;
    uint32_t size;
    uint32_t write_flags;
    uint64_t lock_owner;
    uint32_t flags;
    uint32_t padding;
};

struct fuse_write_out {
    uint32_t size;
    uint32_t padding;
};

struct fuse_kstatfs {
    uint64_t blocks;
    uint64_t bfree;
    uint64_t bavail;
    uint64_t files;
    uint64_t ffree;
    uint32_t bsize;
    uint32_t namelen;
    uint32_t frsize;
    uint32_t padding;
    uint32_t spare[6];
};

struct fuse_statfs_out {
    struct fuse_kstatfs st;
};

/* FSYNC, FSYNCDIR */
struct fuse_fsync_in {
    uint64_t fh;
    uint32_t fsync_flags;
    uint32_t padding;
};

/* without FUSE_SETXATTR_EXT the request has only the first two fields */
struct fuse_setxattr_in {
    uint32_t size;
    uint32_t flags;
    uint32_t setxattr_flags;
    uint32_t padding;
};

/* GETXATTR, LISTXATTR; size 0 asks for the size */
struct fuse_getxattr_in {
    uint32_t size;
    uint32_t padding;
};

struct fuse_getxattr_out {
    uint32_t size;
    uint32_t padding;
};

struct fuse_fallocate_in {
    uint64_t fh;
    uint64_t offset;
    uint64_t length;
    uint32_t mode;
    uint32_t padding;
};

struct fuse_lseek_in {
    uint64_t fh;
    uint64_t offset;
    uint32_t whence;
    uint32_t padding;
};

struct fuse_lseek_out {
    uint64_t offset;
};

/* the name follows without a terminator, padded to a multiple of eight bytes */
struct fuse_dirent {
    uint64_t ino;
    uint64_t off;
    uint32_t namelen;
    uint32_t type; /* DT_* of readdir(3) */
};

struct fuse_direntplus {
    struct fuse_entry_out entry_out;
    struct fuse_dirent dirent;
};

/* off -1: attributes only; off 0 and len 0: everything */
struct fuse_notify_inval_inode_out {
    uint64_t ino;
    int64_t off;
    int64_t len;
};

/* the name follows with a zero byte, which namelen does not count */
struct fuse_notify_inval_entry_out {
    uint64_t parent;
    uint32_t namelen;
    uint32_t flags;
};

/* ioctl(2) on a newly opened /dev/fuse: joins it to the connection of another descriptor.
 * _IOR(229, 0, uint32_t) */
#define FUSE_DEV_IOC_CLONE 0x8004e500UL

/* Tells the processor that this is a busy wait; Swift has no intrinsic for it. */
static inline void ward_cpu_relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

/* FUSE over io_uring (Linux 6.14; fs/fuse/dev_uring.c). Requests and replies lie in buffers that
 * the daemon registers, one entry for each request under way, for the queue of each possible
 * CPU. Only FORGET, INTERRUPT and notifications still go by the device file. */
#define FUSE_URING_OP_IN_BYTES 128

struct fuse_uring_ent_in_out {
    uint64_t flags;
    uint64_t commit_id;  /* names the request in FUSE_IO_URING_CMD_COMMIT_AND_FETCH */
    uint32_t payload_sz; /* of the request, and then of the reply; bytes */
    uint32_t padding;
    uint64_t reserved;
};

struct fuse_uring_req_header {
    char in_out[128]; /* fuse_in_header, and then fuse_out_header */
    char op_in[FUSE_URING_OP_IN_BYTES]; /* the opcode's structure */
    struct fuse_uring_ent_in_out ring_ent_in_out;
};

enum fuse_uring_cmd {
    FUSE_IO_URING_CMD_INVALID = 0,
    FUSE_IO_URING_CMD_REGISTER = 1,
    FUSE_IO_URING_CMD_COMMIT_AND_FETCH = 2,
};

/* The command's own part, in the 80 bytes that an entry of 128 bytes has for it. */
struct fuse_uring_cmd_req {
    uint64_t flags;
    uint64_t commit_id;
    uint16_t qid; /* the CPU's number */
    uint8_t padding[6];
};

_Static_assert(sizeof(struct fuse_in_header) == 40, "ABI");
_Static_assert(sizeof(struct fuse_out_header) == 16, "ABI");
_Static_assert(sizeof(struct fuse_init_in) == 64, "ABI");
_Static_assert(sizeof(struct fuse_init_out) == 64, "ABI");
_Static_assert(__builtin_offsetof(struct fuse_init_out, request_timeout) == 40, "ABI");
_Static_assert(sizeof(struct fuse_attr) == 88, "ABI");
_Static_assert(sizeof(struct fuse_entry_out) == 128, "ABI");
_Static_assert(sizeof(struct fuse_forget_in) == 8, "ABI");
_Static_assert(sizeof(struct fuse_forget_one) == 16, "ABI");
_Static_assert(sizeof(struct fuse_batch_forget_in) == 8, "ABI");
_Static_assert(sizeof(struct fuse_getattr_in) == 16, "ABI");
_Static_assert(sizeof(struct fuse_attr_out) == 104, "ABI");
_Static_assert(sizeof(struct fuse_setattr_in) == 88, "ABI");
_Static_assert(sizeof(struct fuse_mknod_in) == 16, "ABI");
_Static_assert(sizeof(struct fuse_mkdir_in) == 8, "ABI");
_Static_assert(sizeof(struct fuse_rename_in) == 8, "ABI");
_Static_assert(sizeof(struct fuse_rename2_in) == 16, "ABI");
_Static_assert(sizeof(struct fuse_link_in) == 8, "ABI");
_Static_assert(sizeof(struct fuse_open_in) == 8, "ABI");
_Static_assert(sizeof(struct fuse_open_out) == 16, "ABI");
_Static_assert(sizeof(struct fuse_create_in) == 16, "ABI");
_Static_assert(sizeof(struct fuse_release_in) == 24, "ABI");
_Static_assert(sizeof(struct fuse_flush_in) == 24, "ABI");
_Static_assert(sizeof(struct fuse_read_in) == 40, "ABI");
_Static_assert(sizeof(struct fuse_write_in) == 40, "ABI");
_Static_assert(sizeof(struct fuse_write_out) == 8, "ABI");
_Static_assert(sizeof(struct fuse_kstatfs) == 80, "ABI");
_Static_assert(sizeof(struct fuse_statfs_out) == 80, "ABI");
_Static_assert(sizeof(struct fuse_fsync_in) == 16, "ABI");
_Static_assert(sizeof(struct fuse_setxattr_in) == 16, "ABI");
_Static_assert(sizeof(struct fuse_getxattr_in) == 8, "ABI");
_Static_assert(sizeof(struct fuse_getxattr_out) == 8, "ABI");
_Static_assert(sizeof(struct fuse_fallocate_in) == 32, "ABI");
_Static_assert(sizeof(struct fuse_lseek_in) == 24, "ABI");
_Static_assert(sizeof(struct fuse_lseek_out) == 8, "ABI");
_Static_assert(sizeof(struct fuse_dirent) == 24, "ABI");
_Static_assert(sizeof(struct fuse_direntplus) == 152, "ABI");
_Static_assert(sizeof(struct fuse_notify_inval_inode_out) == 24, "ABI");
_Static_assert(sizeof(struct fuse_notify_inval_entry_out) == 16, "ABI");
_Static_assert(sizeof(struct fuse_uring_ent_in_out) == 32, "ABI");
_Static_assert(sizeof(struct fuse_uring_req_header) == 288, "ABI");
_Static_assert(sizeof(struct fuse_uring_cmd_req) == 24, "ABI");

#endif
