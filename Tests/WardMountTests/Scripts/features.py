"""Makes a tree with every feature of the format, and lists trees, to compare a mount with the copy that a second
implementation extracts (docs/format.md, contrib/ward-reader).

    features.py make DIR                 fills the empty directory DIR on a mount; the same each time, except files that need
                                         root; --small: a fortieth of the bytes, and fewer files
    features.py synchronise DIR          marks directories as synchronised, with files made before and after
    features.py lock DIR COMMAND…        writes files of class B while the volume is locked, by this command
    features.py manifest DIR             one JSON object for each name below DIR, sorted: content as SHA-256, mode, times,
                                         links, attributes, class
    features.py compare MANIFEST DIR     differences between DIR and the manifest; exit status 1 if there are any;
                                         --any-owner: not owners; --no-marks: not marks
    features.py marks MANIFEST LIST      directories that are marked in the manifest alone, or in the second reader's list
                                         alone; exit status 1 if there are any
    features.py continue DIR             writes to the tree of `make`, as later versions must be able to

An ordinary user makes no trusted attributes, devices or other owners, and reads no content that the modes forbid.
"""
import errno
import hashlib
import json
import os
import stat
import struct
import subprocess
import sys

CLASSES = {
    "A": "NSFileProtectionComplete", "B": "NSFileProtectionCompleteUnlessOpen",
    "C": "NSFileProtectionCompleteUntilFirstUserAuthentication", "D": "NSFileProtectionNone",
    "CX": "NSFileProtectionCompleteWhenUserInactive",
}
# Sizes around the ends of pages of 512 and of 4,096 bytes.
SIZES = [0, 1, 219, 220, 221, 696, 697, 3803, 3804, 3805, 7864, 7865, 12_000]
TIME = 1_234_567_890
# On a directory of a mount: "marked", "inherited", or absent. listxattr(2) never shows it.
MARK = "user.ward.synced"


def content(size, seed):
    """Bytes that look random and are the same in every run."""
    pieces = []
    for number in range(-(-size // 32)):
        pieces.append(hashlib.sha256(f"{seed} {number}".encode()).digest())
    return b"".join(pieces)[:size]


def write(path, data, mode=0o644):
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)


def set_class(path, letter):
    os.setxattr(path, "user.ward.class", CLASSES[letter].encode())


def acl(entries):
    """The kernel's form of an ACL: version 2, then tag, permissions, ID."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def make(base, part=1):
    """`part`: divides the length of the content; above 1 there are fewer sizes and modes, and no large file."""
    os.chdir(base)
    os.umask(0o022)
    root = os.geteuid() == 0
    sizes = SIZES if part == 1 else [0, 1, 221]
    for letter in CLASSES:
        directory = f"class {letter}"
        os.mkdir(directory)
        set_class(directory, letter)
        os.mkdir(f"{directory}/inside")
        for size in sizes:
            write(f"{directory}/{size} bytes", content(size, f"{letter}{size}"))

    os.mkdir("own class")
    for letter in CLASSES:
        for size in [0, 5000]:
            write(f"own class/{letter} {size}", content(size // part, f"own {letter}"))
            set_class(f"own class/{letter} {size}", letter)

    os.mkdir("content")
    write("content/many pages", content(120_000 // part, "many"))
    with open("content/grown", "wb", buffering=0) as file:
        for number in range(25):
            file.write(content((900 + number) // part, f"grown {number}"))
            os.fsync(file.fileno())
    write("content/overwritten", content(24_000 // part, "before"))
    with open("content/overwritten", "r+b", buffering=0) as file:
        for number in range(30):
            file.seek(number * 700 // part)
            file.write(content(300 // part, f"over {number}"))
    write("content/shortened", content(20_000 // part, "shortened"))
    os.truncate("content/shortened", 9_001 // part)
    write("content/emptied", content(9_000 // part, "emptied"))
    os.truncate("content/emptied", 0)
    write("content/emptied, own class", content(9_000 // part, "emptied"))
    set_class("content/emptied, own class", "A")
    os.truncate("content/emptied, own class", 0)
    write("content/emptied, written again", content(9_000 // part, "emptied"))
    os.truncate("content/emptied, written again", 0)
    with open("content/emptied, written again", "r+b") as file:
        file.write(content(4_500 // part, "again"))
    write("content/zeros", bytes(10_000 // part))

    os.mkdir("sparse")
    with open("sparse/hole", "wb") as file:
        file.write(content(10, "first"))
        file.seek(1_000_000)
        file.write(content(10, "last"))
    write("sparse/longer", content(100, "longer"))
    os.truncate("sparse/longer", 500_000)
    write("sparse/nothing", b"")
    os.truncate("sparse/nothing", 70_000)
    if part == 1:
        with open("sparse/large", "wb") as file:
            file.seek(5_000_000_000)
            file.write(content(5_000, "large"))

    os.mkdir("names")
    for name in ["x", "n" * 174, "n" * 175, "n" * 176, "n" * 255, "äöü ñ 文字", "two\nlines", " ", "-", "*", "dots.in.it",
                 ".hidden", "~", "ward.keybag", "README", ".ward", b"\xff\xfe not UTF-8"]:
        name = os.fsencode(name)
        write(b"names/" + name, content(50, repr(name)))
    os.mkdir("names/" + "d" * 200)
    write("names/" + "d" * 200 + "/" + "f" * 200, content(500, "deep"))
    os.symlink("s" * 200, "names/" + "s" * 200)
    deep = "names/deep"
    for number in range(12):
        os.mkdir(deep)
        deep += f"/{number:02}"
    write(os.path.dirname(deep) + "/end", b"the end")

    os.mkdir("links")
    write("links/one", content(6_000 // part, "one"))
    os.link("links/one", "links/two")
    os.link("links/one", "names/" + "h" * 220)
    os.symlink("one", "links/symbolic")
    os.symlink("/nowhere/at all", "links/dangling")
    os.symlink("t" * 3_043, "links/longest target")

    os.mkdir("moved")
    write("content/to move", content(4_000 // part, "moved"))
    set_class("content/to move", "CX")
    os.rename("content/to move", "moved/" + "m" * 240)
    os.mkdir("content/directory to move")
    write("content/directory to move/file", b"moved along")
    os.rename("content/directory to move", "moved/directory")

    os.mkdir("attributes")
    for name, size in [("attributes/empty file", 0), ("attributes/file", 5_000 // part)]:
        write(name, content(size, name))
        os.setxattr(name, "user.comment", b"seen")
        os.setxattr(name, "user.empty", b"")
        os.setxattr(name, "user." + "l" * 200, content(1_000 // part, "long"))
    os.setxattr("attributes", "user.of a directory", content(300, "directory"))
    write("attributes/moved between files", b"x")
    os.setxattr("attributes/moved between files", "user.comment", b"other")
    write("attributes/acl", b"with an ACL")
    uid = os.geteuid()
    os.setxattr("attributes/acl", "system.posix_acl_access", acl(
        [(1, 4, 0xFFFFFFFF), (2, 6, uid), (4, 4, 0xFFFFFFFF), (16, 6, 0xFFFFFFFF), (32, 0, 0xFFFFFFFF)]))
    os.mkdir("attributes/default acl")
    os.setxattr("attributes/default acl", "system.posix_acl_default", acl(
        [(1, 7, 0xFFFFFFFF), (2, 5, uid), (4, 5, 0xFFFFFFFF), (16, 5, 0xFFFFFFFF), (32, 0, 0xFFFFFFFF)]))
    if root:
        os.setxattr("attributes/file", "trusted.comment", b"root's")

    os.mkdir("special")
    os.mkfifo("special/fifo", 0o640)
    os.mknod("special/socket", stat.S_IFSOCK | 0o600)
    if root:
        try:
            os.mknod("special/device", stat.S_IFCHR | 0o620, os.makedev(1, 3))
        except PermissionError:
            pass

    os.mkdir("modes")
    modes = [0o000, 0o200, 0o400, 0o444, 0o555, 0o600, 0o644, 0o755, 0o1644, 0o2755, 0o4755, 0o7777, 0o1444, 0o4000]
    for mode in modes if part == 1 else [0o000, 0o444, 0o644, 0o1644, 0o4755, 0o7777]:
        write(f"modes/file {mode:04o}", content(400 // part, f"mode {mode}"))
        os.chmod(f"modes/file {mode:04o}", mode)
    modes = [0o000, 0o500, 0o555, 0o300, 0o700, 0o1777, 0o2775, 0o4755, 0o7000]
    for mode in modes if part == 1 else [0o000, 0o555, 0o1777, 0o4755]:
        os.mkdir(f"modes/directory {mode:04o}")
        write(f"modes/directory {mode:04o}/inside", b"inside")
        os.chmod(f"modes/directory {mode:04o}", mode)

    # Times last, the deepest first, so that no later change moves them.
    number = 0
    for path, status in reversed(list(walk(b"."))):
        number += 1
        time = (TIME + number) * 10**9 + number * 1_001
        try:
            os.utime(path, ns=(time, time + 7), follow_symlinks=False)
        except PermissionError:
            pass


def synchronise(base):
    os.chdir(base)
    os.umask(0o022)
    for directory, letter in [("synchronised", "A"), ("synchronised, class D", "D")]:
        os.mkdir(directory)
        set_class(directory, letter)
        write(f"{directory}/before the mark", content(800, f"before {letter}"))
        os.mkdir(f"{directory}/inside")
        write(f"{directory}/inside/before the mark", content(300, f"inside {letter}"))
        os.setxattr(directory, MARK, b"marked")
        write(f"{directory}/after the mark", content(800, f"after {letter}"))
        write(f"{directory}/inside/after the mark", content(300, f"inside {letter}, after"))
    write("moved into what is synchronised", content(700, "moved in"))
    set_class("moved into what is synchronised", "CX")
    os.rename("moved into what is synchronised", "synchronised/moved in")
    os.mkdir("was synchronised")
    os.setxattr("was synchronised", MARK, b"marked")
    os.removexattr("was synchronised", MARK)


def lock(base, command):
    """Writes files of class B: one that is open over the lock, and new ones."""
    os.umask(0o022)
    base = os.path.abspath(base)
    with open(f"{base}/class B/open over the lock", "wb", buffering=0) as file:
        file.write(content(400, "before the lock"))
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        try:
            open(f"{base}/class A/1 bytes", "rb").close()
            sys.exit("the volume is not locked")
        except PermissionError:
            pass
        file.write(content(700, "behind the lock"))
    for size in [0, 1, 1_000]:
        write(f"{base}/class B/{size} bytes, made while locked", content(size, f"locked {size}"))
    write(f"{base}/class B/" + "locked" * 35, content(500, "locked, a long name"))
    os.mkdir(f"{base}/class B/directory made while locked")
    write(f"{base}/class B/directory made while locked/inside", content(500, "locked, inside"))
    with open(f"{base}/own class/B, made while locked", "xb") as file:
        set_class(file.fileno(), "B")
        file.write(content(600, "locked, own class"))


def later(base):
    """Changes the tree as a program does with this version or a later one."""
    os.chdir(base)
    with open("content/many pages", "r+b") as file:
        file.seek(65_432)
        file.write(content(10_000, "later"))
    with open("content/grown", "ab") as file:
        file.write(content(5_000, "later"))
    os.truncate("content/shortened", 100)
    os.truncate("sparse/hole", 600_000)
    for letter in CLASSES:
        with open(f"class {letter}/0 bytes", "wb") as file:
            file.write(content(5_000, "later"))
        write(f"class {letter}/" + "later" * 40, content(5_000, "later"))
        set_class(f"own class/{letter} 5000", "C")
    os.rename("links/two", "names/" + "renamed" * 30)
    os.unlink("names/" + "n" * 255)
    os.setxattr("attributes/file", "user.comment", b"changed")
    os.removexattr("attributes/file", "user.empty")
    os.chmod("modes/file 0644", 0o400)
    os.chmod("modes/file 0444", 0o644)
    os.mkdir("later")
    os.rename("moved/directory", "later/directory")
    if os.path.isdir("synchronised"):
        write("synchronised/inside/later", content(900, "later, synchronised"))
        try:
            set_class("synchronised/inside/later", "A")
            sys.exit("class A was set in a directory that is synchronised")
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
        os.removexattr("synchronised, class D", MARK)
        set_class("synchronised, class D", "B")
        os.setxattr("later", MARK, b"marked")


def walk(base):
    """(path, status) of `base` and everything below it, a directory before its entries."""
    pending = [base]
    while pending:
        path = pending.pop()
        status = os.lstat(path)
        yield path, status
        if stat.S_ISDIR(status.st_mode):
            try:
                names = sorted(os.listdir(path), reverse=True)
            except PermissionError:
                continue
            pending += [os.path.join(path, name) for name in names]


def digest(path, size):
    """SHA-256 of a file that may be mostly holes: over (offset, data) of the pieces that are not zeros."""
    found = hashlib.sha256(str(size).encode())
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NOATIME)
    except PermissionError:
        return None
    with open(descriptor, "rb") as file:
        at = 0
        while at < size:
            try:
                at = os.lseek(descriptor, at, os.SEEK_DATA) // 65_536 * 65_536
            except OSError:
                break
            piece = os.pread(descriptor, 65_536, at)
            if any(piece):
                found.update(at.to_bytes(8, "little") + piece)
            at += 65_536
    return found.hexdigest()


def describe(path, name, status, links):
    mode = status.st_mode
    entry = {
        "path": name.decode("utf-8", "surrogateescape"), "mode": f"{mode:o}", "modified": status.st_mtime_ns,
        "owner": [status.st_uid, status.st_gid],
    }
    if stat.S_ISLNK(mode):
        entry["target"] = os.fsencode(os.readlink(path)).decode("utf-8", "surrogateescape")
        return entry
    if stat.S_ISREG(mode):
        entry["size"] = status.st_size
        entry["content"] = digest(path, status.st_size)
        if status.st_nlink > 1:
            # Later names refer to the file's first one.
            entry["same as"] = links.setdefault((status.st_dev, status.st_ino), entry["path"])
    if stat.S_ISDIR(mode) and not os.access(path, os.R_OK | os.X_OK):
        entry["unlisted"] = True
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        entry["device"] = status.st_rdev
    attributes = {}
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        for attribute in os.listxattr(path, follow_symlinks=False):
            # Without the labels that the machine's security modules give every file.
            if not attribute.startswith("security.") and attribute not in ("user.ward.volume", "user.ward.socket"):
                try:
                    attributes[attribute] = os.getxattr(path, attribute, follow_symlinks=False).hex()
                except PermissionError:
                    entry["class"] = entry["attributes"] = None
                    break
        else:
            entry["class"] = bytes.fromhex(attributes.pop("user.ward.class", "")).decode()
            entry["attributes"] = attributes
    if stat.S_ISDIR(mode):
        try:
            entry["synchronised"] = os.getxattr(path, MARK, follow_symlinks=False).decode()
        except OSError:
            pass
    return entry


def manifest(base):
    links = {}
    base = os.fsencode(base)
    entries = [(os.path.relpath(path, base), path, status) for path, status in walk(base)]
    return [describe(path, name, status, links) for name, path, status in sorted(entries)]


def differences(expected, found, ignored):
    """Lines with the differences; entries that one side could not read are not compared."""
    expected, found = ({entry["path"]: entry for entry in entries} for entries in (expected, found))
    unlisted = tuple(path + "/" for entries in (expected, found) for path, entry in entries.items() if "unlisted" in entry)
    for path in sorted(expected.keys() | found.keys()):
        if path.startswith(unlisted):
            continue
        if path not in found or path not in expected:
            yield f"{path!r}: only in {'the manifest' if path in expected else 'the directory'}"
            continue
        left, right = expected[path], found[path]
        for key in sorted(left.keys() | right.keys()):
            # ward's own files come and go in the root, so its times are not compared.
            if (path, key) == (".", "modified") or key in ignored:
                continue
            one, other = left.get(key), right.get(key)
            if one != other and key != "unlisted" and not (key in left and key in right and None in (one, other)):
                yield f"{path!r}: {key}: {one} expected, {other} found"


def main():
    command, *rest = sys.argv[1:]
    if command == "make":
        make(rest[0], 40 if "--small" in rest else 1)
    elif command == "synchronise":
        synchronise(rest[0])
    elif command == "lock":
        lock(rest[0], rest[1:])
    elif command == "continue":
        later(rest[0])
    elif command == "manifest":
        for entry in manifest(rest[0]):
            print(json.dumps(entry, sort_keys=True))
    elif command == "marks":
        marked, listed = (
            [entry["path"] for entry in map(json.loads, open(path)) if entry.get("synchronised") in ("marked", True)]
            for path in rest)
        lines = [f"{path!r}: synchronised in one only" for path in sorted(set(marked) ^ set(listed))]
        print("\n".join(lines or [f"{len(listed)} directories are marked"]))
        sys.exit(1 if lines else 0)
    elif command == "compare":
        with open(rest[0]) as file:
            expected = [json.loads(line) for line in file]
        found = manifest(rest[1])
        ignored = {"owner"} if "--any-owner" in rest else set()
        ignored |= {"synchronised"} if "--no-marks" in rest else set()
        lines = list(differences(expected, found, ignored))
        print("\n".join(lines[:50] or [f"{len(found)} names are as expected"]))
        sys.exit(1 if lines else 0)


main()
