"""What programs do to a file system while the power goes, and what has to be found afterwards.

A workload is a list of operations that a seed decides. Before each and after each a mark goes to the recorder's log, so a
place in the log says which had begun and which were done. What an operation that was done had synced has to be there; what was
done later may be there, old or new, piece by piece; nothing else may. The rules are those of docs/durability.md, but for what
only ward promises: a name is synced by fsync of its directory.
"""

import contextlib
import errno
import mmap
import os
import pathlib
import random
import sqlite3
import subprocess

from disks import opened, sync


class Findings:
    """What a judge found: what had been synced and is lost or other bytes, and what could not be read."""

    def __init__(self) -> None:
        self.losses: list[str] = []
        self.refused: list[str] = []

    def lost(self, text: str) -> None:
        self.losses.append(text)


class Content:
    """What one file held after each operation, and which of that was synced."""

    def __init__(self, data: bytes = b"") -> None:
        # (operation, bytes): from the time this operation begins the file may hold this.
        self.states: list[tuple[int, bytes]] = [(-1, data)]
        # (operation, index of the state): when this operation is done, nothing older is allowed.
        self.synced: list[tuple[int, int]] = [(-1, 0)]

    @property
    def now(self) -> bytes:
        return self.states[-1][1]

    def write(self, operation: int, offset: int, data: bytes) -> None:
        old = self.now.ljust(offset, b"\0")
        self.states.append((operation, old[:offset] + data + old[offset + len(data) :]))

    def truncate(self, operation: int, size: int) -> None:
        self.states.append((operation, self.now[:size].ljust(size, b"\0")))

    def sync(self, operation: int) -> None:
        self.synced.append((operation, len(self.states) - 1))

    def allowed(self, begun: int, done: int) -> list[bytes]:
        first = max(index for operation, index in self.synced if operation < done)
        return [data for operation, data in self.states[first:] if operation < begun]

    @staticmethod
    def problem(found: bytes, allowed: list[bytes]) -> str | None:
        """Each byte as one of the writes since left it; zeros where the file was once no longer than that."""
        if found in allowed:
            return None
        shortest, longest = min(map(len, allowed)), max(map(len, allowed))
        if not shortest <= len(found) <= longest:
            return f"{len(found)} bytes instead of {shortest} to {longest}"
        for at in range(0, len(found), 64):
            piece = found[at : at + 64]
            if any(data[at : at + 64] == piece for data in allowed):
                continue
            for place, byte in enumerate(piece, at):
                if byte == 0 and place >= shortest:
                    continue
                if not any(place < len(data) and data[place] == byte for data in allowed):
                    return f"byte {place} of {len(found)} is none of those written since the last sync"
        return None


class Workload:
    """One kind of use. Subclasses plan an operation, do it, and judge what is found."""

    name = ""
    ward_only = False
    operations = 60

    def __init__(self, root: pathlib.Path, chance: random.Random, system) -> None:
        self.root, self.chance, self.system = root, chance, system

    def prepare(self) -> None:
        """The state before the first operation; what runs it syncs everything afterwards."""

    def step(self, operation: int) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        """Closes what is open."""

    def judge(self, begun: int, done: int, findings: Findings) -> None:
        raise NotImplementedError

    # Helpers

    def some(self, low: int, high: int) -> bytes:
        """Never zeros: those have a meaning of their own."""
        return self.chance.randbytes(self.chance.randint(low, high)).replace(b"\0", b"\1")

    def read(self, path: pathlib.Path, findings: Findings, what: str) -> bytes | None:
        try:
            return path.read_bytes()
        except OSError as error:
            findings.lost(f"{what}: {errno.errorcode.get(error.errno, error.errno)}")
            return None

    def exists(self, path: pathlib.Path, findings: Findings) -> bool:
        try:
            return path.exists()
        except OSError as error:
            findings.refused.append(f"{path.name[:20]}: {errno.errorcode.get(error.errno)}")
            return False

    def compare(self, path: pathlib.Path, content: Content, begun: int, done: int, findings: Findings) -> None:
        allowed = content.allowed(begun, done)
        try:
            problem = Content.problem(path.read_bytes(), allowed)
        except OSError as error:
            what = errno.errorcode.get(error.errno, str(error.errno))
            problem = unreadable(path, allowed)
            if problem is None:
                findings.refused.append(f"{path.name}: {what}, but for nothing that was synced")
            else:
                problem = f"{what}: {problem}"
        if problem:
            findings.lost(f"{path.name}: {problem}")


def unreadable(path: pathlib.Path, allowed: list[bytes]) -> str | None:
    """What of a file that was synced, and not written since, can't be read."""
    shortest = min(map(len, allowed))
    try:
        with opened(path) as file:
            for at in range(0, shortest, 512):
                try:
                    os.pread(file, 512, at)
                except OSError:
                    for window in range(at, min(at + 512, shortest), 16):
                        if len({data[window : min(window + 16, shortest)] for data in allowed}) == 1:
                            return f"byte {window}, synced and not written since"
    except OSError:
        return "can't be opened" if shortest else None
    return None


def write_file(path: pathlib.Path, data: bytes) -> None:
    with opened(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as file:
        written = 0
        while written < len(data):
            written += os.write(file, data[written:])
        os.fsync(file)


class FileWorkload(Workload):
    """A few files that stay where they are; each operation changes one, some sync it."""

    files = 3
    first_bytes = (0, 0)

    def prepare(self) -> None:
        self.contents = {f"file{number}": Content(self.some(*self.first_bytes)) for number in range(self.files)}
        for name, content in self.contents.items():
            write_file(self.root / name, content.now)
        self.descriptors = {name: os.open(self.root / name, os.O_RDWR | os.O_CLOEXEC) for name in self.contents}

    def step(self, operation: int) -> None:
        name = self.chance.choice(list(self.contents))
        content, file = self.contents[name], self.descriptors[name]
        self.change(operation, content, file)
        if self.chance.random() < 0.5:
            (os.fsync if self.chance.random() < 0.7 else os.fdatasync)(file)
            content.sync(operation)
        elif self.chance.random() < 0.1:
            # Closed and opened: the hint of the size, and what else waits for the last close.
            os.close(file)
            self.descriptors[name] = os.open(self.root / name, os.O_RDWR | os.O_CLOEXEC)

    def change(self, operation: int, content: Content, file: int) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        for file in self.descriptors.values():
            os.close(file)

    def judge(self, begun: int, done: int, findings: Findings) -> None:
        for name, content in self.contents.items():
            self.compare(self.root / name, content, begun, done, findings)

    def write(self, operation: int, content: Content, file: int, offset: int, data: bytes) -> None:
        content.write(operation, offset, data)
        while data:
            written = os.pwrite(file, data, offset)
            offset, data = offset + written, data[written:]


class Appends(FileWorkload):
    name = "appends"
    first_bytes = (0, 9000)

    def change(self, operation: int, content: Content, file: int) -> None:
        self.write(operation, content, file, len(content.now), self.some(1, self.chance.choice((60, 700, 9000))))


class Overwrites(FileWorkload):
    name = "overwrites"
    first_bytes = (12000, 60000)

    def change(self, operation: int, content: Content, file: int) -> None:
        size = len(content.now)
        data = self.some(1, self.chance.choice((60, 700, 9000)))
        offset = self.chance.randrange(0, size - len(data)) if size > len(data) else 0
        data = data[: size - offset]
        if self.chance.random() < 0.2:
            content.write(operation, offset, data)
            with mmap.mmap(file, size) as mapping:
                mapping[offset : offset + len(data)] = data
                # On the way as far as pwrite: only fsync promises more.
                mapping.flush()
            return
        self.write(operation, content, file, offset, data)


class Truncations(FileWorkload):
    name = "truncate"
    first_bytes = (1, 30000)

    def change(self, operation: int, content: Content, file: int) -> None:
        size = len(content.now)
        kind = self.chance.random()
        if kind < 0.35:
            target = self.chance.randint(0, size)
        elif kind < 0.45:
            target = 0
        elif kind < 0.6:
            target = size + self.chance.randint(1, 9000)
        else:
            # Behind the end, sometimes: a hole.
            offset = self.chance.randint(0, size + (5000 if self.chance.random() < 0.2 else 0))
            return self.write(operation, content, file, offset, self.some(1, 9000))
        target = min(target, 60000)
        content.truncate(operation, target)
        os.ftruncate(file, target)


class Attributes(FileWorkload):
    """Attributes and modes of files; each is old or new."""

    name = "attributes"
    first_bytes = (0, 5000)

    def prepare(self) -> None:
        super().prepare()
        # (file, attribute) -> value, None where there is none; modes under the attribute "mode".
        self.values = {(name, key): Content(b"-") for name in self.contents for key in ("user.a", "user.b", "user.cc", "mode")}
        for name in self.contents:
            os.chmod(self.root / name, 0o600)
            self.values[name, "mode"] = Content(b"600")

    def step(self, operation: int) -> None:
        name, key = self.chance.choice(list(self.values))
        value, path = self.values[name, key], self.root / name
        if key == "mode":
            mode = self.chance.choice((0o600, 0o640, 0o444, 0o755, 0o000))
            value.states.append((operation, b"%o" % mode))
            os.chmod(path, mode)
        elif value.now != b"-" and self.chance.random() < 0.3:
            value.states.append((operation, b"-"))
            os.removexattr(path, key)
        else:
            # ext4 has a block of 4 KiB for all of a file's.
            data = self.some(1, self.chance.choice((20, 300, 1100)))
            value.states.append((operation, data))
            os.setxattr(path, key, data)
        if self.chance.random() < 0.3:
            content = self.contents[name]
            self.write(operation, content, self.descriptors[name], len(content.now), self.some(1, 500))
        if self.chance.random() < 0.5:
            os.fsync(self.descriptors[name])
            self.contents[name].sync(operation)
            for (other, _), synced in self.values.items():
                if other == name:
                    synced.sync(operation)

    def judge(self, begun: int, done: int, findings: Findings) -> None:
        super().judge(begun, done, findings)
        for (name, key), value in self.values.items():
            try:
                found = b"%o" % (os.stat(self.root / name).st_mode & 0o7777) if key == "mode" \
                    else os.getxattr(self.root / name, key)
            except OSError as error:
                if error.errno != errno.ENODATA:
                    findings.lost(f"{name}: {key}: {errno.errorcode[error.errno]}")
                    continue
                found = b"-"
            if found not in value.allowed(begun, done):
                findings.lost(f"{name}: {key} is neither the old nor the new one")


class Classes(FileWorkload):
    """Classes of files and directories, while the files are written to."""

    name = "classes"
    ward_only = True
    first_bytes = (0, 9000)
    # Weaker to stronger. The others are stronger than D and weaker than A.
    strength = {"D": 0, "C": 1, "CX": 1, "B": 1, "A": 2}

    def prepare(self) -> None:
        super().prepare()
        self.classes = {name: Content(b"C") for name in self.contents}
        self.created: list[tuple[int, str, bytes, str]] = []
        (self.root / "directory").mkdir()
        self.directory = "C"

    def step(self, operation: int) -> None:
        name = self.chance.choice(list(self.contents))
        kind = self.chance.random()
        if kind < 0.2:
            # A directory gets a class, and a file is made in it.
            self.directory = self.chance.choice(list(self.strength))
            directory = self.root / "directory"
            os.setxattr(directory, "user.ward.class", self.directory.encode())
            data = self.some(1, 6000)
            self.created.append((operation, f"new{operation}", data, self.directory))
            write_file(directory / f"new{operation}", data)
            return sync(directory)
        if kind < 0.6:
            return super().step(operation)
        value = self.classes[name]
        old, new = value.now.decode(), self.chance.choice(list(self.strength))
        value.states.append((operation, new.encode()))
        if self.chance.random() < 0.4:
            # As `ward class set -R` does it: many, and then one sync for all.
            unsynced = "user.ward.class.unsynced"
            mark = os.getxattr(self.root / name, unsynced)
            os.setxattr(self.root / name, unsynced, new.encode())
            if self.chance.random() < 0.5:
                os.setxattr(self.root / name, unsynced, mark)
                for each in self.classes.values():
                    each.sync(operation)
            return
        os.setxattr(self.root / name, "user.ward.class", new.encode())
        if self.strength[new] > self.strength[old]:
            value.sync(operation)
        elif self.chance.random() < 0.3:
            os.fsync(self.descriptors[name])
            value.sync(operation)
            self.contents[name].sync(operation)

    def change(self, operation: int, content: Content, file: int) -> None:
        offset = self.chance.randint(0, len(content.now))
        self.write(operation, content, file, offset, self.some(1, 5000))

    def judge(self, begun: int, done: int, findings: Findings) -> None:
        super().judge(begun, done, findings)
        for name, value in self.classes.items():
            self.check_class(self.root / name, [data.decode() for data in value.allowed(begun, done)], findings)
        for operation, name, data, letter in self.created:
            path = self.root / "directory" / name
            if operation < done:
                self.compare(path, Content(data), begun, done, findings)
            if operation < begun and self.exists(path, findings):
                self.check_class(path, [letter], findings)

    def check_class(self, path: pathlib.Path, allowed: list[str], findings: Findings) -> None:
        try:
            found = LETTERS.get(os.getxattr(path, "user.ward.class").decode(), "?")
        except OSError as error:
            return findings.lost(f"{path.name}: its class: {errno.errorcode[error.errno]}")
        if found not in allowed:
            findings.lost(f"{path.name}: class {found} instead of {' or '.join(allowed)}")


LETTERS = {"complete": "A", "completeUnlessOpen": "B", "completeUntilFirstUserAuthentication": "C", "none": "D",
           "completeWhenUserInactive": "CX",
           "NSFileProtectionComplete": "A", "NSFileProtectionCompleteUnlessOpen": "B",
           "NSFileProtectionCompleteUntilFirstUserAuthentication": "C", "NSFileProtectionNone": "D",
           "NSFileProtectionCompleteWhenUserInactive": "CX",
           **{letter: letter for letter in ("A", "B", "C", "D", "CX")}}


class Replacements(Workload):
    """Write to a temporary file, fsync, rename over the old one: always one whole version."""

    name = "replace"

    def prepare(self) -> None:
        self.versions = {f"file{number}": Content(self.some(1, 9000)) for number in range(3)}
        for name, content in self.versions.items():
            write_file(self.root / name, content.now)

    def step(self, operation: int) -> None:
        name = self.chance.choice(list(self.versions))
        content = self.versions[name]
        data = self.some(1, self.chance.choice((3000, 20000)))
        temporary = self.root / f".{name}.new"
        write_file(temporary, data)
        content.states.append((operation, data))
        os.rename(temporary, self.root / name)
        if self.chance.random() < 0.5:
            sync(self.root)
            for other in self.versions.values():
                other.sync(operation)

    def judge(self, begun: int, done: int, findings: Findings) -> None:
        for name, content in self.versions.items():
            found = self.read(self.root / name, findings, name)
            if found is not None and found not in content.allowed(begun, done):
                findings.lost(f"{name}: {len(found)} bytes that are no version since the last sync")


class NewFiles(Workload):
    """Files made and synced, some with long names or in new directories; they are there, or nothing of them was promised."""

    name = "new files"

    def prepare(self) -> None:
        self.files: list[tuple[int, pathlib.Path, bytes, bool]] = []
        self.directories = [self.root]

    def step(self, operation: int) -> None:
        directory = self.chance.choice(self.directories)
        if self.chance.random() < 0.15:
            directory = directory / f"directory{operation}"
            directory.mkdir()
            sync(directory.parent)
            self.directories.append(directory)
        name = (f"{operation:03}" * self.chance.choice((1, 1, 5, 70)))[: self.system.longest_name]
        data = self.some(0, self.chance.choice((100, 4000, 20000)))
        is_synced = self.chance.random() < 0.7
        self.files.append((operation, directory / name, data, is_synced))
        with opened(directory / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as file:
            for at in range(0, len(data), 5000):
                os.write(file, data[at : at + 5000])
            if is_synced:
                os.fsync(file)
        # ward and ext4 promise the name with the file.
        if is_synced and not (self.system.syncs_names and self.chance.random() < 0.5):
            sync(directory)

    def judge(self, begun: int, done: int, findings: Findings) -> None:
        for operation, path, data, is_synced in self.files:
            if operation >= begun:
                continue
            what = path.name[:12]
            if operation < done and is_synced:
                found = self.read(path, findings, what)
                if found is not None and found != data:
                    findings.lost(f"{what}: {Content.problem(found, [data]) or 'other bytes'}")
            elif self.exists(path, findings):
                found = self.read(path, findings, what)
                problem = found is not None and Content.problem(found, [b"", data])
                if problem:
                    findings.lost(f"{what}: {problem}")


class Removals(Workload):
    """Files are removed: they come back whole, or not; after fsync of the directory, not."""

    name = "unlink"
    operations = 40

    def prepare(self) -> None:
        self.contents = {f"file{number}": self.some(0, 9000) for number in range(self.operations)}
        for name, data in self.contents.items():
            write_file(self.root / name, data)
        # name -> (operation that removed it, operation that made that durable or None)
        self.removed: dict[str, list] = {}

    def step(self, operation: int) -> None:
        name = self.chance.choice([name for name in self.contents if name not in self.removed])
        self.removed[name] = [operation, None]
        os.unlink(self.root / name)
        if self.chance.random() < 0.4:
            sync(self.root)
            for times in self.removed.values():
                times[1] = operation if times[1] is None else times[1]

    def judge(self, begun: int, done: int, findings: Findings) -> None:
        for name, data in self.contents.items():
            operation, synced = self.removed.get(name, (begun, None))
            exists = self.exists(self.root / name, findings)
            if synced is not None and synced < done:
                if exists:
                    findings.lost(f"{name}: removed, synced, and there again")
            elif exists or operation >= begun:
                found = self.read(self.root / name, findings, name)
                if found is not None and found != data:
                    findings.lost(f"{name}: {len(found)} bytes, other ones")


class Directories(Workload):
    """Directories and files in them are made, moved and removed: what is found is the tree after one of the steps."""

    name = "directories"

    def prepare(self) -> None:
        # Path -> content of a file, or None for a directory.
        self.tree: dict[str, bytes | None] = {}
        for number in range(4):
            (self.root / f"d{number}").mkdir()
            self.tree[f"d{number}"] = None
            for inner in range(2):
                data = self.some(1, 5000)
                write_file(self.root / f"d{number}" / f"f{inner}", data)
                self.tree[f"d{number}/f{inner}"] = data
        self.trees: list[tuple[int, dict]] = [(-1, dict(self.tree))]
        self.synced = [(-1, 0)]

    def directories(self) -> list[str]:
        return [path for path, data in self.tree.items() if data is None]

    def step(self, operation: int) -> None:
        kind = self.chance.random()
        if kind < 0.3 or len(self.directories()) < 3:
            parent = self.chance.choice(["", *self.directories()])
            path = f"{parent}/n{operation}".lstrip("/")
            os.mkdir(self.root / path)
            self.tree[path] = None
        elif kind < 0.5:
            path = f"{self.chance.choice(self.directories())}/g{operation}"
            data = self.some(1, 5000)
            # Synced before it has its name, so that a name never stands for a part.
            write_file(self.root / f".new{operation}", data)
            self.trees.append((operation, {**self.tree, f".new{operation}": data}))
            os.rename(self.root / f".new{operation}", self.root / path)
            self.tree[path] = data
        elif kind < 0.85:
            path = self.chance.choice(list(self.tree))
            parents = [parent for parent in ["", *self.directories()] if not (parent + "/").startswith(path + "/")]
            target = f"{self.chance.choice(parents)}/m{operation}".lstrip("/")
            os.rename(self.root / path, self.root / target)
            moved = {name: data for name, data in self.tree.items() if (name + "/").startswith(path + "/")}
            for name, data in moved.items():
                del self.tree[name]
                self.tree[target + name[len(path) :]] = data
        else:
            path = self.chance.choice(list(self.tree))
            if any(name.startswith(path + "/") for name in self.tree):
                return
            (os.rmdir if self.tree[path] is None else os.unlink)(self.root / path)
            del self.tree[path]
        self.trees.append((operation, dict(self.tree)))
        if self.chance.random() < 0.4:
            for directory in ["", *self.directories()]:
                sync(self.root / directory)
            self.synced.append((operation, len(self.trees) - 1))

    def judge(self, begun: int, done: int, findings: Findings) -> None:
        found: dict[str, bytes | None] = {}
        first = max(index for operation, index in self.synced if operation < done)
        allowed = [tree for operation, tree in self.trees[first:] if operation < begun]
        closed: list[str] = []

        def refused(error: OSError) -> None:
            path = os.path.relpath(error.filename, self.root)
            closed.append(path)
            # One that was synced, though it may have been moved since.
            was_synced = any(path in tree for tree in allowed[:1]) or path not in allowed[-1]
            (findings.lost if was_synced else findings.refused.append)(f"directory {path}: {errno.errorcode.get(error.errno)}")

        for directory, names, files in os.walk(self.root, onerror=refused):
            below = os.path.relpath(directory, self.root)
            for name in names:
                found[os.path.normpath(f"{below}/{name}")] = None
            for name in files:
                path = os.path.normpath(f"{below}/{name}")
                found[path] = self.read(self.root / path, findings, path)
        if closed:
            return
        # The temporary name of a file on its way may be there with less in it.
        plain = {path: data for path, data in found.items() if not path.startswith(".new")}
        trees = [{path: data for path, data in tree.items() if not path.startswith(".new")} for tree in allowed]
        if plain in trees:
            return
        if self.system.orders_names:
            nearest = min(trees, key=lambda tree: len(tree.items() ^ plain.items()))
            different = sorted(path for path, _ in nearest.items() ^ plain.items())
            return findings.lost(f"a tree that never was; the nearest differs in {different[:4]}")
        for path in {path for tree in trees for path in tree}:
            wanted = [tree[path] for tree in trees if path in tree]
            if path not in plain:
                if len(wanted) == len(trees):
                    findings.lost(f"{path}: synced, and not there")
            elif plain[path] not in wanted:
                findings.lost(f"{path}: other bytes")


class Passcodes(Workload):
    """The passcode is changed, removed and set while class A files are written: the old one opens the volume or the new one."""

    name = "passcodes"
    ward_only = True
    operations = 6

    def prepare(self) -> None:
        self.secrets: list[tuple[int, str | None]] = [(-1, self.system.passcode)]
        self.file = Content(self.some(1, 9000))
        write_file(self.root / "file", self.file.now)
        os.setxattr(self.root / "file", "user.ward.class", b"A")

    def step(self, operation: int) -> None:
        old = self.secrets[-1][1]
        new = None if old and self.chance.random() < 0.25 else f"passcode {operation}"
        data = self.some(1, 9000)
        self.file.write(operation, 0, data)
        write_file_in_place(self.root / "file", data)
        self.file.sync(operation)
        self.secrets.append((operation, new))
        words = [self.system.view, "-q", "--no-input"]
        if old:
            words += ["--passcode-file", self.system.secret(old, "old")]
        if new:
            words += ["--new-passcode-file" if old else "--passcode-file", self.system.secret(new, "new")]
        self.system.must("passcode", "change" if old and new else "set" if new else "remove", *words)

    def candidates(self, begun: int, done: int) -> list[str | None]:
        """Those that may open the volume."""
        first = max(index for index, (operation, _) in enumerate(self.secrets) if operation < done)
        return [secret for operation, secret in self.secrets[first:] if operation < begun]

    def judge(self, begun: int, done: int, findings: Findings) -> None:
        self.compare(self.root / "file", self.file, begun, done, findings)


def write_file_in_place(path: pathlib.Path, data: bytes) -> None:
    with opened(path, os.O_WRONLY) as file:
        os.pwrite(file, data, 0)
        os.fsync(file)


class Databases(Workload):
    """SQLite with a write-ahead log and with a rollback journal: every transaction that was committed, and none in part."""

    name = "SQLite"
    operations = 40

    def prepare(self) -> None:
        self.connections = {}
        self.commits: dict[str, list[int]] = {"wal": [], "delete": []}
        for mode in self.commits:
            connection = sqlite3.connect(self.root / f"{mode}.db", isolation_level=None)
            connection.execute(f"PRAGMA journal_mode={mode}")
            # EXTRA: the directory is synced after the journal is gone.
            connection.execute("PRAGMA synchronous=EXTRA")
            connection.execute("CREATE TABLE entries (operation INTEGER, part INTEGER, text BLOB)")
            connection.execute("CREATE INDEX by_text ON entries (text)")
            self.connections[mode] = connection

    def step(self, operation: int) -> None:
        mode = self.chance.choice(list(self.connections))
        connection = self.connections[mode]
        connection.execute("BEGIN IMMEDIATE")
        for part in range(3):
            connection.execute("INSERT INTO entries VALUES (?, ?, ?)", (operation, part, self.some(10, 2500)))
        self.commits[mode].append(operation)
        connection.execute("COMMIT")
        if mode == "wal" and self.chance.random() < 0.15:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def finish(self) -> None:
        for connection in self.connections.values():
            connection.close()

    def judge(self, begun: int, done: int, findings: Findings) -> None:
        for mode, commits in self.commits.items():
            try:
                with contextlib.closing(sqlite3.connect(self.root / f"{mode}.db")) as connection:
                    verdict = connection.execute("PRAGMA integrity_check").fetchone()[0]
                    rows = connection.execute("SELECT operation, part FROM entries").fetchall()
            except sqlite3.Error as error:
                findings.lost(f"{mode}: {error}")
                continue
            if verdict != "ok":
                findings.lost(f"{mode}: {verdict}")
            for operation in commits:
                parts = sum(1 for row in rows if row[0] == operation)
                if parts not in ((3,) if operation < done else (0, 3) if operation < begun else (0,)):
                    findings.lost(f"{mode}: {parts} of 3 rows of transaction {operation}")


class Repositories(Workload):
    """git: commits, of which none is lost and the whole history can be read."""

    name = "git"
    operations = 8
    settings = ("-c", "core.fsync=all", "-c", "core.fsyncMethod=fsync", "-c", "user.name=ward", "-c", "user.email=ward@localhost",
                "-c", "gc.auto=0", "-c", "safe.directory=*", "-c", "init.defaultBranch=main")

    def git(self, *words) -> str:
        return self.try_git(*words, check=True).stdout

    def try_git(self, *words, check: bool = False) -> subprocess.CompletedProcess:
        environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
        return subprocess.run(["git", *self.settings, *words], cwd=self.root, env=environment, check=check, capture_output=True,
                              text=True, timeout=60)

    def prepare(self) -> None:
        self.git("init", "-q")
        # operation -> (commit, contents)
        self.commits: dict[int, tuple[str, dict[str, bytes]]] = {}
        self.files: dict[str, bytes] = {}
        self.step(-1)

    def step(self, operation: int) -> None:
        for number in range(3):
            self.files[f"file{number}"] = self.some(10, 5000)
            (self.root / f"file{number}").write_bytes(self.files[f"file{number}"])
        self.git("add", ".")
        self.git("commit", "-q", "-m", f"operation {operation}")
        # git syncs files, not the directories that it renames them in.
        for directory, _, _ in os.walk(self.root / ".git"):
            sync(directory)
        self.commits[operation] = (self.git("rev-parse", "HEAD").strip(), dict(self.files))

    def judge(self, begun: int, done: int, findings: Findings) -> None:
        if not self.root.is_dir():
            return findings.lost("the repository's directory is gone")
        history = self.try_git("log", "--format=%H %s")
        if history.returncode:
            return findings.lost(f"git log: {history.stderr.strip()}")
        subjects = [line.split(" ", 1) for line in history.stdout.splitlines()]
        found = {int(subject.removeprefix("operation ")): commit for commit, subject in subjects}
        for operation, (commit, contents) in self.commits.items():
            if operation >= done:
                continue
            if found.get(operation) != commit:
                findings.lost(f"commit of operation {operation} is not in the history")
                continue
            for name, data in contents.items():
                blob = subprocess.run(["git", *self.settings, "cat-file", "blob", f"{commit}:{name}"], cwd=self.root,
                                      capture_output=True, check=False)
                if blob.stdout != data:
                    findings.lost(f"{name} of operation {operation}: {blob.stderr.decode().strip() or 'other bytes'}")
        checked = self.try_git("fsck", "--full", "--no-dangling")
        if checked.returncode:
            findings.lost(f"git fsck: {checked.stderr.strip()}")


WORKLOADS = (Appends, Overwrites, Replacements, NewFiles, Removals, Truncations, Directories, Attributes, Classes, Passcodes,
             Databases, Repositories)
