"""Programs open and stat a path that other programs replace all the time, as editors and package managers do. It must be
there at every moment, and whole.

replaced.py DIRECTORY READS: exits 1 with the errors that it met.
"""
import collections
import os
import sys

top, reads = sys.argv[1], int(sys.argv[2])
path = os.path.join(top, "settings")
SIZE = 5000


def write(path, byte):
    with open(path, "wb") as file:
        file.write(byte * SIZE)


def replace(worker):
    temporary = os.path.join(top, "settings.%d" % worker)
    while True:
        write(temporary, b"%d" % worker)
        os.rename(temporary, path)


def look():
    errors = collections.Counter()
    for _ in range(reads):
        try:
            with open(path, "rb") as file:
                data = file.read()
            if len(data) != SIZE or data != data[:1] * SIZE:
                errors["torn"] += 1
        except OSError as error:
            errors["open: %s" % os.strerror(error.errno)] += 1
        try:
            os.stat(path)
        except OSError as error:
            errors["stat: %s" % os.strerror(error.errno)] += 1
    return errors


write(path, b"0")
writers, readers = [], []
for worker in range(1, 4):
    child = os.fork()
    if child == 0:
        replace(worker)
    writers.append(child)
for _ in range(2):
    child = os.fork()
    if child == 0:
        errors = look()
        if errors:
            print(dict(errors), flush=True)
        os._exit(1 if errors else 0)
    readers.append(child)
failed = [child for child in readers if os.waitpid(child, 0)[1] != 0]
for child in writers:
    os.kill(child, 9)
    os.waitpid(child, 0)
sys.exit(1 if failed else 0)
