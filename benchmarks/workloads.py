"""The rows of `make bench`: what is done, in which order, on which file system, and what is asked of ward."""

import dataclasses
import pathlib
import random


# How much of everything: in minutes, and in half an hour.
QUICK = {"size": 64 << 20, "random": 2_000, "appends": 100, "files": 1_000, "tree": 500, "wal": 40, "rollback": 20,
         "names": 4_000, "rounds": 1, "patience": 20, "disk_size": 1 << 30, "deadline": 240}
FULL = {"size": 1 << 30, "random": 20_000, "appends": 1_000, "files": 10_000, "tree": 5_000, "wal": 400, "rollback": 100,
        "names": 50_000, "rounds": 3, "patience": 300, "disk_size": 4 << 30, "deadline": None}
BLOCK = 4096
# Of ext4: what a cold row can't do without reading. An entry of a directory of such names takes more.
INODE, ENTRY = 256, 24


@dataclasses.dataclass(frozen=True)
class Row:
    key: str
    words: str
    # Multiples of plain ext4's time: at most this for ward; what the fastest of the others took when the target was set.
    target: float
    others: float
    # Programs were told that something is durable: the device has to be flushed as often as for ext4.
    syncs: bool = False


ROWS = [
    Row("write", "sequential write of {size} + fsync", 1.2, 1.6, syncs=True),
    Row("read-cold", "sequential read of {size}, cold", 1.3, 1.6),
    Row("read-warm", "the same, warm, a second open", 1.1, 10),
    Row("random-read-1", "random 4 KiB read, cold", 1.2, 1.4),
    Row("random-read-4", "the same, 4 jobs", 1.3, 1.5),
    Row("random-write-1", "random 4 KiB write + fsync", 3, 6.1, syncs=True),
    Row("random-write-4", "the same, 4 jobs", 3.5, 6.7, syncs=True),
    Row("append", "4 KiB append + fdatasync", 1.15, 1.2, syncs=True),
    Row("share", "4 processes, 16 KiB, 70 % read, cold", 1.2, 1.5, syncs=True),
    Row("create", "create {files} files of 4 KiB", 3.5, 5.3),
    Row("walk", "walk and stat them, cold", 1.8, 2.5),
    Row("read-files", "read them all, cold", 2.0, 3.0),
    Row("delete", "delete {files} files", 2.2, 3.3),
    Row("untar", "untar {tree} files", 4.5, 7.3),
    Row("git", "git init, add, commit of them", 2.0, 3.0, syncs=True),
    Row("git-status-cold", "git status, cold", 2.5, 3.7),
    Row("git-status-warm", "git status, warm", 2, 4.3),
    Row("sqlite-wal", "SQLite, {wal} WAL transactions", 2.0, 3.0, syncs=True),
    Row("sqlite-rollback", "SQLite, {rollback} rollback transactions", 1.7, 2.6, syncs=True),
    Row("rsync", "rsync -a of {tree} files in", 4, 6.4),
    Row("create-many", "create {names} files in one directory", 4, 6.2),
    Row("ls", "ls -lR of it, cold", 3, 5.4),
    Row("find", "find in it, cold", 2, 2.3),
]


def large(cell) -> None:
    size, count = cell.options.size, cell.options.random
    cell.row("write", "stream-write", "large", size)
    cell.cold()
    cell.row("read-cold", "stream-read", "large", size, reads=size)
    cell.row("read-warm", "stream-read", "large", size)
    cell.cold()
    cell.row("random-read-1", "random-read", "large", size, count, 1, reads=count * BLOCK)
    cell.load("check", "large", size, 1)
    cell.row("random-write-1", "random-write", "large", size, count, 1)
    cell.cold()
    cell.load("random-check", "large", size, count, 1)


def jobs(cell) -> None:
    size, count = cell.options.size, cell.options.random
    cell.load("fill", "shares", size, 4)
    cell.cold()
    cell.row("random-read-4", "random-read", "shares", size, count, 4, reads=count // 4 * 4 * BLOCK)
    cell.load("check", "shares", size, 4)
    cell.row("random-write-4", "random-write", "shares", size, count, 4)
    cell.cold()
    cell.load("random-check", "shares", size, count, 4)
    cell.load("fill", "shares", size, 4)
    cell.cold()
    cell.row("share", "share", "shares", size, count // 2, 4, reads=count * BLOCK // 2)
    cell.cold()
    cell.load("share-check", "shares", size, count // 2, 4)


def appends(cell) -> None:
    cell.row("append", "append", "journal", cell.options.appends)
    cell.cold()
    cell.load("append-check", "journal", cell.options.appends)


def files(cell) -> None:
    count = cell.options.files
    (cell.path / "files").mkdir()
    cell.row("create", "files-create", "files", count)
    cell.cold()
    cell.row("walk", "files-walk", "files", count, reads=count * INODE // 2)
    cell.cold()
    cell.row("read-files", "files-read", "files", count, reads=count * BLOCK)
    cell.row("delete", "files-remove", "files", count)


def tree(cell) -> None:
    source = cell.scratch / "tree"
    archive = cell.scratch / "tree.tar"
    if not archive.exists():
        make_tree(source, cell.options.tree)
        cell.quietly("tar", "-cf", archive, "-C", source, ".")
    work, copy = cell.path / "work", cell.path / "copy"
    work.mkdir()
    cell.command("untar", "tar", "-xf", archive, "-C", work)
    cell.command("git", "sh", "-ec", f'cd "{work}" && git init -q -b main && git add . && git commit -q -m all')
    cell.cold()
    status = ("git", "-C", work, "status", "--porcelain")
    expect(cell.command("git-status-cold", *status, reads=cell.options.tree * INODE // 2), "", "git status")
    expect(cell.command("git-status-warm", *status, times=5), "", "git status")
    cell.quietly("git", "-C", work, "fsck", "--full")
    cell.command("rsync", "rsync", "-a", f"{source}/", copy)
    cell.cold()
    cell.quietly("diff", "-r", "-x", ".git", source, work)
    cell.quietly("diff", "-r", source, copy)


def sqlite(cell) -> None:
    for journal, count in (("wal", cell.options.wal), ("rollback", cell.options.rollback)):
        cell.row(f"sqlite-{journal}", f"sqlite-{journal}", f"{journal}.db", count)
    cell.cold()
    for journal, count in (("wal", cell.options.wal), ("rollback", cell.options.rollback)):
        cell.load("sqlite-check", f"{journal}.db", count)


NAME_BYTES = 100


def directory(cell) -> None:
    names, inbox = cell.options.names, cell.path / "inbox"
    inbox.mkdir()
    cell.row("create-many", "names-create", "inbox", names, NAME_BYTES)
    cell.cold()
    listed = cell.command("ls", "ls", "-lR", inbox, reads=names * INODE // 2).splitlines()
    expect(len([line for line in listed if line.startswith("-")]), names, "ls")
    cell.cold()
    expect(len(cell.command("find", "find", inbox, "-name", "message*", reads=names * ENTRY).splitlines()), names, "find")
    cell.load("names-check", "inbox", names, NAME_BYTES)


# Each begins on an empty file system.
GROUPS = {"large": large, "jobs": jobs, "appends": appends, "files": files, "tree": tree, "sqlite": sqlite,
          "directory": directory}


def expect(found, expected, what: str) -> None:
    if found != expected:
        raise SystemExit(f"error: {what} gave {str(found)[:200]!r} instead of {expected!r}")


def make_tree(root: pathlib.Path, count: int) -> None:
    """Files such as source trees have: text, half of them below 3 KB, a few of hundreds, some twenty to a directory."""
    chance = random.Random(8)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 9))) for _ in range(4000)]
    root.mkdir()
    for number in range(count):
        place = root / f"part-{number // 400:02}" / f"module-{number // 20:03}"
        place.mkdir(parents=True, exist_ok=True)
        size = min(int(chance.lognormvariate(8, 1.3)), 400_000)
        text = " ".join(chance.choices(words, k=size // 7 + 1))[:size]
        (place / f"{chance.choice(words)}-{number}.txt").write_text(text, encoding="ascii")
