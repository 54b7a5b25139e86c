"""Writing what was read to a plain directory: content, modes, times, owners, links, attributes, classes."""

import errno
import os
import stat

from .errors import CANT_CREATE, ReaderError
from .structures import APPLE_NAMES


class Extraction:
    """Into the new directory `target`. What can't be had there (owners without being root, devices, attributes on a store
    without any) is left out and counted in `left_out`."""

    def __init__(self, volume, target, backing_directory):
        self._volume, self._target = volume, os.fsencode(target)
        self._links = {}
        self._directories = []
        self._reported = set()
        self.left_out = 0
        self.locked = 0
        inside = os.path.realpath(target) + "/"
        if inside.startswith(os.path.realpath(backing_directory) + "/"):
            raise ReaderError(f"{target} lies inside the volume", "extract to another place", CANT_CREATE)
        try:
            os.mkdir(target, 0o700)
        except FileExistsError:
            if not os.path.isdir(target) or os.listdir(target):
                raise ReaderError(f"{target} exists and is not an empty directory", "name a new directory",
                                  CANT_CREATE) from None
        except OSError as error:
            raise ReaderError(f"{target} can't be made: {error.strerror}", "name a new directory", CANT_CREATE) from None

    def run(self):
        for entry, _ in self._volume.walk():
            path = os.path.join(self._target, entry.path) if entry.path else self._target
            try:
                self._write(entry, path)
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise ReaderError(f"{os.fsdecode(path)} can't be written: {error.strerror}", "make room",
                                      CANT_CREATE) from None
                self._leave_out(entry, f"can't be written: {error.strerror}")
        # Modes and times of directories come last, the deepest first: making an item changes its directory's times.
        for entry, path in reversed(self._directories):
            self._finish(entry, path)

    def _write(self, entry, path):
        if entry.is_directory:
            if entry.path:
                os.mkdir(path, 0o700)
            self._directories.append((entry, path))
            return
        key = (entry.status.st_dev, entry.status.st_ino)
        if entry.status.st_nlink > 1 and key in self._links:
            os.link(self._links[key], path, follow_symlinks=False)
            return
        mode = entry.mode
        if entry.is_file:
            if entry.content is None:
                return
            if not self._volume.can_read(entry):
                self.locked += 1
                return
            self._write_content(entry, path)
        elif stat.S_ISLNK(mode):
            os.symlink(entry.link_target, path)
        elif stat.S_ISFIFO(mode):
            os.mkfifo(path, 0o600)
        elif stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            os.mknod(path, stat.S_IFMT(mode) | 0o600, entry.status.st_rdev)
        else:
            os.mknod(path, stat.S_IFSOCK | 0o600)
        self._links[key] = path
        self._finish(entry, path)

    def _write_content(self, entry, path):
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "wb") as file:
            end = 0
            for offset, data in self._volume.read(entry):
                file.seek(offset)
                file.write(data)
                end = offset + len(data)
            # Damaged pages become holes, also at the end.
            file.truncate(max(end, entry.size))

    def _finish(self, entry, path):
        follow = {"follow_symlinks": False}
        status, mode = entry.status, stat.S_IMODE(entry.mode)
        if os.geteuid() == 0:
            self._try(entry, "owner", lambda: os.chown(path, status.st_uid, status.st_gid, **follow))
        if not stat.S_ISLNK(entry.mode):
            if entry.protection_class is not None:
                value = APPLE_NAMES[entry.protection_class].encode()
                self._try(entry, "class", lambda: os.setxattr(path, "user.ward.class", value, **follow))
        for name, value in entry.attributes.items():
            self._try(entry, f"attribute {os.fsdecode(name)}",
                      lambda name=name, value=value: os.setxattr(path, name, value, **follow))
        if not stat.S_ISLNK(entry.mode):
            self._try(entry, "mode", lambda: os.chmod(path, mode))
        times = (status.st_atime_ns, status.st_mtime_ns)
        self._try(entry, "times", lambda: os.utime(path, ns=times, **follow))

    def _try(self, entry, what, act):
        try:
            act()
        except OSError as error:
            self._leave_out(entry, f"{what}: {error.strerror}")

    def _leave_out(self, entry, what):
        self.left_out += 1
        if what not in self._reported:
            self._reported.add(what)
            self._volume.notes.append(f"/{os.fsdecode(entry.path)}: {what}: left out, here and wherever it is the same")
