"""Appends numbered lines to a file until a write fails; prints "started" when there is a page of them, and at the end the
number of acknowledged bytes and the error's name.

A line that crosses a page is two requests (`fuse_fill_write_pages`, fs/fuse/file.c), so a lock between them cuts the
write short: bytes are counted, not calls.

writer.py FILE write|paced|append|mapped: "paced" pauses after every fourth line, so that a worker
looks for the next request before it is there, on a busy machine, too. "mapped" stores all over a
mapping instead, until a signal ends it, and has "started" when most pages are stored into.
"""
import errno
import itertools
import mmap
import os
import sys
import time

path, how = sys.argv[1], sys.argv[2]
flags = os.O_RDWR | os.O_CREAT | (os.O_APPEND if how == "append" else 0)
descriptor = os.open(path, flags, 0o644)
acknowledged = 0
if how == "mapped":
    os.ftruncate(descriptor, 4_000_000)
    view = mmap.mmap(descriptor, 4_000_000)
    for number in itertools.count(1):
        view[number * 4099 % 3_999_000] = number % 256
        if number == 900:
            print("started", flush=True)
try:
    for number in range(3_000_000):
        if number == 410:
            print("started", flush=True)
        line = b"%09d\n" % number
        while line:
            if how == "append":
                done = os.write(descriptor, line)
            else:
                done = os.pwrite(descriptor, line, acknowledged)
            acknowledged += done
            line = line[done:]
        if how == "paced" and number % 4 == 3:
            time.sleep(0.0002)
    print(acknowledged, "done")
except OSError as error:
    print(acknowledged, errno.errorcode[error.errno])
