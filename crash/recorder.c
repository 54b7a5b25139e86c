// The recorder: a file system with one file, "image", that logs the order of its writes and
// flushes.
//
//     recorder MOUNTPOINT IMAGE LOG
//
// "image" begins with the content of IMAGE, which does not change. A loop device over "image" is a
// disk. The kernel turns a flush of its block layer into fsync, and a forced write (FUA) into a
// write and a flush (drivers/block/loop.c, lo_req_flush). One thread takes one request after the
// other, so LOG has one order.
//
// Writes to the file "marks" are logged, too. A mark that a program writes after fsync has returned
// comes after all entries that this fsync flushed. Other writes in between do not change that.
//
// LOG is a sequence of
//
//     kind 4 ('W' write, 'F' flush, 'M' mark) | length 4 | offset 8 | data
//
// The recorder speaks the kernel's protocol (linux/fuse.h, fuse(4)) without a library. It ends when
// it is unmounted.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { ROOT = FUSE_ROOT_ID, IMAGE, MARKS };
enum { MAX_WRITE = 1 << 20, REQUEST = MAX_WRITE + 4096 };

struct entry {
    char kind[4];
    uint32_t length;
    uint64_t offset;
};
_Static_assert(sizeof(struct entry) == 16, "no padding");

static int device, log_file;
static char *image;
static uint64_t image_bytes;

static void fail(const char *what) {
    fprintf(stderr, "recorder: error: %s: %s\n", what, strerror(errno));
    exit(1);
}

// Writes an entry completely or fails: a log with a partial entry is useless.
static void record(char kind, uint64_t offset, const void *data, uint32_t length) {
    struct entry head = {{kind, 0, 0, 0}, length, offset};
    struct iovec parts[] = {{&head, sizeof head}, {(void *)data, length}};
    if (writev(log_file, parts, 2) != (ssize_t)(sizeof head + length)) fail("log");
}

static void reply(uint64_t unique, int error, const void *data, size_t length) {
    struct fuse_out_header head = {sizeof head + (error ? 0 : length), error, unique};
    struct iovec parts[] = {{&head, sizeof head}, {(void *)data, length}};
    // ENOENT: the request was interrupted, and the kernel drops the answer.
    if (writev(device, parts, error || !length ? 1 : 2) < 0 && errno != ENOENT) fail("reply");
}

static struct fuse_attr attributes(uint64_t node) {
    struct fuse_attr found = {.ino = node, .nlink = 1, .blksize = 4096};
    found.mode = node == ROOT ? S_IFDIR | 0700 : S_IFREG | 0600;
    if (node == IMAGE) found.size = image_bytes, found.blocks = image_bytes / 512;
    return found;
}

static void look_up(uint64_t unique, const char *name) {
    uint64_t node = !strcmp(name, "image") ? IMAGE : !strcmp(name, "marks") ? MARKS : 0;
    struct fuse_entry_out out = {.nodeid = node, .entry_valid = 3600, .attr_valid = 3600, .attr = attributes(node)};
    reply(unique, node ? 0 : -ENOENT, &out, sizeof out);
}

static void initialise(uint64_t unique, const struct fuse_init_in *in) {
    struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION, .minor = 31, .max_readahead = in->max_readahead};
    out.flags = in->flags & (FUSE_BIG_WRITES | FUSE_MAX_PAGES);
    out.max_write = MAX_WRITE;
    out.max_pages = MAX_WRITE / 4096;
    out.max_background = 64;
    out.congestion_threshold = 48;
    out.time_gran = 1;
    reply(unique, 0, &out, sizeof out);
}

static void write_file(uint64_t unique, uint64_t node, const struct fuse_write_in *in, const char *data) {
    if (node == MARKS) {
        record('M', 0, data, in->size);
    } else if (in->offset + in->size <= image_bytes) {
        memcpy(image + in->offset, data, in->size);
        record('W', in->offset, data, in->size);
    } else {
        return reply(unique, -EFBIG, NULL, 0);
    }
    struct fuse_write_out out = {.size = in->size};
    reply(unique, 0, &out, sizeof out);
}

static void serve(const struct fuse_in_header *in, const char *arguments) {
    uint64_t unique = in->unique, node = in->nodeid;
    switch (in->opcode) {
    case FUSE_INIT: return initialise(unique, (const void *)arguments);
    case FUSE_LOOKUP: return look_up(unique, arguments);
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT: return;  // no answer is expected
    case FUSE_GETATTR:
    case FUSE_SETATTR: {
        struct fuse_attr_out out = {.attr_valid = 3600, .attr = attributes(node)};
        return reply(unique, 0, &out, sizeof out);
    }
    case FUSE_OPEN:
    case FUSE_OPENDIR: {
        // Without a page cache the log has the requests as the block layer made them.
        struct fuse_open_out out = {.open_flags = node == ROOT ? 0 : FOPEN_DIRECT_IO};
        return reply(unique, 0, &out, sizeof out);
    }
    case FUSE_READ: {
        const struct fuse_read_in *read = (const void *)arguments;
        if (node != IMAGE || read->offset >= image_bytes) return reply(unique, 0, NULL, 0);
        uint64_t left = image_bytes - read->offset;
        return reply(unique, 0, image + read->offset, left < read->size ? left : read->size);
    }
    case FUSE_WRITE: {
        const struct fuse_write_in *write = (const void *)arguments;
        return write_file(unique, node, write, (const char *)(write + 1));
    }
    case FUSE_FSYNC:
        if (node == IMAGE) record('F', 0, NULL, 0);
        return reply(unique, 0, NULL, 0);
    case FUSE_STATFS: {
        struct fuse_statfs_out out = {.st = {.bsize = 4096, .frsize = 4096, .namelen = 255}};
        return reply(unique, 0, &out, sizeof out);
    }
    case FUSE_READDIR:
    case FUSE_FLUSH:
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
    case FUSE_DESTROY: return reply(unique, 0, NULL, 0);
    // Holes and zeroing are not offered, so the block layer writes zeros itself.
    case FUSE_FALLOCATE: return reply(unique, -EOPNOTSUPP, NULL, 0);
    default: return reply(unique, -ENOSYS, NULL, 0);
    }
}

int main(int count, char **words) {
    if (count != 4) {
        fprintf(stderr, "usage: recorder MOUNTPOINT IMAGE LOG\n");
        return 64;
    }
    int base = open(words[2], O_RDONLY | O_CLOEXEC);
    struct stat found;
    if (base < 0 || fstat(base, &found)) fail(words[2]);
    image_bytes = found.st_size;
    image = mmap(NULL, image_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, base, 0);
    if (image == MAP_FAILED) fail("mmap");
    log_file = open(words[3], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (log_file < 0) fail(words[3]);
    device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (device < 0) fail("/dev/fuse");

    char options[96];
    snprintf(options, sizeof options, "fd=%d,rootmode=40700,user_id=%u,group_id=%u", device, getuid(), getgid());
    if (mount("recorder", words[1], "fuse.recorder", MS_NOSUID | MS_NODEV, options)) fail("mount");
    // The script that started the recorder waits for this line.
    puts("ready");
    fflush(stdout);

    static char request[REQUEST] __attribute__((aligned(4096)));
    for (;;) {
        ssize_t length = read(device, request, sizeof request);
        if (length < 0 && (errno == EINTR || errno == ENOENT || errno == EAGAIN)) continue;
        if (length < 0 && errno == ENODEV) return 0;  // unmounted
        if (length < (ssize_t)sizeof(struct fuse_in_header)) fail("request");
        serve((const void *)request, request + sizeof(struct fuse_in_header));
    }
}
