"""Whose processor time a sample of perf(1) is."""

import re

PARTS = ("the device", "the store", "cipher", "ward itself", "other calls")
# How the kernel calls its system calls, and the C library its functions.
SYSTEM_CALL = re.compile(r"^(?:__(?:x64|do|se|arm64)_sys_|ksys_|do_(?=p?(?:read|write)v))(\w+?)(?:64)?$")
FUNCTION = re.compile(r"^_*(?:GI_+)?(?:libc_)?(\w+?)(?:64)?(?:v2)?$")
KERNEL_ADDRESS = 0xFFFF_0000_0000_0000
DEVICE = {"read", "write", "readv", "writev", "poll", "ppoll", "io_uring_enter"}
STORE = {
    "pread", "preadv", "pwrite", "pwritev", "open", "openat", "close", "fstat", "newfstat", "newfstatat", "fstatat", "statx",
    "fstatfs", "statfs", "lseek", "fsync", "fdatasync", "sync_file_range", "syncfs", "ftruncate", "fallocate", "fadvise", "readahead",
    "getdents", "unlinkat", "linkat", "renameat2", "mkdirat", "symlinkat", "readlinkat", "utimensat", "fchmod", "fchmodat", "fchownat",
    "copy_file_range", "getxattr", "fgetxattr", "getxattrat", "setxattr", "fsetxattr", "setxattrat", "listxattr", "flistxattr",
    "removexattr", "fremovexattr",
}


def part(stack: list[tuple[int, str]]) -> str:
    """Whose a sample is. `stack`: addresses and names, the innermost first."""
    kernel = [name for address, name in stack if address >= KERNEL_ADDRESS]
    user = [name for address, name in stack if address < KERNEL_ADDRESS] + ["", ""]
    if any(transport in name for name in user[:3] for transport in ("DeviceTransport", "RingTransport")):
        return "the device"
    if not any(name.startswith(("entry_SYSCALL", "el0_svc")) for name in kernel):
        # An interrupt or a fault is whose it comes to.
        return "cipher" if "CCryptoBoringSSL" in user[0] or user[0].startswith(("aes_", "aead_aes", "gcm_")) else "ward itself"
    if any(name.startswith("proc_") for name in kernel):
        return "other calls"
    if any(name.startswith("fuse_") for name in kernel):
        return "the device"
    # On its way in and out the kernel tells no name.
    calls = [found.group(1) for name in reversed(kernel) if (found := SYSTEM_CALL.match(name))]
    calls += [found.group(1) for name in user[:1] if (found := FUNCTION.match(name))]
    return next(("the device" if call in DEVICE else "the store" for call in calls if call in DEVICE | STORE), "other calls")


def stacks(text: str):
    """Of perf script -F ip,sym: a line for each frame, an empty one behind each sample."""
    stack: list[tuple[int, str]] = []
    for line in text.splitlines():
        words = line.split(maxsplit=1)
        if words:
            stack.append((int(words[0], 16), words[1] if len(words) > 1 else ""))
        elif stack:
            yield stack
            stack = []
    if stack:
        yield stack
