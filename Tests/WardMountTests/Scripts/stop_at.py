#!/usr/bin/env python3
"""Ends `ward container create` and `remove` right before each call that changes the file system, one after another, and
checks the state: nothing or all of it is there, and after the next run of ward no half-done rest.

    stop_at.py WARD MOUNTPOINT DIRECTORY

prints the number of calls of each; exit status 1 and a message if a state is wrong.
"""

import os
import plistlib
import subprocess
import sys

from killing import run_until

# mkdir, mkdirat, rename, renameat, renameat2, rmdir, unlink, unlinkat, setxattr, fsetxattr
CHOSEN = {
    "x86_64": {83, 258, 82, 264, 316, 84, 87, 263, 188, 190},
    "aarch64": {34, 38, 276, 35, 5, 7},
}[os.uname().machine]

ward, mount, scratch = sys.argv[1:4]
parents = {
    "application": mount + "/Containers/Data/Application",
    "group": mount + "/Containers/Shared/AppGroup",
}
inside = {
    "application": ["Documents", "Library/Application Support", "Library/Caches", "Library/Preferences", "tmp"],
    "group": ["Library/Application Support", "Library/Caches", "Library/Preferences"],
}


def is_stopped(arguments, number):
    """Runs to the `number`th call that changes something; False if it ended before."""
    status, _ = run_until(arguments, number, chosen=CHOSEN)
    check(status in (None, 0), f"{arguments} ended with {status}")
    return status is None


def check(condition, what):
    if not condition:
        sys.exit(f"stop_at.py: {what}")


def ward_must(*arguments):
    done = subprocess.run([ward, "container", *arguments], capture_output=True, text=True)
    check(done.returncode == 0, f"ward container {' '.join(arguments)}: {done.stdout}{done.stderr}")


def is_there(kind, name):
    """Whether there is a container of that name; a part of one is an error."""
    path = f"{parents[kind]}/{name}"
    if not os.path.lexists(path):
        return False
    for directory in inside[kind]:
        check(os.path.isdir(f"{path}/{directory}"), f"{path} is there without {directory}")
    check(b'"id":"' + name.encode() + b'"' in os.getxattr(path, "user.ward.container"), f"{path} has no record")
    expected = b"NSFileProtectionComplete" if kind == "application" else None
    found = os.getxattr(path + "/" + inside[kind][0], "user.ward.class")
    check(expected is None or found == expected, f"{path} is of class {found}")
    return True


def leftovers():
    return [name for parent in parents.values() if os.path.isdir(parent) for name in os.listdir(parent) if name[0] == "."]


def entitlements(group):
    path = scratch + "/" + group + ".entitlements"
    with open(path, "wb") as file:
        plistlib.dump(
            {
                "com.apple.developer.default-data-protection": "NSFileProtectionComplete",
                "com.apple.security.application-groups": [group],
            },
            file,
        )
    return path


def create(number):
    """Stops `create` before its `number`th call; False if there is none."""
    app, group = f"org.example.made{number}", f"group.made{number}"
    arguments = [app, "--entitlements", entitlements(group), "-q"]
    stopped = is_stopped([ward, "container", "create", mount, *arguments], number)
    before = is_there("application", app)
    # The next command removes a half-done container.
    ward_must("create", mount, "org.example.another", "-q")
    check(leftovers() == [], f"create, call {number}: left {leftovers()}")
    check(is_there("application", app) == before, f"create, call {number}: it changed its mind")
    check(is_there("group", group) == before, f"create, call {number}: the app is there: {before}, its group is not alike")
    check(before or stopped, f"create, call {number}: it ended, and nothing is there")
    ward_must("create", mount, *arguments)
    check(is_there("application", app) and is_there("group", group), f"create, call {number}: it can't be done again")
    return stopped


def remove(number):
    app, group = f"org.example.gone{number}", f"group.gone{number}"
    ward_must("create", mount, app, "--entitlements", entitlements(group), "-q")
    for path in [f"{parents['application']}/{app}/Documents/a", f"{parents['group']}/{group}/Library/b"]:
        with open(path, "w") as file:
            file.write("content")
    stopped = is_stopped([ward, "container", "remove", mount, app, "--yes", "-q"], number)
    before = is_there("application", app)
    if before:
        with open(f"{parents['application']}/{app}/Documents/a") as file:
            check(file.read() == "content", f"remove, call {number}: a file is gone")
    ward_must("create", mount, "org.example.another", "-q")
    check(leftovers() == [], f"remove, call {number}: left {leftovers()}")
    check(is_there("application", app) == before, f"remove, call {number}: it changed its mind")
    check(is_there("group", group) == before, f"remove, call {number}: the app is there: {before}, its group is not alike")
    check(stopped or not before, f"remove, call {number}: it ended, and the app is there")
    return stopped


counts = []
for attempt in (create, remove):
    number = 1
    while attempt(number):
        number += 1
    counts.append(number - 1)
print(f"create {counts[0]} remove {counts[1]}")
