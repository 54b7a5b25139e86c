"""What a disk may hold after a power cut, and how to look at it: the recorder's log, images rebuilt from a part of it, loop
devices, and mounts without a `mount` program for each."""

import contextlib
import ctypes
import dataclasses
import errno
import fcntl
import mmap
import os
import pathlib
import random
import struct
import subprocess
import time

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mount.argtypes = [ctypes.c_char_p] * 3 + [ctypes.c_ulong, ctypes.c_char_p]
LIBC.sync_file_range.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]

# What the disk kept of what was not flushed.
DISKS = ("everything", "flushed", "part in 4 KiB", "part in 512")
UNITS = {"part in 4 KiB": 4096, "part in 512": 512}


@dataclasses.dataclass(frozen=True)
class Entry:
    kind: str  # W, F or M
    offset: int
    start: int  # of the data, in the log
    length: int


class Log:
    """What the recorder wrote down (crash/recorder.c), in order."""

    def __init__(self, path: pathlib.Path) -> None:
        with open(path, "rb") as file:
            self.memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if os.path.getsize(path) else b""
        self.entries = []
        at = 0
        while at < len(self.memory):
            kind, length, offset = struct.unpack_from("=4sIQ", self.memory, at)
            self.entries.append(Entry(chr(kind[0]), offset, at + 16, length))
            at += 16 + length

    def data(self, entry: Entry) -> bytes:
        return self.memory[entry.start : entry.start + entry.length]

    def marks(self) -> list[tuple[int, str]]:
        """(place in the log, text), in order."""
        return [(place, self.data(entry).decode()) for place, entry in enumerate(self.entries) if entry.kind == "M"]

    def flushed(self, cut: int) -> int:
        """How many entries of the first `cut` a flush covers."""
        for place in range(cut - 1, -1, -1):
            if self.entries[place].kind == "F":
                return place
        return 0

    def pieces(self, cut: int, disk: str, chance: random.Random):
        """(offset, data) of what is on the disk after the power went behind `cut` entries, in the order of writing."""
        certain = cut if disk == "everything" else self.flushed(cut)
        kept = chance.choice((0.1, 0.5, 0.9))
        for place, entry in enumerate(self.entries[:cut]):
            if entry.kind != "W":
                continue
            if place < certain:
                yield entry.offset, self.data(entry)
            elif disk in UNITS:
                unit, data, done = UNITS[disk], self.data(entry), 0
                while done < len(data):
                    length = min(unit - (entry.offset + done) % unit, len(data) - done)
                    if chance.random() < kept:
                        yield entry.offset + done, data[done : done + length]
                    done += length


def copy_sparse(source: pathlib.Path, target: pathlib.Path) -> None:
    """Copies what is not zeros, to a file of its own: whoever still has the old one mounted does not write here."""
    target.unlink(missing_ok=True)
    with open(source, "rb") as old, open(target, "wb") as new:
        size = os.fstat(old.fileno()).st_size
        new.truncate(size)
        at = 0
        while at < size:
            try:
                at = os.lseek(old.fileno(), at, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    break
                raise
            end = os.lseek(old.fileno(), at, os.SEEK_HOLE)
            while at < end:
                data = os.pread(old.fileno(), min(end - at, 1 << 16), at)
                if data.count(0) < len(data):
                    os.pwrite(new.fileno(), data, at)
                at += len(data)


def rebuild(base: pathlib.Path, log: Log, cut: int, disk: str, seed: int, image: pathlib.Path) -> None:
    """Makes `image` what a disk of this kind may hold when the power went behind `cut` entries of the log."""
    copy_sparse(base, image)
    with open(image, "r+b", buffering=0) as file:
        for offset, data in log.pieces(cut, disk, random.Random(seed)):
            os.pwrite(file.fileno(), data, offset)


# --- Mounting ------------------------------------------------------------------------------------------------------

LOOP_CONFIGURE, LOOP_CONTROL_GET_FREE = 0x4C0A, 0x4C82
LOOP_AUTOCLEAR, LOOP_DIRECT_IO = 4, 16


def leave_mount_namespace() -> None:
    """From here on nobody else sees what this process mounts, or keeps it alive in a copy; with the last process it is gone."""
    new_namespace, private_below = 0x20000, 1 << 18 | 1 << 14
    check(LIBC.unshare(new_namespace), "unshare")
    check(LIBC.mount(b"none", b"/", None, private_below, None), "making mounts private")


def check(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def attach(image: pathlib.Path, flags: int) -> tuple[int, str]:
    """A loop device over a file: a descriptor, with which it lives until it is mounted, and its path."""
    backing = os.open(image, os.O_RDWR | os.O_CLOEXEC)
    try:
        for attempt in range(50):
            control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
            try:
                path = f"/dev/loop{fcntl.ioctl(control, LOOP_CONTROL_GET_FREE)}"
            finally:
                os.close(control)
            device = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            # struct loop_config: descriptor, size of blocks, struct loop_info64, reserved.
            settings = struct.pack("=II40xIIII64s112x64x", backing, 512, 0, 0, 0, flags | LOOP_AUTOCLEAR, b"ward-crash")
            try:
                fcntl.ioctl(device, LOOP_CONFIGURE, settings)
                return device, path
            except OSError as error:
                os.close(device)
                if error.errno != errno.EBUSY or attempt == 49:
                    raise
                time.sleep(0.01)  # Somebody else took it meanwhile.
        raise AssertionError
    finally:
        os.close(backing)


def mount_image(image: pathlib.Path, kind: str, options: str, mountpoint: pathlib.Path, direct: bool = False) -> None:
    """Mounts a file system in a file, which replays its journal."""
    device, path = attach(image, LOOP_DIRECT_IO if direct else 0)
    try:
        check(LIBC.mount(path.encode(), str(mountpoint).encode(), kind.encode(), 0, options.encode()),
              f"mounting {kind}")
    finally:
        os.close(device)


def unmount(mountpoint: pathlib.Path) -> None:
    for _ in range(500):
        result = LIBC.umount2(str(mountpoint).encode(), 0)
        if result == 0 or ctypes.get_errno() != errno.EBUSY:
            return check(result, f"unmounting {mountpoint}")
        time.sleep(0.01)  # A daemon that is ending still has it open.
    check(result, f"unmounting {mountpoint}")


def detach(mountpoint: pathlib.Path) -> None:
    """Unmounts what may hang: force ends a FUSE connection, and what is busy goes when its last user does."""
    force, lazily = 1, 2
    if LIBC.umount2(str(mountpoint).encode(), force):
        check(LIBC.umount2(str(mountpoint).encode(), force | lazily), f"detaching {mountpoint}")


class Recorder:
    """The program of crash/recorder.c, and a mark in its log."""

    def __init__(self, program: pathlib.Path, mountpoint: pathlib.Path, base: pathlib.Path, log: pathlib.Path) -> None:
        self.mountpoint = mountpoint
        self.image = mountpoint / "image"
        self.log = log
        self.process = subprocess.Popen([program, mountpoint, base, log], stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            raise RuntimeError("the recorder did not start")
        self.marks = os.open(mountpoint / "marks", os.O_WRONLY | os.O_CLOEXEC)

    def mark(self, text: str) -> None:
        os.write(self.marks, text.encode())

    def close(self) -> Log:
        os.close(self.marks)
        unmount(self.mountpoint)
        self.process.stdout.close()
        if self.process.wait(60):
            raise RuntimeError("the recorder failed")
        return Log(self.log)


# --- Making the kernel write ---------------------------------------------------------------------------------------


def sync_file_system(path: pathlib.Path) -> None:
    with opened(path) as directory:
        check(LIBC.syncfs(directory), "syncfs")


def start_writing_back(path: pathlib.Path) -> None:
    """Sends a file's dirty pages to the disk, without a flush, as the kernel does by itself after a while."""
    with contextlib.suppress(OSError), opened(path) as file:
        LIBC.sync_file_range(file, 0, 0, 2)


@contextlib.contextmanager
def opened(path, flags: int = os.O_RDONLY, mode: int = 0o600):
    descriptor = os.open(path, flags | os.O_CLOEXEC, mode)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def sync(path) -> None:
    """fsync of a file or directory by its path."""
    with opened(path) as descriptor:
        os.fsync(descriptor)


# --- File systems --------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Store:
    """A file system to put on the disk."""

    name: str
    size: int
    make: tuple[str, ...]
    options: str

    def make_image(self, path: pathlib.Path) -> None:
        full = path.with_suffix(".full")
        with open(full, "wb") as file:
            file.truncate(self.size)
        subprocess.run([*self.make, full], check=True, capture_output=True)
        # mkfs.xfs writes its log: 64 MiB of zeros, which nobody has to copy for each cut.
        copy_sparse(full, path)
        full.unlink()


# ext4 gives small images blocks of 1 KiB; then no page of 4 KiB would be atomic. A commit every second instead of five: more of
# what nobody asked to be synced is on its way.
STORES = {
    store.name: store
    for store in (
        Store("ext4", 64 << 20,
              ("mkfs.ext4", "-q", "-F", "-b", "4096", "-J", "size=8", "-E", "lazy_itable_init=0,lazy_journal_init=0"),
              "commit=1"),
        Store("xfs", 320 << 20, ("mkfs.xfs", "-q", "-f", "-b", "size=4096"), "nouuid"),
        Store("btrfs", 192 << 20, ("mkfs.btrfs", "-q", "-f", "-s", "4096"), "commit=1"),
    )
}
