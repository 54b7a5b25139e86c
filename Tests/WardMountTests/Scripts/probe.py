"""Performs one scripted sequence of system calls for a test, in a process and under a user of its own.

    probe.py SOCKET    listens there until standard input ends; each connection gets a probe, a process of its own

The first line of a connection is the directory below which relative paths are, and the first answer the number of the
probe's process. Then it reads one JSON array per line, ["operation", arguments...], and answers one JSON object per
line: {"ok": true, "text": ...} or {"ok": false, "text": "EPERM"}. Descriptors and mappings are kept
between lines under names that the test gives.
A mapping is touched in a forked child only, so that SIGBUS is an answer instead of the end of the probe.
"""
import ctypes
import errno
import fcntl
import hashlib
import json
import mmap as mmap_module
import os
import select
import signal
import socket
import stat
import struct
import sys

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.msync.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
libc.linkat.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_int]
libc.renameat2.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]

AT_FDCWD = -100
base = "/"
descriptors = {}
mappings = {}
TOUCH_SECONDS = 15


def check(result):
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def path(name):
    """A path below the base directory, or one that is absolute already."""
    return name if name.startswith("/") else os.path.join(base, name)


def target(name):
    """What a call is about: a descriptor by name where one is open, else a path."""
    return descriptors[name] if name in descriptors else path(name)


def data(text):
    return text.encode("latin-1")


def text(data):
    return bytes(data).decode("latin-1")


FLAGS = {
    "r": os.O_RDONLY, "w": os.O_WRONLY, "rw": os.O_RDWR, "a": os.O_APPEND, "t": os.O_TRUNC, "c": os.O_CREAT,
    "x": os.O_EXCL, "d": os.O_DIRECTORY, "direct": os.O_DIRECT, "sync": os.O_SYNC, "nofollow": os.O_NOFOLLOW,
    "path": os.O_PATH, "nonblock": os.O_NONBLOCK,
}


def open_(name, flags, key, mode=0o644):
    bits = os.O_CLOEXEC
    for flag in flags.split("+"):
        bits |= FLAGS[flag]
    descriptors[key] = os.open(path(name), bits, mode)


def tmpfile(directory, key, mode=0o644):
    descriptors[key] = os.open(path(directory), os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, mode)


def linkat(key, name):
    check(libc.linkat(AT_FDCWD, b"/proc/self/fd/%d" % descriptors[key], AT_FDCWD, os.fsencode(path(name)), 0x400))


def close(key):
    os.close(descriptors.pop(key))


def fallocate(key, mode, offset, length):
    check(libc.fallocate(descriptors[key], mode, offset, length))


def rename2(old, new, flags):
    check(libc.renameat2(AT_FDCWD, os.fsencode(path(old)), AT_FDCWD, os.fsencode(path(new)), flags))


PROTECTION = {"r": 1, "rw": 3}


def mmap(key, length, protection, name, sharing="shared"):
    flags = 1 if sharing == "shared" else 2
    address = libc.mmap(None, length, PROTECTION[protection], flags, descriptors[key], 0)
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "mmap")
    mappings[name] = (address, length)


def in_child(body):
    """Runs `body` in a fork; its bytes, or the signal that ended it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reading)
            os.write(writing, body())
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    answer = b""
    while True:
        ready, _, _ = select.select([reading], [], [], TOUCH_SECONDS)
        if not ready:
            os.kill(child, signal.SIGKILL)
            os.close(reading)
            raise OSError(errno.ETIMEDOUT, "touch")
        piece = os.read(reading, 65536)
        if not piece:
            break
        answer += piece
    os.close(reading)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        raise Signalled(signal.Signals(os.WTERMSIG(status)).name)
    if os.WEXITSTATUS(status) != 0:
        raise Signalled("exit %d" % os.WEXITSTATUS(status))
    return answer


class Signalled(Exception):
    pass


def touch(name, offset, length):
    address, _ = mappings[name]
    return text(in_child(lambda: ctypes.string_at(address + offset, length)))


def poke(name, offset, content):
    """Stores through a mapping, in a child: the page is dirty afterwards as if this process had stored."""
    address, _ = mappings[name]

    def body():
        ctypes.memmove(address + offset, data(content), len(content))
        return b""

    in_child(body)


def poke_here(name, offset, content):
    address, _ = mappings[name]
    ctypes.memmove(address + offset, data(content), len(content))


def msync(name):
    address, length = mappings[name]
    check(libc.msync(address, length, 4))


def munmap(name):
    address, length = mappings.pop(name)
    check(libc.munmap(address, length))


def resident(name):
    """The number of a mapping's pages that are in memory, mincore(2)."""
    address, length = mappings[name]
    pages = ctypes.create_string_buffer((length + 4095) // 4096)
    check(libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(length), pages))
    return sum(page & 1 for page in pages.raw)


def cached(key):
    """The number of a file's pages in the page cache, dirty and under write-back ones too: cachestat(2), Linux 6.5."""
    whole = (ctypes.c_uint64 * 2)(0, 0)
    counts = (ctypes.c_uint64 * 5)()
    check(libc.syscall(451, descriptors[key], ctypes.byref(whole), ctypes.byref(counts), 0))
    return sum(counts[:3])


def direct_read(key, count, offset):
    buffer = mmap_module.mmap(-1, max(count, 4096))
    read = os.preadv(descriptors[key], [memoryview(buffer)[:count]], offset)
    return text(buffer[:read])


def direct_write(key, content, offset):
    buffer = mmap_module.mmap(-1, max(len(content), 4096))
    buffer[: len(content)] = data(content)
    return os.pwritev(descriptors[key], [memoryview(buffer)[: len(content)]], offset)


def splice_out(key, count, offset):
    reading, writing = os.pipe()
    try:
        moved = os.splice(descriptors[key], writing, count, offset_src=offset)
        return text(os.read(reading, moved)) if moved else ""
    finally:
        os.close(reading)
        os.close(writing)


def digest(name):
    hash_ = hashlib.sha256()
    with open(path(name), "rb", buffering=0) as file:
        while piece := file.read(1 << 20):
            hash_.update(piece)
    return hash_.hexdigest()


def head(name, count):
    descriptor = os.open(path(name), os.O_RDONLY | os.O_CLOEXEC)
    try:
        return text(os.read(descriptor, count))
    finally:
        os.close(descriptor)


def dup(key, other):
    descriptors[other] = os.dup(descriptors[key])


def log(name, first, count):
    """Appends numbered records one by one, each synced as a journal does every tenth; with a name to a new file."""
    if name:
        close_log()
        descriptors["log"] = os.open(path(name), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC)
    for number in range(first, first + count):
        os.write(descriptors["log"], b"record %05d of a logger that knows no passcode\n" % number)
        if number % 10 == 0:
            os.fdatasync(descriptors["log"])


def close_log():
    if "log" in descriptors:
        os.close(descriptors.pop("log"))


def check_log(directory, count):
    lines = []
    for name in sorted(os.listdir(path(directory))):
        with open(path(directory + "/" + name), "rb") as file:
            lines += file.read().splitlines()
    if lines != [b"record %05d of a logger that knows no passcode" % number for number in range(count)]:
        raise ValueError("%d lines, not the %d written" % (len(lines), count))


def write_file(name, content, mode=0o644):
    descriptor = os.open(path(name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        view = memoryview(data(content))
        while view:
            view = view[os.write(descriptor, view):]
    finally:
        os.close(descriptor)


def read_file(name):
    descriptor = os.open(path(name), os.O_RDONLY | os.O_CLOEXEC)
    try:
        pieces = []
        while piece := os.read(descriptor, 1 << 20):
            pieces.append(piece)
        return text(b"".join(pieces))
    finally:
        os.close(descriptor)


def attributes(name, field, follow=True):
    what = target(name)
    found = os.fstat(what) if isinstance(what, int) else os.stat(what, follow_symlinks=follow)
    if field == "mode":
        return "%o" % stat.S_IMODE(found.st_mode)
    if field == "type":
        return stat.filemode(found.st_mode)[0]
    return getattr(found, "st_" + field)


def lock_record(key, exclusive=True):
    fcntl.lockf(descriptors[key], (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB, 1, 0)


def lock_whole(key):
    fcntl.flock(descriptors[key], fcntl.LOCK_EX | fcntl.LOCK_NB)


def unlock_whole(key):
    fcntl.flock(descriptors[key], fcntl.LOCK_UN)


def status_flags(key):
    return fcntl.fcntl(descriptors[key], fcntl.F_GETFL)


def make_socket(name):
    here = os.getcwd()
    os.chdir(os.path.dirname(path(name)))
    try:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(os.path.basename(name))
        descriptors["socket:" + name] = listener.detach()
    finally:
        os.chdir(here)


def fifo_round_trip(name, content):
    """Opens a FIFO at both ends and passes bytes through."""
    reading = os.open(path(name), os.O_RDONLY | os.O_NONBLOCK)
    writing = os.open(path(name), os.O_WRONLY)
    os.write(writing, data(content))
    answer = os.read(reading, 4096)
    os.close(reading)
    os.close(writing)
    return text(answer)


def run(name, *arguments):
    """Executes a program that lies on the mount."""
    import subprocess
    done = subprocess.run([path(name), *arguments], capture_output=True, timeout=TOUCH_SECONDS)
    return text(done.stdout)


def set_umask(mask):
    os.umask(mask)


def tree_digest(name):
    """One line per entry of a tree: type, mode, size, times and a digest of the content."""
    lines = []
    top = os.fsencode(path(name))
    for directory, names, files in os.walk(top):
        names.sort()
        for entry in sorted(names + files):
            full = os.path.join(directory, entry)
            found = os.lstat(full)
            line = [os.path.relpath(full, top).hex(), oct(found.st_mode), str(found.st_mtime_ns)]
            if stat.S_ISREG(found.st_mode):
                with open(full, "rb") as file:
                    line.append(hashlib.sha256(file.read()).hexdigest())
            if stat.S_ISLNK(found.st_mode):
                line.append(os.fsencode(os.readlink(full)).hex())
            lines.append(" ".join(line))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


OPERATIONS = {
    "open": open_,
    "tmpfile": tmpfile,
    "linkat": linkat,
    "close": close,
    "pread": lambda key, count, offset=0: text(os.pread(descriptors[key], count, offset)),
    "pwrite": lambda key, content, offset=0: os.pwrite(descriptors[key], data(content), offset),
    "read": lambda key, count: text(os.read(descriptors[key], count)),
    "write": lambda key, content: os.write(descriptors[key], data(content)),
    "directRead": direct_read,
    "directWrite": direct_write,
    "splice": splice_out,
    "seek": lambda key, offset, whence: os.lseek(descriptors[key], offset, whence),
    "ftruncate": lambda key, length: os.ftruncate(descriptors[key], length),
    "truncate": lambda name, length: os.truncate(path(name), length),
    "fallocate": fallocate,
    "mmap": mmap,
    "touch": touch,
    "poke": poke,
    "pokeHere": poke_here,
    "msync": msync,
    "munmap": munmap,
    "resident": resident,
    "cached": cached,
    "fsync": lambda key: os.fsync(descriptors[key]),
    "fdatasync": lambda key: os.fdatasync(descriptors[key]),
    "flock": lock_whole,
    "funlock": unlock_whole,
    "lockf": lock_record,
    "statusFlags": status_flags,
    "stat": attributes,
    "lstat": lambda name, field: attributes(name, field, False),
    "access": lambda name, mode: None if os.access(path(name), mode) else raise_(errno.EACCES),
    "exists": lambda name: os.path.lexists(path(name)),
    "chmod": lambda name, mode: os.chmod(target(name), mode),
    "chown": lambda name, uid, gid: os.chown(target(name), uid, gid, follow_symlinks=name in descriptors or True),
    "utime": lambda name, access, modification: os.utime(target(name), ns=(access, modification)),
    "getxattr": lambda name, key: text(os.getxattr(target(name), key)),
    "setxattr": lambda name, key, value, flags=0: os.setxattr(target(name), key, data(value), flags),
    "removexattr": lambda name, key: os.removexattr(target(name), key),
    "listxattr": lambda name: " ".join(sorted(os.listxattr(target(name)))),
    "lgetxattr": lambda name, key: text(os.getxattr(path(name), key, follow_symlinks=False)),
    "lsetxattr": lambda name, key, value: os.setxattr(path(name), key, data(value), follow_symlinks=False),
    "rename": lambda old, new: os.rename(path(old), path(new)),
    "rename2": rename2,
    "link": lambda old, new: os.link(path(old), path(new), follow_symlinks=False),
    "unlink": lambda name: os.unlink(path(name)),
    "symlink": lambda content, name: os.symlink(content, path(name)),
    "readlink": lambda name: os.readlink(path(name)),
    "mknod": lambda name, mode, device=0: os.mknod(path(name), mode, device),
    "mkfifo": lambda name: os.mkfifo(path(name)),
    "socket": make_socket,
    "fifo": fifo_round_trip,
    "mkdir": lambda name, mode=0o755: os.mkdir(path(name), mode),
    "makedirs": lambda name: os.makedirs(path(name)),
    "rmdir": lambda name: os.rmdir(path(name)),
    "list": lambda name: " ".join(sorted(os.listdir(path(name)))),
    "count": lambda name: len(os.listdir(path(name))),
    "statvfs": lambda name, field: getattr(os.statvfs(path(name)), "f_" + field),
    "umask": set_umask,
    "writeFile": write_file,
    "readFile": read_file,
    "head": head,
    "dup": dup,
    "log": log,
    "closeLog": close_log,
    "checkLog": check_log,
    "digest": digest,
    "treeDigest": tree_digest,
    "run": run,
    "whoami": os.geteuid,
}


def raise_(code):
    raise OSError(code, os.strerror(code))


def name_of(code):
    return "EOPNOTSUPP" if code == errno.EOPNOTSUPP else errno.errorcode.get(code, str(code))


def perform(request):
    operation, *arguments = request
    try:
        value = OPERATIONS[operation](*arguments)
        return {"ok": True, "text": "" if value is None else str(value)}
    except Signalled as signalled:
        return {"ok": False, "text": str(signalled)}
    except OSError as error:
        return {"ok": False, "text": name_of(error.errno)}
    except Exception as error:  # A mistake in the test: say which.
        return {"ok": False, "text": "probe: %r in %r" % (error, request)}


def probe(connection):
    """Serves one connection to its end."""
    global base
    os.setpgid(0, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.umask(0o022)
    for stream in (0, 1):
        os.dup2(connection.fileno(), stream)
    connection.close()
    lines = os.fdopen(0, "r", encoding="utf-8")
    base = json.loads(next(lines))
    print(os.getpid(), flush=True)
    for line in lines:
        print(json.dumps(perform(json.loads(line))), flush=True)


def main():
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(sys.argv[1])
    listener.listen(64)
    # Probes that end leave nothing to wait for.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    waiting = select.poll()
    waiting.register(listener, select.POLLIN)
    waiting.register(0, select.POLLIN)
    print("ready", flush=True)
    while True:
        ready = [descriptor for descriptor, _ in waiting.poll()]
        if 0 in ready:
            return
        connection = listener.accept()[0]
        if os.fork() == 0:
            listener.close()
            try:
                probe(connection)
            finally:
                os._exit(0)
        connection.close()


main()
