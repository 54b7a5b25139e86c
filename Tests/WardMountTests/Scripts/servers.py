"""A user's servers, which send every client the secret: servers.py DIRECTORY SECRET

They listen on a socket with a path (DIRECTORY/server), on an abstract one (its name is DIRECTORY),
and on a port of this machine: the first line of output. Serves until its input ends.
"""
import socket
import sys
import threading

directory, secret = sys.argv[1:]
with_path, without, port = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX), socket.socket()
with_path.bind(directory + "/server")
without.bind("\0" + directory)
port.bind(("127.0.0.1", 0))


def serve(listener):
    listener.listen()
    while True:
        client, _ = listener.accept()
        with client:
            client.sendall(secret.encode())


for listener in (with_path, without, port):
    threading.Thread(target=serve, args=(listener,), daemon=True).start()
print(port.getsockname()[1], flush=True)
sys.stdin.read()
