#define _GNU_SOURCE
#include "ward_syscalls.h"

#include <linux/capability.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

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
int ward_syncfs(int fd) { return syncfs(fd); }
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
int ward_gettid(void) { return (int)syscall(SYS_gettid); }
int ward_close_range(unsigned first, unsigned last, unsigned flags) {
    return (int)syscall(SYS_close_range, first, last, flags);
}
int ward_prctl(int option, unsigned long argument) { return prctl(option, argument, 0, 0, 0); }

int ward_memfd_secret(unsigned flags) {
#ifdef SYS_memfd_secret
    return (int)syscall(SYS_memfd_secret, flags);
#else
    return (int)syscall(447, flags);
#endif
}

__attribute__((noinline)) void ward_scrub_stack(void) {
    unsigned char dead[6144];
    explicit_bzero(dead, sizeof dead);
}

static __thread void *thread_context;
void *ward_thread_context_get(void) { return thread_context; }
void ward_thread_context_set(void *context) { thread_context = context; }
