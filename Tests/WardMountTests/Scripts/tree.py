#!/usr/bin/env python3
"""Lists a directory for a comparison, one line for each entry: kind, mode, size, links, modification time, extended
attributes (the protection class is one) and the content's hash or the link's target.

    tree.py DIRECTORY
"""

import hashlib
import os
import stat
import sys


def attributes(path):
    for name in sorted(os.listxattr(path, follow_symlinks=False)):
        if name.startswith("user."):
            yield f"{name}={os.getxattr(path, name, follow_symlinks=False).hex()}"


def line(path, name):
    status = os.lstat(path)
    fields = [name, oct(status.st_mode), str(status.st_mtime_ns)]
    if stat.S_ISLNK(status.st_mode):
        return fields[:2] + [os.readlink(path)]
    fields += attributes(path)
    if stat.S_ISREG(status.st_mode):
        # The owner makes a file readable for a moment if its mode forbids reading.
        readable = os.access(path, os.R_OK)
        if not readable:
            os.chmod(path, status.st_mode | 0o400)
        with open(path, "rb") as file:
            fields += [str(status.st_size), str(status.st_nlink), hashlib.file_digest(file, "sha256").hexdigest()]
        if not readable:
            os.chmod(path, status.st_mode)
    return fields


def entries(root):
    for directory, names, files in os.walk(root):
        for name in names + files:
            path = os.path.join(directory, name)
            yield line(path, os.path.relpath(path, root))


for fields in sorted(entries(sys.argv[1])):
    print("\t".join(fields))
