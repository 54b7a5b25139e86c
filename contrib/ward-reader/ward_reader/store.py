"""The backing directory, for reading. The only module that touches a volume; nothing in it can change one.

Every path is reached from the volume's root by descriptors, so that a name that is exchanged for a symbolic link meanwhile
leads nowhere else.
"""

import errno
import os
import stat

READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class Directory:
    """An open backing directory."""

    def __init__(self, descriptor):
        self._descriptor = descriptor

    @classmethod
    def open_root(cls, path):
        return cls(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self._descriptor)

    def names(self):
        return sorted(os.fsencode(name) for name in os.listdir(self._descriptor))

    def status(self, name=None):
        if name is None:
            return os.fstat(self._descriptor)
        return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)

    def link_target(self, name):
        """The target of a symbolic link; None where there is none of this name."""
        try:
            return os.readlink(name, dir_fd=self._descriptor)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINVAL):
                return None
            raise

    def open_directory(self, name):
        return Directory(os.open(name, READ | os.O_DIRECTORY, dir_fd=self._descriptor))

    def open_file(self, name):
        return BackingFile(os.open(name, READ, dir_fd=self._descriptor))

    def read_root_file(self, name, limit):
        """A file of ward's own; None where there is none. At most one byte more than `limit`: too much is seen as such."""
        try:
            with self.open_file(name) as file:
                return file.read(0, limit + 1)
        except FileNotFoundError:
            return None

    def attributes_of(self, name):
        """Those of what has this name, a link itself."""
        return _attributes(f"/proc/self/fd/{self._descriptor}/{os.fsdecode(name)}", follow_symlinks=False)

    def read_long_target(self, name):
        """A file of `ward.links` (format.md §7); None where there is none that can be read. Of the root alone."""
        return self._read_inner("ward.links", name)

    def read_capsule(self, name):
        """A file of `ward.kem` (format.md §3.1); None where there is none that can be read. Of the root alone."""
        return self._read_inner("ward.kem", name)

    def _read_inner(self, directory, name):
        try:
            with self.open_directory(directory) as inner:
                return inner.read_root_file(name, 8192)
        except OSError:
            # A link or a directory in its place damages the files or links that name it, and no other.
            return None

    def attributes(self):
        return _attributes(self._descriptor)


class BackingFile:
    """An open backing file."""

    def __init__(self, descriptor):
        self._descriptor = descriptor

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self._descriptor)

    def status(self):
        return os.fstat(self._descriptor)

    def read(self, offset, count):
        data = b""
        while len(data) < count:
            more = os.pread(self._descriptor, count - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def data_ranges(self, size):
        """(first, end) of what the store has bytes for, in order, up to `size`. A store that can't tell has all of it."""
        ranges, at = [], 0
        while at < size:
            try:
                first = os.lseek(self._descriptor, at, os.SEEK_DATA)
                at = os.lseek(self._descriptor, first, os.SEEK_HOLE)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    ranges.append((at, size))
                break
            ranges.append((first, min(at, size)))
        return ranges

    def attributes(self):
        return _attributes(self._descriptor)


def _attributes(place, **follow):
    """{stored name: value}, names as bytes."""
    try:
        return {os.fsencode(name): os.getxattr(place, name, **follow) for name in os.listxattr(place, **follow)}
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            return {}
        raise


def kind(status):
    """One letter, as `ls` has it."""
    return stat.filemode(status.st_mode)[0]
