"""One cell: a system on a fresh file system, a group of workloads on it, and what each of them cost."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import isolation
import systems

# Besides the servers themselves: what rows run. An empty page cache must not show in how long a program takes to start.
PROGRAMS = ("find", "git", "ls", "rsync", "tar", "diff", "sh", "fusermount3")
CPUCLOCK_SCHED = 2


class Cell:
    """`path` is where the workloads work. Every method that takes the time keeps it in `figures`."""

    def __init__(self, kind, scratch: pathlib.Path, disk, load, options) -> None:
        self.disk, self.scratch, self.options = disk, scratch, options
        self.loader = load
        self.figures: dict[str, dict[str, float]] = {}
        disk.format()
        self.system = kind(scratch, options, disk.mountpoint)
        self.system.create()
        self.path = self.system.mountpoint
        self.hot = hot_files()
        self.settle()
        self.idle = self.memory("VmRSS")

    def close(self) -> None:
        self.system.unmount()
        self.disk.unmount()

    # --- what a workload does ---

    def load(self, verb: str, name: str, *numbers: int) -> float:
        return self.loader(verb, self.path / name, *numbers)

    def row(self, key: str, verb: str, name: str, *numbers: int, reads: int = 0) -> None:
        """Measures one verb of the load generator, which takes the time itself."""
        self.measure(key, lambda: self.load(verb, name, *numbers), reads)

    def command(self, key: str, *words, times: int = 1, reads: int = 0, **settings) -> str:
        """Measures a program, from its start to its end: the mean, where it runs several times. Returns what it said."""
        output = ""

        def timed() -> float:
            nonlocal output
            begin = time.monotonic()
            for _ in range(times):
                output = self.quietly(*words, **settings)
            return (time.monotonic() - begin) / times

        self.measure(key, timed, reads)
        for cost in ("cpu", "flushes", "written", "read"):
            self.figures[key][cost] /= times
        return output

    def quietly(self, *words, **settings) -> str:
        return systems.run(*words, environment={**os.environ, **GIT, "LC_ALL": "C"}, **settings)

    def cold(self) -> None:
        """Everything unmounted, the servers ended, and all of it mounted again; then first times got over with, and the caches
        dropped: the warm-up has read what lies beside it on the disk."""
        self.system.unmount()
        self.disk.unmount()
        self.disk.drop_caches()
        self.disk.mount()
        self.system.mount()
        self.settle()
        self.disk.drop_caches()
        for file in self.hot:
            with contextlib.suppress(OSError):
                pathlib.Path(file).read_bytes()

    # --- what it costs ---

    def settle(self) -> None:
        """First times are over, and the disk has nothing left to do."""
        self.load("warm-up", ".", 20)
        self.disk.sync()

    def measure(self, key: str, body, reads: int = 0) -> None:
        """`reads`: so many bytes at least have to come from the disk, or it was not cold."""
        servers = isolation.others()
        for server in servers:
            with contextlib.suppress(OSError):  # It may have been a helper that has ended.
                pathlib.Path(f"/proc/{server}/clear_refs").write_text("5", encoding="ascii")  # VmHWM begins anew
        disk_before, cpu_before = self.disk.counters(), cpu_seconds(servers)
        seconds = body()
        disk_after, cpu_after = self.disk.counters(), cpu_seconds(isolation.others())
        peak = self.memory("VmHWM")
        self.disk.sync()  # What is not yet written counts, too, but not its time.
        disk_last = self.disk.counters()
        self.figures[key] = {
            "seconds": seconds,
            "cpu": sum(cpu_after.values()) - sum(cpu_before.get(server, 0) for server in cpu_after),
            "peak": peak,
            "flushes": disk_after["flushes"] - disk_before["flushes"],
            "read": disk_after["read"] - disk_before["read"],
            "written": disk_last["written"] - disk_before["written"],
        }
        if self.figures[key]["read"] < reads:
            sys.exit(f"error: {key} on {self.system.name} read {self.figures[key]['read']:,} bytes from the disk, not {reads:,}: "
                     "it was not cold")

    def memory(self, field: str) -> int:
        """Of all servers together; what they share is counted for each."""
        return sum(status_bytes(server, field) for server in isolation.others())


def abandon(disk, system) -> None:
    """Ends whatever is left of a cell that went wrong."""
    for process in isolation.others():
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGKILL)
        systems.wait_for_end(process, systems.start_time(process))
    subprocess.run(["fusermount3", "-u", "-z", system.mountpoint], capture_output=True, check=False)
    disk.unmount()


# Nobody's settings but these.
GIT = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "GIT_AUTHOR_NAME": "ward", "HOME": "/nonexistent",
       "GIT_AUTHOR_EMAIL": "ward@example.org", "GIT_COMMITTER_NAME": "ward", "GIT_COMMITTER_EMAIL": "ward@example.org"}


def cpu_seconds(processes: list[int]) -> dict[int, float]:
    """Of each process and all its threads, ended ones included: its clock (clock_getcpuclockid(3)), to the nanosecond."""
    seconds = {}
    for process in processes:
        with contextlib.suppress(OSError):
            seconds[process] = time.clock_gettime((~process << 3) | CPUCLOCK_SCHED)
    return seconds


def status_bytes(process: int, field: str) -> int:
    with contextlib.suppress(OSError):
        for line in pathlib.Path(f"/proc/{process}/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    return 0


def hot_files() -> list[str]:
    """The programs of the rows and servers, and their libraries."""
    programs = [found for name in (*PROGRAMS, "gocryptfs", "securefs", "encfs") if (found := shutil.which(name))]
    listed = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False).stdout
    libraries = {word for line in listed.splitlines() for word in line.split() if word.startswith("/") and not word.endswith(":")}
    return sorted({*programs, *libraries})
