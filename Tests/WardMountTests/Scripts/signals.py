"""Programs that begin to follow a volume while it is locked and unlocked: each must know the true state at the end.

signals.py SOCKET PASSCODE-FILE FOLLOWERS ROUNDS: prints one line for each wrong follower, and the number of followers.
"""
import json
import select
import socket
import sys
import threading
import time

path, passcode = sys.argv[1], open(sys.argv[2]).read()
followers, rounds = int(sys.argv[3]), int(sys.argv[4])


class Client:
    def __init__(self):
        self.channel = socket.socket(socket.AF_UNIX)
        self.channel.settimeout(20)
        self.channel.connect(path)
        self.pending = b""

    def send(self, method, more=False, **parameters):
        call = {"method": "org.ward.Volume." + method, "parameters": parameters, "more": more}
        self.channel.sendall(json.dumps(call).encode() + b"\0")

    def answer(self):
        while b"\0" not in self.pending:
            piece = self.channel.recv(65536)
            if not piece:
                raise SystemExit("the daemon hung up")
            self.pending += piece
        message, self.pending = self.pending.split(b"\0", 1)
        reply = json.loads(message)
        if "error" in reply:
            raise SystemExit("error: %r" % reply)
        return reply["parameters"]

    def call(self, method, **parameters):
        self.send(method, **parameters)
        return self.answer()

    def has_answer(self):
        return b"\0" in self.pending or select.select([self.channel], [], [], 0)[0]


def toggle():
    client = Client()
    for _ in range(rounds):
        client.call("Lock", now=True)
        client.call("Unlock", passcode=passcode)
    client.call("Lock", now=True)


thread = threading.Thread(target=toggle)
thread.start()
began = []
for _ in range(followers):
    client = Client()
    client.send("Monitor", more=True, status=True, signals=True, last=0)
    client.first = client.answer()["status"]
    began.append(client)
    time.sleep(0.002)
thread.join()
truth = {c["letter"]: c["available"] for c in Client().call("Status")["status"]["classes"]}
wrong, seen = 0, 0
for client in began:
    known = {c["letter"]: c["available"] for c in client.first["classes"]}
    while client.has_answer():
        event = client.answer()["event"]
        if event["kind"] in ("didBecomeAvailable", "didBecomeUnavailable") and "protectionClass" in event:
            known[event["protectionClass"]] = event["kind"] == "didBecomeAvailable"
            seen += 1
    if known != truth:
        wrong += 1
        print("knows", known, "and the truth is", truth)
print(len(began), "followers,", wrong, "wrong,", "some" if seen else "no", "signals")
