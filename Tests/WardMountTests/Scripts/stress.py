"""Several processes work in one tree at the same time, each against a model of its own part, all in a shared part.

stress.py DIRECTORY SEED OPERATIONS WORKERS: in its own part every result must be what the model says; in the shared
part only errors that a race explains are allowed, and every file that is found is whole. Exits 1 with a message.
"""
import errno
import os
import random
import sys
import traceback

top, seed, operations, workers = sys.argv[1], *map(int, sys.argv[2:5])
RACES = (errno.ENOENT, errno.EEXIST, errno.ENOTEMPTY, errno.EISDIR, errno.ENOTDIR)


def content(name, version):
    """Content with the name in it, and a length that crosses pages."""
    line = b"%s %d\n" % (name.encode(), version)
    return line * (1 + version * 37 % 900)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def own_part(choose, part, number):
    model = {}
    names = ["n%d" % i for i in range(12)] + ["long" * 60 + str(i) for i in range(3)]
    for step in range(number):
        name, other = choose.sample(names, 2)
        path, second = os.path.join(part, name), os.path.join(part, other)
        kind = choose.choices(["write", "replace", "rename", "link", "unlink", "read", "append", "list"], [6, 4, 4, 2, 3, 6, 4, 2])[0]
        if kind == "write":
            # Truncates in place: every name of the file sees it.
            data = content(name, step)
            with open(path, "wb") as file:
                file.write(data)
            if name in model:
                model[name][:] = data
            else:
                model[name] = bytearray(data)
        elif kind == "replace":
            data = content(name, step)
            temporary = os.path.join(part, "tmp%d" % step)
            with open(temporary, "wb") as file:
                file.write(data)
                if step % 3 == 0:
                    os.fsync(file.fileno())
            os.rename(temporary, path)
            model[name] = bytearray(data)
        elif kind == "rename" and name in model:
            os.rename(path, second)
            if model.get(other) is not model[name]:
                model[other] = model.pop(name)
        elif kind == "link" and name in model and other not in model:
            os.link(path, second)
            model[other] = model[name]
        elif kind == "unlink" and name in model:
            os.unlink(path)
            del model[name]
        elif kind == "append" and name in model:
            with open(path, "ab") as file:
                file.write(b"appended %d\n" % step)
            model[name] += b"appended %d\n" % step
        elif kind == "read":
            try:
                found = read(path)
                assert name in model, "%s should not be there" % name
                assert found == model[name], "%s: %d bytes instead of %d" % (name, len(found), len(model[name]))
                assert os.stat(path).st_size == len(found)
            except FileNotFoundError:
                assert name not in model, "%s is gone" % name
        elif kind == "list":
            assert set(os.listdir(part)) == set(model), "listed %s" % (set(os.listdir(part)) ^ set(model))
    assert set(os.listdir(part)) == set(model)
    for name, data in model.items():
        assert read(os.path.join(part, name)) == data, name


def shared_part(choose, number, worker):
    for step in range(number):
        names = ["s%d" % choose.randrange(8) for _ in range(2)]
        path, second = (os.path.join(top, "shared", n) for n in names)
        kind = choose.randrange(6)
        try:
            if kind == 0:
                temporary = os.path.join(top, "shared", "tmp%d-%d" % (worker, step))
                with open(temporary, "wb") as file:
                    file.write(content("shared", step))
                os.rename(temporary, path)
            elif kind == 1:
                os.rename(path, second)
            elif kind == 2:
                os.unlink(path)
            elif kind == 3:
                os.link(path, second)
            elif kind == 4:
                data = read(path)
                words = data.split(None, 2)
                assert data == content("shared", int(words[1])), "torn: %r" % data[:40]
            else:
                for entry in os.scandir(os.path.join(top, "shared")):
                    try:
                        entry.stat()
                    except FileNotFoundError:
                        pass
        except OSError as error:
            if error.errno not in RACES:
                raise


os.makedirs(os.path.join(top, "shared"), exist_ok=True)
children = []
for worker in range(workers):
    child = os.fork()
    if child == 0:
        try:
            choose = random.Random(seed * 100 + worker)
            part = os.path.join(top, "part%d" % worker)
            os.makedirs(part, exist_ok=True)
            for name in os.listdir(part):
                os.unlink(os.path.join(part, name))
            for _ in range(10):
                own_part_seed = random.Random(choose.random())
                own_part(own_part_seed, part, operations // 10)
                for name in os.listdir(part):
                    os.unlink(os.path.join(part, name))
                shared_part(choose, operations // 10, worker)
            os._exit(0)
        except BaseException:
            traceback.print_exc(file=sys.stdout)
            sys.stdout.flush()
            os._exit(1)
    children.append(child)
failed = [c for c in children if os.waitpid(c, 0)[1] != 0]
if failed:
    print("seed %d: %d of %d workers failed" % (seed, len(failed), workers))
    sys.exit(1)
