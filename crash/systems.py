"""What is put on the disk: ward, other encrypted file systems, and nothing at all. Each keeps everything that it needs to open
again below one directory of the disk, and shows files in another."""

import json
import os
import pathlib
import shutil
import struct
import subprocess

import disks

PASSWORD = "correct horse battery staple"
SECONDS = 60


class Unmountable(Exception):
    """It did not open again."""


class System:
    """What all of them have in common."""

    name = ""
    packages: tuple[str, ...] = ()
    # The program; what has none is always there.
    program: str | None = None
    is_ward = False
    # fsync of a new file makes its name durable, too.
    syncs_names = False
    # Names reach the disk in the order in which they were changed, where the store below does that.
    orders_names = False
    longest_name = 255

    def __init__(self, disk: pathlib.Path, view: pathlib.Path, scratch: pathlib.Path, options) -> None:
        self.disk, self.scratch, self.options = disk, scratch, options
        self.store = disk / "store"
        self.view = view
        self.password = scratch / "password"
        self.password.write_text(PASSWORD, encoding="utf-8")

    def create(self) -> None:
        self.store.mkdir()

    def mount(self) -> None:
        raise NotImplementedError

    def unmount(self) -> None:
        if os.path.ismount(self.view):
            disks.unmount(self.view)

    def durable_point(self) -> None:
        """Where a system has such a thing, and something like it for the others."""
        disks.sync_file_system(self.disk)

    @classmethod
    def missing(cls) -> bool:
        return cls.program is not None and shutil.which(cls.program) is None

    def run(self, *words, text: str | None = None, environment=None) -> None:
        """Opens, makes or closes something."""
        command = [str(word) for word in words]
        try:
            done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=SECONDS, check=False,
                                  env={**os.environ, **(environment or {})})
        except subprocess.TimeoutExpired as error:
            raise Unmountable(f"no end of {command[0]} after {SECONDS} s") from error
        if done.returncode:
            raise Unmountable(f"status {done.returncode} from {' '.join(command[:2])}: {(done.stdout + done.stderr).strip()}")


class Plain(System):
    """A directory of the disk, as it is: what the store itself promises."""

    name = "plain"
    syncs_names = orders_names = True

    def mount(self) -> None:
        disks.check(disks.LIBC.mount(str(self.store).encode(), str(self.view).encode(), b"none", 4096, b""), "bind")


class Ward(System):
    name = "ward"
    is_ward = syncs_names = orders_names = True
    arguments: tuple[str, ...] = ()
    page_bytes = 4096
    # Set by the workload that changes it: the passcode that opens the volume, if there is one.
    passcode: str | None = None

    def environment(self) -> dict[str, str]:
        run = self.scratch / "run"
        run.mkdir(mode=0o700, exist_ok=True)
        return {**os.environ, "XDG_STATE_HOME": str(self.disk / "state"), "XDG_RUNTIME_DIR": str(run)}

    def ward(self, *words) -> subprocess.CompletedProcess:
        return subprocess.run([self.options.ward, *map(str, words)], env=self.environment(), stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=SECONDS, check=False)

    def must(self, *words) -> None:
        done = self.ward(*words)
        if done.returncode:
            raise Unmountable(f"status {done.returncode} from ward {words[0]}: {done.stderr.strip()}")

    def secret(self, passcode: str, name: str = "passcode") -> pathlib.Path:
        path = self.scratch / name
        path.write_text(passcode, encoding="utf-8")
        return path

    def create(self) -> None:
        secret = ("--no-passcode",) if self.passcode is None else ("--passcode-file", self.secret(self.passcode))
        self.must("init", self.store, "-q", "--no-input", "--passcode-cost", "1024", *secret, *self.arguments)

    def mount(self) -> None:
        secret = () if self.passcode is None else ("--passcode-file", self.secret(self.passcode))
        self.must("mount", self.store, self.view, "-q", "--no-input", "--manual-clock", *secret)

    def unmount(self) -> None:
        if os.path.ismount(self.view):
            self.must("unmount", self.view, "-q")

    def durable_point(self) -> None:
        """A backup begins and ends with one."""
        self.must("backup", "run", self.view, "--", "true")

    def doubtful_epochs(self) -> list[tuple[int, int]]:
        """The first and the last of each interval that is in doubt when what is on the disk now is mounted: docs/format.md, 8."""
        record = (self.store / "ward.state").read_bytes()
        is_in_use, epoch, count = struct.unpack_from("<10xBxII", record)
        listed = [struct.unpack_from("<II", record, 24 + 8 * number) for number in range(count)]
        return listed + [(epoch, epoch + 1)] * is_in_use

    def events(self) -> list[dict]:
        """Everything that the daemon remembers to have happened."""
        done = self.ward("events", self.view, "--last", "100000", "--json")
        if done.returncode:
            raise Unmountable(f"status {done.returncode} from ward events: {done.stderr.strip()}")
        return [json.loads(line) for line in done.stdout.splitlines()]


class Ward512(Ward):
    name = "ward, pages of 512"
    arguments = ("--page-size", "512")
    page_bytes = 512


class Gocryptfs(System):
    name = program = "gocryptfs"
    packages = ("gocryptfs",)

    def create(self) -> None:
        super().create()
        # The cost of a password has no part in what is tried.
        self.run("gocryptfs", "-q", "-init", "-scryptn", "10", "-passfile", self.password, self.store)

    def mount(self) -> None:
        self.run("gocryptfs", "-q", "-passfile", self.password, self.store, self.view)


class Securefs(System):
    name = program = "securefs"
    longest_name = 140
    packages = ("securefs",)

    def create(self) -> None:
        super().create()
        self.run("securefs", "create", "--pbkdf", "pkcs5-pbkdf2-hmac-sha256", "-r", "1000", "--pass", PASSWORD, self.store)

    def mount(self) -> None:
        self.run("securefs", "mount", "-b", "--log", self.scratch / "securefs.log", "--pass", PASSWORD, self.store, self.view)


class Encfs(System):
    name = program = "encfs"
    longest_name = 160
    packages = ("encfs",)

    def create(self) -> None:
        super().create()
        self.mount()
        self.unmount()

    def mount(self) -> None:
        # Where there is no volume this makes one, of the standard kind.
        self.run("encfs", "--standard", "--stdinpass", self.store, self.view, text=PASSWORD + "\n")


class Cryfs(System):
    name = program = "cryfs"
    packages = ("cryfs",)

    def create(self) -> None:
        super().create()
        self.mount()
        self.unmount()

    def mount(self) -> None:
        self.run("cryfs", self.store, self.view, text=PASSWORD + "\n",
                 environment={"CRYFS_FRONTEND": "noninteractive", "CRYFS_NO_UPDATE_CHECK": "true",
                              "CRYFS_LOCAL_STATE_DIR": str(self.disk / "cryfs")})


SYSTEMS = {"ward": Ward, "ward512": Ward512, "plain": Plain, "gocryptfs": Gocryptfs, "securefs": Securefs,
           "encfs": Encfs, "cryfs": Cryfs}
