"""The ciphers and derivations that the format is made of: thin names for other people's implementations."""

import hashlib
import hmac as standard_hmac

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESGCMSIV
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap, aes_key_wrap
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from .errors import FormatError

NONCE_BYTES = 12
TAG_BYTES = 16


def sha256(data):
    return hashlib.sha256(data).digest()


def hmac(key, data):
    """HMAC-SHA-256, RFC 2104."""
    return standard_hmac.new(key, data, hashlib.sha256).digest()


def same(left, right):
    """Compares in constant time."""
    return standard_hmac.compare_digest(left, right)


def hkdf(secret, salt, info, count=32):
    """HKDF-SHA-256, RFC 5869; an empty salt is the RFC's default of 32 zeros."""
    return HKDF(algorithm=hashes.SHA256(), length=count, salt=salt or None, info=info).derive(secret)


def scrypt(passcode, salt, n, r, p):
    """scrypt, RFC 7914, 32 bytes."""
    return hashlib.scrypt(passcode, salt=salt, n=n, r=r, p=p, dklen=32, maxmem=128 * n * r + 128 * r * p + (1 << 20))


class GCM:
    """AES-256-GCM (SP 800-38D) under one key."""

    #: The bytes by which a sealed field is longer.
    OVERHEAD = NONCE_BYTES + TAG_BYTES

    def __init__(self, key):
        self._cipher = AESGCM(key)

    def seal(self, nonce, plaintext, associated):
        return self._cipher.encrypt(nonce, plaintext, associated)

    def open(self, nonce, ciphertext_and_tag, associated, what):
        try:
            return self._cipher.decrypt(nonce, ciphertext_and_tag, associated)
        except InvalidTag:
            raise FormatError(FormatError.AUTHENTICATION_FAILED, f"{what} does not authenticate") from None

    def open_sealed(self, sealed, associated, what):
        """Opens a *sealed* field: nonce ‖ ciphertext ‖ tag."""
        if len(sealed) < NONCE_BYTES + TAG_BYTES:
            raise FormatError(FormatError.MALFORMED, f"{what}: only {len(sealed)} bytes")
        return self.open(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], associated, what)


class XAES:
    """XAES-256-GCM (C2SP): nonces of 24 bytes, whose first half makes a key of its own."""

    NONCE_BYTES = 24
    OVERHEAD = NONCE_BYTES + TAG_BYTES

    def __init__(self, key):
        self._block = Cipher(algorithms.AES(key), modes.ECB())
        doubled = int.from_bytes(self._encrypt(bytes(16)), "big") << 1
        self._subkey = doubled ^ 0x87 ^ 1 << 128 if doubled >> 128 else doubled

    def _encrypt(self, block):
        return self._block.encryptor().update(block)

    def _cipher(self, nonce):
        messages = (b"\0" + bytes([half]) + b"X\0" + nonce[:12] for half in (1, 2))
        return GCM(b"".join(self._encrypt((int.from_bytes(message, "big") ^ self._subkey).to_bytes(16, "big"))
                            for message in messages))

    def seal(self, nonce, plaintext, associated):
        return self._cipher(nonce).seal(nonce[12:], plaintext, associated)

    def open_sealed(self, sealed, associated, what):
        """Opens a *sealed* field: nonce ‖ ciphertext ‖ tag."""
        if len(sealed) < self.OVERHEAD:
            raise FormatError(FormatError.MALFORMED, f"{what}: only {len(sealed)} bytes")
        nonce = sealed[:self.NONCE_BYTES]
        return self._cipher(nonce).open(nonce[12:], sealed[self.NONCE_BYTES:], associated, what)


class GCMSIV:
    """AES-256-GCM-SIV (RFC 8452) with the nonce zero: deterministic, as look-up by name needs it."""

    ZERO = bytes(NONCE_BYTES)

    def __init__(self, key):
        self._cipher = AESGCMSIV(key)

    def seal(self, plaintext, associated):
        return self._cipher.encrypt(self.ZERO, plaintext, associated)

    def open(self, sealed, associated, what):
        try:
            return self._cipher.decrypt(self.ZERO, sealed, associated)
        except InvalidTag:
            raise FormatError(FormatError.AUTHENTICATION_FAILED, f"{what} does not authenticate") from None


def wrap(key, kek):
    """AES key wrap, RFC 3394."""
    return aes_key_wrap(kek, key)


def unwrap(wrapped, kek, what):
    try:
        return aes_key_unwrap(kek, wrapped)
    except InvalidUnwrap:
        raise FormatError(FormatError.AUTHENTICATION_FAILED, f"{what} does not unwrap") from None


def x25519_public(private):
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def x25519(private, public, what):
    """The shared secret; a public key of small order, whose secret would be zeros, is refused."""
    try:
        return X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise FormatError(FormatError.AUTHENTICATION_FAILED, f"{what}: the shared secret is zero") from None


_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_VALUES = {ord(character): value for value, character in enumerate(_ALPHABET)}


def base64url(data):
    """RFC 4648 §5 without padding, as bytes."""
    out = bytearray()
    for start in range(0, len(data), 3):
        group = data[start:start + 3]
        bits = int.from_bytes(group, "big") << 8 * (3 - len(group))
        for place in range(len(group) + 1):
            out.append(ord(_ALPHABET[bits >> 18 - 6 * place & 63]))
    return bytes(out)


def from_base64url(text, what):
    """The one spelling only: unused bits that are not zero are refused (format.md, conventions)."""
    if len(text) % 4 == 1:
        raise FormatError(FormatError.MALFORMED, f"{what}: not base64url")
    bits, count, out = 0, 0, bytearray()
    for character in text:
        value = _VALUES.get(character)
        if value is None:
            raise FormatError(FormatError.MALFORMED, f"{what}: not base64url")
        bits, count = (bits << 6 | value) & 0xFFFF, count + 6
        if count >= 8:
            count -= 8
            out.append(bits >> count & 0xFF)
    if bits & (1 << count) - 1:
        raise FormatError(FormatError.MALFORMED, f"{what}: base64url with bits left over")
    return bytes(out)
