"""Does random operations to a file on a mount and to a model of it on a plain file system, and compares everything.

model.py FILE MODEL SEED OPERATIONS SPAN [check]: SPAN is the range of offsets in bytes; beyond 1 MiB the file is sparse and
only changed places are compared. "check" compares without changing anything (after a remount). Exits 1 with the
operation that failed; the seed replays it.
"""
import ctypes
import errno
import os
import random
import sys

libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]

path, model_path, seed, operations, span = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
checking = len(sys.argv) > 6
choose = random.Random(seed)
# Pages begin and end at multiples of these: kernel pages, payloads of ward's pages of both sizes.
UNITS = [512, 4096, 476, 4060, 4068, 3804, 220, 65536]
PIECE = 1 << 20


def fail(message):
    print("seed %d: %s" % (seed, message))
    sys.exit(1)


def open_both(flags):
    return [os.open(p, flags, 0o644) for p in (path, model_path)]


def both(name, call, descriptors):
    """Does the same to both; the results or the errors must be equal."""
    results = []
    for descriptor in descriptors:
        try:
            results.append(call(descriptor))
        except OSError as error:
            results.append(errno.errorcode[error.errno])
    if results[0] != results[1]:
        shown = [r if not isinstance(r, bytes) else "%d bytes" % len(r) for r in results]
        detail = ""
        if all(isinstance(r, bytes) for r in results):
            different = next((i for i, (a, b) in enumerate(zip(*results)) if a != b), min(map(len, results)))
            detail = ", first difference at %d: %r instead of %r" % (
                different, results[0][different:different + 8], results[1][different:different + 8])
        fail("%s gave %s where the model gave %s%s" % (name, shown[0], shown[1], detail))
    return results[0]


def offset():
    kind = choose.random()
    if kind < 0.5:
        unit = choose.choice(UNITS)
        place = unit * choose.randrange(0, max(2, span // unit)) + choose.randrange(-2, 3)
    elif kind < 0.7:
        place = size() + choose.randrange(-5000, 5000)
    else:
        place = choose.randrange(0, span)
    return min(max(0, place), span)


def length():
    return choose.choice([1, 2, 3, 100, 4060, 4068, 4096, 8192, choose.randrange(1, 30000), choose.randrange(1, 200000)])


def size():
    return os.fstat(descriptors[1]).st_size


def fallocate(descriptor, mode, start, count):
    if libc.fallocate(descriptor, mode, start, count) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return 0


def data_ranges(descriptor):
    """The ranges of data in the model; everything else is a hole and reads as zeros."""
    ranges, place, end = [], 0, os.fstat(descriptor).st_size
    while place < end:
        try:
            start = os.lseek(descriptor, place, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                break
            raise
        place = os.lseek(descriptor, start, os.SEEK_HOLE)
        ranges.append((start, place))
    return ranges


def compare(when):
    sizes = [os.fstat(d).st_size for d in descriptors]
    if sizes[0] != sizes[1]:
        fail("%s: size %d instead of %d" % (when, sizes[0], sizes[1]))
    if [os.stat(path).st_size, os.stat(model_path).st_size] != sizes:
        fail("%s: stat says %d, fstat %d" % (when, os.stat(path).st_size, sizes[0]))
    spans = data_ranges(descriptors[1]) if span > PIECE else [(0, sizes[1])]
    for start, end in spans:
        for place in range(max(0, start - 5000), min(end + 5000, sizes[1]), PIECE):
            count = min(PIECE, end + 5000 - place)
            both("%s: read of %d at %d" % (when, count, place), lambda d: os.pread(d, count, place), descriptors)
    # A hole in ward's file must be zeros in the model.
    place = 0
    while place < sizes[0]:
        try:
            data = os.lseek(descriptors[0], place, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                fail("%s: SEEK_DATA at %d: %s" % (when, place, error))
            data = sizes[0]
        for start, end in spans:
            first, last = max(start, place), min(end, data)
            if first < last and last - first <= 64 * PIECE:
                if os.pread(descriptors[1], last - first, first).strip(b"\0"):
                    fail("%s: %d to %d is a hole but holds data" % (when, first, last))
        if data >= sizes[0]:
            break
        place = os.lseek(descriptors[0], data, os.SEEK_HOLE)
        if place <= data:
            fail("%s: SEEK_HOLE of %d is %d" % (when, data, place))


def step(number):
    kind = choose.choices(
        ["write", "read", "append", "truncate", "punch", "zero", "keep", "allocate", "reopen", "sync", "stat", "seek"],
        [30, 15, 8, 14, 6, 5, 4, 4, 3, 3, 4, 4])[0]
    place, count = offset(), length()
    name = "operation %d, %s at %d of %d in a file of %d" % (number, kind, place, count, size())
    if os.environ.get("WARD_MODEL_TRACE"):
        print(name, file=sys.stderr)
    if kind == "write":
        data = choose.randbytes(count)
        both(name, lambda d: os.pwrite(d, data, place), descriptors)
    elif kind == "read":
        both(name, lambda d: os.pread(d, count, place), descriptors)
    elif kind == "append":
        data = choose.randbytes(min(count, 9000))
        extra = open_both(os.O_WRONLY | os.O_APPEND)
        both(name, lambda d: os.write(d, data), extra)
        for d in extra:
            os.close(d)
    elif kind == "truncate":
        both(name, lambda d: os.ftruncate(d, place), descriptors)
    elif kind == "punch":
        both(name, lambda d: fallocate(d, 3, place, count), descriptors)
    elif kind == "zero":
        both(name, lambda d: fallocate(d, 16 | choose_keep(number), place, count), descriptors)
    elif kind == "keep":
        both(name, lambda d: fallocate(d, 1, place, count), descriptors)
    elif kind == "allocate":
        both(name, lambda d: fallocate(d, 0, place, count), descriptors)
    elif kind == "reopen":
        for d in descriptors:
            os.close(d)
        descriptors[:] = open_both(os.O_RDWR)
    elif kind == "sync":
        both(name, os.fsync, descriptors)
    elif kind == "stat":
        both(name, lambda d: os.fstat(d).st_size, descriptors)
    elif kind == "seek":
        both(name, lambda d: os.lseek(d, 0, os.SEEK_END), descriptors)
    if number % 40 == 39:
        compare("after " + name)
    else:
        both("size after " + name, lambda d: os.fstat(d).st_size, descriptors)
        first = max(0, place - 5000)
        both("content after " + name, lambda d: os.pread(d, min(count, 30000) + 10000, first), descriptors)


def choose_keep(number):
    return number % 2


descriptors = open_both(os.O_RDWR if checking else os.O_RDWR | os.O_CREAT)
compare("at the start")
if not checking:
    for number in range(operations):
        step(number)
    compare("at the end")
for d in descriptors:
    os.close(d)
