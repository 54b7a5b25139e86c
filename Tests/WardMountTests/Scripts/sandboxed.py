"""Attacks of a hostile program in a container on files and processes outside of its sandbox.

    sandboxed.py PLACES

PLACES: JSON. `mountpoint`, `backing`, `state`, `runtime`, `socket` (the control socket), `uuid`: of the volume;
`container`: the program's own. `read`: files that it may not read, by the attack's name.
`write`: files and directories that it may not change. `servers`: a server of the user outside,
which tells a secret: ["unix", PATH], ["abstract", NAME] or ["tcp", PORT].
`processes`: other processes. `secret`: a text that is in all secrets. `tables`: second process
tables. `destroy`: also attacks that would end the volume.

One line for each attack: "got NAME: WHAT" if it succeeded, "not NAME" if not.
"""
import ctypes
import errno
import glob
import json
import os
import socket
import struct
import sys

places = json.loads(sys.argv[1])
secret = places["secret"].encode()
libc = ctypes.CDLL(None, use_errno=True)
done = {}


def attack(name, body):
    """Runs `body`, which returns its booty, or nothing."""
    try:
        got = body()
    except (OSError, ValueError) as error:
        got, reason = None, str(error)
    if got or name not in done:
        done[name] = got


def contents(path):
    with open(path, "rb") as file:
        data = file.read(1 << 16)
    return path if data else None


# Files by their paths, by links and by every other name that there may be.

for name, paths in places["read"].items():
    for path in paths:
        attack(name, lambda: contents(path))
own_link = os.path.join(places["container"], "Documents", f"link-{os.getpid()}")
attack("symbolic link", lambda: (os.symlink(places["mountpoint"] + "/outside", own_link), contents(own_link))[1])
attack("hard link", lambda: os.link(places["mountpoint"] + "/outside", own_link + ".hard") or "linked")
attack("rename out", lambda: (open(own_link + ".own", "w").close(),
                              os.rename(own_link + ".own", places["mountpoint"] + "/moved"), "moved")[2])


def parents():
    """Walks up from the container: a mount of a part of the volume has no parent there."""
    os.chdir(places["container"])
    for _ in range(12):
        os.chdir("..")
        for found in ("outside", "ward.keybag"):
            if found in os.listdir("."):
                return found


attack("parent directories", parents)


def descriptors():
    """Descriptors that were left open, and their directories."""
    for number in list(range(3, 64)):
        try:
            os.fstat(number)
        except OSError:
            continue
        return f"descriptor {number}: {os.readlink('/proc/self/fd/%d' % number)}"


attack("inherited descriptors", descriptors)


def directory_streams():
    for number in range(3):
        try:
            names = os.listdir(number)
        except OSError:
            continue
        return names


attack("standard streams", directory_streams)


def by_handle():
    """open_by_handle_at(2): the root of the file system, node 1, by the container's mount."""
    class Handle(ctypes.Structure):
        _fields_ = [("size", ctypes.c_uint), ("type", ctypes.c_int), ("bytes", ctypes.c_ubyte * 128)]
    handle, mount = Handle(size=128), ctypes.c_int()
    path = places["container"].encode()
    if libc.name_to_handle_at(-100, path, ctypes.byref(handle), ctypes.byref(mount), 0) != 0:
        return None
    handle.bytes[0:8] = list(struct.pack("<Q", 1))
    descriptor = os.open(path, os.O_RDONLY)
    opened = libc.open_by_handle_at(descriptor, ctypes.byref(handle), os.O_RDONLY)
    return os.listdir(opened) if opened >= 0 else None


attack("file handle", by_handle)

# The volume's directory, the keys, the runtime directory.



def write_in(directory):
    """Writes into the real directory; the sandbox has an empty one of its own, which does not count."""
    if os.path.exists(directory + "/ward") or os.path.exists(directory + "/ward.keybag"):
        os.mkdir(directory + "/mine")
        os.rmdir(directory + "/mine")
        return directory


for name in ("backing", "state"):
    attack(name + " listed", lambda: os.listdir(places[name]))
    attack(name + " written", lambda: write_in(places[name]))
attack("runtime listed", lambda: glob.glob(places["runtime"] + "/ward/*.json"))


def other_ciphertext():
    """Puts another file's ciphertext under an own name: inode numbers in the mount are those of the store."""
    own = places["container"] + "/Documents/bait"
    with open(own, "w") as file:
        file.write("bait")
    wanted = os.stat(own).st_ino
    for directory, _, names in os.walk(places["backing"]):
        for name in names:
            path = os.path.join(directory, name)
            if os.lstat(path).st_ino == wanted:
                os.link(path, path + ".swapped")
                os.unlink(path + ".swapped")
                return path


attack("ciphertext exchanged", other_ciphertext)


def take_name():
    """Renames beside the control socket: a false socket in its place would get the next passcode."""
    directory = os.path.dirname(places["socket"])
    if glob.glob(directory + "/*.json"):
        open(directory + "/mine", "w").close()
        os.rename(directory + "/mine", directory + "/taken")
        os.unlink(directory + "/taken")
        return directory


attack("socket replaced", take_name)

# The control socket, by paths, by the mount's attribute and by names.


def call(path, method, parameters, more=False):
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20)
        client.connect(path)
        message = {"method": method, "parameters": parameters}
        if more:
            message["more"] = True
        client.sendall(json.dumps(message).encode() + b"\0")
        answer = b""
        while b"\0" not in answer:
            part = client.recv(65536)
            if not part:
                break
            answer += part
        return json.loads(answer.split(b"\0")[0])


def sockets():
    paths = {places["socket"]}
    paths.add(os.getxattr(places["container"], "user.ward.socket").decode())
    paths.update(glob.glob(os.path.dirname(places["socket"]) + "/*"))
    return [path for path in paths if not path.endswith(".json")]


def order(method, parameters, more=False):
    for path in sockets():
        try:
            answer = call(path, "org.ward.Volume." + method, parameters, more)
        except OSError:
            continue
        refusal = answer.get("error", "")
        if not refusal.endswith((".MethodNotImplemented", ".MethodNotFound")):
            return answer


def mount_attribute(place, name):
    """An attribute that the mount itself answers, on its root or on another file."""
    value = os.getxattr(place, "system.ward.mount." + name).decode()
    if "lock" in name:
        return value
    for secret_place in (places["backing"], places["uuid"]):
        if name == "status" and secret_place in value:
            return value
    if name == "control":
        answer = call(json.loads(value)["control"]["socket"], "org.ward.Volume.Holders", {})
        return None if "error" in answer else answer


for name in ("control", "status"):
    attack("attribute " + name, lambda: mount_attribute(places["mountpoint"], name))
    attack("own attribute " + name, lambda: mount_attribute(places["container"], name))
if places.get("destroy"):
    for name in ("lock", "lock-now", "lock-end-hosts", "lock-now-end-hosts"):
        attack("attribute " + name, lambda: mount_attribute(places["mountpoint"], name))
        attack("own attribute " + name, lambda: mount_attribute(places["container"], name))
wrong = {"passcode": "not this one", "current": "nor this"}
# Outside of the sandbox these attacks must succeed, except those that would end the volume.
for method, parameters, more in [
    ("Holders", {}, False), ("Advance", {"seconds": 0}, False), ("SetFull", {"full": False}, False),
    ("TrustList", {}, False), ("TrustRemove", {"name": "none"}, False), ("ReadRecovery", {}, False),
    ("TrustAdd", {"name": "x"}, False), ("TrustConnect", {"host": "0" * 32, "secret": "0" * 64}, True),
    ("SetPolicy", {"graceSeconds": "x"}, False), ("SetPasscode", wrong, False), ("ChangePasscode", {}, False),
    ("RemovePasscode", {}, False), ("Unlock", {}, False), ("Backup", {}, True), ("Check", {}, True),
    ("Erase", {"uuid": "0" * 8}, False),
] + ([("Lock", {"now": True}, False), ("Reboot", {}, False), ("Unmount", {"force": True}, False),
      ("Erase", {"uuid": places["uuid"]}, False)] if places.get("destroy") else []):
    attack("control " + method, lambda: order(method, parameters, more))


def told(method, parameters, more=False):
    """Looks for facts about the volume in an answer, beside its state."""
    for path in sockets():
        try:
            answer = json.dumps(call(path, "org.ward.Volume." + method, parameters, more))
        except OSError:
            continue
        for name in ("backing", "uuid"):
            if places[name] in answer:
                return places[name]
        if "outside" in answer:
            return answer


attack("status tells", lambda: told("Status", {}))
attack("events tell", lambda: told("Monitor", {"last": 100, "follow": False}, True))

# Servers outside.


def ask(kind, where):
    family = socket.AF_INET if kind == "tcp" else socket.AF_UNIX
    address = ("127.0.0.1", where) if kind == "tcp" else "\0" + where if kind == "abstract" else where
    with socket.socket(family) as client:
        client.settimeout(20)
        client.connect(address)
        return secret in client.recv(4096)


for kind, where in places["servers"]:
    attack("server " + kind, lambda: ask(kind, where))

# Other processes, and the kernel.


def roots():
    for table in ["/proc"] + places.get("tables", []):
        for process in os.listdir(table):
            if process.isdigit():
                try:
                    return contents(f"{table}/{process}/root{places['mountpoint']}/outside")
                except OSError:
                    continue


attack("roots of processes", roots)


def signal():
    for process in places["processes"]:
        with open(f"/proc/{process}/cmdline", "rb") as file:
            if places["mountpoint"].encode() in file.read():
                os.kill(process, 0)
                return process


attack("other processes", signal)


def mapped(flags):
    if libc.unshare(flags) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    return "a namespace"


def in_child(body):
    """Runs `body` in a child, because it changes the process itself."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, str(body() or "").encode())
        except OSError:
            pass
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as file:
        return file.read()


attack("user namespace", lambda: in_child(lambda: mapped(0x10000000)))


def unmount():
    for place in [places["mountpoint"], places["container"], os.path.dirname(places["container"]), "/tmp", "/run"]:
        if libc.umount2(place.encode(), 2) == 0:
            return place


if places.get("destroy"):
    attack("unmounting", unmount)
    attack("mounting", lambda: libc.mount(
        b"proc", places["container"].encode(), b"proc", 0, None) == 0 and "proc")


def opened(flags, *paths):
    for path in paths:
        try:
            os.close(os.open(path, flags))
            return path
        except OSError:
            continue


attack("kernel settings", lambda: opened(
    os.O_WRONLY, "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sysrq-trigger", "/proc/mtrr",
    "/sys/kernel/uevent_helper", *glob.glob("/sys/fs/fuse/connections/*/abort")))
attack("devices", lambda: opened(
    os.O_RDWR, "/dev/fuse", "/dev/mem", *glob.glob("/dev/sd*"), *glob.glob("/dev/vd*"), *glob.glob("/dev/loop*")))
attack("files of root", lambda: opened(
    os.O_RDONLY, "/etc/shadow", "/etc/gshadow", "/root/.bashrc", *glob.glob("/etc/ssh/*_key")))
for path in places["write"]:
    attack("written " + path, lambda: os.access(path, os.W_OK) and opened(
        os.O_WRONLY | (os.O_TMPFILE if os.path.isdir(path) else 0), path))

# The record that the next run in the container uses.

record = "user.ward.container"


def forge():
    value = os.getxattr(places["container"], record)
    os.setxattr(places["container"], record, value)
    return "set"


def remove_record():
    value = os.getxattr(places["container"], record)
    os.removexattr(places["container"], record)
    os.setxattr(places["container"], record, value)
    return "removed"


attack("record set", forge)
attack("record removed", remove_record)


def capabilities():
    with open("/proc/self/status") as file:
        lines = dict(line.split(":", 1) for line in file)
    if int(lines["CapEff"], 16) or int(lines["CapBnd"], 16) or lines["NoNewPrivs"].strip() != "1":
        return lines["CapBnd"].strip()


attack("capabilities", capabilities)

for name, got in done.items():
    print(f"got {name}: {str(got)[:200]}" if got else f"not {name}")
