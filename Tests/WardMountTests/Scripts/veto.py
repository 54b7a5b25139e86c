"""Single system calls that a program of the daemon's user can make against it and its helpers.

    veto.py limit PID RESOURCE VALUE  prlimit(2), soft and hard
    veto.py seize PID                 PTRACE_SEIZE and one SIGSTOP; attached until standard input ends
    veto.py race PID WORD             the same to each new child of PID with WORD in its command line;
                                      ends when standard input does

prints one line: "done", or the error.
"""
import ctypes
import os
import resource
import select
import signal
import sys

SEIZE = 0x4206
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def seize(pid):
    if libc.ptrace(SEIZE, pid, None, None) != 0:
        return os.strerror(ctypes.get_errno())
    os.kill(pid, signal.SIGSTOP)
    return "done"


def children(parent, word):
    found = set()
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat") as file:
                fields = file.read().rsplit(")", 1)[1].split()
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                if int(fields[1]) == parent and word in file.read().split(b"\0"):
                    found.add(int(entry))
        except OSError:
            pass
    return found


command, pid = sys.argv[1], int(sys.argv[2])
if command == "limit":
    number = getattr(resource, sys.argv[3], None)
    # Python has a name for all but this one.
    number = 10 if sys.argv[3] == "RLIMIT_LOCKS" else number
    try:
        resource.prlimit(pid, number, (int(sys.argv[4]), int(sys.argv[4])))
        print("done", flush=True)
    except OSError as error:
        print(error.strerror, flush=True)
elif command == "seize":
    print(seize(pid), flush=True)
    sys.stdin.read()
else:
    known, seized = children(pid, sys.argv[3].encode()), []
    print("done", flush=True)
    while not select.select([0], [], [], 0)[0]:
        for child in children(pid, sys.argv[3].encode()) - known:
            known.add(child)
            seized.append(seize(child))
    print(" ".join(seized), flush=True)
