"""Prints the latest events of a mounted volume, one JSON object per line: Varlink by hand, no library.

events.py SOCKET [--follow SECONDS]: with --follow, what happens within that time too.
"""
import json
import select
import socket
import sys
import time

follow = float(sys.argv[3]) if len(sys.argv) > 3 else 0.5
channel = socket.socket(socket.AF_UNIX)
channel.connect(sys.argv[1])
call = {"method": "org.ward.Volume.Monitor", "parameters": {"last": 1000}, "more": True}
channel.sendall(json.dumps(call).encode() + b"\0")
end = time.monotonic() + follow
pending = b""
while (left := end - time.monotonic()) > 0:
    ready, _, _ = select.select([channel], [], [], left)
    if not ready:
        break
    piece = channel.recv(65536)
    if not piece:
        break
    pending += piece
    *messages, pending = pending.split(b"\0")
    for message in messages:
        reply = json.loads(message)
        if "error" in reply:
            sys.exit("error: %r" % reply)
        print(json.dumps(reply["parameters"]["event"]), flush=True)
