"""What somebody does to a backing file after a power cut, and what a program may see of it then.

The harness keeps each file's ciphertext as it was once, and what was in it. So it needs no key to tell what a file of older and
present pages has to read as: this is docs/format.md, 11, of a file in which nothing is in doubt. What comes out of it is what
docs/threat-model.md lists as not detected (an older version of a file, or of a page at its own place) and nothing else: a page
at another place, of an older size, under an earlier key is EIO, and so is one that is not there.
"""

import contextlib
import dataclasses
import errno
import os
import random
import struct

from disks import opened

HEADER_BYTES = 256
# Nonce, epoch, length, flags; the tag.
SEAL_BYTES = 36


@dataclasses.dataclass(frozen=True)
class Version:
    """A file as it was once."""

    backing: bytes
    data: bytes
    protection: str  # its class
    key: int  # which of its keys it had


@dataclasses.dataclass(frozen=True)
class Sight:
    """What a program has to see: of each page the offset, and its bytes or, for EIO, None and how many."""

    protection: str
    parts: list[tuple[int, bytes | None, int]]
    is_closed: bool = False  # nothing of it can be read

    @property
    def is_whole(self) -> bool:
        return not self.is_closed and all(data is not None for _, data, _ in self.parts)


class History:
    """The versions of one file, the last being the present one, and whose each of their pages is."""

    def __init__(self, path: str, page_bytes: int, default: str) -> None:
        # Of the backing file, on the disk; of a page; the class of its directory.
        self.path, self.page_bytes, self.default = path, page_bytes, default
        self.versions: list[Version] = []
        # Header -> (key, class); record -> (page, key, content).
        self.headers: dict[bytes, tuple[int, str]] = {}
        self.records: dict[bytes, tuple[int, int, bytes]] = {}

    @property
    def now(self) -> Version:
        return self.versions[-1]

    def capacity(self, number: int) -> int:
        return self.page_bytes - SEAL_BYTES - (0 if number else HEADER_BYTES)

    def start(self, number: int) -> int:
        return self.capacity(0) + (number - 1) * self.capacity(1) if number else 0

    def pages(self, backing: bytes) -> list[bytes]:
        """The whole ones: what follows is the hint of the size."""
        size = self.page_bytes
        return [backing[at : at + size] for at in range(0, len(backing) // size * size, size)]

    def add(self, version: Version) -> None:
        pages = self.pages(version.backing)
        if pages:
            self.headers[pages[0][:HEADER_BYTES]] = version.key, version.protection
        for number, page in enumerate(pages if version.data else []):
            record = page if number else page[HEADER_BYTES:]
            data = version.data[self.start(number) :][: self.capacity(number)]
            if any(record):
                if fields(record) != (len(data), number == len(pages) - 1):
                    raise AssertionError(f"page {number} of {len(pages)} says {fields(record)}, and has {len(data)} bytes")
                self.records[record] = number, version.key, data
        self.versions.append(version)

    def sight(self, backing: bytes) -> Sight:
        pages = self.pages(backing)
        if not any(map(any, pages)):
            return Sight(self.default, [])
        if not any(pages[0]):
            return Sight("", [], is_closed=True)
        header = pages[0][:HEADER_BYTES]
        key, protection = self.headers[header]
        if struct.unpack_from("<H", header, 14)[0] == 0:
            return Sight(protection, [])
        is_sparse = bool(header[13] & 1)
        last = max(number for number, page in enumerate(pages) if any(page) or number == 0)
        parts: list[tuple[int, bytes | None, int]] = []
        for number, page in enumerate(pages[: last + 1]):
            record = page if number else page[HEADER_BYTES:]
            length, is_final = fields(record)
            size = length if number == last else self.capacity(number)
            place, of_key, data = self.records.get(record, (-1, -1, None))
            if not any(record):
                data = bytes(size) if is_sparse and 0 < number < last else None
            elif (place, of_key, is_final) != (number, key, number == last) or length != size:
                data = None
            parts.append((self.start(number), data, size))
        return Sight(protection, parts)

    def is_in_doubt(self, intervals: list[tuple[int, int]]) -> bool:
        """Whether a page of any version is of a doubtful epoch, so that a finding may be excused."""
        epochs = {struct.unpack_from("<I", record, 12)[0] for record in self.records}
        return any(first <= epoch <= last for epoch in epochs for first, last in intervals)

    # What is done to it: how that is called, and the backing file afterwards.

    def with_less(self, chance: random.Random) -> tuple[str, bytes]:
        """Something is taken from the present version."""
        pages = self.pages(self.now.backing)
        how = chance.choice(("its end cut off", "a page wiped", "its last page wiped", "its first page wiped"))
        if how == "its end cut off":
            return how, b"".join(pages[: chance.randint(1, len(pages) - 1)])
        number = {"a page wiped": chance.randint(1, len(pages) - 2), "its last page wiped": len(pages) - 1}.get(how, 0)
        pages[number] = bytes(self.page_bytes)
        return how, b"".join(pages) + self.hint(self.now)

    def with_older(self, chance: random.Random) -> tuple[str, bytes]:
        """Something is put back from an earlier one."""
        kinds = ["the whole file", "a page", "pages", "a page at another place", "its end", "its beginning", "its size"]
        now = self.pages(self.now.backing)
        while True:
            how, version = chance.choice(kinds), chance.randrange(len(self.versions) - 1)
            old = self.pages(self.versions[version].backing)
            both = min(len(now), len(old))
            pages = list(now)
            if how == "the whole file":
                pages = old
            elif how == "a page" and both:
                number = chance.randrange(both)
                pages[number] = old[number]
            elif how == "pages":
                for number in range(len(now)):
                    candidates = [self.pages(each.backing) for each in self.versions]
                    pages[number] = chance.choice([each[number] for each in candidates if len(each) > number])
            elif how == "a page at another place" and len(old) > 1 and len(now) > 2:
                number = chance.randrange(1, len(old))
                place = chance.choice([place for place in range(1, len(now)) if place != number])
                pages[place] = old[number]
            elif how == "its end" and both:
                # From some page on; the beginning of now may be longer than all of it was.
                number = chance.randint(1, both)
                pages = now[:number] + old[number:]
            elif how == "its beginning" and both:
                number = chance.randint(1, both)
                pages = old[:number] + now[number:]
            elif how == "its size" and len(now) != both and old:
                pages = now[: len(old)]
            if pages != now:
                hint = self.hint(chance.choice((self.now, self.versions[version])))
                return f"{how} of version {version} put back", b"".join(pages) + hint

    def hint(self, version: Version) -> bytes:
        return version.backing[len(version.backing) // self.page_bytes * self.page_bytes :]


def fields(record: bytes) -> tuple[int, bool]:
    """What a page says of itself in clear: its length, and whether it is the last."""
    length, flags = struct.unpack_from("<HH", record, 16)
    return length, bool(flags & 1)


def put(path, backing: bytes) -> None:
    """Makes this the backing file, as somebody does who has the disk."""
    with opened(path, os.O_RDWR) as file:
        os.ftruncate(file, 0)
        os.pwrite(file, backing, 0)


# --- Judging -------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Verdict:
    """What a program saw that it may not, and what it did not see that it has to."""

    accepted: list[str] = dataclasses.field(default_factory=list)
    refused: list[str] = dataclasses.field(default_factory=list)

    def compare(self, what: str, found: bytes | int, wanted: bytes | None) -> None:
        """Bytes, or the number of an error, with bytes, or None for EIO."""
        if isinstance(found, int):
            if wanted is not None or found != errno.EIO:
                self.refused.append(f"{what}: {errno.errorcode.get(found, found)}")
        elif wanted is None:
            self.accepted.append(f"{what}: {len(found)} bytes instead of EIO")
        elif found != wanted:
            self.accepted.append(f"{what}: {len(found)} other bytes than the {len(wanted)} that it has to be")


def attempt(call) -> bytes | int:
    try:
        return call()
    except OSError as error:
        return error.errno


def look(path, sight: Sight, direct: int = os.O_DIRECT) -> Verdict:
    """Reads a file page by page, past the kernel's cache and its reading ahead, and then as programs do."""
    verdict = Verdict()
    whole = b"".join(data for _, data, _ in sight.parts if data is not None) if sight.is_whole else None
    # A page that is not there is an error of this page, so that the file opens all the same; without its first one it need not.
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(opened(path, os.O_RDONLY | direct))
        except OSError as error:
            verdict.compare("opening it", error.errno, None if sight.is_closed else b"")
            return verdict
        if sight.is_closed:
            verdict.compare("without a first page", attempt(lambda: os.pread(file, 1 << 20, 0)), None)
        else:
            for number, (offset, data, size) in enumerate(sight.parts):
                verdict.compare(f"page {number}", attempt(lambda: read_all(file, offset, size)), data)
            end = sum(size for _, _, size in sight.parts)
            behind = attempt(lambda: os.pread(file, 4096, end))
            # A wrong hint has the kernel read on behind the end, by its own pages (generic_file_read_iter, mm/filemap.c).
            # Then a refused last page may share the kernel's page with what is behind it.
            is_shared = sight.parts and sight.parts[-1][1] is None
            if not (is_shared and behind == errno.EIO):
                verdict.compare("behind its end", behind, b"")
    with opened(path) as file:
        verdict.compare("read as a whole", attempt(lambda: read_to_end(file)), whole)
        if not sight.is_closed:
            found = attempt(lambda: os.getxattr(path, "user.ward.class"))
            verdict.compare("its class", found, sight.protection.encode())
    return verdict


def read_all(file: int, offset: int, size: int) -> bytes:
    found = b""
    while len(found) < size and (piece := os.pread(file, size - len(found), offset + len(found))):
        found += piece
    return found


def read_to_end(file: int) -> bytes:
    found = b""
    while piece := os.read(file, 1 << 20):
        found += piece
    return found
