"""Prints the latest events of a mounted volume, one JSON object per line: Varlink by hand, no library.

events.py SOCKET
"""
import json
import socket
import sys

channel = socket.socket(socket.AF_UNIX)
channel.settimeout(30)
channel.connect(sys.argv[1])
parameters = {"last": 1000, "follow": False}
call = {"method": "org.ward.Volume.Monitor", "parameters": parameters, "more": True}
channel.sendall(json.dumps(call).encode() + b"\0")
pending = b""
while True:
    piece = channel.recv(65536)
    if not piece:
        sys.exit("the daemon hung up")
    pending += piece
    *messages, pending = pending.split(b"\0")
    for message in messages:
        reply = json.loads(message)
        if "error" in reply:
            sys.exit("error: %r" % reply)
        if "event" in reply["parameters"]:
            print(json.dumps(reply["parameters"]["event"]), flush=True)
        if not reply.get("continues"):
            sys.exit()
