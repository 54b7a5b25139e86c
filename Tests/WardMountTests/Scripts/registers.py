"""Prints the registers of every thread of a process, as the kernel saved them: `THREAD HEX`, one line each.

registers.py PID: general and vector registers (NT_PRSTATUS, NT_X86_XSTATE or NT_PRFPREG), by ptrace(2). Each thread is
stopped for a moment; system calls that it sleeps in are restarted.
"""
import ctypes
import os
import sys

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long
SEIZE, INTERRUPT, GETREGSET, DETACH = 0x4206, 0x4207, 0x4204, 17
PRSTATUS, PRFPREG, X86_XSTATE = 1, 2, 0x202
WALL = 0x40000000


class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def ptrace(request, thread, address=None, data=None):
    return libc.ptrace(request, thread, address, data)


def registers(thread):
    result = b""
    for kind in (PRSTATUS, X86_XSTATE, PRFPREG):
        buffer = ctypes.create_string_buffer(16384)
        vector = Vector(ctypes.addressof(buffer), len(buffer))
        if ptrace(GETREGSET, thread, kind, ctypes.addressof(vector)) == 0:
            result += buffer.raw[: vector.length]
    return result


process = sys.argv[1]
for thread in sorted(map(int, os.listdir("/proc/%s/task" % process))):
    if ptrace(SEIZE, thread) != 0:
        code = ctypes.get_errno()
        sys.exit("can't trace thread %d: %s" % (thread, os.strerror(code)))
    ptrace(INTERRUPT, thread)
    os.waitpid(thread, WALL)
    with open("/proc/%s/task/%d/comm" % (process, thread)) as file:
        name = file.read().strip().replace(" ", "_")
    print("%s/%d %s" % (name, thread, registers(thread).hex()))
    ptrace(DETACH, thread)
