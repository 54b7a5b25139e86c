"""Two Syncthings over loopback that synchronise one directory from the first to the second, without any other host.

    syncthing.py WORK SOURCE TARGET

For each line of input the source is scanned, and "synced" is printed when the target has everything. Ends both at the end of
its input. Their own files are below WORK. The folder's marker is a file that every ward volume has, so that no foreign file
is put into the volume.
"""
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import xml.etree.ElementTree as xml

SECONDS = 120
FOLDER = "ward"
work, source, target = sys.argv[1:4]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def ends_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Node:
    """One Syncthing: its home, identity, ports and process."""

    def __init__(self, name, path, kind):
        self.home = os.path.join(work, name)
        self.path, self.kind = path, kind
        self.port, self.gui = free_port(), free_port()
        # STMONITORED: a single process, which ends with this one, instead of one that watches another.
        self.environment = dict(
            os.environ, HOME=self.home, STNOUPGRADE="1", STNODEFAULTFOLDER="1", STMONITORED="1", GOMAXPROCS="2")
        os.makedirs(self.home, exist_ok=True)
        subprocess.run(
            ["syncthing", "generate", "--home=" + self.home, "--no-default-folder", "--skip-port-probing"],
            check=True, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        out = subprocess.run(["syncthing", "--home=" + self.home, "--device-id"], check=True, env=self.environment,
                             stdout=subprocess.PIPE)
        self.identity = out.stdout.decode().strip()

    def configure(self, other):
        file = os.path.join(self.home, "config.xml")
        tree = xml.parse(file)
        root = tree.getroot()
        for child in list(root):
            if child.tag in ("folder", "device"):
                root.remove(child)
        folder = xml.SubElement(root, "folder", id=FOLDER, label=FOLDER, path=self.path, type=self.kind,
                                rescanIntervalS="0", fsWatcherEnabled="false", ignorePerms="false")
        for node in (self, other):
            xml.SubElement(folder, "device", id=node.identity)
        xml.SubElement(folder, "markerName").text = "ward.keybag"
        xml.SubElement(folder, "minDiskFree", unit="%").text = "0"
        for node in (self, other):
            device = xml.SubElement(root, "device", id=node.identity, name=node.home, compression="never")
            xml.SubElement(device, "address").text = "tcp://127.0.0.1:%d" % node.port
        gui = root.find("gui")
        gui.find("address").text = "127.0.0.1:%d" % self.gui
        self.key = gui.find("apikey").text
        options = root.find("options")
        for child in list(options):
            if child.tag in ("listenAddress", "globalAnnounceServer"):
                options.remove(child)
        wanted = {
            "listenAddress": "tcp://127.0.0.1:%d" % self.port, "globalAnnounceEnabled": "false",
            "localAnnounceEnabled": "false", "relaysEnabled": "false", "natEnabled": "false", "urAccepted": "-1",
            "crashReportingEnabled": "false", "startBrowser": "false", "reconnectionIntervalS": "1",
            "stunKeepaliveStartS": "0", "autoUpgradeIntervalH": "0",
        }
        for tag, text in wanted.items():
            element = options.find(tag)
            if element is None:
                element = xml.SubElement(options, tag)
            element.text = text
        tree.write(file)

    def start(self):
        self.process = subprocess.Popen(
            ["syncthing", "serve", "--home=" + self.home, "--no-browser", "--logflags=0"],
            env=self.environment, stdin=subprocess.DEVNULL, stdout=open(self.home + "/log", "wb"), stderr=subprocess.STDOUT,
            preexec_fn=ends_with_parent)

    def ask(self, method, call, **arguments):
        query = "&".join("%s=%s" % item for item in arguments.items())
        request = urllib.request.Request(
            "http://127.0.0.1:%d/rest/%s?%s" % (self.gui, call, query), method=method, headers={"X-API-Key": self.key})
        with urllib.request.urlopen(request, timeout=30) as answer:
            body = answer.read()
            return json.loads(body) if body else None


def wait(what, body):
    end = time.monotonic() + SECONDS
    last = None
    while time.monotonic() < end:
        try:
            last = body()
            if last is True:
                return
        except OSError as error:
            last = error
        time.sleep(0.1)
    for node in nodes:
        sys.stderr.write(open(node.home + "/log", errors="replace").read()[-3000:])
    sys.exit("no %s within %d s: %s" % (what, SECONDS, last))


nodes = [Node("first", source, "sendonly"), Node("second", target, "receiveonly")]
first, second = nodes
first.configure(second)
second.configure(first)
# Without the marker Syncthing refuses the folder at the first scan.
for name in ("ward.keybag",):
    with open(os.path.join(source, name), "rb") as original, open(os.path.join(target, name), "wb") as copy:
        copy.write(original.read())
for node in nodes:
    node.start()
try:
    for node in nodes:
        wait("answer", lambda: node.ask("GET", "system/ping")["ping"] == "pong")
    wait("connection", lambda: any(
        peer["connected"] for peer in first.ask("GET", "system/connections")["connections"].values()))

    def same():
        here, there = (node.ask("GET", "db/status", folder=FOLDER) for node in nodes)
        states = here["state"], there["state"], there["needTotalItems"], there["pullErrors"]
        if states != ("idle", "idle", 0, 0):
            return states
        # The target's status counts when it knows all files of the source.
        known = there["globalFiles"], there["globalSymlinks"], there["globalDirectories"], there["globalBytes"]
        has = here["localFiles"], here["localSymlinks"], here["localDirectories"], here["localBytes"]
        return known == has or (known, has)

    for line in sys.stdin:
        first.ask("POST", "db/scan", folder=FOLDER)
        time.sleep(0.2)
        wait("synchronisation", same)
        print("synced", flush=True)
finally:
    for node in nodes:
        node.process.kill()
    for node in nodes:
        node.process.wait()
