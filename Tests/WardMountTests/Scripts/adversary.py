"""Attacks the control socket of a volume from several processes until standard input ends: SOCKET KIND...

Prints "at it" when every process has begun, and the number of connections at the end.
"""
import json
import os
import resource
import select
import socket
import sys

path, kinds = sys.argv[1], sys.argv[2:]
PROCESSES = 6
# Ten thousand connections in all, if the limit on descriptors allows them.
CONNECTIONS = 1700

soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def call(method, parameters=None, **more):
    return json.dumps({"method": "org.ward.Volume." + method, "parameters": parameters or {}, **more}).encode() + b"\0"


def opened():
    """A new connection that never blocks, or None if the queue is full."""
    channel = socket.socket(socket.AF_UNIX)
    channel.setblocking(False)
    try:
        channel.connect(path)
    except OSError:
        channel.close()
        return None
    return channel


def sent(channel, content):
    try:
        return channel.send(content) > 0
    except BlockingIOError:
        return True
    except OSError:
        return False


# The bytes that a connection sends first, and those for each later turn; None: nothing more.
FIRST = {
    "connections": (b"", None),
    "halves": (b'{"method":"org.ward.Volume.Status","parameters":{"filler":"' + b"x" * 60000, b"x"),
    "garbage": (b"\xff\xfe{]" * 4000 + b"\0", b"garbage\0"),
    "flood": (b"x" * 65536, b"x" * 65536),
    "monitors": (call("Monitor", {"last": 1000}, more=True), None),
    "status": (call("Status") * 1000, call("Status") * 100),
    "passcodes": (call("Unlock", {"passcode": "wrong horse"}), call("Unlock", {"passcode": "wrong horse"})),
    "stalls": (b'{"method":"org.ward.Volume.Unlock","parameters":{"passcode":"wro', None),
    "members": (
        b'{"method":"org.ward.Volume.Status","parameters":{'
        + b",".join(b'"%x":0' % number for number in range(6000)) + b"}}\0",
        None,
    ),
}


def attack(kinds, tell):
    channels, made = [], 0
    limit = min(CONNECTIONS, hard - 64)
    while not select.select([0], [], [], 0)[0]:
        kind = kinds[made % len(kinds)]
        channel = opened()
        if channel is not None:
            made += 1
            first = FIRST[kind][0]
            if not first or sent(channel, first):
                channels.append((channel, kind))
            else:
                channel.close()
        if made == 100 or made == limit:
            os.write(tell, b".")
        if len(channels) >= limit or channel is None:
            kept = []
            for channel, kind in channels:
                again = FIRST[kind][1]
                # It never reads: the daemon must cope with that.
                if again is None or sent(channel, again):
                    kept.append((channel, kind))
                else:
                    channel.close()
            # The daemon may have closed some of them: they make room for new ones.
            for channel, _ in kept[: max(64, len(kept) // 8)]:
                channel.close()
            channels = kept[max(64, len(kept) // 8):]
    return made


reading, tell = os.pipe()
counting, counted = os.pipe()
children = []
for _ in range(PROCESSES):
    child = os.fork()
    if child == 0:
        made = 0
        try:
            made = attack(kinds, tell)
        finally:
            os.write(counted, b"%d\n" % made)
            os._exit(0)
    children.append(child)
begun = 0
while begun < PROCESSES:
    begun += len(os.read(reading, 1))
print("at it", flush=True)
for child in children:
    os.waitpid(child, 0)
os.close(counted)
print(sum(int(line) for line in os.read(counting, 65536).split()), "connections", flush=True)
