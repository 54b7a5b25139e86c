"""The disk under a benchmark: a file behind a loop device with direct I/O, an ext4 on it, and what the device was asked to do."""

import ctypes
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "crash"))
import disks  # noqa: E402  the loop devices of the power cuts

LIBC, check, syncfs = disks.LIBC, disks.check, disks.sync_file_system
RECURSIVE, PRIVATE = 1 << 14, 1 << 18
SECTOR = 512


def mount(source: str, target: str, kind: str | None, flags: int = 0, options: str = "") -> None:
    check(LIBC.mount(source.encode(), target.encode(), kind and kind.encode(), flags, options.encode()), f"mounting {target}")


class Disk:
    """Lives as long as its process: the image has no name, the loop device goes with its last user."""

    def __init__(self, directory: pathlib.Path, size: int, mountpoint: pathlib.Path, prefilled: bool = True) -> None:
        self.mountpoint = mountpoint
        mountpoint.mkdir()
        image = directory / f".ward-bench-{os.getpid()}"
        try:
            make_image(image, size, prefilled)
            # No cache below the device's own: what a cold read finds is on the disk, and a flush reaches it.
            self.device, self.path = disks.attach(image, disks.LOOP_DIRECT_IO)
        finally:
            image.unlink(missing_ok=True)
        self.statistics = pathlib.Path("/sys/block") / pathlib.Path(self.path).name / "stat"
        self.mounted = False

    def format(self) -> None:
        """An empty file system, always of the same shape. No work is put off to disturb somebody later."""
        self.unmount()
        subprocess.run(["mkfs.ext4", "-q", "-F", "-b", "4096", "-i", "8192", "-J", "size=64", "-E", "nodiscard", self.path],
                       check=True, capture_output=True)
        self.mount()

    def mount(self) -> None:
        mount(self.path, str(self.mountpoint), "ext4", 0, "noinit_itable")
        self.mounted = True

    def unmount(self) -> None:
        if self.mounted:
            disks.unmount(self.mountpoint)
            self.mounted = False

    def drop_caches(self) -> None:
        """What is clean and nobody has mapped; entries and attributes, too."""
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3", encoding="ascii")

    def sync(self) -> None:
        syncfs(self.mountpoint)

    def counters(self) -> dict[str, int]:
        """Since the device was made (Documentation/block/stat.rst of the kernel)."""
        fields = [int(word) for word in self.statistics.read_text(encoding="ascii").split()]
        return {"read": fields[2] * SECTOR, "written": fields[6] * SECTOR, "flushes": fields[15]}


def make_image(path: pathlib.Path, size: int, prefilled: bool) -> None:
    """Written once, so that no first write to it has to find space in the file system below."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(descriptor, size)
        if prefilled:
            piece = bytes(8 << 20)
            for offset in range(0, size, len(piece)):
                os.pwrite(descriptor, piece, offset)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
