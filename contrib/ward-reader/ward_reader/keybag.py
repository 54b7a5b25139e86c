"""format-keybag.md: the keybag, the device's files, the recovery kit, and the way from a passcode to class keys."""

import os
import unicodedata
import uuid
from dataclasses import dataclass

from .errors import (DAMAGED, INPUT, NO_DEVICE_KEY, NO_INPUT, NOT_A_VOLUME, USAGE, WRONG_PASSCODE, FormatError,
                     ReaderError)
from .primitives import GCM, from_base64url, hkdf, hmac, same, scrypt, sha256, x25519_public

CLASS_A, CLASS_B, CLASS_C, CLASS_D, CLASS_CX, VOLUME_KEY = 1, 2, 3, 4, 5, 16
ALL_KEYS = {CLASS_A, CLASS_B, CLASS_C, CLASS_D, CLASS_CX, VOLUME_KEY}
DEVICE_KEYS = {CLASS_D, VOLUME_KEY}
PASSCODE_KEYS = {CLASS_A, CLASS_B, CLASS_C, CLASS_CX}
HOST_KEYS = {CLASS_A, CLASS_B}

SLOT_DEVICE, SLOT_PASSCODE = 1, 2
CHECKSUM_BYTES = 32
POLICY_BYTES, POLICY_AUTHENTICATOR_BYTES = 24, 16


def malformed(what):
    return FormatError(FormatError.MALFORMED, what)


class Fields:
    """Reads little-endian fields in order; never past the end."""

    def __init__(self, data, what):
        self._data, self._at, self._what = data, 0, what

    def take(self, count):
        if count > len(self._data) - self._at:
            raise malformed(f"{self._what}: ends early")
        self._at += count
        return self._data[self._at - count:self._at]

    def integer(self, count):
        return int.from_bytes(self.take(count), "little")

    def zeros(self, count):
        if any(self.take(count)):
            raise malformed(f"{self._what}: a reserved field is not zero")

    def end(self):
        if self._at != len(self._data):
            raise malformed(f"{self._what}: {len(self._data) - self._at} bytes too many")

    @property
    def offset(self):
        return self._at


def open_envelope(data, magic, version, limit, what):
    """Checks length, magic, checksum and version, in this order; the fields after the version."""
    return open_versions(data, magic, version, version, limit, what)[0]


def open_versions(data, magic, first, last, limit, what):
    """The same for the versions from `first` to `last`; the fields, and the version."""
    if not 10 + CHECKSUM_BYTES <= len(data) <= limit:
        raise malformed(f"{what}: {len(data)} bytes")
    if data[:8] != magic:
        raise FormatError(FormatError.NOT_RECOGNISED, f"{what}: no magic number")
    body = data[:-CHECKSUM_BYTES]
    if sha256(body) != data[-CHECKSUM_BYTES:]:
        raise malformed(f"{what}: the checksum is wrong")
    fields = Fields(body, what)
    fields.take(8)
    found = fields.integer(2)
    if found > last:
        raise FormatError(FormatError.NEWER_VERSION, f"{what}: version {found}")
    if found < first:
        raise malformed(f"{what}: version {found}")
    return fields, found


# --- The keybag ----------------------------------------------------------------------------------------------------


@dataclass
class Identity:
    """What never changes about a volume: 52 bytes."""

    uuid: bytes
    page_bytes: int
    class_b_public: bytes
    raw: bytes

    BYTES = 52

    @classmethod
    def read(cls, fields):
        raw = fields.take(cls.BYTES)
        inner = Fields(raw, "identity")
        volume, page_bytes = inner.take(16), inner.integer(2)
        if page_bytes not in (512, 4096):
            raise malformed(f"identity: pages of {page_bytes} bytes")
        inner.zeros(2)
        return cls(volume, page_bytes, inner.take(32), raw)

    @property
    def name(self):
        return str(uuid.UUID(bytes=self.uuid))


@dataclass
class ScryptCost:
    log_n: int
    r: int
    p: int

    @classmethod
    def read(cls, fields):
        """The first 8 bytes of a passcode slot's parameters."""
        algorithm, log_n, r, p = fields.integer(1), fields.integer(1), fields.integer(2), fields.integer(2)
        fields.zeros(2)
        if algorithm != 1:
            raise malformed(f"keybag: passcode derivation {algorithm} is unknown")
        if not 10 <= log_n <= 24 or not 1 <= r <= 64 or not 1 <= p <= 64 or 128 * r << log_n > 4 << 30:
            raise malformed("keybag: scrypt's cost is out of range")
        return cls(log_n, r, p)


@dataclass
class Slot:
    kind: int
    cost: ScryptCost
    salt: bytes
    sealed: bytes
    #: The data that the seal authenticates beside the set, without the identity.
    associated: bytes

    @classmethod
    def read(cls, fields):
        head = fields.take(2)
        kind = head[0]
        if kind not in (SLOT_DEVICE, SLOT_PASSCODE) or head[1]:
            raise malformed(f"keybag: slot of unknown kind {kind}")
        parameter_bytes, sealed_bytes = fields.integer(2), fields.integer(2)
        if parameter_bytes != (40 if kind == SLOT_PASSCODE else 0) or not 28 <= sealed_bytes <= 1024:
            raise malformed("keybag: impossible lengths in a slot")
        parameters = fields.take(parameter_bytes)
        cost, salt = None, b""
        if kind == SLOT_PASSCODE:
            inner = Fields(parameters, "parameters of the passcode slot")
            cost, salt = ScryptCost.read(inner), inner.take(32)
        return cls(kind, cost, salt, fields.take(sealed_bytes), head + parameters)


@dataclass
class Keybag:
    version: int
    identity: Identity
    generation: int
    device_slot: Slot
    passcode_slot: Slot | None
    sealed_policy: bytes
    policy_associated: bytes

    LIMIT = 4096

    @classmethod
    def read(cls, data):
        fields, version = open_versions(data, b"WARDKBAG", 1, 2, cls.LIMIT, "keybag")
        identity, generation, count = Identity.read(fields), fields.integer(8), fields.integer(1)
        fields.zeros(1)
        if count not in (1, 2):
            raise malformed(f"keybag: {count} slots")
        slots = [Slot.read(fields) for _ in range(count)]
        if [slot.kind for slot in slots] != [SLOT_DEVICE, SLOT_PASSCODE][:count]:
            raise malformed("keybag: slots out of order")
        policy_bytes = fields.integer(2)
        if policy_bytes != 12 + POLICY_BYTES + (POLICY_AUTHENTICATOR_BYTES if version == 2 else 0) + 16:
            raise malformed(f"keybag: a sealed policy of {policy_bytes} bytes")
        associated = data[:fields.offset]
        sealed = fields.take(policy_bytes)
        fields.end()
        return cls(version, identity, generation, slots[0], slots[1] if count == 2 else None, sealed, associated)

    def slot_associated(self, slot):
        """The data that a slot's seal authenticates beside the set."""
        version = self.version.to_bytes(2, "little") if self.version > 1 else b""
        return version + self.identity.raw + slot.associated

    def open_policy(self, secret):
        """The policy, and the authenticator after it: none in version 1."""
        plain = GCM(secret.policy_key).open_sealed(self.sealed_policy, self.policy_associated, "policy")
        return plain[:POLICY_BYTES], plain[POLICY_BYTES:]

    def is_policy_forged(self, secret, class_c_key):
        """Whether the policy was sealed without the key that only the passcode opens. Version 1 does not tell."""
        if self.version == 1:
            return False
        policy, authenticator = self.open_policy(secret)
        key = hkdf(class_c_key, self.identity.uuid, b"ward policy seal")
        return not same(authenticator, hmac(key, self.policy_associated + policy)[:POLICY_AUTHENTICATOR_BYTES])


LONGEST_GRACE_MS, LONGEST_USER_INACTIVE_SECONDS = 3_600_000, 2_592_000


@dataclass
class Policy:
    grace_ms: int
    user_inactive_seconds: int
    erases_after_ten: bool
    cost: ScryptCost

    @classmethod
    def read(cls, data):
        fields = Fields(data, "policy")
        grace, inactive, flags = fields.integer(4), fields.integer(4), fields.integer(4)
        if flags > 1:
            raise malformed("policy: unknown flags")
        fields.zeros(4)
        grace, inactive = min(grace, LONGEST_GRACE_MS), min(inactive, LONGEST_USER_INACTIVE_SECONDS)
        policy = cls(grace, inactive, flags == 1, ScryptCost.read(fields))
        fields.end()
        return policy


def read_key_set(data, wanted, identity):
    """A set of keys, {kind: key}. `wanted`: what must be in it; a private half of B must be that of the identity."""
    fields = Fields(data, "set of keys")
    keys, previous = {}, 0
    for _ in range(fields.integer(1)):
        kind = fields.integer(1)
        if kind not in ALL_KEYS or kind <= previous:
            raise malformed("set of keys: unknown kinds, or out of order")
        keys[kind], previous = fields.take(32), kind
    fields.end()
    if not wanted <= keys.keys():
        raise malformed("set of keys: incomplete")
    if CLASS_B in keys and x25519_public(keys[CLASS_B]) != identity.class_b_public:
        raise malformed("set of keys: the private half of class B does not belong to the public one")
    return keys


def open_set(slot_or_kit_sealed, kek, associated, wanted, identity, what):
    return read_key_set(GCM(kek).open_sealed(slot_or_kit_sealed, associated, what), wanted, identity)


# --- The device's files --------------------------------------------------------------------------------------------


def read_key_file(data, magic, most, volume_uuid):
    """The keys in `device.key` or `effaceable.key`."""
    what = "device key" if magic == b"WARDDEVK" else "effaceable key"
    fields = open_envelope(data, magic, 1, 32 + 32 * 2 + CHECKSUM_BYTES, what)
    count = fields.integer(2)
    fields.zeros(4)
    if not 1 <= count <= most:
        raise malformed(f"{what}: {count} keys")
    if fields.take(16) != volume_uuid:
        raise malformed(f"{what}: it belongs to another volume")
    keys = [fields.take(32) for _ in range(count)]
    fields.end()
    return keys


def read_remembered(data, volume_uuid):
    """The generation in `remembered`."""
    fields = open_envelope(data, b"WARDGENR", 1, 72, "remembered generation")
    fields.zeros(6)
    if fields.take(16) != volume_uuid:
        raise malformed("remembered generation: it belongs to another volume")
    generation = fields.integer(8)
    fields.end()
    return generation


def read_attempts(data, device_key, volume_uuid):
    """`attempts`: number of wrong passcodes, their tags, whether the last was judged. This reader only shows it."""
    fields = open_envelope(data, b"WARDTRYS", 2, 280, "attempts")
    wrong, count, judged = fields.integer(2), fields.integer(2), fields.integer(2)
    if count > 10 or judged > 1 or (judged == 0 and count == 0):
        raise malformed(f"attempts: {count} tags, judged {judged}")
    if fields.take(16) != volume_uuid:
        raise malformed("attempts: they belong to another volume")
    fields.take(16 + 8)
    tags = [fields.take(16) for _ in range(count)]
    fields.zeros(160 - 16 * count)
    mac = fields.take(32)
    fields.end()
    if not same(mac, entangle(device_key, b"ward attempts v1", data[:216])):
        raise FormatError(FormatError.AUTHENTICATION_FAILED, "attempts: the MAC does not match")
    return wrong, tags, judged == 1


def read_recovery(data, device_key, volume_uuid):
    """`recovery`: (ID, time) of the kit that was made last, and of the one that was opened last; time 0: none is known."""
    fields = open_envelope(data, b"WARDRCVY", 1, 144, "recovery record")
    fields.zeros(6)
    if fields.take(16) != volume_uuid:
        raise malformed("recovery record: it belongs to another volume")
    made, opened = [(fields.take(16), fields.integer(8)) for _ in range(2)]
    mac = fields.take(32)
    fields.end()
    if not same(mac, entangle(device_key, b"ward recovery kits v1", data[:80])):
        raise FormatError(FormatError.AUTHENTICATION_FAILED, "recovery record: the MAC does not match")
    return made, opened


# --- Trusted hosts -------------------------------------------------------------------------------------------------


@dataclass
class TrustedHost:
    """The device's half of one host."""

    host_id: bytes
    name: str
    made: int
    last_used: int
    #: Empty where the host has expired.
    sealed: bytes
    #: The data that the outer seal authenticates beside the inner one, without the identity.
    associated: bytes

    LIFETIME_SECONDS = 2_592_000

    @classmethod
    def read(cls, fields):
        head = fields.take(34)
        name_bytes, sealed_bytes = head[32], fields.integer(2)
        name = fields.take(name_bytes)
        if head[33] or sealed_bytes not in (0, 123) or not 1 <= name_bytes <= 64:
            raise malformed("trusted hosts: impossible field of a host")
        try:
            text = name.decode("utf-8")
        except UnicodeDecodeError:
            raise malformed("trusted hosts: a name that is not UTF-8") from None
        if any(character < " " or "\x7f" <= character <= "\x9f" or "\u2028" <= character <= "\u202e"
               or "\u2066" <= character <= "\u2069" for character in text):
            raise malformed("trusted hosts: a name with control characters")
        return cls(head[:16], text, int.from_bytes(head[16:24], "little"), int.from_bytes(head[24:32], "little"),
                   fields.take(sealed_bytes), head + name)

    def open(self, secret, slot_key, identity):
        """The keys of A and B, by the host's secret and the device's key."""
        inner = GCM(slot_key).open_sealed(self.sealed, identity.raw + self.associated, "the slot of a host")
        kek = hkdf(secret, self.host_id, b"ward trusted host v1")
        return open_set(inner, kek, identity.raw + self.host_id, HOST_KEYS, identity, "the keys of a host")


@dataclass
class TrustedHosts:
    latest_time: int
    hosts: list

    LIMIT = 40 + 32 * (36 + 64 + 123) + 32 + CHECKSUM_BYTES

    @classmethod
    def read(cls, data, mac_key, volume_uuid):
        """`trusted-hosts`; with a MAC that is not right it holds no host."""
        fields = open_envelope(data, b"WARDTRST", 1, cls.LIMIT, "trusted hosts")
        count = fields.integer(2)
        fields.zeros(4)
        if not 1 <= count <= 32:
            raise malformed(f"trusted hosts: {count} of them")
        if fields.take(16) != volume_uuid:
            raise malformed("trusted hosts: they belong to another volume")
        latest = fields.integer(8)
        hosts = [TrustedHost.read(fields) for _ in range(count)]
        if len({host.name for host in hosts}) < count or len({host.host_id for host in hosts}) < count:
            raise malformed("trusted hosts: two of the same name or ID")
        end = fields.offset
        mac = fields.take(32)
        fields.end()
        if not same(mac, hmac(mac_key, data[:end])):
            raise FormatError(FormatError.AUTHENTICATION_FAILED, "trusted hosts: the MAC does not match")
        return cls(latest, hosts)

    def is_expired(self, host, now):
        return not host.sealed or max(now, self.latest_time) >= host.last_used + TrustedHost.LIFETIME_SECONDS


def read_host_record(data):
    """What a trusted host keeps: (volume's UUID, host ID, secret)."""
    fields = open_envelope(data, b"WARDHOST", 1, 112, "host's record")
    fields.zeros(6)
    record = fields.take(16), fields.take(16), fields.take(32)
    fields.end()
    return record


# --- Derivations ---------------------------------------------------------------------------------------------------


def entangle(device_key, purpose, data):
    return hmac(device_key, purpose + b"\0" + data)


@dataclass
class DeviceSecret:
    """What this device has of a volume's keys, for one effaceable key."""

    device_key: bytes
    effaceable_key: bytes
    uuid: bytes

    def _derive(self, info):
        secret = entangle(self.device_key, b"ward device v1", self.effaceable_key)
        return hkdf(secret, self.uuid, info)

    @property
    def device_kek(self):
        return self._derive(b"ward keybag device slot v1")

    @property
    def policy_key(self):
        return self._derive(b"ward keybag policy v1")

    @property
    def hosts_mac_key(self):
        return self._derive(b"ward trusted hosts v1")

    def host_slot_key(self, class_c_key):
        bound = entangle(self.device_key, b"ward trusted host v1", hmac(self.effaceable_key, class_c_key))
        return hkdf(bound, self.uuid, b"ward trusted host slot v1")

    def entangled(self, passcode, slot):
        stretched = scrypt(passcode, slot.salt, 1 << slot.cost.log_n, slot.cost.r, slot.cost.p)
        return entangle(self.device_key, b"ward passcode v1", hmac(self.effaceable_key, stretched))

    def passcode_kek(self, passcode, slot):
        return hkdf(self.entangled(passcode, slot), self.uuid, b"ward keybag passcode slot v1")

    def wrong_passcode_tag(self, passcode, keybag):
        """What `attempts` holds of a passcode that the slot of this keybag refused."""
        slot = keybag.passcode_slot
        judge = sha256(keybag.slot_associated(slot) + slot.sealed)
        return hkdf(self.entangled(passcode, slot), self.uuid, b"ward wrong passcode v2" + judge)[:16]


def normalized(passcode):
    """The bytes that enter scrypt: UTF-8 in normalization form C."""
    try:
        result = unicodedata.normalize("NFC", passcode.decode("utf-8")).encode("utf-8")
    except UnicodeDecodeError:
        raise ReaderError("the passcode is not UTF-8 text", "type it, or give it in a file of UTF-8 text", USAGE) from None
    if not 1 <= len(result) <= 1024:
        raise ReaderError(f"the passcode has {len(result)} bytes, 1 to 1,024 are possible",
                          "type the passcode of the volume", USAGE)
    return result


# --- The recovery kit ----------------------------------------------------------------------------------------------

CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


@dataclass
class RecoveryKit:
    #: The kit vouches for this format.
    version: int
    identity: Identity
    kit_id: bytes
    made: int
    sealed: bytes
    associated: bytes

    BEGIN = b"-----BEGIN WARD RECOVERY KIT-----"
    END = b"-----END WARD RECOVERY KIT-----"
    TEXT_LIMIT = 65536

    @classmethod
    def read(cls, data):
        fields, version = open_versions(data, b"WARDRKIT", 1, 2, 2048, "recovery kit")
        identity, kit_id, made = Identity.read(fields), fields.take(16), fields.integer(8)
        associated = data[:fields.offset]
        count = fields.integer(2)
        if not 28 <= count <= 1024:
            raise malformed(f"recovery kit: a sealed set of {count} bytes")
        sealed = fields.take(count)
        fields.end()
        return cls(version, identity, kit_id, made, sealed, associated)

    @classmethod
    def read_text(cls, text):
        if len(text) > cls.TEXT_LIMIT:
            raise malformed("recovery kit: the file is too long")
        lines = [line.strip(b" \t") for line in text.replace(b"\r", b"\n").split(b"\n")]
        if cls.BEGIN not in lines:
            raise FormatError(FormatError.NOT_RECOGNISED, "no recovery kit in this file")
        # Takes the last begin line before the first end line.
        body = None
        for line in lines:
            if line == cls.BEGIN:
                body = []
            elif line == cls.END and body is not None:
                return cls.read(from_base64url(b"".join(body), "recovery kit"))
            elif body is not None:
                body.append(line)
        raise malformed("recovery kit: the end line is missing")

    def open(self, code):
        kek = hkdf(code, self.kit_id, b"ward recovery kit v1")
        return open_set(self.sealed, kek, self.associated, ALL_KEYS, self.identity, "recovery kit")


def _times_x(value, power):
    """`value` · x^power in GF(2^5) with x^5 + x^2 + 1."""
    for _ in range(power):
        value <<= 1
        if value & 32:
            value ^= 0b100101
    return value


def read_recovery_code(text):
    """The 32 bytes of a code as it was typed."""
    characters = [character for character in text.upper() if character not in " \t\r\n-"]
    values = [CROCKFORD.find({"I": "1", "L": "1", "O": "0"}.get(character, character)) for character in characters]
    if len(values) != 65:
        raise malformed(f"recovery code: {len(values)} characters, 65 are needed")
    bits = 0
    for group in range(13):
        data, check = values[5 * group:5 * group + 4], values[5 * group + 4]
        expected = group
        for place, value in enumerate(data):
            expected ^= _times_x(max(value, 0), place + 1)
        if min(data) < 0 or check != expected:
            raise malformed(f"recovery code: group {group + 1} is mistyped")
        for value in data:
            bits = bits << 5 | value
    if bits & 15:
        raise malformed("recovery code: group 13 is mistyped")
    return (bits >> 4).to_bytes(32, "big")


# --- From a volume, a device and a secret to keys ---------------------------------------------------------------------


@dataclass
class Opened:
    identity: Identity
    #: {kind: key}; a class without its key is locked.
    keys: dict
    notes: list
    #: The keybag or the kit vouches for this format: structures of an earlier one are damaged.
    least_format: int = 1


def open_with_kit(store, kit, code, takes_older_format=False):
    """By a recovery kit: no device is needed, and no keybag; where one is whole, it must be of the same volume.

    `takes_older_format`: the owner says that the copy is from before the end of an upgrade.
    """
    try:
        keys = kit.open(code)
    except FormatError as error:
        raise ReaderError(f"the recovery kit does not open: {error}", "is this the code of this kit?", WRONG_PASSCODE) from None
    notes = []
    for name in ("ward.keybag", "ward.keybag.copy"):
        data = store.read_root_file(name, Keybag.LIMIT)
        try:
            keybag = Keybag.read(data) if data is not None else None
        except FormatError as error:
            if error.code == FormatError.NEWER_VERSION:
                raise ReaderError(str(error), "use a newer reader", INPUT) from None
            notes.append(f"{name}: {error}")
            continue
        if keybag is not None and keybag.identity.raw != kit.identity.raw:
            raise ReaderError(f"the recovery kit is of volume {kit.identity.name}, this is {keybag.identity.name}",
                              "take the kit that was made for this volume", INPUT)
    return Opened(kit.identity, keys, notes, 1 if takes_older_format else kit.version)


def open_with_device(store, state_directory, passcode, accepts_older=False):
    """By the device's files and, where `passcode` is not None, the passcode; § Reading of format-keybag.md.

    `state_directory`: the directory with `device.key`, or the one above it, by UUID. What § Reading wants written is not:
    this reader changes nothing.
    """
    notes, found, problems = [], None, []
    for name in ("ward.keybag", "ward.keybag.copy"):
        data = store.read_root_file(name, Keybag.LIMIT)
        if data is None:
            continue
        try:
            keybag = Keybag.read(data)
        except FormatError as error:
            if error.code == FormatError.NEWER_VERSION:
                raise ReaderError(f"{name}: {error}", "use a newer reader", INPUT) from None
            problems.append(ReaderError(f"{name}: {error}", "a recovery kit opens the volume without a keybag", DAMAGED))
            continue
        try:
            secret = _authenticate(keybag, state_directory, accepts_older)
        except ReaderError as error:
            problems.append(error)
            continue
        found = (keybag, secret)
        break
    if found is None:
        if not problems:
            raise ReaderError("there is no ward.keybag in this directory", "name the directory of a volume", NOT_A_VOLUME)
        # The error that tells most: any except "damaged".
        raise next((problem for problem in problems if problem.status != DAMAGED), problems[0])
    notes += [str(problem) for problem in problems]
    keybag, secret = found
    identity = keybag.identity
    try:
        keys = open_set(keybag.device_slot.sealed, secret.device_kek, keybag.slot_associated(keybag.device_slot),
                        DEVICE_KEYS if keybag.passcode_slot else ALL_KEYS, identity, "the device slot")
    except FormatError as error:
        raise ReaderError(str(error), "a recovery kit opens the volume without a keybag", DAMAGED) from None
    slot = keybag.passcode_slot
    if slot is not None and passcode is not None:
        kek = secret.passcode_kek(normalized(passcode), slot)
        try:
            keys |= open_set(slot.sealed, kek, keybag.slot_associated(slot), PASSCODE_KEYS, identity, "the passcode slot")
        except FormatError as error:
            if error.code == FormatError.AUTHENTICATION_FAILED:
                raise ReaderError("this is not the passcode of the volume", "try again; this reader counts nothing",
                                  WRONG_PASSCODE) from None
            raise ReaderError(str(error), "a recovery kit opens the volume without a keybag", DAMAGED) from None
    if CLASS_C in keys and keybag.is_policy_forged(secret, keys[CLASS_C]):
        notes.append("the policy was changed without the passcode: set it again with ward policy set")
    return Opened(identity, keys, notes, keybag.version)


def _authenticate(keybag, state_directory, accepts_older):
    """The device's secret under which the keybag's policy opens, step 2 of § Reading."""
    volume_uuid = keybag.identity.uuid
    directory = os.path.join(state_directory, keybag.identity.name)
    if not os.path.isdir(directory):
        directory = state_directory

    def read(name, limit):
        try:
            with open(os.path.join(directory, name), "rb") as file:
                return file.read(limit + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ReaderError(f"{error.filename} can't be read: {error.strerror}", "run this as its owner", NO_INPUT) from None

    hint = "a recovery kit opens the volume without this device: --recovery-kit FILE"
    device = read("device.key", 128)
    if device is None:
        raise ReaderError(f"there is no device.key in {directory}", "name it with --state-directory; " + hint, NO_DEVICE_KEY)
    effaceable = read("effaceable.key", 128)
    if effaceable is None or not any(effaceable):
        raise ReaderError("the volume was erased on this device", hint, DAMAGED)
    try:
        device_key = read_key_file(device, b"WARDDEVK", 1, volume_uuid)[0]
        effaceable_keys = read_key_file(effaceable, b"WARDEFFC", 2, volume_uuid)
    except FormatError as error:
        if error.code == FormatError.NEWER_VERSION:
            raise ReaderError(f"{directory}: {error}", "use a newer reader", INPUT) from None
        raise ReaderError(f"{directory}: {error}", hint, DAMAGED) from None
    try:
        remembered = read_remembered(read("remembered", 72) or b"", volume_uuid)
    except FormatError as error:
        if error.code == FormatError.NEWER_VERSION:
            raise ReaderError(f"{directory}: {error}", "use a newer reader", INPUT) from None
        remembered = 0
    for key in effaceable_keys:
        secret = DeviceSecret(device_key, key, volume_uuid)
        try:
            Policy.read(keybag.open_policy(secret)[0])
        except FormatError:
            continue
        if keybag.generation < remembered and not accepts_older:
            break
        return secret
    if keybag.generation < remembered:
        raise ReaderError(
            f"the keybag is older (generation {keybag.generation}) than what this device wrote last ({remembered})",
            "if you restored it on purpose: --accept-older; " + hint, DAMAGED)
    raise ReaderError("the keybag does not authenticate with this device's keys", hint, DAMAGED)
