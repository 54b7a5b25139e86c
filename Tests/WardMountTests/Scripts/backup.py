"""Lists and checks files, to compare backups and exports.

    backup.py names VOLUME MOUNT <list     prints the plaintext paths of a NUL-separated list of ciphertext paths, found by
                                           inode number; a file without plaintext comes as "+" and its name
    backup.py tree DIRECTORY [--classes] [--no-owners]
                                           prints all entries: kind, mode, owner, time, hash, attributes, names of one inode
    backup.py storm DIRECTORY SECONDS COUNT
                                           renames, creates and removes names, and replaces files by whole new ones
    backup.py writer FILE COUNT            rewrites self-describing blocks of a file, in place, and appends, until killed
    backup.py blocks FILE                  checks every block of such a file: "ok COUNT", or the fault
"""

import errno
import hashlib
import json
import os
import random
import stat
import sys
import time


def walk(top):
    stack = [b""]
    while stack:
        directory = stack.pop()
        for entry in os.scandir(os.path.join(top, directory) if directory else top):
            path = os.path.join(directory, entry.name)
            yield path
            if entry.is_dir(follow_symlinks=False):
                stack.append(path)


def names(volume, mount):
    volume, mount = os.fsencode(os.path.realpath(volume)), os.fsencode(mount)
    plain = {}
    for path in walk(mount):
        plain.setdefault(os.lstat(os.path.join(mount, path)).st_ino, []).append(path)
    for values in plain.values():
        values.sort()
    seen = []
    for path in sys.stdin.buffer.read().split(b"\0")[:-1]:
        assert path.startswith(volume + b"/"), path
        name = os.path.basename(path)
        number = os.lstat(path).st_ino
        if path.startswith(volume + b"/ward.kem"):
            # A mount has a capsule of its own.
            if b"+ward.kem" not in seen:
                seen.append(b"+ward.kem")
            continue
        if name.startswith((b".", b"ward.")) or name == b"README":
            kept = name if name in (b".ward", b"README") or name.startswith(b"ward.") else name[:2]
            seen.append(b"+" + kept)
        else:
            # Either all names of an inode are in the list, or none.
            known = plain[number]
            seen.append(known[0])
            plain[number] = known[1:] + known[:1]
    for name in sorted(seen):
        print(name.decode(errors="surrogateescape"))


def attributes(path):
    found = {}
    try:
        for name in os.listxattr(path, follow_symlinks=False):
            if name in ("user.ward.class", "security.selinux"):
                continue
            found[name] = os.getxattr(path, name, follow_symlinks=False).hex()
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
    return found


def tree(top, *options):
    top = os.fsencode(top)
    groups = {}
    for path in sorted(list(walk(top)) + [b""]):
        full = os.path.join(top, path) if path else top
        status = os.lstat(full)
        kind = stat.S_IFMT(status.st_mode)
        line = {"path": path.decode(errors="backslashreplace"), "mode": oct(status.st_mode)}
        if path:
            line["mtime"] = status.st_mtime_ns
        if "--no-owners" not in options:
            line["owner"] = [status.st_uid, status.st_gid]
        if kind == stat.S_IFREG:
            line["size"] = status.st_size
            with open(full, "rb") as file:
                line["sha256"] = hashlib.file_digest(file, "sha256").hexdigest() if hasattr(
                    hashlib, "file_digest") else hashlib.sha256(file.read()).hexdigest()
        if kind == stat.S_IFLNK:
            line["target"] = os.readlink(full).decode(errors="backslashreplace")
        if kind in (stat.S_IFREG, stat.S_IFDIR) and path:
            line["attributes"] = attributes(full)
        if kind in (stat.S_IFREG, stat.S_IFDIR) and "--classes" in options:
            line["class"] = os.getxattr(full, "user.ward.class").decode()
        if kind != stat.S_IFDIR and status.st_nlink > 1:
            line["same"] = groups.setdefault((status.st_dev, status.st_ino), line["path"])
        print(json.dumps(line, sort_keys=True))


def whole(seed, size):
    """Content with its own hash."""
    body = (b"%d." % seed) * (size // 4)
    return hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def storm(directory, seconds, count):
    end = time.monotonic() + float(seconds)
    chance = random.Random(7)
    number = 0
    while time.monotonic() < end:
        number += 1
        name = os.path.join(directory, "file-%d" % chance.randrange(int(count)))
        staged = os.path.join(directory, "staged-%d" % os.getpid())
        with open(staged, "wb") as file:
            file.write(whole(number, chance.randrange(100, 40000)))
        os.rename(staged, name)
        if number % 5 == 0:
            other = os.path.join(directory, "file-%d" % chance.randrange(int(count)))
            try:
                os.rename(name, other)
            except FileNotFoundError:
                pass
        if number % 7 == 0:
            try:
                os.unlink(os.path.join(directory, "file-%d" % chance.randrange(int(count))))
            except FileNotFoundError:
                pass


BLOCK = 4096


def block(number, generation):
    head = b"%d %d " % (number, generation)
    body = head + b"x" * (BLOCK - 65 - len(head))
    return body + b" " + hashlib.sha256(body).hexdigest().encode()


def writer(path, count):
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    generation = 0
    while True:
        generation += 1
        for number in range(int(count)):
            os.pwrite(file, block(number, generation), number * BLOCK)


def blocks(path):
    whole, torn, unreadable = 0, 0, 0
    file = os.open(path, os.O_RDONLY)
    size = os.fstat(file).st_size
    for at in range(0, size, BLOCK):
        try:
            data = os.pread(file, BLOCK, at)
        except OSError as error:
            assert error.errno == errno.EIO, error
            unreadable += 1
            continue
        body, _, digest = data.rpartition(b" ")
        good = len(data) == BLOCK and hashlib.sha256(body).hexdigest().encode() == digest
        whole += good
        torn += not good
    print("whole %d torn %d unreadable %d" % (whole, torn, unreadable))


def check_storm(directory):
    """Checks that every file is whole: one of the written contents."""
    count = 0
    for name in sorted(os.listdir(directory)):
        if not name.startswith("file-"):
            continue
        with open(os.path.join(directory, name), "rb") as file:
            digest, _, body = file.read().partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != digest:
            sys.exit("%s is torn" % name)
        count += 1
    print("whole", count)


if __name__ == "__main__":
    {"names": names, "tree": tree, "storm": storm, "writer": writer, "blocks": blocks,
     "check-storm": check_storm}[sys.argv[1]](*sys.argv[2:])
