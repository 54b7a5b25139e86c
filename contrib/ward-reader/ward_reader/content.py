"""The content of one file: finding its end, opening its pages, judging what is not as it should be (format.md §4, §8)."""

import bisect
import itertools

from .errors import FormatError
from .structures import FileHeader, Layout, PageCiphers, open_record

#: The zero pages that are read one by one (format.md §12): the length of a backing file is not authenticated.
ZERO_PAGES = 16_384


class Content:
    """The bytes of one backing file.

    Making one reads the header and finds the last page, and touches no key: class and ID are known in every state.
    `pages(class_keys)` then gives the content, page by page, and what is wrong with each.
    """

    def __init__(self, file, page_bytes, header_key, directory_class, doubtful, block_bytes, volume_format=1, is_upgrading=False):
        self._file = file
        self._layout = Layout(page_bytes)
        self._doubtful = doubtful
        self._block_bytes = block_bytes
        self._ciphers = None
        self._format = volume_format
        self._epochs = {}
        self.header = None
        self.protection_class = directory_class
        #: The last page of the file; -1 for an empty file.
        self.last_page = -1
        #: Pages accepted only because their epoch is in doubt: (page, finding).
        self.excused = []

        size = file.status().st_size
        #: The number of whole pages; a file shorter than a page also has a page 0. The bytes after them are the size hint.
        count = max(size // page_bytes, 1 if size else 0)
        #: The pages for which the backing store has bytes. The rest is zeros, and is not read.
        self._ranges = [(first // page_bytes, min(-(-end // page_bytes), count)) for first, end in file.data_ranges(size)]
        last = self._last_page_with_data(count)
        first = self._page(0)
        if not any(first):
            if last > 0 or any(file.read(count * page_bytes, page_bytes)):
                finding = "page 0 is zero before other data"
                # The first pages of a new file reach the disk in any order; without a header no epoch authenticates.
                pages = itertools.islice(self._pages_with_data(count), ZERO_PAGES)
                claimed = (self._claimed_epoch(page) for page in pages)
                if not doubtful or not all(map(self._is_doubtful, claimed)):
                    raise FormatError(FormatError.MALFORMED, finding)
                self.excused.append((0, finding))
            return
        self.header = FileHeader.read(first, header_key, volume_format, is_upgrading)
        self.protection_class = self.header.protection_class
        # A file whose header has no key is empty, even if bytes follow. A file with a key is not empty.
        if self.header.wrapped_key:
            self.last_page = last
            if self.claimed_size == 0:
                raise FormatError(FormatError.MALFORMED, "page 0 has no content, and the header a key")

    # --- Pages as they are on disk

    def _page(self, page):
        """A whole page; what lies beyond the end of the backing file is zeros."""
        size = self._layout.page_bytes
        return self._file.read(page * size, size).ljust(size, b"\0")

    def _last_page_with_data(self, before):
        """The last page before `before` that is not zero; -1 where there is none."""
        zeros = 0
        for first, end in reversed(self._ranges):
            for page in range(min(end, before) - 1, first - 1, -1):
                if any(self._page(page)):
                    return page
                zeros += 1
                if zeros > ZERO_PAGES:
                    raise FormatError(FormatError.MALFORMED, "too many zero pages after the end")
        return -1

    def _next_allocated(self, page):
        """The first page from `page` on for which the store has anything, or the last page."""
        at = bisect.bisect_right(self._ranges, page, key=lambda pages: pages[1])
        return min(max(page, self._ranges[at][0]) if at < len(self._ranges) else self.last_page, self.last_page)

    def _pages_with_data(self, before):
        zeros = 0
        for first, end in self._ranges:
            for page in range(first, min(end, before)):
                if any(self._page(page)):
                    zeros = 0
                    yield page
                    continue
                zeros += 1
                if zeros > ZERO_PAGES:
                    raise FormatError(FormatError.MALFORMED, "too many zero pages, the first one among them")

    # --- Doubt

    def _is_doubtful(self, epoch):
        return any(first <= epoch <= last for first, last in self._doubtful)

    def _claimed_epoch(self, page):
        """What a page says, authentic or not (format.md §4)."""
        at = self._layout.record_offset(page) + 12
        return int.from_bytes(self._page(page)[at : at + 4], "little")

    def _authentic_epoch(self, page):
        if page not in self._epochs:
            data = self._page(page)[self._layout.record_offset(page):]
            try:
                self._epochs[page] = open_record(data, page, self._ciphers, self._layout.capacity(page)).epoch
            except FormatError:
                self._epochs[page] = None
        return self._epochs[page]

    def _excuse(self, page, finding):
        """Accepts a finding where one of four kinds of pages is authentic and of a doubtful epoch; throws otherwise."""
        per_block = max(1, self._block_bytes // self._layout.page_bytes)
        candidates = [page, self._last_page_with_data(page), *range(page // per_block * per_block, page), self.last_page]
        for candidate in candidates if self._doubtful else []:
            epoch = self._authentic_epoch(candidate) if candidate >= 0 else None
            if epoch is not None and self._is_doubtful(epoch):
                self.excused.append((page, finding))
                return
        raise FormatError(FormatError.NOT_EXCUSED, finding)

    # --- Content

    def pages(self, class_keys, keys=None, read_capsule=None):
        """Yields (offset, bytes or None, error or None) in order: None and an error for a page that can't be believed.
        Holes are left out.

        KeyError where the key of the class is not there; FormatError where the file key does not unwrap. `keys` and
        `read_capsule` as in `FileHeader.file_key`.
        """
        if self.last_page < 0:
            return
        self._ciphers = PageCiphers(self.header.file_key(class_keys, keys, read_capsule), self._format)
        page = zeros = 0
        while page <= self.last_page:
            allocated = self._next_allocated(page)
            is_endless = zeros > ZERO_PAGES or not self.header.is_sparse and allocated - page > ZERO_PAGES
            if is_endless and self._authentic_epoch(self.last_page) is None:
                error = FormatError(FormatError.NOT_EXCUSED, f"pages {page} to {self.last_page - 1} are passed over: zeros, and the last page is "
                                    "nobody's")
                yield self._layout.start(page), None, error
                page, zeros = self.last_page, 0
                continue
            if self.header.is_sparse:
                page = allocated
            try:
                payload, error = self._payload(page), None
            except FormatError as found:
                payload, error = None, found
            is_zero = (error is not None or not any(payload)) and not any(self._page(page))
            zeros = zeros + 1 if is_zero else 0
            if payload or error:
                yield self._layout.start(page), payload, error
            page += 1

    def _payload(self, page):
        capacity, is_last = self._layout.capacity(page), page == self.last_page
        data = self._page(page)[self._layout.record_offset(page):]
        if not any(data):
            if self.header.is_sparse and 0 < page < self.last_page:
                return b""
            self._excuse(page, f"page {page} is zero")
            return bytes(capacity)
        record = open_record(data, page, self._ciphers, capacity)
        if is_last and not record.is_final:
            self._excuse(page, "the file ends without its last page")
        elif not is_last and (record.is_final or len(record.payload) != capacity):
            self._excuse(page, f"page {page} ends early")
        # Zeros follow the content of a page that ends early.
        return record.payload if is_last else record.payload.ljust(capacity, b"\0")

    @property
    def claimed_size(self):
        """What the last page says in clear; of a file whose pages are all right, its size."""
        if self.last_page < 0:
            return 0
        at = self._layout.record_offset(self.last_page) + 16
        length = int.from_bytes(self._page(self.last_page)[at:at + 2], "little")
        return self._layout.start(self.last_page) + min(length, self._layout.capacity(self.last_page))

    def capacity_at(self, offset):
        """Payload bytes of the page that begins at `offset` of the file."""
        return self._layout.capacity(0 if offset == 0 else 1)
