"""Talks to a mounted volume with the varlink package, which knows nothing of ward.

varlink_client.py PACKAGES SOCKET PASSCODE-FILE: prints one line for each step.
"""
import sys
import threading
import time

sys.path.insert(0, sys.argv[1])
import varlink  # noqa: E402

socket, passcode = sys.argv[2], open(sys.argv[3]).read()
client = varlink.Client("unix:" + socket)


def name(error):
    return error.error().rpartition(".")[2]


with client.open("org.varlink.service") as service:
    info = service.GetInfo()
    print("interfaces", " ".join(sorted(info["interfaces"])))
    description = service.GetInterfaceDescription("org.ward.Volume")["description"]
    print("described", "method Monitor" in description and "interface org.ward.Volume" in description)

events = []
subscribed = threading.Event()


def listen():
    with varlink.Client("unix:" + socket).open("org.ward.Volume") as ward:
        try:
            replies = ward.Monitor(status=True, _more=True)
            next(replies)  # The status: every later event will be heard.
            subscribed.set()
            for reply in replies:
                events.append(reply["event"]["kind"])
        except Exception:
            pass  # The daemon ends the stream when it ends.


threading.Thread(target=listen, daemon=True).start()
if not subscribed.wait(20):
    sys.exit("Monitor does not answer")

with client.open("org.ward.Volume") as ward:
    print("status", ward.Status()["status"]["state"])
    print("lock", ward.Lock()["state"])
    print("advance", ward.Advance(10.0)["state"])
    classes = ward.Status()["status"]["classes"]
    print("available", " ".join(c["letter"] for c in classes if c["available"]))
    try:
        ward.Unlock("wrong")
    except varlink.VarlinkError as error:
        print("wrong passcode", name(error))
    print("unlock", ward.Unlock(passcode)["state"])
    print("lock now", ward.Lock(now=True)["state"])
    print("unlock", ward.Unlock(passcode)["state"])
    print("reboot", ward.Reboot()["state"])
    print("unlock", ward.Unlock(passcode)["state"])
    try:
        ward.SetPasscode("another")
    except varlink.VarlinkError as error:
        print("set again", name(error))
    try:
        ward.RemovePasscode("wrong")
    except varlink.VarlinkError as error:
        print("remove with a wrong one", name(error))

for _ in range(300):
    if events.count("didBecomeAvailable") >= 3:
        break
    time.sleep(0.1)
wanted = ("willBecomeUnavailable", "locked", "didBecomeAvailable", "firstUnlock", "reboot")
print("events", " ".join(e for e in events if e in wanted))

with client.open("org.ward.Volume") as ward:
    ward.Unmount()
    print("unmounted")
