"""The file systems that the benchmarks put side by side, and what all of them need around them: a scratch directory on tmpfs
that is always cleaned up, the compiled load generator, and a look at how busy the machine is."""

import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

import isolation

ROOT = pathlib.Path(__file__).resolve().parent.parent
PASSCODE = "correct horse battery staple"


class System:
    """Shows files in `mountpoint`. What it stores lies on `disk`, or in the scratch directory where there is none."""

    name = ""
    # The command that has to be there, and Debian's package of it.
    program: str | None = None
    # Encrypts: one of those that ward is compared with.
    is_peer = False

    def __init__(self, scratch: pathlib.Path, options, disk: pathlib.Path | None = None) -> None:
        self.scratch = scratch
        self.options = options
        self.place = disk or scratch
        self.store = self.place / f"{self.name}-store"

    @classmethod
    def missing(cls) -> str | None:
        """Why it can't be measured here, if it can't."""
        return f"no {cls.program} here" if cls.program and not shutil.which(cls.program) else None

    @staticmethod
    def version(options) -> str:
        return ""


class Plain(System):
    """A directory, no mount at all: what the store itself can do."""

    name = "plain"

    def __init__(self, scratch: pathlib.Path, options, disk: pathlib.Path | None = None) -> None:
        super().__init__(scratch, options, disk)
        self.mountpoint = self.place / "plain"

    def create(self) -> None:
        self.mountpoint.mkdir()

    def mount(self) -> None:
        pass

    def unmount(self) -> None:
        pass

    def destroy(self) -> None:
        shutil.rmtree(self.mountpoint, ignore_errors=True)

    def processes(self) -> list[int]:
        return []


class Mounted(System):
    """What all the others have in common: a directory of ciphertext and a mount point."""

    def __init__(self, scratch: pathlib.Path, options, disk: pathlib.Path | None = None) -> None:
        super().__init__(scratch, options, disk)
        self.mountpoint = scratch / f"{self.name}-mount"
        self.passcode = scratch / "passcode"
        self.passcode.write_text(PASSCODE, encoding="utf-8")
        self.passcode.chmod(0o600)

    def create(self) -> None:
        self.mountpoint.mkdir(exist_ok=True)
        self.initialise()
        self.mount()

    def initialise(self) -> None:
        self.store.mkdir()

    def destroy(self) -> None:
        self.unmount()
        shutil.rmtree(self.store, ignore_errors=True)
        if self.mountpoint.exists():
            self.mountpoint.rmdir()

    def unmount(self) -> None:
        if not os.path.ismount(self.mountpoint):
            return
        servers = {process: start_time(process) for process in self.processes()}
        self.ask_to_unmount()
        for process, started in servers.items():
            wait_for_end(process, started)

    def ask_to_unmount(self) -> None:
        run("fusermount3", "-u", self.mountpoint)

    def processes(self) -> list[int]:
        return processes_with_argument(str(self.mountpoint), self.program)


class Passthrough(Mounted):
    """libfuse's own example, built from Debian's libfuse3-dev: FUSE without encryption. It caches as much as it offers."""

    name = "passthrough"
    source = pathlib.Path("/usr/share/doc/libfuse3-dev/examples/passthrough_ll.c")

    def __init__(self, scratch: pathlib.Path, options, disk: pathlib.Path | None = None) -> None:
        super().__init__(scratch, options, disk)
        self.program = "passthrough_ll"
        if not (scratch / self.program).exists():
            compile_fuse(self.source, scratch / self.program)

    @classmethod
    def missing(cls) -> str | None:
        if not cls.source.exists():
            return "no examples of libfuse3-dev here"
        return None if shutil.which("pkg-config") else "no pkg-config here"

    def mount(self) -> None:
        run(self.scratch / self.program, "-o", f"source={self.store},cache=always,xattr", self.mountpoint)

    @staticmethod
    def version(options) -> str:
        return f"libfuse {run('pkg-config', '--modversion', 'fuse3').strip()} passthrough_ll"


class Gocryptfs(Mounted):
    name = program = "gocryptfs"
    is_peer = True

    def initialise(self) -> None:
        super().initialise()
        # The cost of the password has no part in what is measured.
        run("gocryptfs", "-q", "-init", "-scryptn", "10", "-passfile", self.passcode, self.store)

    def mount(self) -> None:
        run("gocryptfs", "-q", "-passfile", self.passcode, self.store, self.mountpoint)

    @staticmethod
    def version(options) -> str:
        return run("gocryptfs", "-version").split(";")[0]


class Securefs(Mounted):
    name = program = "securefs"
    is_peer = True

    def initialise(self) -> None:
        super().initialise()
        run("securefs", "create", "--pbkdf", "pkcs5-pbkdf2-hmac-sha256", "-r", "1000", "--keyfile", self.passcode, self.store)

    def mount(self) -> None:
        run("securefs", "mount", "-b", "--log", self.scratch / "securefs.log", "--keyfile", self.passcode, self.store,
            self.mountpoint)

    @staticmethod
    def version(options) -> str:
        return f"securefs {debian_version('securefs')}"


class Encfs(Mounted):
    name = program = "encfs"
    is_peer = True

    def initialise(self) -> None:
        super().initialise()
        self.mount()  # Where there is no volume this makes one, of the standard kind.
        self.unmount()

    def mount(self) -> None:
        run("encfs", "--standard", "--stdinpass", self.store, self.mountpoint, stdin=self.passcode)

    @staticmethod
    def version(options) -> str:
        return f"encfs {debian_version('encfs')}"


class Ward(Mounted):
    """Its requests come by /dev/fuse, as where root has not allowed another way."""

    name = "ward"
    transport = "device"

    def __init__(self, scratch: pathlib.Path, options, disk: pathlib.Path | None = None) -> None:
        super().__init__(scratch, options, disk)
        self.program = options.ward
        self.left_out = getattr(options, "without_rules", None) if self.name != "ward-before" else None
        self.environment = {
            **os.environ,
            "XDG_STATE_HOME": str(self.place / "state"),
            "XDG_RUNTIME_DIR": str(scratch / "run"),
        }
        (scratch / "run").mkdir(mode=0o700, exist_ok=True)

    @classmethod
    def missing(cls) -> str | None:
        return None

    def ward(self, *words) -> str:
        return run(self.program, *words, environment=self.environment)

    def initialise(self) -> None:
        self.ward("init", self.store, "--passcode-file", self.passcode)

    def mount(self) -> None:
        self.ward("mount", self.store, self.mountpoint, *self.transport_words(), *self.rule_words())
        self.ward("unlock", self.mountpoint, "--passcode-file", self.passcode)

    def transport_words(self) -> list[str]:
        # Older programs don't know the option, and mean the same.
        return [] if self.transport == "auto" else ["--transport", self.transport]

    def rule_words(self) -> list[str]:
        return ["--without-rules", self.left_out] if self.left_out else []

    def ask_to_unmount(self) -> None:
        self.ward("unmount", self.mountpoint)

    def processes(self) -> list[int]:
        """The daemon first, then its watchdog."""
        for path in (self.scratch / "run" / "ward").glob("*.json"):
            description = json.loads(path.read_text(encoding="utf-8"))
            if description["mountpoint"] == str(self.mountpoint):
                return [description["pid"], *children(description["pid"])]
        return []

    @staticmethod
    def version(options) -> str:
        return run(options.ward, "version").splitlines()[0]


class WardByRing(Ward):
    """Its requests come by io_uring."""

    name = "ward-ring"
    transport = "io-uring"

    @classmethod
    def missing(cls) -> str | None:
        return None if isolation.IO_URING.exists() else "this kernel has no FUSE over io_uring"

    @staticmethod
    def version(options) -> str:
        return ""


class NewerWard(Ward):
    """To compare with another build: both take what there is, and WARD_TRANSPORT, which `scripts/over-io-uring` sets."""

    transport = "auto"


class OlderWard(NewerWard):
    """Another build, to compare with."""

    name = "ward-before"

    def __init__(self, scratch: pathlib.Path, options, disk: pathlib.Path | None = None) -> None:
        super().__init__(scratch, options, disk)
        self.program = options.against

    @staticmethod
    def version(options) -> str:
        return run(options.against, "version").splitlines()[0]


class SameByRing(WardByRing):
    """In the place of a newer build."""

    name = "ward"


class SameByDevice(Ward):
    """In the place of an older build."""

    name = "ward-before"


SYSTEMS = {kind.name: kind for kind in (Ward, WardByRing, Plain, Passthrough, Gocryptfs, Securefs, Encfs)}


class Scratch:
    """A private directory on tmpfs; whatever happens, nothing stays mounted in it and it is removed."""

    def __init__(self, parent: str) -> None:
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="ward-bench-", dir=parent))
        kind = run("stat", "-f", "-c", "%T", self.path).strip()
        if kind != "tmpfs":
            print(f"note: {parent} is {kind}, not tmpfs: figures will show that store, too", file=sys.stderr)

    def __enter__(self) -> pathlib.Path:
        return self.path

    def __exit__(self, *_) -> None:
        for line in pathlib.Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
            mountpoint = line.split()[1]
            if mountpoint.startswith(str(self.path) + "/"):
                subprocess.run(["fusermount3", "-u", "-z", mountpoint], check=False)
        shutil.rmtree(self.path, ignore_errors=True)


class Load:
    """The compiled load generator."""

    def __init__(self, scratch: pathlib.Path) -> None:
        self.program = scratch / "load"
        sources = sorted((ROOT / "benchmarks" / "load").glob("*.c"))
        run(os.environ.get("CC", "cc"), "-O2", "-Wall", "-o", self.program, *sources, "-lsqlite3")

    def __call__(self, verb: str, path: pathlib.Path, *numbers: int) -> float:
        """Runs one verb and returns the seconds of its timed part."""
        return float(run(self.program, verb, path, *numbers).split()[0])


def compile_fuse(source: pathlib.Path, program: pathlib.Path, *flags) -> None:
    libfuse = shlex.split(run("pkg-config", "fuse3", "--cflags", "--libs"))
    run(os.environ.get("CC", "cc"), "-O2", "-w", "-DHAVE_POSIX_FALLOCATE", *flags, source, "-o", program, *libfuse)


def debian_version(package: str) -> str:
    found = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True, check=False)
    return found.stdout or "of this system"


def run(*words, environment=None, stdin: pathlib.Path | None = None) -> str:
    command = [str(word) for word in words]
    with open(stdin or os.devnull, "rb") as given:
        result = subprocess.run(
            command, env=environment, stdin=given, capture_output=True, text=True, check=False, errors="replace")
    if result.returncode:
        sys.exit(f"error: status {result.returncode} from: {' '.join(command)}\n{result.stdout[-2000:]}{result.stderr[-2000:]}")
    return result.stdout


def processes_with_argument(argument: str, program: str) -> list[int]:
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if argument.encode() in words and pathlib.Path(words[0].decode()).name == program:
            found.append(int(path.parent.name))
    return found


def children(process: int) -> list[int]:
    try:
        text = pathlib.Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii")
    except OSError:
        return []
    return [int(word) for word in text.split()]


def wait_for_end(process: int, started: str | None) -> None:
    """Waits until the process, and not another that got its number since, has ended."""
    for _ in range(6000):
        if started is None or start_time(process) != started:
            return
        time.sleep(0.01)
    words = pathlib.Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    sys.exit(f"error: process {process} is still there a minute after its unmount: {words}")


def start_time(process: int) -> str | None:
    """When a process began, in ticks since boot; None where it has ended."""
    try:
        fields = pathlib.Path(f"/proc/{process}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]


def busy_share(seconds: float) -> float:
    """How much of all CPUs others use right now, from 0 to 1."""

    def sample() -> tuple[int, int]:
        with open("/proc/stat", encoding="ascii") as file:
            figures = [int(word) for word in file.readline().split()[1:9]]
        return sum(figures), figures[3] + figures[4]

    total, idle = sample()
    time.sleep(seconds)
    total_after, idle_after = sample()
    return 1 - (idle_after - idle) / max(1, total_after - total)


def wait_until_quiet(limit_seconds: float) -> bool:
    """Waits until others use less than a tenth of the machine, at most `limit_seconds`; whether they do."""
    end = time.monotonic() + limit_seconds
    while busy_share(0.3) > 0.1:
        if time.monotonic() > end:
            return False
        time.sleep(0.5)
    return True


def machine() -> str:
    model = "unknown processor"
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    kernel = ".".join(os.uname().release.split(".")[:2])
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} CPUs ({model}), {memory:.0f} GiB of memory, kernel {kernel}"


def size(text: str) -> int:
    """Bytes from 1048576, 512K, 256M or 1G."""
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    return int(text[:-1]) * units[text[-1].upper()] if text[-1].upper() in units else int(text)


def write_section(path: pathlib.Path, name: str, text: str) -> None:
    """Replaces what stands between the two markers of a section in a Markdown file."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    document = path.read_text(encoding="utf-8")
    head, rest = document.split(begin)
    _, tail = rest.split(end)
    path.write_text(f"{head}{begin}\n{text.strip()}\n{end}{tail}", encoding="utf-8")
