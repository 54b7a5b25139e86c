"""The tree: from the root of a backing directory to entries with their true names, classes, modes and attributes."""

import errno
import stat
from dataclasses import dataclass, field

from .content import Content
from .errors import DAMAGED, INPUT, NOT_A_VOLUME, FormatError, ReaderError
from .keybag import VOLUME_KEY
from .structures import (MODE_ATTRIBUTE, NO_PARENT, DirectoryRecord, Places, StateRecord, VolumeKeys, long_name, open_attribute,
                         open_link, open_name, require_place, seal_key, true_mode)

#: Extended attributes that are stored as they are (§7).
PASSED_THROUGH = (b"security.", b"system.posix_acl_")
ACCESS_ACL = b"system.posix_acl_access"


@dataclass
class Problem:
    """Something that is not as the format has it. `first` and `end`: which bytes of the file, None for all of it."""

    path: bytes
    what: str
    first: int | None = None
    end: int | None = None


@dataclass
class Entry:
    """A file, a directory or anything else with a name. `path` is below the root, without a slash at either end."""

    path: bytes
    status: object
    mode: int
    #: 1 to 5; None for an item without a class, or where the class is unknown.
    protection_class: int | None = None
    #: In bytes; 0 for a directory.
    size: int = 0
    link_target: bytes | None = None
    attributes: dict = field(default_factory=dict)
    #: For a directory, by its own record.
    is_synchronised: bool = False
    #: The reader of a file's content; None where its header is damaged.
    content: Content | None = None

    @property
    def is_directory(self):
        return stat.S_ISDIR(self.mode)

    @property
    def is_file(self):
        return stat.S_ISREG(self.mode)


class Volume:
    """A volume, open for reading. `problems` and `notes` grow while it is read."""

    def __init__(self, root, opened, is_copied_in_use=False):
        self._root = root
        self.identity = opened.identity
        self.class_keys = opened.keys
        self.problems = []
        self.notes = list(opened.notes)
        self._device = root.status().st_dev
        #: The block size of the backing file system (§8).
        self._block_bytes = max(4096, root.status().st_blksize)
        #: 1, or 2: files, directories and links are bound to their directories (§6.1).
        self.format = DirectoryRecord.format_of_root(root.link_target(b".ward") or b"")
        #: Structures of format 1 may be left in a volume of format 2 (§10.1).
        self.is_upgrading = StateRecord.claims_upgrade(root.read_root_file("ward.state", StateRecord.LIMIT))
        if self.is_upgrading:
            self.format = 2
        if self.format < opened.least_format:
            raise ReaderError(f"the root says format {self.format}, and the keybag or kit format {opened.least_format}",
                              "the root was replaced: restore .ward and ward.state from a copy. With a kit, if the copy is "
                              "from before an upgrade: --older-format", DAMAGED)
        if opened.least_format == 2:
            self.is_upgrading = False
        self._keys = VolumeKeys(opened.keys[VOLUME_KEY], self.format, self.is_upgrading)
        #: Of the second authenticators of classes (§6.2); None where there are none, and without class C's key.
        has_seals = self.format == 2 and not self.is_upgrading
        self._seal_key = seal_key(opened.keys[3]) if has_seals and 3 in opened.keys else None
        self._record = self._root_record()
        self._doubtful = self._read_state()
        if is_copied_in_use:
            # In such a copy no epoch tells which findings are honest.
            self._doubtful = [(0, 2**32 - 1)]

    def _parent_id(self, directory_id):
        """The parent's ID as directory records take it: none in format 1."""
        return directory_id if self.format == 2 else None

    def _root_record(self):
        target = self._root.link_target(b".ward")
        try:
            if target is None:
                raise FormatError(FormatError.MALFORMED, "directory record: the link .ward is missing")
            record = self._open_record(target, NO_PARENT)
            if record.directory_id != self._keys.root_id:
                raise FormatError(FormatError.MALFORMED, "directory record: of another directory, not of the root")
        except FormatError as error:
            newer = error.code == FormatError.NEWER_VERSION
            raise ReaderError(f"the root: {error}", "use a newer reader" if newer else
                              "the link .ward in the root has to be restored from a copy", INPUT if newer else DAMAGED) from None
        return record

    def _read_state(self):
        """The doubtful intervals. Who only reads may go on without a record: then nothing is excused."""
        data = self._root.read_root_file("ward.state", StateRecord.LIMIT)
        try:
            if data is None:
                raise FormatError(FormatError.MALFORMED, "state record: missing")
            record = StateRecord.read(data, self._keys.state)
            if record.format != self.format or self.is_upgrading and not record.is_upgrading:
                raise FormatError(FormatError.MALFORMED, f"state record: of format {record.format}, and the root of {self.format}")
        except FormatError as error:
            if error.code == FormatError.NEWER_VERSION:
                raise ReaderError(f"ward.state: {error}", "use a newer reader", INPUT) from None
            self.problems.append(Problem(b"ward.state", f"{error}; no unclean end excuses anything"))
            return []
        if record.is_in_use:
            self.notes.append("the volume is in use, or was not unmounted: what it held when it ended is in doubt")
        return record.doubtful_now()

    def damaged(self, path, error, first=None, end=None):
        self.problems.append(Problem(path, str(error), first, end))

    # --- Names

    def _names(self, directory, path, directory_id):
        """(name, stored name) of everything in a backing directory that is the volume's."""
        found = []
        for stored in directory.names():
            try:
                if stored.startswith(b"~"):
                    target = directory.link_target(b".n" + stored[1:])
                    if target is None:
                        self.damaged(path, f"{stored.decode()}: the link with its long name is missing")
                        continue
                    if long_name(target) != stored:
                        raise FormatError(FormatError.MALFORMED, "the link beside it holds another name")
                    found.append((open_name(target, directory_id, self._keys), stored))
                elif b"." in stored:
                    self._pass_over(stored, path)
                elif not (path == b"" and stored == b"README"):
                    found.append((open_name(stored, directory_id, self._keys), stored))
            except FormatError as error:
                self.notes.append(f"{_show(path)}: {stored.decode('utf-8', 'replace')}: not a name of this directory ({error})")
        return sorted(found)

    def _pass_over(self, stored, path):
        """Names with a dot are ward's own, or foreign."""
        own = stored == b".ward" or stored.startswith((b".ward-", b".n")) or (path == b"" and stored.startswith(b"ward."))
        own = own or self.format == 2 and (stored == b".ward.to" or stored.startswith(b".l") and len(stored) == 45)
        if not own:
            self.notes.append(f"{_show(path)}: {stored.decode('utf-8', 'replace')}: foreign, passed over")

    # --- Walking

    def walk(self):
        """Yields (entry, open backing file or None) for everything, a directory before what is in it; the root first,
        with an empty path. The backing file is closed when the next entry is asked for."""
        self._note_class(b"", self._seal_key is None or self._record.is_sealed(self._seal_key, NO_PARENT))
        yield self._describe_directory(b"", self._root, self._record), None
        yield from self._walk(b"", self._root, self._record)

    def _walk(self, path, directory, record):
        for name, stored in self._names(directory, path, record.directory_id):
            inner = path + b"/" + name if path else name
            try:
                status = directory.status(stored)
                if status.st_dev != self._device:
                    self.notes.append(f"{_show(inner)}: something is mounted there, inside the volume: passed over")
                elif stat.S_ISDIR(status.st_mode):
                    with directory.open_directory(stored) as opened:
                        yield from self._enter(inner, opened, record.directory_id)
                elif stat.S_ISREG(status.st_mode):
                    with directory.open_file(stored) as file:
                        yield self._describe_file(inner, file, record), file
                elif stat.S_ISLNK(status.st_mode):
                    target = open_link(directory.link_target(stored), self._keys, self._root.read_long_target,
                                       self._parent_id(record.directory_id) or b"", directory.link_target)
                    yield Entry(inner, status, status.st_mode, size=len(target), link_target=target,
                                attributes=self._special_attributes(inner, directory, stored, status)), None
                else:
                    yield Entry(inner, status, status.st_mode,
                                attributes=self._special_attributes(inner, directory, stored, status)), None
            except FormatError as error:
                self.damaged(inner, error)
            except OSError as error:
                self.damaged(inner, f"the store can't be read: {error.strerror}")

    def _read_record(self, directory, name, parent_id):
        target = directory.link_target(name)
        if target is None:
            raise FormatError(FormatError.MALFORMED, "the directory has no record: nothing in it can be named")
        return self._open_record(target, parent_id)

    def _open_record(self, target, parent_id):
        """A record; one of format 1, too, where the volume is being upgraded."""
        try:
            return DirectoryRecord.read(target, self._keys.records, self._parent_id(parent_id))
        except FormatError as error:
            if not self.is_upgrading or error.code == FormatError.NEWER_VERSION:
                raise
            try:
                return DirectoryRecord.read(target, self._keys.records, None)
            except FormatError:
                pass
            raise

    def _directory_record(self, path, directory, parent_id):
        try:
            return self._read_record(directory, b".ward", parent_id)
        except FormatError as error:
            if self.format == 1 or error.code == FormatError.NEWER_VERSION:
                raise
            first = error
        try:
            record = self._read_record(directory, b".ward.to", parent_id)
        except FormatError:
            raise first from None
        self.notes.append(f"{_show(path)}: its move to this directory was not finished: read by its second record")
        return record

    def _enter(self, path, directory, parent_id):
        record = self._directory_record(path, directory, parent_id)
        self._note_class(path, self._seal_key is None or record.is_sealed(self._seal_key, parent_id))
        yield self._describe_directory(path, directory, record), None
        yield from self._walk(path, directory, record)

    def _note_class(self, path, is_sealed):
        if not is_sealed:
            self.notes.append(f"{_show(path)}: nothing vouches for its class (§6.2)")

    def _describe_directory(self, path, directory, record):
        status, stored = directory.status(), directory.attributes()
        mode = true_mode(status.st_mode, stored.get(MODE_ATTRIBUTE.encode()))
        attributes = self._attributes(path, stored, record.directory_id, status.st_mode, mode, is_doubtful=False)
        return Entry(path, status, mode, record.protection_class, attributes=attributes, is_synchronised=record.is_synchronised)

    def _describe_file(self, path, file, record):
        status, stored = file.status(), file.attributes()
        mode = true_mode(status.st_mode, stored.get(MODE_ATTRIBUTE.encode()))
        entry = Entry(path, status, mode)
        try:
            content = Content(file, self.identity.page_bytes, self._keys.headers, record.protection_class,
                              self._doubtful, self._block_bytes, self.format, self.is_upgrading)
            if self.format == 2 and content.header is not None and content.header.format == 2:
                require_place(content.header, record.directory_id, stored.get(Places.ATTRIBUTE), self._keys)
        except FormatError as error:
            self.damaged(path, error)
            return entry
        entry.content = content
        header = entry.content.header
        self._note_class(path, self._seal_key is None or header is None or header.is_sealed(self._seal_key))
        entry.protection_class = entry.content.protection_class
        entry.size = entry.content.claimed_size
        entry.attributes = self._attributes(path, stored, header.file_id if header else None, status.st_mode, mode,
                                            is_doubtful=bool(self._doubtful))
        return entry

    def _special_attributes(self, path, directory, stored, status):
        """Of what has no ID: bound to zeros (format.md §7)."""
        return self._attributes(path, directory.attributes_of(stored), bytes(16), status.st_mode, status.st_mode, is_doubtful=False)

    def _attributes(self, path, stored, owner_id, backing_mode, mode, is_doubtful):
        """{name: value} as a program sees them. `is_doubtful`: one that outlived the header it was bound to is not there."""
        result = {}
        for name, value in stored.items():
            if name.startswith((b"user.w.", b"trusted.w.")):
                try:
                    if owner_id is None:
                        raise FormatError(FormatError.MALFORMED, "an attribute of a file without a header")
                    opened, value = open_attribute(name, value, owner_id, self._keys)
                    result[opened] = value
                except FormatError as error:
                    if is_doubtful:
                        self._excused(path, f"an extended attribute: {error}")
                    else:
                        self.damaged(path, error)
            elif name == ACCESS_ACL and backing_mode != mode:
                result[name] = with_owner(value, mode >> 6 & 7)
            elif name.startswith(PASSED_THROUGH):
                result[name] = value
        return result

    # --- Content

    def read(self, entry):
        """Yields (offset, bytes) of a file, in order; what is between is zeros. What is damaged is left out and reported."""
        content = entry.content
        try:
            for offset, data, error in content.pages(self.class_keys, self._keys, self._root.read_capsule):
                if error is not None:
                    self.damaged(entry.path, error, offset, min(offset + content.capacity_at(offset), content.claimed_size))
                else:
                    yield offset, data
        except FormatError as error:
            self.damaged(entry.path, error, 0, content.claimed_size)
        for _, finding in content.excused:
            self._excused(entry.path, finding)

    def _excused(self, path, finding):
        self.notes.append(f"{_show(path)}: {finding}: accepted, an epoch in doubt excuses it")

    def can_read(self, entry):
        """Whether there is a key for what is in a file."""
        if entry.content is None or entry.content.last_page < 0:
            return True
        # A capsule of class B opens with class A's key (§3.1).
        needed = {entry.protection_class} | ({1} if any(entry.content.header.capsule_id) else set())
        return needed <= self.class_keys.keys()


def with_owner(acl, permissions):
    """An access ACL with other permissions of the owner (tag 1); the kernel's form, linux/posix_acl_xattr.h."""
    entries = bytearray(acl)
    for at in range(4, len(entries) - 7, 8):
        if int.from_bytes(entries[at:at + 2], "little") == 1:
            entries[at + 2:at + 4] = permissions.to_bytes(2, "little")
    return bytes(entries)


def _show(path):
    return "/" + path.decode("utf-8", "replace")


def open_root(directory_type, path):
    """The root of the backing directory at `path`."""
    try:
        return directory_type.open_root(path)
    except OSError as error:
        status = NOT_A_VOLUME if error.errno in (errno.ENOENT, errno.ENOTDIR) else DAMAGED
        raise ReaderError(f"{path} can't be opened: {error.strerror}", "name the directory of a volume", status) from None
