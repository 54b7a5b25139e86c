"""Appends numbered lines to a file until a write fails; prints how many were acknowledged and the error's name.

writer.py FILE write|append|mapped: "mapped" stores all over a mapping instead, until a signal ends it.
"""
import errno
import mmap
import os
import sys

path, how = sys.argv[1], sys.argv[2]
flags = os.O_RDWR | os.O_CREAT | (os.O_APPEND if how == "append" else 0)
descriptor = os.open(path, flags, 0o644)
count = 0
print("started", flush=True)
if how == "mapped":
    os.ftruncate(descriptor, 4_000_000)
    view = mmap.mmap(descriptor, 4_000_000)
    while True:
        count += 4099
        view[count % 3_999_000] = count % 256
try:
    while count < 3_000_000:
        line = b"%09d\n" % count
        if how == "append":
            os.write(descriptor, line)
        else:
            os.pwrite(descriptor, line, count * 10)
        count += 1
    print(count, "done")
except OSError as error:
    print(count, errno.errorcode[error.errno])
