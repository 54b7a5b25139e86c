"""Writes files for a time, also after errors; prints the files that were synced, and the names of the errors.

scarce.py DIRECTORY SECONDS: at least that long, and then until it holds enough files to reach a limit or got an error from
one, because on a slow disk a second is little work. Half a minute at most.
"""
import errno
import os
import sys
import time

# The daemon has room for some hundred open files before it asks the kernel for memory again.
MOST_HELD = 600
MOST_LARGE = 80
directory, seconds = sys.argv[1], float(sys.argv[2])
synced, errors, held = [], set(), []
start = time.monotonic()
number = 0


def is_over():
    passed = time.monotonic() - start
    # Only these errors: EPERM comes with every lock.
    is_enough = len(held) >= MOST_HELD or not errors.isdisjoint(("ENOMEM", "ENFILE"))
    return "ENOTCONN" in errors or passed >= 30 or passed >= seconds and is_enough


while not is_over():
    name = f"{os.getpid()}-{number}"
    number += 1
    try:
        file = os.open(f"{directory}/{name}", os.O_RDWR | os.O_CREAT, 0o644)
        if len(held) < MOST_HELD:
            held.append(os.open(f"{directory}/{name}", os.O_RDONLY))
        try:
            size = 1000 + number * 7919 % 900_000 if number <= MOST_LARGE else 1000
            data = (name.encode() * 100_000)[:size]
            for offset in range(0, len(data), 300_000):
                os.write(file, data[offset : offset + 300_000])
            os.fsync(file)
            synced.append(f"{name}:{len(data)}")
        finally:
            os.close(file)
    except OSError as error:
        errors.add(errno.errorcode[error.errno])
        time.sleep(0.01)
    if number > 20 and number % 3 == 0:
        try:
            gone = synced[0] if synced else None
            if gone:
                os.unlink(f"{directory}/{gone.split(':')[0]}")
                synced.pop(0)
        except OSError as error:
            synced.pop(0)
            errors.add(errno.errorcode[error.errno])
print(" ".join(synced))
print(" ".join(sorted(errors)))
