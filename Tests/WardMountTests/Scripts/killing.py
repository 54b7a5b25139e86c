"""Runs a program up to one of its system calls and kills it right before: ptrace(2)."""

import ctypes
import os
import signal
import struct

TRACEME, SYSCALL, SETOPTIONS, GET_SYSCALL_INFO = 0, 24, 0x4200, 0x420E
# PTRACE_O_TRACESYSGOOD, _TRACEFORK, _TRACEVFORK, _TRACECLONE, _EXITKILL
OPTIONS = 1 | 2 | 4 | 8 | 0x100000
# write, pwrite64, ftruncate, fallocate, fsync, fdatasync, syncfs, rename, renameat, renameat2, mkdir, mkdirat, rmdir, unlink,
# unlinkat, link, linkat, symlink, symlinkat, chmod, fchmod, fchmodat, setxattr, lsetxattr, fsetxattr, removexattr, openat
# The calls that change the file system.
CHANGING, OPENAT = {
    "x86_64": ({1, 18, 77, 285, 74, 75, 306, 82, 264, 316, 83, 258, 84, 87, 263, 86, 265, 88, 266, 90, 91, 268, 188, 189, 190,
                197, 257}, 257),
    "aarch64": ({64, 68, 46, 47, 82, 83, 267, 38, 276, 34, 35, 37, 36, 52, 53, 5, 6, 7, 14, 56}, 56),
}[os.uname().machine]

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def is_at(thread, calls):
    """Whether the thread is about to make one of these calls; openat only if it makes a file."""
    info = ctypes.create_string_buffer(128)
    if libc.ptrace(GET_SYSCALL_INFO, thread, ctypes.c_void_p(128), ctypes.cast(info, ctypes.c_void_p)) < 0:
        return False
    # 1: PTRACE_SYSCALL_INFO_ENTRY
    number, _, _, flags = struct.unpack_from("=4Q", info.raw, 24)
    if info.raw[0] != 1 or number not in calls:
        return False
    return number != OPENAT or flags & os.O_CREAT


def run_until(arguments, stop_at, environment=os.environ, chosen=CHANGING):
    """Runs to the `stop_at`th of the chosen calls of any thread and kills it there. Returns the number of calls, and
    None; if the program ended before, its exit status instead, negative for a signal."""
    child = os.fork()
    if child == 0:
        null = os.open("/dev/null", os.O_RDWR)
        for stream in range(3):
            os.dup2(null, stream)
        libc.ptrace(TRACEME, 0, None, None)
        os.kill(os.getpid(), signal.SIGSTOP)
        os.execve(arguments[0], arguments, environment)
    os.waitpid(child, 0)
    libc.ptrace(SETOPTIONS, child, None, OPTIONS)
    libc.ptrace(SYSCALL, child, None, None)
    calls = 0
    while True:
        thread, status = os.waitpid(-1, 0x40000000)  # __WALL
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            if thread == child:
                return os.waitstatus_to_exitcode(status), calls
            continue
        signal_number = os.WSTOPSIG(status)
        if signal_number == signal.SIGTRAP | 0x80:
            if is_at(thread, chosen):
                calls += 1
                if calls == stop_at:
                    os.kill(child, signal.SIGKILL)
                    reap(child)
                    return None, calls
            signal_number = 0
        elif signal_number in (signal.SIGTRAP, signal.SIGSTOP):
            signal_number = 0
        libc.ptrace(SYSCALL, thread, None, signal_number)


def reap(child):
    """Waits for all threads; the first one ends last."""
    while True:
        try:
            thread, status = os.waitpid(-1, 0x40000000)
        except ChildProcessError:
            return
        if thread == child and (os.WIFEXITED(status) or os.WIFSIGNALED(status)):
            return
