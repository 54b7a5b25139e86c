"""format.md: everything on disk but the keybag, as values. No file is read here."""

import stat
from dataclasses import dataclass

from . import mlkem
from .errors import FormatError
from .primitives import (GCM, GCMSIV, TAG_BYTES, XAES, base64url, from_base64url, hkdf, hmac, same, sha256, unwrap, x25519,
                         x25519_public)

CLASS_NAMES = {1: "A", 2: "B", 3: "C", 4: "D", 5: "CX"}
#: The values of `user.ward.class`, which a mount shows and does not store.
APPLE_NAMES = {1: "NSFileProtectionComplete", 2: "NSFileProtectionCompleteUnlessOpen",
               3: "NSFileProtectionCompleteUntilFirstUserAuthentication", 4: "NSFileProtectionNone",
               5: "NSFileProtectionCompleteWhenUserInactive"}


def malformed(what):
    return FormatError(FormatError.MALFORMED, what)


def integer(data, at, count):
    return int.from_bytes(data[at:at + count], "little")


#: The ID of the root's parent, which the root does not have (§6).
NO_PARENT = bytes(16)


class VolumeKeys:
    """Everything that is derived from the volume key (§3).

    `is_upgrading`: structures of format 1 may be left in a volume of format 2 (§10.1). `earlier` then has their keys.
    """

    def __init__(self, volume_key, volume_format=1, is_upgrading=False):
        def derive(info, count=32):
            return hkdf(volume_key, b"", info, count)

        def cipher(info):
            return GCM(derive(info)) if volume_format == 1 else XAES(derive(info + b", extended nonces"))

        self.format = volume_format
        self.earlier = VolumeKeys(volume_key, 1) if is_upgrading else None
        self.names = GCMSIV(derive(b"ward names"))
        self.links = cipher(b"ward symbolic links")
        self.attributes = cipher(b"ward extended attributes")
        self.class_b = derive(b"ward class B")
        self.attribute_names = derive(b"ward extended attribute names")
        self.headers = derive(b"ward file headers")
        self.records = derive(b"ward directory records")
        self.places = derive(b"ward file places")
        self.link_permits = derive(b"ward link permits")
        self.state = derive(b"ward volume state")
        self.root_id = derive(b"ward root directory", 16)


def seal_key(class_c_key):
    """The key of the second authenticators of classes (§6.2)."""
    return hmac(class_c_key, b"ward class seals\1")


# --- Headers and file keys (§3, §4.1) ------------------------------------------------------------------------------


@dataclass
class FileHeader:
    protection_class: int
    is_sparse: bool
    file_id: bytes
    directory_id: bytes
    wrapped_key: bytes
    #: Of the capsule whose secret is in the key of a class B file; zeros for none.
    capsule_id: bytes = bytes(16)
    #: The second authenticator of the class (§6.2); zeros for none.
    seal: bytes = bytes(16)
    #: 1 or 2. One of format 1 in a volume of format 2 belongs in every directory (§10.1).
    format: int = 2

    BYTES = 256

    @classmethod
    def read(cls, data, mac_key, volume_format, is_upgrading=False):
        if data[:8] != b"WARDFILE":
            raise FormatError(FormatError.NOT_RECOGNISED, "header: no magic number")
        version = integer(data, 8, 2)
        if is_upgrading and version == 1:
            volume_format = 1
        if version > volume_format:
            raise FormatError(FormatError.NEWER_VERSION, f"header: version {version}")
        if not same(data[224:256], hmac(mac_key, data[:224])):
            raise FormatError(FormatError.AUTHENTICATION_FAILED, "header: the MAC does not match")
        protection_class, flags, key_bytes = data[12], data[13], integer(data, 14, 2)
        if (version != volume_format or integer(data, 10, 2) != 256 or protection_class not in CLASS_NAMES or flags > 1
                or key_bytes not in (0, 72 if protection_class == 2 else 40)
                or any(data[48 + key_bytes:120]) or any(data[136:208])
                or any(data[120:136]) and (volume_format == 1 or key_bytes != 72)
                or any(data[208:224]) and volume_format == 1):
            raise malformed("header: impossible field")
        return cls(protection_class, flags == 1, data[16:32], data[32:48], data[48:48 + key_bytes], data[120:136],
                   data[208:224], version)

    def is_sealed(self, seal_key):
        binds_key = CLASS_NAMES[self.protection_class] != "D"
        key, capsule_id = (self.wrapped_key, self.capsule_id) if binds_key else (b"", bytes(16))
        bound = (bytes([self.protection_class]) + len(key).to_bytes(2, "little") + self.file_id
                 + key.ljust(72, b"\0") + capsule_id)
        return same(self.seal, hmac(seal_key, b"file" + bound)[:16])

    def file_key(self, class_keys, keys=None, read_capsule=None):
        """The file key; KeyError where the key of the class is not there.

        In format 2, class B needs `keys` (VolumeKeys), and `read_capsule(name)`: the file of `ward.kem`, None where there is
        none.
        """
        class_key = class_keys[self.protection_class]
        if self.protection_class != 2:
            return unwrap(self.wrapped_key, class_key, "the file key")
        ephemeral, public = self.wrapped_key[:32], x25519_public(class_key)
        secret = x25519(class_key, ephemeral, "the file key")
        if keys is not None and keys.format == self.format == 2:
            capsule = self._capsule_secret(class_keys, read_capsule)
            kek = sha256(b"\0\0\0\1" + secret + capsule + keys.class_b + ephemeral + public + self.capsule_id)
        else:
            kek = sha256(b"\0\0\0\1" + secret + ephemeral + public)
        return unwrap(self.wrapped_key[32:], kek, "the file key")

    def _capsule_secret(self, class_keys, read_capsule):
        if not any(self.capsule_id):
            return bytes(32)
        name = base64url(self.capsule_id).decode()
        capsule = read_capsule(name)
        if capsule is None:
            raise malformed(f"capsule {name}: missing")
        if len(capsule) != mlkem.CIPHERTEXT_BYTES or sha256(capsule)[:16] != self.capsule_id:
            raise malformed(f"capsule {name}: damaged")
        return mlkem.decapsulate(capsule, capsule_seed(class_keys[1]))


def capsule_seed(class_a_key):
    """The private key of capsules (§3.1), d ‖ z."""
    return hkdf(class_a_key, b"", b"ward capsules", 64)


# --- Pages (§4) ------------------------------------------------------------------------------------------------------

FINAL, EPOCH_KEY = 1, 2


@dataclass
class Layout:
    """Where the bytes of a file lie, for pages of `page_bytes`."""

    page_bytes: int

    def record_offset(self, page):
        return FileHeader.BYTES if page == 0 else 0

    def capacity(self, page):
        return self.page_bytes - self.record_offset(page) - 36

    def start(self, page):
        """The offset in the file of a page's first byte."""
        return 0 if page == 0 else self.capacity(0) + (page - 1) * self.capacity(1)

    def pages(self, size):
        return 0 if size == 0 else 1 + -(-max(0, size - self.capacity(0)) // self.capacity(1))

    def backing_size(self, size):
        """With its hint (§4.2)."""
        pages = self.pages(size)
        return pages * self.page_bytes + (size - self.start(pages - 1)) if pages else 0

    def hinted_size(self, backing_size):
        """What the size of a backing file says of the file's; None where there is no hint."""
        pages, length = divmod(backing_size, self.page_bytes)
        if backing_size == 0:
            return 0
        return self.start(pages - 1) + length if pages and 0 < length <= self.capacity(pages - 1) else None


@dataclass
class Record:
    """An opened record."""

    epoch: int
    is_final: bool
    payload: bytes


def associated_data(page, prefix):
    """`prefix`: epoch, length and flags as they are on disk."""
    return page.to_bytes(8, "little") + prefix


class PageCiphers:
    """The ciphers of a file's pages: under the file key, and in format 2 under the keys of epochs (§4)."""

    def __init__(self, file_key, volume_format=1):
        self._file_key, self._by_epoch = file_key, {}
        self.known_flags = FINAL if volume_format == 1 else FINAL | EPOCH_KEY

    def of(self, prefix):
        """`prefix`: epoch, length and flags as they are on disk."""
        has_epoch_key = integer(prefix, 6, 2) & EPOCH_KEY & self.known_flags
        epoch = prefix[:4] if has_epoch_key else None
        if epoch not in self._by_epoch:
            self._by_epoch[epoch] = GCM(page_key(self._file_key, epoch) if has_epoch_key else self._file_key)
        return self._by_epoch[epoch]


def page_key(file_key, epoch):
    """`epoch`: 4 bytes."""
    return hmac(file_key, b"ward pages" + epoch + b"\1")


def open_record(data, page, ciphers, capacity):
    """`data`: a whole record. Authenticates it, then looks at what it says."""
    cipher = ciphers.of(data[12:20])
    plain = cipher.open(data[:12], data[20:], associated_data(page, data[12:20]), f"page {page}")
    epoch, length, flags = integer(data, 12, 4), integer(data, 16, 2), integer(data, 18, 2)
    if flags & ~ciphers.known_flags or not 1 <= length <= capacity:
        raise malformed(f"page {page}: impossible length or flags")
    return Record(epoch, flags & FINAL != 0, plain[:length])


# --- Names (§5), directory records (§6) --------------------------------------------------------------------------------

LONGEST_SHORT_NAME = 175


def open_name(stored, directory_id, keys):
    """The name for a stored name, or for the target of a long name's link."""
    sealed = from_base64url(stored, "a name")
    if not TAG_BYTES < len(sealed) <= 255 + TAG_BYTES:
        raise malformed("a name: too short or too long")
    name = keys.names.open(sealed, directory_id, "a name")
    if b"\0" in name or b"/" in name or name in (b".", b".."):
        raise malformed("a name: one that no directory has")
    return name


def stored_name(name, directory_id, keys):
    """The stored name, and the target of the link beside it (None where it is a short name)."""
    text = base64url(keys.names.seal(name, directory_id))
    if len(name) <= LONGEST_SHORT_NAME:
        return text, None
    return long_name(text), text


def long_name(target):
    """The stored name that belongs to the target of a long name's link."""
    return b"~" + base64url(sha256(from_base64url(target, "a long name's link")))


@dataclass
class DirectoryRecord:
    directory_id: bytes
    protection_class: int
    #: No item in it gets a class above C from now on. A reader need not care.
    is_synchronised: bool
    #: The second authenticator of the class (§6.2); zeros for none.
    seal: bytes = bytes(12)

    #: The version of records that are bound to the directory above: those of format 2.
    BOUND = 3

    @classmethod
    def read(cls, target, mac_key, parent_id=None):
        """`parent_id`: in format 2 the ID of the directory above, `NO_PARENT` for the root; None in format 1."""
        what = "directory record"
        try:
            data = from_base64url(target, what)
        except FormatError:
            data = b""
        if len(data) < 36:
            raise FormatError(FormatError.NOT_RECOGNISED, f"{what}: not 36 bytes of base64url")
        version, protection_class, flags = data[0], data[1], data[2]
        if version > cls.BOUND:
            raise FormatError(FormatError.NEWER_VERSION, f"{what}: version {version}")
        is_bound = version == cls.BOUND
        if len(data) != (44 if is_bound else 36):
            raise FormatError(FormatError.NOT_RECOGNISED, f"{what}: {len(data)} bytes")
        parent = parent_id if is_bound and parent_id is not None else b""
        body, mac = (data[:32], data[32:]) if is_bound else (data[:20], data[20:])
        if not same(mac, hmac(mac_key, parent + body)[:len(mac)]):
            raise FormatError(FormatError.AUTHENTICATION_FAILED,
                              f"{what}: the MAC does not match" + (", or the directory belongs in another one" if parent else ""))
        if is_bound != (parent_id is not None):
            raise malformed(f"{what}: version {version}, in a volume of the other format")
        # Of format 1, records with a flag have version 2, records without one have version 1.
        if version == 0 or protection_class not in CLASS_NAMES or data[3] or (flags > 1 if is_bound else flags != version - 1)\
                or is_bound and not any(data[4:20]):
            raise malformed(f"{what}: impossible field")
        return cls(data[4:20], protection_class, flags == 1, data[20:32] if is_bound else bytes(12))

    def is_sealed(self, seal_key, parent_id):
        message = b"directory" + bytes([self.protection_class, self.is_synchronised]) + self.directory_id + parent_id
        return same(self.seal, hmac(seal_key, message)[:12])

    @classmethod
    def format_of_root(cls, target):
        """The format of the volume whose root has this record; the record alone says it (§10)."""
        try:
            return 2 if from_base64url(target, "directory record")[:1] == bytes([cls.BOUND]) else 1
        except FormatError:
            return 1


# --- Places of files (§6.1) --------------------------------------------------------------------------------------------


@dataclass
class Places:
    """The directories in which a file belongs, beside the one in its header."""

    directory_ids: list

    ATTRIBUTE = b"user.ward.places"
    MOST = 240

    @classmethod
    def read(cls, value, file_id, mac_key):
        what = "list of places"
        if len(value) < 20:
            raise malformed(f"{what}: too short")
        if value[0] > 1:
            raise FormatError(FormatError.NEWER_VERSION, f"{what}: version {value[0]}")
        if not same(value[-16:], hmac(mac_key, file_id + value[:-16])[:16]):
            raise FormatError(FormatError.AUTHENTICATION_FAILED, f"{what}: the MAC does not match")
        count = integer(value, 2, 2)
        if value[0] != 1 or value[1] or not 1 <= count <= cls.MOST or len(value) != 4 + 16 * count + 16:
            raise malformed(f"{what}: impossible field")
        return cls([value[at:at + 16] for at in range(4, 4 + 16 * count, 16)])


def require_place(header, directory_id, places, keys):
    """Throws where a file does not belong in a directory. `places`: the value of `user.ward.places`, None where there is none."""
    if header.directory_id == directory_id:
        return
    reason = "no list of places names this one"
    if places is not None:
        try:
            if directory_id in Places.read(places, header.file_id, keys.places).directory_ids:
                return
        except FormatError as error:
            # Such a list counts as missing.
            reason = str(error)
    raise malformed(f"the file belongs in another directory: {reason}")


# --- Links, attributes, modes (§7) -------------------------------------------------------------------------------------


LONG_LINKS = "ward.links"
LONGEST_TARGET = 4095


def permit_name(target):
    """The name of the permit of a stored link (format 2)."""
    return b".l" + base64url(sha256(target))


def read_permit(permit, target, directory_id, mac_key):
    """The ID of the directory where a stored link was made, by the target of its permit in another directory."""
    what = "a link's permit"
    try:
        data = from_base64url(permit, what)
    except FormatError:
        data = b""
    if len(data) != 32:
        raise FormatError(FormatError.NOT_RECOGNISED, f"{what}: not 32 bytes of base64url")
    origin = data[:16]
    if not same(data[16:], hmac(mac_key, directory_id + origin + sha256(target))[:16]):
        raise FormatError(FormatError.AUTHENTICATION_FAILED, f"{what}: the MAC does not match")
    return origin


def open_link(target, keys, read_long, directory_id=b"", find_permit=None):
    """As `open_link_of`, and a link of format 1 where the volume is being upgraded (§10.1)."""
    try:
        return open_link_of(target, keys, read_long, directory_id, find_permit)
    except FormatError:
        if keys.earlier is None:
            raise
        try:
            return open_link_of(target, keys.earlier, read_long)
        except FormatError:
            pass
        raise


def open_link_of(target, keys, read_long, directory_id=b"", find_permit=None):
    """The target of a symbolic link. `read_long(name)`: bytes of a file of `ward.links`, None where there is none.

    In format 2, `directory_id` is that of the link's directory, and `find_permit(name)` the target of a link there, None where
    there is none.
    """
    what = "a symbolic link"
    is_long = target.startswith(b"~")
    sealed, prefix = from_base64url(target[1:] if is_long else target, what), b"long" if is_long else b""
    try:
        plain = keys.links.open_sealed(sealed, prefix + directory_id, what)
    except FormatError as error:
        if not directory_id or error.code != FormatError.AUTHENTICATION_FAILED:
            raise
        permit = find_permit(permit_name(target))
        if permit is None:
            raise FormatError(error.code, f"{error}, or it belongs in another directory: it has no permit in this one") from None
        origin = read_permit(permit, target, directory_id, keys.link_permits)
        plain = keys.links.open_sealed(sealed, prefix + origin, what)
    if not is_long:
        return plain
    length, longest_short = integer(plain, 16, 2), 4095 * 3 // 4 - keys.links.OVERHEAD
    if len(plain) != 20 or plain[18:] != b"\0\0" or not longest_short < length <= LONGEST_TARGET:
        raise malformed(f"{what}: impossible field")
    sealed = read_long(base64url(plain[:16]).decode())
    if sealed is None:
        raise malformed(f"{what}: its target is missing")
    found = keys.links.open_sealed(sealed, plain[:16], what)
    if len(found) != length:
        raise malformed(f"{what}: its target has another length")
    return found


def stored_attribute_name(name, keys):
    """`name`, as bytes, `user.…` or `trusted.…`."""
    prefix = name[:name.index(b".") + 1] + b"w."
    return prefix + base64url(hmac(keys.attribute_names, name)[:16])


def open_attribute(stored, value, owner_id, keys):
    """(name, value) of an attribute. `owner_id`: the ID of the file or directory that it was found on."""
    what = f"attribute {stored.decode('ascii', 'replace')}"
    try:
        plain = keys.attributes.open_sealed(value, owner_id + stored, what)
    except FormatError:
        if keys.earlier is None:
            raise
        plain = keys.earlier.attributes.open_sealed(value, owner_id + stored, what)
    name_bytes = integer(plain, 0, 2)
    if len(plain) < 2 + name_bytes:
        raise malformed(f"{what}: impossible length")
    name = plain[2:2 + name_bytes]
    if not name.startswith((b"user.", b"trusted.")) or stored_attribute_name(name, keys) != stored:
        raise malformed(f"{what}: it holds another name's value")
    return name, plain[2 + name_bytes:]


MODE_ATTRIBUTE = "user.ward.mode"


def true_mode(backing_mode, mode_attribute):
    """The mode as it was set. `mode_attribute`: the value of `user.ward.mode`, None where there is none."""
    if stat.S_ISREG(backing_mode):
        mark = stat.S_ISVTX
    elif stat.S_ISDIR(backing_mode):
        mark = stat.S_ISUID
    else:
        return backing_mode
    if not backing_mode & mark:
        return backing_mode
    if mode_attribute is not None and len(mode_attribute) == 2:
        return stat.S_IFMT(backing_mode) | integer(mode_attribute, 0, 2) & 0o7777
    return backing_mode & ~(mark | stat.S_IWUSR)


# --- The state record (§8) ---------------------------------------------------------------------------------------------


@dataclass
class StateRecord:
    #: The format of the volume, 1 or 2.
    format: int
    is_in_use: bool
    epoch: int
    doubtful: list
    #: Structures of format 1 may be left (§10.1).
    is_upgrading: bool = False

    LIMIT = 24 + 64 * 8 + 32
    LAST_EPOCH = 2**32 - 2

    @classmethod
    def read(cls, data, mac_key):
        what = "state record"
        if len(data) < 56 or data[:8] != b"WARDSTAT":
            raise FormatError(FormatError.NOT_RECOGNISED, f"{what}: no magic number")
        version = integer(data, 8, 2)
        if version > 2:
            raise FormatError(FormatError.NEWER_VERSION, f"{what}: version {version}")
        if not same(data[-32:], hmac(mac_key, data[:-32])):
            raise FormatError(FormatError.AUTHENTICATION_FAILED, f"{what}: the MAC does not match")
        count = integer(data, 16, 4)
        if (version == 0 or data[10] > 1 or data[11] > version - 1 or any(data[20:24]) or count > 64
                or len(data) != 24 + 8 * count + 32):
            raise malformed(f"{what}: impossible field")
        if integer(data, 12, 4) > cls.LAST_EPOCH:
            raise malformed(f"{what}: an epoch that is never given")
        intervals = [(integer(data, at, 4), integer(data, at + 4, 4)) for at in range(24, 24 + 8 * count, 8)]
        if any(first > last for first, last in intervals):
            raise malformed(f"{what}: an interval ends before it begins")
        return cls(version, data[10] == 1, integer(data, 12, 4), intervals, data[11] == 1)

    @staticmethod
    def claims_upgrade(data):
        """Whether the file says, unauthenticated, that the volume is being upgraded."""
        return data is not None and len(data) > 11 and data[:8] == b"WARDSTAT" and integer(data, 8, 2) == 2 and data[11] == 1

    def doubtful_now(self):
        """The doubtful intervals as a mount would begin with them: of a volume in use, two epochs more."""
        return self.doubtful + ([(self.epoch, self.epoch + 1)] if self.is_in_use else [])
