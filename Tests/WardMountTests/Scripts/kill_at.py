#!/usr/bin/env python3
"""Kills a command of ward's right before a call that changes the file system, checks the state, and runs it again.

    kill_at.py WARD DIRECTORY COMMAND SAMPLES [MOUNTPOINT PASSCODE-FILE]

COMMAND: init, passcode, adopt, repair, erase, or class (of a mounted volume). The calls that it makes are counted first; then
SAMPLES of them are chosen, the first and the last among them. Prints their number and the number of tries; exit status 1 and
a message if a state is wrong.
"""

import json
import os
import shutil
import subprocess
import sys

from killing import run_until

ward, scratch, command, samples = *sys.argv[1:4], int(sys.argv[4])
environment = {**os.environ, "XDG_STATE_HOME": scratch + "/state", "XDG_RUNTIME_DIR": scratch + "/run"}


def check(condition, what):
    if not condition:
        sys.exit(f"kill_at.py: {what}")


def run(*arguments):
    return subprocess.run([ward, *arguments], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)


def must(*arguments, status=0):
    done = run(*arguments)
    check(done.returncode == status, f"{done.returncode} from ward {' '.join(arguments)}: {done.stdout}{done.stderr}")
    return done.stdout


def secret(name, text):
    path = f"{scratch}/{name}"
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, 0o600)
    return path


def restore(names):
    """Restores the saved state of these directories."""
    for name in names:
        shutil.rmtree(f"{scratch}/{name}", ignore_errors=True)
        if os.path.isdir(f"{scratch}/{name}.saved"):
            shutil.copytree(f"{scratch}/{name}.saved", f"{scratch}/{name}", symlinks=True)


def save(names):
    for name in names:
        shutil.copytree(f"{scratch}/{name}", f"{scratch}/{name}.saved", symlinks=True)


def opens(passcode):
    """Whether the volume is whole, and opens with this passcode: everything in it is read."""
    done = run("check", volume, "--passcode-file", passcode, "-q")
    # 15: the second copy of the keybag was missing or old; opening the volume repairs that.
    check(done.returncode in (0, 12, 15), f"check: {done.returncode}: {done.stdout}{done.stderr}")
    return done.returncode != 12


volume = scratch + "/volume"
old, new = secret("old", "old passcode"), secret("new", "new passcode")
cost = ["--passcode-cost", "1024"]


class Init:
    arguments = ["init", volume, "--passcode-file", old, "--recovery-kit", scratch + "/kit", *cost]

    def prepare(self):
        restore(["volume", "state"])
        if os.path.exists(scratch + "/kit"):
            os.remove(scratch + "/kit")

    def judge(self):
        again = run(*self.arguments)
        is_there = again.returncode == 73 and "there is a volume in it already" in again.stderr
        check(again.returncode == 0 or is_there, f"again: {again.returncode}: {again.stderr}")
        check(opens(old), "it does not open")


class Passcode:
    arguments = ["passcode", "change", volume, "--passcode-file", old, "--new-passcode-file", new, "-q"]

    def __init__(self):
        must("init", volume, "--passcode-file", old, "-q", *cost)
        save(["volume", "state"])

    def prepare(self):
        restore(["volume", "state"])

    def judge(self):
        if opens(old):
            must(*self.arguments)
        check(opens(new) and not opens(old), "neither the old passcode nor the new one opens it")


class Adopt(Passcode):
    def __init__(self):
        kit = scratch + "/kit"
        text = must("init", volume, "--passcode-file", old, "--recovery-kit", kit, "--json", *cost)
        code = secret("code", json.loads(text.splitlines()[-1])["recoveryCode"])
        shutil.rmtree(scratch + "/state")
        os.mkdir(scratch + "/state")
        save(["volume", "state"])
        self.arguments = ["adopt", volume, "--recovery-kit", kit, "--code-file", code, "--passcode-file", new, "-q", *cost]

    def judge(self):
        done = run(*self.arguments)
        is_done = "this device has keys for it already" in done.stderr
        check(done.returncode == 0 or is_done, f"again: {done.returncode}: {done.stderr}")
        check(opens(new), "it does not open")


class Repair(Passcode):
    arguments = ["check", volume, "--repair", "--passcode-file", old, "-q"]
    status = 15

    def __init__(self):
        """A file with a damaged page, one with a damaged header, and a name that does not decrypt."""
        must("init", volume, "--passcode-file", old, "-q", *cost)
        view = scratch + "/view"
        os.mkdir(view)
        must("mount", volume, view, "--passcode-file", old, "-q")
        os.mkdir(view + "/directory")
        for name in ("whole", "page", "directory/header"):
            with open(f"{view}/{name}", "wb") as file:
                file.write(name.encode() * 3000)
        inodes = {name: os.stat(f"{view}/{name}").st_ino for name in ("page", "directory/header")}
        must("unmount", view, "-q")
        for folder, _, names in os.walk(volume):
            for name in names:
                path = os.path.join(folder, name)
                for what, inode in inodes.items():
                    if os.lstat(path).st_ino == inode:
                        with open(path, "r+b") as file:
                            # In the header: zeros that a repair can prove.
                            file.seek(140 if what != "page" else 5000)
                            file.write(b"damage")
        os.symlink("nowhere", volume + "/" + "A" * 40)
        save(["volume", "state"])

    def judge(self):
        must(*self.arguments, status=15 if run("check", volume, "--passcode-file", old, "-q").returncode else 0)
        must("check", volume, "--repair", "--passcode-file", old, "-q")
        view = scratch + "/view"
        must("mount", volume, view, "--passcode-file", old, "-q")
        try:
            for name in ("whole", "page"):
                with open(f"{view}/{name}", "rb") as file:
                    found, expected = file.read(), name.encode() * 3000
                intact = found == expected if name == "whole" else found[:3800] + found[8000:] == expected[:3800] + expected[8000:]
                check(intact, f"{name} is another one")
        finally:
            must("unmount", view, "-q")


class Erase(Passcode):
    arguments = ["erase", volume, "--yes-really", "-q"]

    def judge(self):
        must(*self.arguments)
        done = run("check", volume, "--passcode-file", old, "-q")
        check(done.returncode not in (0, 12), f"it opens: {done.returncode}")


class Class:
    """The class of a tree in a mounted volume."""

    def __init__(self):
        global environment
        environment = dict(os.environ)
        self.top = sys.argv[5] + "/top"
        for number in range(4):
            os.makedirs(f"{self.top}/{number}")
            for name in "ab":
                with open(f"{self.top}/{number}/{name}", "w") as file:
                    file.write(f"{number}{name}" * 2000)
        self.arguments = ["class", "set", "A", self.top, "-R", "-q"]

    def paths(self):
        for folder, _, names in os.walk(self.top):
            yield folder
            yield from (os.path.join(folder, name) for name in names)

    def prepare(self):
        must("class", "set", "C", self.top, "-R", "-q")

    def judge(self):
        classes = {os.getxattr(path, "user.ward.class") for path in self.paths()}
        known = {b"NSFileProtectionComplete", b"NSFileProtectionCompleteUntilFirstUserAuthentication"}
        check(classes <= known, f"classes {classes}")
        must(*self.arguments)
        for path in self.paths():
            check(os.getxattr(path, "user.ward.class") == b"NSFileProtectionComplete", f"{path} has another class")
            if os.path.isfile(path):
                with open(path) as file:
                    check(file.read() == (path[-3] + path[-1]) * 2000, f"{path} has other content")


for name in ("state", "run"):
    os.makedirs(f"{scratch}/{name}", mode=0o700, exist_ok=True)
case = {"init": Init, "passcode": Passcode, "adopt": Adopt, "repair": Repair, "erase": Erase, "class": Class}[command]()
case.prepare()
status, count = run_until([ward, *case.arguments], 0, environment)
check(status == getattr(case, "status", 0), f"{command} ended with {status}")
step = max(1, (count - 1) / max(1, samples - 1))
tried = sorted({min(count, 1 + round(index * step)) for index in range(samples)})
for number in tried:
    case.prepare()
    status, _ = run_until([ward, *case.arguments], number, environment)
    try:
        check(status is None or command in ("class", "repair"), f"it ended with {status}")
        case.judge()
    except SystemExit as failure:
        sys.exit(f"{failure.code}\nkill_at.py: {command}, killed before call {number} of {count}")
print(count, len(tried))
