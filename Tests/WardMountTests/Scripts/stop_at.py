#!/usr/bin/env python3
"""Ends `ward container create` and `remove` right before each call that changes the file system, one after another, and
looks at what is there: nothing or all of it, and nothing at all of what was half done once ward has run again.

    stop_at.py WARD MOUNTPOINT DIRECTORY

prints the number of calls that each was ended before; exit status 1, with what was found, where something is wrong.
"""

import ctypes
import os
import plistlib
import signal
import struct
import subprocess
import sys

TRACEME, SYSCALL, SETOPTIONS, GET_SYSCALL_INFO = 0, 24, 0x4200, 0x420E
TRACESYSGOOD, EXITKILL = 1, 0x100000
# mkdir, mkdirat, rename, renameat, renameat2, rmdir, unlink, unlinkat, setxattr, fsetxattr
CHANGING = {
    "x86_64": {83, 258, 82, 264, 316, 84, 87, 263, 188, 190},
    "aarch64": {34, 38, 276, 35, 5, 7},
}[os.uname().machine]

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long

ward, mount, scratch = sys.argv[1:4]
parents = {
    "application": mount + "/Containers/Data/Application",
    "group": mount + "/Containers/Shared/AppGroup",
}
inside = {
    "application": ["Documents", "Library/Application Support", "Library/Caches", "Library/Preferences", "tmp"],
    "group": ["Library/Application Support", "Library/Caches", "Library/Preferences"],
}


def run_until(arguments, stop_at):
    """Runs to the `stop_at`th call that changes something; True where it was ended there, False where it ended before."""
    child = os.fork()
    if child == 0:
        null = os.open("/dev/null", os.O_RDWR)
        for stream in range(3):
            os.dup2(null, stream)
        libc.ptrace(TRACEME, 0, None, None)
        os.kill(os.getpid(), signal.SIGSTOP)
        os.execv(arguments[0], arguments)
    os.waitpid(child, 0)
    libc.ptrace(SETOPTIONS, child, None, TRACESYSGOOD | EXITKILL)
    calls, pending = 0, 0
    while True:
        libc.ptrace(SYSCALL, child, None, pending)
        pending = 0
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            check(os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0, f"{arguments} ended with {status:#x}")
            return False
        if os.WSTOPSIG(status) != signal.SIGTRAP | 0x80:
            pending = 0 if os.WSTOPSIG(status) in (signal.SIGTRAP, signal.SIGSTOP) else os.WSTOPSIG(status)
            continue
        info = ctypes.create_string_buffer(128)
        if libc.ptrace(GET_SYSCALL_INFO, child, ctypes.c_void_p(128), ctypes.cast(info, ctypes.c_void_p)) < 0:
            raise OSError(ctypes.get_errno(), "PTRACE_GET_SYSCALL_INFO")
        if info.raw[0] != 1 or struct.unpack_from("=Q", info.raw, 24)[0] not in CHANGING:
            continue
        calls += 1
        if calls == stop_at:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return True


def check(condition, what):
    if not condition:
        sys.exit(f"stop_at.py: {what}")


def ward_must(*arguments):
    done = subprocess.run([ward, "container", *arguments], capture_output=True, text=True)
    check(done.returncode == 0, f"ward container {' '.join(arguments)}: {done.stdout}{done.stderr}")


def is_there(kind, name):
    """Whether there is a container of that name; a part of one is an error."""
    path = f"{parents[kind]}/{name}"
    if not os.path.lexists(path):
        return False
    for directory in inside[kind]:
        check(os.path.isdir(f"{path}/{directory}"), f"{path} is there without {directory}")
    check(b'"id":"' + name.encode() + b'"' in os.getxattr(path, "user.ward.container"), f"{path} has no record")
    expected = b"NSFileProtectionComplete" if kind == "application" else None
    found = os.getxattr(path + "/" + inside[kind][0], "user.ward.class")
    check(expected is None or found == expected, f"{path} is of class {found}")
    return True


def leftovers():
    return [name for parent in parents.values() if os.path.isdir(parent) for name in os.listdir(parent) if name[0] == "."]


def entitlements(group):
    path = scratch + "/" + group + ".entitlements"
    with open(path, "wb") as file:
        plistlib.dump(
            {
                "com.apple.developer.default-data-protection": "NSFileProtectionComplete",
                "com.apple.security.application-groups": [group],
            },
            file,
        )
    return path


def create(number):
    """Stopped before the call of that number; False where there is none."""
    app, group = f"org.example.made{number}", f"group.made{number}"
    arguments = [app, "--entitlements", entitlements(group), "-q"]
    stopped = run_until([ward, "container", "create", mount, *arguments], number)
    before = is_there("application", app)
    # Whatever is done next takes away what was half done.
    ward_must("create", mount, "org.example.another", "-q")
    check(leftovers() == [], f"create, call {number}: left {leftovers()}")
    check(is_there("application", app) == before, f"create, call {number}: it changed its mind")
    check(is_there("group", group) == before, f"create, call {number}: the app is there: {before}, its group is not alike")
    check(before or stopped, f"create, call {number}: it ended, and nothing is there")
    ward_must("create", mount, *arguments)
    check(is_there("application", app) and is_there("group", group), f"create, call {number}: it can't be done again")
    return stopped


def remove(number):
    app, group = f"org.example.gone{number}", f"group.gone{number}"
    ward_must("create", mount, app, "--entitlements", entitlements(group), "-q")
    for path in [f"{parents['application']}/{app}/Documents/a", f"{parents['group']}/{group}/Library/b"]:
        with open(path, "w") as file:
            file.write("content")
    stopped = run_until([ward, "container", "remove", mount, app, "--yes", "-q"], number)
    before = is_there("application", app)
    if before:
        with open(f"{parents['application']}/{app}/Documents/a") as file:
            check(file.read() == "content", f"remove, call {number}: a file is gone")
    ward_must("create", mount, "org.example.another", "-q")
    check(leftovers() == [], f"remove, call {number}: left {leftovers()}")
    check(is_there("application", app) == before, f"remove, call {number}: it changed its mind")
    check(is_there("group", group) == before, f"remove, call {number}: the app is there: {before}, its group is not alike")
    check(stopped or not before, f"remove, call {number}: it ended, and the app is there")
    return stopped


counts = []
for attempt in (create, remove):
    number = 1
    while attempt(number):
        number += 1
    counts.append(number - 1)
print(f"create {counts[0]} remove {counts[1]}")
