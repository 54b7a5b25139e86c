"""Searches a backing directory for markers, raw and encoded: in contents, names, link targets, attributes.

search.py DIRECTORY MARKER...: prints the place and the encoding of each one found; exits 1 then.
"""
import base64
import binascii
import os
import sys
import zlib


def encodings(marker):
    """The marker in every simple encoding; both base64 alphabets at all three alignments."""
    raw = marker.encode()
    yield "raw", raw
    yield "reversed", raw[::-1]
    yield "upper", raw.upper()
    yield "lower", raw.lower()
    yield "hex", binascii.hexlify(raw)
    yield "HEX", binascii.hexlify(raw).upper()
    for name in ("utf-16-le", "utf-16-be", "utf-32-le"):
        yield name, marker.encode(name)
    for shift in range(3):
        # Only the characters that depend on the marker alone.
        padded = base64.b64encode(b"\0" * shift + raw)
        first = (shift * 8 + 5) // 6
        last = (shift + len(raw)) * 8 // 6
        piece = padded[first:last]
        yield "base64 at %d" % shift, piece
        yield "base64url at %d" % shift, piece.translate(bytes.maketrans(b"+/", b"-_"))
    yield "base32", base64.b32encode(raw)[: len(raw) * 8 // 5]
    yield "xor ff", bytes(b ^ 0xFF for b in raw)
    yield "deflate", zlib.compress(raw)[2:-6]


top, markers = os.fsencode(sys.argv[1]), sys.argv[2:]
patterns = [(m, how, p) for m in markers for how, p in encodings(m) if len(p) >= 8]
found = searched = 0


def search(where, data):
    global found, searched
    searched += len(data)
    for marker, how, pattern in patterns:
        if pattern in data:
            found += 1
            print("%s: %s, %s" % (os.fsdecode(where), marker, how))


def search_entry(path):
    for key in os.listxattr(path, follow_symlinks=False):
        search(path + b" attribute", os.fsencode(key) + b"=" + os.getxattr(path, key, follow_symlinks=False))
    if os.path.islink(path):
        search(path + b" target", os.fsencode(os.readlink(path)))
    elif os.path.isfile(path):
        with open(path, "rb") as file:
            search(path, file.read())


for directory, names, files in os.walk(top):
    for entry in [b"."] + names + files:
        path = os.path.join(directory, entry)
        search(path, entry)
        try:
            search_entry(path)
        except FileNotFoundError:
            # The daemon renames a new file of its own to its place at any time.
            if not entry.startswith(b".ward-new-"):
                raise
print("searched %d bytes, found %d" % (searched, found))
sys.exit(1 if found else 0)
