"""Process, mount and memory of a benchmark's own: whatever ends it, the kernel takes all of it away.

`alone` runs a function in namespaces of processes and of mounts. The loop device, what is mounted, the servers, their sockets
and the scratch directory (a tmpfs over SCRATCH) exist nowhere else, and end with the last process there; every process there
ends with the first. So nothing has to be cleaned up: not after an error, not after a signal, SIGKILL included."""

import contextlib
import json
import os
import pathlib
import signal
import sys

import disk

SCRATCH = pathlib.Path("/dev/shm")
# FUSE over io_uring, Linux 6.14: a switch of the whole machine.
IO_URING = pathlib.Path("/sys/module/fuse/parameters/enable_uring")
NEW_MOUNTS, NEW_PROCESSES = 0x20000, 0x20000000
SET_PARENT_DEATH_SIGNAL = 1


@contextlib.contextmanager
def io_uring():
    """The kernel offers FUSE over io_uring meanwhile, where it can; gives what undoes that."""
    before = IO_URING.read_text(encoding="ascii") if IO_URING.exists() else "Y\n"

    def restore() -> None:
        if before != "Y\n":
            IO_URING.write_text(before, encoding="ascii")

    if before != "Y\n":
        IO_URING.write_text("Y\n", encoding="ascii")
    try:
        yield restore
    finally:
        restore()


def alone(body, programs: dict[str, str]):
    """What `body(scratch)` returns, as JSON knows it; it runs as root in namespaces of its own. `programs` are copied to the
    scratch directory first: there neither an empty page cache nor a build that replaces them changes what is measured."""
    copies = {name: open(path, "rb") for name, path in programs.items()}
    # A file without a name outlives the namespaces that write it.
    answer = os.open(SCRATCH, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    sys.stdout.flush()
    with io_uring() as restore:
        status = wait_for(body, copies, answer, restore)
    if status:
        sys.exit(status)
    with open(answer, "rb") as file:
        return json.loads(file.read())


def wait_for(body, copies, answer: int, restore) -> int:
    """The exit status of the first process of new namespaces, which does it all."""
    disk.check(disk.LIBC.unshare(NEW_MOUNTS | NEW_PROCESSES), "unshare")
    first = os.fork()
    if first == 0:
        os._exit(be_first(body, copies, answer))

    def end(number, _frame) -> None:
        os.kill(first, signal.SIGKILL)
        os.waitpid(first, 0)  # Comes back when all the others have ended, too.
        restore()
        os._exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    return os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])


def be_first(body, copies, answer: int) -> int:
    """Process 1 of the namespace: waits for whoever has lost its parent, and ends, and all with it, when the work is done."""
    disk.check(disk.LIBC.prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL), "prctl")
    os.setsid()  # An interrupt from the terminal is for the process outside.
    disk.mount("none", "/", None, disk.RECURSIVE | disk.PRIVATE)
    disk.mount("proc", "/proc", "proc")
    disk.mount("tmpfs", str(SCRATCH), "tmpfs")
    worker = os.fork()
    if worker == 0:
        os._exit(work(body, copies, answer))
    while True:
        ended, status = os.wait()
        if ended == worker:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def work(body, copies, answer: int) -> int:
    status = 1
    try:
        for name, file in copies.items():
            with file, open(SCRATCH / name, "wb") as copy:
                while piece := file.read(1 << 20):
                    copy.write(piece)
            os.chmod(SCRATCH / name, 0o755)
        os.pwrite(answer, json.dumps(body(SCRATCH)).encode(), 0)
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    return status


def others() -> list[int]:
    """All other processes of the namespace: with nothing else running, the servers of what is mounted."""
    mine = {1, os.getpid()}
    return [number for number in (int(path.name) for path in pathlib.Path("/proc").glob("[0-9]*")) if number not in mine]
