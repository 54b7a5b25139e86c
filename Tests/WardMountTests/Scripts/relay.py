"""A network that can be stopped: forwards TCP connections on loopback. relay.py TARGET-PORT

Prints the port it listens on. SIGSTOP stops the network, SIGKILL cuts it."""
import selectors
import socket
import sys

listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
selector = selectors.DefaultSelector()
selector.register(listener, selectors.EVENT_READ)
peers = {}


def close(one):
    for end in (one, peers.pop(one, None)):
        if end is None:
            continue
        peers.pop(end, None)
        try:
            selector.unregister(end)
        except KeyError:
            pass
        end.close()


while True:
    for key, _ in selector.select():
        if key.fileobj is listener:
            near, _ = listener.accept()
            far = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
            peers[near], peers[far] = far, near
            for end in (near, far):
                selector.register(end, selectors.EVENT_READ)
            continue
        one = key.fileobj
        if one not in peers:
            continue
        try:
            piece = one.recv(65536)
            if piece:
                peers[one].sendall(piece)
            else:
                close(one)
        except OSError:
            close(one)
