"""Takes the name of a control socket, as a program of the same user can, and relays everything but Lock to the daemon.

    false_socket.py SOCKET HEARD [--alone]      clients' messages are appended to the file HEARD; --alone: there is no daemon
"""

import json
import os
import select
import socket
import sys
import threading

name, heard = sys.argv[1:3]
real = name + ".real"
listener = socket.socket(socket.AF_UNIX)
listener.bind(name + ".false")
listener.listen(64)
if "--alone" not in sys.argv:
    os.rename(name, real)
# In one step: the daemon makes a socket that is gone again.
os.rename(name + ".false", name)
record = open(heard, "ab", buffering=0)


def relay(client):
    daemon = socket.socket(socket.AF_UNIX)
    try:
        daemon.connect(real)
    except OSError:
        daemon = None
    try:
        while True:
            ready, _, _ = select.select([client] + ([daemon] if daemon else []), [], [])
            for end in ready:
                piece = end.recv(65536)
                if not piece:
                    return
                if end is daemon:
                    client.sendall(piece)
                    continue
                record.write(piece)
                if b".Lock" in piece:
                    client.sendall(json.dumps({"parameters": {"state": "locked"}}).encode() + b"\0")
                elif daemon:
                    daemon.sendall(piece)
    except OSError:
        pass
    finally:
        client.close()


record.write(b"listening\n")
while True:
    threading.Thread(target=relay, args=(listener.accept()[0],), daemon=True).start()
