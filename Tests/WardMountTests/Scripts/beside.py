"""Prints a file system's behaviour, line by line. A run in a mount and one in a plain directory
beside its backing store must print the same.

usage: beside.py SCENARIO DIRECTORY [ARGUMENT...]
"""
import ctypes
import errno
import mmap
import os
import shutil
import signal
import stat
import struct
import subprocess
import sys
import threading

libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
libc.statx.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p]
libc.syscall.restype = ctypes.c_long
NOBODY = 65534
OTHER_GROUP = 4321


def failed():
    code = ctypes.get_errno()
    raise OSError(code, os.strerror(code))


def outcome(call):
    """The result of a call, or the name of its error."""
    try:
        return call()
    except OSError as error:
        return errno.errorcode[error.errno]


def mode_alone(path):
    """Only the mode; the one that the kernel has cached is enough."""
    buffer = ctypes.create_string_buffer(256)
    if libc.statx(-100, path.encode(), 0, 2, buffer):
        failed()
    return "%o" % (struct.unpack_from("H", buffer, 28)[0] & 0o7777)


def fallocate(file, mode, offset, length):
    if libc.fallocate(file, mode, offset, length):
        failed()


def page_buffer(content):
    buffer = mmap.mmap(-1, (len(content) + 4095) // 4096 * 4096)
    buffer.write(content)
    return buffer


def become(group, others):
    os.setgroups(others)
    os.setresgid(group, group, group)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def drop_fsetid():
    """Root without CAP_FSETID (capabilities(7)): capset(2)."""
    header = struct.pack("Ii", 0x20080522, 0)
    data = ctypes.create_string_buffer(24)
    if libc.capget(header, data):
        failed()
    words = list(struct.unpack("6I", data.raw))
    words[0] &= ~(1 << 4)
    words[1] &= ~(1 << 4)
    if libc.capset(header, struct.pack("6I", *words)):
        failed()


# Set-ID bits.

def mapped_store(path):
    file = os.open(path, os.O_RDWR)
    with mmap.mmap(file, 8192) as mapping:
        mapping[0:4] = b"#!/b"
        mapping.flush()
    os.close(file)


def opened(call, flags=os.O_RDWR):
    def run(path):
        file = os.open(path, flags)
        try:
            call(file, path)
        finally:
            os.close(file)
    return run


def copy_range(file, path):
    source = os.open(os.path.dirname(path) + "/source", os.O_RDONLY)
    os.copy_file_range(source, file, 4096)
    os.close(source)


def send_file(file, path):
    source = os.open(os.path.dirname(path) + "/source", os.O_RDONLY)
    os.sendfile(file, source, 0, 4096)
    os.close(source)


CHANGES = {
    "write": opened(lambda file, path: os.pwrite(file, b"x" * 100, 0)),
    "append": opened(lambda file, path: os.write(file, b"x" * 100), os.O_WRONLY | os.O_APPEND),
    "direct write": opened(lambda file, path: os.pwritev(file, [page_buffer(b"y" * 8192)], 0), os.O_RDWR | os.O_DIRECT),
    "vectored write": opened(lambda file, path: os.writev(file, [b"a", b"b"])),
    "open with O_TRUNC": opened(lambda file, path: None, os.O_WRONLY | os.O_TRUNC),
    "creat": opened(lambda file, path: None, os.O_WRONLY | os.O_TRUNC | os.O_CREAT),
    "truncate": lambda path: os.truncate(path, 10),
    "truncate, longer": lambda path: os.truncate(path, 100000),
    "ftruncate": opened(lambda file, path: os.ftruncate(file, 10)),
    "ftruncate to the same": opened(lambda file, path: os.ftruncate(file, 65536)),
    "fallocate": opened(lambda file, path: fallocate(file, 0, 0, 131072)),
    "fallocate, size kept": opened(lambda file, path: fallocate(file, 1, 0, 131072)),
    "punch": opened(lambda file, path: fallocate(file, 3, 0, 8192)),
    "zero range": opened(lambda file, path: fallocate(file, 16, 0, 8192)),
    "copy_file_range": opened(copy_range),
    "sendfile": opened(send_file),
    "mapped store": mapped_store,
    "nothing": opened(lambda file, path: None),
    "write of nothing": opened(lambda file, path: os.pwrite(file, b"", 0)),
}
MODES = (0o6777, 0o2777, 0o6666, 0o6755, 0o2666, 0o4666, 0o2676, 0o7777, 0o6077, 0o1777, 0o2066)


def set_id(directory):
    """Prints the bits after each kind of change by each kind of caller; a file's group is OTHER_GROUP."""
    callers = {
        "owner, not in the group": lambda: become(NOBODY, []),
        "by the first group": lambda: become(OTHER_GROUP, []),
        "by another group": lambda: become(NOBODY, [1, OTHER_GROUP, 2]),
    }
    if os.geteuid() == 0:
        callers["root"] = lambda: None
        callers["root without CAP_FSETID"] = drop_fsetid
    else:
        callers = {"the user": lambda: None}
    with open(directory + "/source", "wb") as source:
        source.write(b"s" * 65536)
    os.chmod(directory + "/source", 0o644)
    path = directory + "/file"
    processes = {caller: Caller(begin, path) for caller, begin in callers.items()}
    for owner in (0, NOBODY) if os.geteuid() == 0 else (os.geteuid(),):
        for name in CHANGES:
            # The store removes the bits when a daemon writes that is not root.
            if name == "mapped store" and os.geteuid() != 0:
                continue
            for caller, process in processes.items():
                modes = []
                for mode in MODES:
                    with open(path, "wb") as file:
                        file.write(b"a" * 65536)
                    if os.geteuid() == 0:
                        os.chown(path, owner, OTHER_GROUP)
                    os.chmod(path, mode)
                    mode_alone(path)
                    status = process.change(name)
                    alone = mode_alone(path)
                    full = "%o" % (os.stat(path).st_mode & 0o7777)
                    result = alone if alone == full else alone + ", then " + full
                    modes.append("%o>%s%s" % (mode, result, " " + errno.errorcode[status] if status else ""))
                    os.unlink(path)
                print(owner, name, caller, *modes, sep="; ")
    for process in processes.values():
        process.end()


class Caller:
    """A process with the rights of one caller, which changes the file at `path` in the ways of CHANGES.

    It is forked once for all changes: a fork for each would take longer than all changes.
    """

    def __init__(self, begin, path):
        down, up = os.pipe(), os.pipe()
        sys.stdout.flush()
        self.process = os.fork()
        if self.process == 0:
            # The ends of callers that were forked before stay open here, and are not used.
            os.close(down[1])
            os.close(up[0])
            Caller.serve(begin, path, down[0], up[1])
        os.close(down[0])
        os.close(up[1])
        self.requests, self.answers = down[1], up[0]

    @staticmethod
    def serve(begin, path, requests, answers):
        try:
            begin()
            names = list(CHANGES)
            while number := os.read(requests, 1):
                status = 0
                try:
                    CHANGES[names[number[0]]](path)
                except OSError as error:
                    status = error.errno
                os.write(answers, bytes([status]))
            os._exit(0)
        finally:
            os._exit(1)

    def change(self, name):
        """Makes one change. Returns the number of its error, or zero."""
        os.write(self.requests, bytes([list(CHANGES).index(name)]))
        return os.read(self.answers, 1)[0]

    def end(self):
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)


def set_id_chown(directory):
    """chown and chgrp, by root, and by an owner who is a member of the group or not."""
    for what, begin, owner, group in (
        ("root", lambda: None, 1, 1), ("root, group alone", lambda: None, -1, 1),
        ("owner, a member of both", lambda: become(NOBODY, [OTHER_GROUP]), -1, OTHER_GROUP),
        ("owner, a member of the new one", lambda: become(NOBODY, []), -1, NOBODY),
    ):
        for mode in MODES:
            path = directory + "/file"
            open(path, "w").close()
            os.chown(path, NOBODY, OTHER_GROUP)
            os.chmod(path, mode)
            child = os.fork()
            if child == 0:
                begin()
                os.chown(path, owner, group)
                os._exit(0)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            print(what, "%o" % mode, mode_alone(path), status)
            os.unlink(path)


def set_id_run(directory):
    """A set-ID program that another user has changed runs at once with the rights of its caller."""
    path = directory + "/id"
    content = open("/usr/bin/id", "rb").read()
    ways = {
        "write": opened(lambda file, _: os.pwrite(file, content[:4096], 0)),
        "direct write": opened(
            lambda file, _: os.pwritev(file, [page_buffer(content[:4096])], 0), os.O_RDWR | os.O_DIRECT),
        "fallocate": opened(lambda file, _: fallocate(file, 1, 0, 4096)),
        "truncate and write": opened(lambda file, _: os.write(file, content), os.O_WRONLY | os.O_TRUNC),
        "truncate, longer": lambda path: os.truncate(path, len(content) + 1),
        "mapped store": lambda path: None,
    }
    for name, change in ways.items():
        shutil.copyfile("/usr/bin/id", path)
        os.chown(path, 0, 0)
        os.chmod(path, 0o6777)
        run = lambda: subprocess.run([path], capture_output=True, text=True, user=NOBODY, group=NOBODY, extra_groups=[])
        before = run().stdout
        child = os.fork()
        if child == 0:
            become(NOBODY, [])
            change(path)
            os._exit(0)
        os.waitpid(child, 0)
        print(name, "euid=0" in before, "euid=0" in run().stdout, mode_alone(path))
        os.unlink(path)


# Removed directories.

def times_of(status):
    return status.st_atime_ns, status.st_mtime_ns


def look_at(what, file):
    os.chdir(file)
    times = 1234567890123456789, 1234567891123456789
    for name, call in (
        ("fstat: nlink", lambda: os.fstat(file).st_nlink),
        ("fstat: type", lambda: stat.S_IFMT(os.fstat(file).st_mode)),
        ("stat of .: nlink", lambda: os.stat(".").st_nlink),
        ("listing of the descriptor", lambda: os.listdir(file)),
        ("listing of .", lambda: os.listdir(".")),
        ("open of .", lambda: os.close(os.open(".", os.O_RDONLY | os.O_DIRECTORY))),
        ("open by /proc", lambda: os.close(os.open("/proc/self/fd/%d" % file, os.O_RDONLY | os.O_DIRECTORY))),
        ("fsync", lambda: os.fsync(file)),
        ("fchmod", lambda: os.fchmod(file, 0o1550)),
        ("the mode", lambda: "%o" % os.fstat(file).st_mode),
        ("fchmod back", lambda: os.fchmod(file, 0o755)),
        ("fchown", lambda: os.fchown(file, os.geteuid(), os.getegid())),
        ("utimens", lambda: os.utime(file, ns=times)),
        ("the times", lambda: times_of(os.fstat(file)) == times),
        ("access", lambda: os.access(".", os.R_OK | os.W_OK | os.X_OK)),
        ("old attribute", lambda: os.getxattr(file, "user.old")),
        ("new attribute", lambda: os.setxattr(file, "user.new", b"new")),
        ("new attribute, read", lambda: os.getxattr(".", "user.new")),
        ("attributes", lambda: sorted(name for name in os.listxattr(file) if not name.startswith("user.ward."))),
        ("attribute removed", lambda: os.removexattr(file, "user.old")),
        ("create", lambda: os.open("f", os.O_CREAT | os.O_WRONLY)),
        ("create without a name", lambda: os.open(".", os.O_TMPFILE | os.O_WRONLY)),
        ("mkdir", lambda: os.mkdir("d")),
        ("symlink", lambda: os.symlink("x", "l")),
        ("mkfifo", lambda: os.mkfifo("p")),
        ("link", lambda: os.link("/proc/self/cmdline", "h")),
        ("stat of a name", lambda: os.stat("f")),
        ("statvfs", lambda: os.fstatvfs(file).f_namemax),
        ("cwd", os.getcwd),
    ):
        print(what, name, outcome(call), sep="; ")
    os.chdir("/")


def removed_directories(directory):
    for name in ("never entered", "entered", "replaced", "replaced by a full one", "n" * 200, "marked"):
        path = os.path.join(directory, name)
        os.mkdir(path)
        os.setxattr(path, "user.old", b"old")
        if name == "marked":
            os.chmod(path, 0o555)
        if name != "never entered":
            os.chmod(path, os.stat(path).st_mode | 0o200)
            open(path + "/f", "w").close()
            os.listdir(path)
            os.unlink(path + "/f")
        file = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        if name.startswith("replaced"):
            os.mkdir(directory + "/other")
            if "full" in name:
                open(directory + "/other/f", "w").close()
            os.rename(directory + "/other", path)
        else:
            os.rmdir(path)
        look_at(name[:30], file)
        print(name[:30], "the name", outcome(lambda: sorted(os.listdir(path))), sep="; ")
        os.close(file)
        shutil.rmtree(path, ignore_errors=True)
    # A removed directory in a removed one, and one that is only a process's working directory.
    os.makedirs(directory + "/a/b")
    os.setxattr(directory + "/a/b", "user.old", b"old")
    inner = os.open(directory + "/a/b", os.O_RDONLY)
    os.rmdir(directory + "/a/b")
    os.rmdir(directory + "/a")
    look_at("inner", inner)
    os.fchdir(inner)
    os.close(inner)
    for name, call in (("stat", lambda: os.stat(".").st_nlink), ("list", lambda: os.listdir(".")),
                       ("utime", lambda: os.utime(".")), ("stat of ..", lambda: stat.S_IFMT(os.stat("..").st_mode))):
        print("a process alone", name, outcome(call), sep="; ")
    os.chdir("/")


# Modes below a default ACL.

ACCESS_LISTS = (
    "u::rwx,g::rw,m:rw,o:rwx", "u::rwx,g::rwx,o:-", "u::rwx,u:1234:rwx,g::r-x,m:rwx,o:r", "u::r-x,g::-,o:x",
    "u::-,u:1234:rw,g::rwx,m:r,o:rw", "u::rw,g::r,o:r",
)


def default_acl_modes(directory, first, last):
    """Every mode below the first list, and one mode in seven below the other lists."""
    os.umask(0o027)
    for number in range(int(first), int(last)):
        base = "%s/acl%d" % (directory, number)
        os.mkdir(base)
        os.chmod(base, 0o777)
        subprocess.run(["setfacl", "-d", "-m", ACCESS_LISTS[number], base], check=True)
        for mode in range(0, 0o10000, 1 if number == 0 else 7):
            path = base + "/f"
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))
            print(number, "%o" % mode, "%o" % os.lstat(path).st_mode)
            os.unlink(path)
            if mode % 7 == 0 and (number > 0 or mode % 5 == 0):
                other_kinds(number, base, path, mode)
        shutil.rmtree(base)


def other_kinds(number, base, path, mode):
    file = os.open(base, os.O_TMPFILE | os.O_RDWR, mode)
    print(number, "%o" % mode, "unnamed %o" % os.fstat(file).st_mode)
    if libc.linkat(-100, b"/proc/self/fd/%d" % file, -100, path.encode(), 0x400):  # AT_SYMLINK_FOLLOW
        failed()
    os.close(file)
    print(number, "%o" % mode, "named %o" % os.lstat(path).st_mode)
    os.unlink(path)
    for what, call, remove in (
        ("mkdir", lambda: os.mkdir(path, mode), os.rmdir), ("fifo", lambda: os.mkfifo(path, mode), os.unlink),
        ("mknod", lambda: os.mknod(path, mode | stat.S_IFREG), os.unlink),
    ):
        call()
        acl = subprocess.run(["getfacl", "-cn", path], capture_output=True, text=True).stdout if mode % 49 == 0 else ""
        print(number, "%o" % mode, what, "%o" % os.lstat(path).st_mode, *acl.split())
        is_open = mode & 0o300 == 0o300 and ACCESS_LISTS[number].startswith("u::rwx")
        if os.geteuid() != 0 and what == "mkdir" and is_open:
            print("inside", outcome(lambda: os.close(os.open(path + "/x", os.O_CREAT | os.O_WRONLY))))
            os.unlink(path + "/x")
        remove(path)


# Times.

TIME = 1234567890123456789


def times(directory):
    """Whether times that were set stay when pages of a mapping are written back later."""
    path = directory + "/mapped"

    def fresh(size=65536):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.ftruncate(file, size)
        return file, mmap.mmap(file, size)

    def is_kept():
        return os.stat(path).st_mtime_ns == TIME

    ways = {
        "by descriptor": lambda file: os.utime(file, ns=(TIME, TIME)),
        "by path": lambda file: os.utime(path, ns=(TIME, TIME)),
    }
    for name, set_times in ways.items():
        file, mapping = fresh()
        mapping[0:5] = b"dirty"
        mapping[40000:40005] = b"dirty"
        set_times(file)
        print(name, "set", is_kept())
        mapping.flush()
        print(name, "after msync", is_kept())
        mapping.close()
        os.close(file)
        subprocess.run(["sync", "-f", path], check=True)
        print(name, "after close and sync", is_kept(), open(path, "rb").read(5))

        file, mapping = fresh()
        mapping[0:5] = b"dirty"
        mapping.flush()
        set_times(file)
        mapping[4096 * 3] = 1
        mapping.flush()
        print(name, "a page that was first stored to later", is_kept())
        set_times(file)
        mapping.close()
        os.close(file)
        print(name, "set again", is_kept(), open(path, "rb").read(5))

        for what, change in (
            ("write", lambda file: os.pwrite(file, b"x", 0)), ("truncate", lambda file: os.ftruncate(file, 100)),
            ("truncate to the same", lambda file: os.ftruncate(file, 65536)),
            ("chmod", lambda file: os.fchmod(file, 0o600)), ("reading", lambda file: os.pread(file, 100, 0)),
            ("fallocate", lambda file: fallocate(file, 3, 0, 4096)),
        ):
            file, mapping = fresh()
            mapping[0:5] = b"dirty"
            set_times(file)
            change(file)
            print(name, "after " + what, is_kept())
            mapping.close()
            os.close(file)
            print(name, "after %s and close" % what, is_kept())

    # A mapping of this process, one of another process, and a private one.
    file, mapping = fresh()
    child = os.fork()
    if child == 0:
        mapping[8192:8197] = b"child"
        os._exit(0)
    os.waitpid(child, 0)
    private = mmap.mmap(file, 65536, flags=mmap.MAP_PRIVATE)
    private[0:5] = b"other"
    os.utime(file, ns=(TIME, TIME))
    mapping.flush()
    print("another process", is_kept(), mapping[8192:8197], private[0:5])
    mapping.close()
    private.close()
    os.close(file)
    # touch(1) sets the present time; pages stored before do not change it.
    file, mapping = fresh()
    mapping[0:5] = b"dirty"
    os.utime(file)
    touched = os.stat(path).st_mtime_ns
    mapping.flush()
    mapping.close()
    os.close(file)
    print("the time of touch", os.stat(path).st_mtime_ns == touched)


def times_left(directory):
    """Keeps a file open until a line comes, with a dirty mapped page and set times."""
    file = os.open(directory + "/left", os.O_RDWR | os.O_CREAT)
    os.ftruncate(file, 65536)
    mapping = mmap.mmap(file, 65536)
    mapping[0:5] = b"dirty"
    os.utime(file, ns=(TIME, TIME))
    print("ready", flush=True)
    sys.stdin.readline()
    print(os.stat(directory + "/left").st_mtime_ns == TIME)


# Asynchronous O_DIRECT.

SIZE = 655360


class QueuedWrites:
    """io_submit(2) and io_getevents(2), without a library."""

    def __init__(self):
        self.context = ctypes.c_ulong(0)
        if libc.syscall(206, ctypes.c_uint(8), ctypes.byref(self.context)):
            failed()

    def write(self, file, buffer, address):
        block = struct.pack("QIiHhIQQqQII", 0, 0, 0, 1, 0, file, address, len(buffer), 0, 0, 0, 0)
        block = ctypes.create_string_buffer(block, 64)
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(block))
        if libc.syscall(209, self.context, ctypes.c_long(1), pointers) != 1:
            failed()
        event = ctypes.create_string_buffer(32)
        if libc.syscall(208, self.context, ctypes.c_long(1), ctypes.c_long(1), event, None) != 1:
            failed()
        if struct.unpack_from("q", event, 16)[0] != len(buffer):
            raise OSError(errno.EIO, "short")


class RingWrites:
    """io_uring_setup(2) and io_uring_enter(2), without a library."""

    def __init__(self):
        params = ctypes.create_string_buffer(120)
        self.ring = libc.syscall(425, ctypes.c_uint(4), params)
        if self.ring < 0:
            failed()
        words = struct.unpack("30I", params.raw)
        self.submission, self.completion = words[10:20], words[20:30]
        entries = words[1]
        size = max(self.submission[6] + 4 * words[0], self.completion[5] + 16 * entries)
        self.queue = mmap.mmap(self.ring, size, offset=0)
        self.slots = mmap.mmap(self.ring, 64 * words[0], offset=0x10000000)

    def write(self, file, buffer, address):
        def word(offset):
            return struct.unpack_from("I", self.queue, offset)[0]
        tail = word(self.submission[1])
        slot = tail & word(self.submission[2])
        # IORING_OP_WRITE by a kernel worker (IOSQE_ASYNC).
        self.slots[64 * slot:64 * slot + 64] = struct.pack(
            "BBHiQQIIQ24x", 23, 1 << 4, 0, file, 0, address, len(buffer), 0, 1)
        struct.pack_into("I", self.queue, self.submission[6] + 4 * slot, slot)
        struct.pack_into("I", self.queue, self.submission[1], tail + 1)
        if libc.syscall(426, ctypes.c_int(self.ring), 1, 1, 1, None, 0) != 1:
            failed()
        head = word(self.completion[0])
        result = struct.unpack_from("i", self.queue, self.completion[5] + 16 * (head & word(self.completion[2])) + 8)[0]
        struct.pack_into("I", self.queue, self.completion[0], head + 1)
        if result != len(buffer):
            raise OSError(-result, os.strerror(-result))


class PlainWrites:
    def write(self, file, buffer, address):
        if os.pwritev(file, [buffer], 0) != len(buffer):
            raise OSError(errno.EIO, "short")


def stale_pages(directory, rounds):
    """Buffered readers beside an O_DIRECT writer: after a write has ended they read its data."""
    for name, kind in (("io_submit", QueuedWrites), ("io_uring", RingWrites), ("pwritev", PlainWrites)):
        path = directory + "/direct"
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o644)
        buffer = mmap.mmap(-1, SIZE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
        os.pwritev(file, [buffer], 0)
        writes = outcome(kind)
        if isinstance(writes, str):
            print(name, "not to be had here:", writes)
            continue
        reading = True

        def read():
            while reading:
                again = os.open(path, os.O_RDONLY)
                os.pread(again, SIZE, 0)
                os.close(again)

        readers = [threading.Thread(target=read) for _ in range(3)]
        for reader in readers:
            reader.start()
        buffered = os.open(path, os.O_RDONLY)
        mapped = mmap.mmap(buffered, SIZE, prot=mmap.PROT_READ)
        stale = 0
        for number in range(int(rounds)):
            content = bytes([97 + number % 26]) * SIZE
            buffer[:] = content
            writes.write(file, buffer, address)
            stale += os.pread(buffered, SIZE, 0) != content
            stale += mapped[:] != content
        reading = False
        for reader in readers:
            reader.join()
        direct = page_buffer(bytes(SIZE))
        os.preadv(file, [direct], 0)
        is_stored = direct[:] == os.pread(buffered, SIZE, 0)
        print(name, "stale:", stale, is_stored)
        mapped.close()
        os.close(buffered)
        os.close(file)


# A daemon whose descriptors are used up.

def creations(directory, source):
    """Every way to create a name."""
    for suffix in ("", "-" + "n" * 200):
        yield "file" + suffix, lambda path: os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        yield "read-only" + suffix, lambda path: os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o400))
        yield "sticky" + suffix, lambda path: os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o1644))
        yield "directory" + suffix, os.mkdir
        yield "closed-directory" + suffix, lambda path: os.mkdir(path, 0o055)
        yield "node" + suffix, lambda path: os.mknod(path, 0o600 | stat.S_IFREG)
        yield "fifo" + suffix, os.mkfifo
        yield "symlink" + suffix, lambda path: os.symlink("target", path)
        yield "link" + suffix, lambda path: os.link(source, path)


def descriptor_limit(directory):
    """Opens files until the daemon has no descriptor left, then closes one at a time and creates names."""
    for number in range(100):
        os.mkdir("%s/d%d" % (directory, number))
        os.close(os.open("%s/d%d/f" % (directory, number), os.O_CREAT | os.O_WRONLY))
    for number in range(1000):
        os.close(os.open("%s/f%d" % (directory, number), os.O_CREAT | os.O_WRONLY))
    work = directory + "/work"
    os.mkdir(work)
    for number in range(8):
        os.mkdir("%s/over%d" % (work, number))
        os.mkdir("%s/under%d" % (work, number))
    source = work + "/source"
    os.close(os.open(source, os.O_CREAT | os.O_WRONLY))
    before = set(os.listdir(work))
    held = []
    try:
        for number in range(1000):
            held.append(os.open("%s/f%d" % (directory, number), os.O_RDWR))
    except OSError as error:
        print("the limit is told by", errno.errorcode[error.errno])
    print(len(held), "held", file=sys.stderr)
    print("others give way first", len(held) > 400)
    made, gone, errors = set(), set(), set()
    for free in range(8):
        for name, create in creations(work, source):
            name = "%s-%d" % (name, free)
            result = outcome(lambda: create(work + "/" + name))
            if result is None:
                made.add(name)
            else:
                errors.add(result)
        over, under = "%s/over%d" % (work, free), "%s/under%d" % (work, free)
        result = outcome(lambda: os.rename(over, under))
        if result is None:
            gone.add("over%d" % free)
        else:
            errors.add(result)
        result = outcome(lambda: os.close(os.open(work, os.O_TMPFILE | os.O_RDWR)))
        if result is not None:
            errors.add(result)
        os.close(held.pop())
    print("errors", *sorted(errors))
    for file in held:
        os.close(file)
    after = set(os.listdir(work))
    print("made, though it failed:", *sorted(after - before - made))
    print("not made, though it succeeded:", *sorted(made - after))
    print("moved:", before - after == gone)
    print("and then", outcome(lambda: os.mkdir(work + "/then")), len(os.listdir(directory + "/d7")))


SCENARIOS = {
    "set-id": set_id, "set-id-chown": set_id_chown, "set-id-run": set_id_run,
    "removed-directories": removed_directories, "default-acl": default_acl_modes, "times": times,
    "times-left": times_left, "stale-pages": stale_pages,
    "descriptor-limit": descriptor_limit,
}
SCENARIOS[sys.argv[1]](*sys.argv[2:])
