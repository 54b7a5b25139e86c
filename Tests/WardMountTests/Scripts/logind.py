"""A login manager that obeys commands, on a message bus of its own.

usage: logind.py PACKAGES BUS_ADDRESS UID

Answers Inhibit, GetUser, and the properties User of every session and State of UID. Like the real one it checks one right
for each kind of lock, and refuses a lock of both kinds to a user without a local session.

Each line of standard input is a command, answered by one line:
sleep, shutdown     answers when no delay lock of that kind is held any more
wake, lock PATH, hint PATH, other PATH, forge
locks               the number of delay locks that were taken, and of those that are held
held KIND           the number of held locks of that kind
wait                answers when all locks that it does not refuse are held
refuse KIND, allow
state WORD          State of UID, without a signal
begin, end          a session of UID begins, or its last one ends, with the signal
gone, back          the login manager itself
"""
import os
import select
import sys
import time

sys.path.insert(0, sys.argv[1])
from jeepney import DBusAddress, HeaderFields, MessageType, new_error, new_method_return, new_signal
from jeepney.bus_messages import message_bus
from jeepney.io.blocking import open_dbus_connection

NAME = "org.freedesktop.login1"
MANAGER = DBusAddress("/org/freedesktop/login1", NAME, NAME + ".Manager")


class Logind:
    def __init__(self, address, uid):
        self.uid = uid
        self.address = address
        self.bus = open_dbus_connection(bus=address, enable_fds=True)
        self.bus.send_and_get_reply(message_bus.RequestName(NAME))
        self.inhibitors = []  # (kind, read end); the client holds the other
        self.taken = 0
        self.refused = set()
        self.state = "active"

    def answer(self, message):
        fields = message.header.fields
        if message.header.message_type != MessageType.method_call:
            return
        member = fields[HeaderFields.member]
        if member == "Inhibit":
            what, _, _, mode = message.body
            if mode != "delay" or what not in ("sleep", "shutdown") or what in self.refused:
                denied = "org.freedesktop.DBus.Error.AccessDenied"
                self.bus.send(new_error(message, denied, "s", ("Permission denied",)))
                return
            reading, writing = os.pipe()
            os.set_blocking(reading, False)
            self.bus.send(new_method_return(message, "h", (writing,)))
            os.close(writing)
            self.inhibitors.append((what, reading))
            self.taken += 1
        elif member == "GetUser":
            if message.body[0] != self.uid or self.state == "none":
                self.bus.send(new_error(message, NAME + ".NoSuchUser", "s", ("not logged in",)))
            else:
                self.bus.send(new_method_return(message, "o", ("/org/freedesktop/login1/user/_1",)))
        elif member == "Get" and message.body[1] == "State":
            self.bus.send(new_method_return(message, "v", (("s", self.state),)))
        elif member == "Get" and message.body[1] == "User":
            user = self.uid if "other" not in fields[HeaderFields.path] else self.uid + 1
            self.bus.send(new_method_return(message, "v", (("(uo)", (user, "/org/freedesktop/login1/user/_1")),)))
        else:
            self.bus.send(new_error(message, "org.freedesktop.DBus.Error.UnknownMethod"))

    def held(self, kind=None):
        """Delay locks whose other end is still open."""
        for inhibitor in list(self.inhibitors):
            try:
                if os.read(inhibitor[1], 1) == b"":
                    os.close(inhibitor[1])
                    self.inhibitors.remove(inhibitor)
            except BlockingIOError:
                pass
        return sum(kind in (None, inhibitor[0]) for inhibitor in self.inhibitors)

    def all_held(self):
        return all(self.held(kind) > 0 for kind in {"sleep", "shutdown"} - self.refused)

    def wait_until(self, condition, seconds=20):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                return False
            self.serve(0.02)
        return True

    def serve(self, seconds):
        try:
            self.answer(self.bus.receive(timeout=seconds))
        except TimeoutError:
            pass

    def signal(self, member, flag):
        self.bus.send(new_signal(MANAGER, member, "b", (flag,)))

    def session(self, path, interface, member, signature=None, body=()):
        self.bus.send(new_signal(DBusAddress(path, NAME, interface), member, signature, body))

    def do(self, line):
        command, *arguments = line.split()
        if command in ("sleep", "shutdown"):
            self.signal("PrepareForSleep" if command == "sleep" else "PrepareForShutdown", True)
            return "released" if self.wait_until(lambda: self.held(command) == 0) else "still held"
        if command == "wake":
            before = self.taken
            self.signal("PrepareForSleep", False)
            self.signal("PrepareForShutdown", False)
            expected = before + len({"sleep", "shutdown"} - self.refused)
            return "taken" if self.wait_until(lambda: self.taken >= expected) else "not taken"
        if command == "locks":
            return "%d %d" % (self.taken, self.held())
        if command == "held":
            return str(self.held(arguments[0]))
        if command == "wait":
            return "taken" if self.wait_until(self.all_held) else "not taken"
        if command == "refuse":
            self.refused.add(arguments[0])
            return "refused"
        if command == "allow":
            self.refused.clear()
            return "allowed"
        if command == "state":
            self.state = arguments[0]
            return "so"
        if command in ("begin", "end"):
            self.state = "active" if command == "begin" else "none"
            body = ("31", "/org/freedesktop/login1/session/_31")
            self.bus.send(new_signal(MANAGER, "SessionNew" if command == "begin" else "SessionRemoved", "so", body))
            return "sent"
        if command == "gone":
            self.bus.send_and_get_reply(message_bus.ReleaseName(NAME))
            return "gone"
        if command == "back":
            self.bus.send_and_get_reply(message_bus.RequestName(NAME))
            return "back"
        if command == "lock":
            self.session(arguments[0], NAME + ".Session", "Lock")
            return "sent"
        if command == "hint":
            changed = {"IdleHint": ("b", False), "LockedHint": ("b", True)}
            body = (NAME + ".Session", changed, [])
            self.session(arguments[0], "org.freedesktop.DBus.Properties", "PropertiesChanged", "sa{sv}as", body)
            return "sent"
        if command == "forge":
            # Another program's signals: broadcast, and sent to each connection.
            other = open_dbus_connection(bus=self.address)
            names = other.send_and_get_reply(message_bus.ListNames()).body[0]
            for destination in [None] + [name for name in names if name.startswith(":")]:
                for member in ("PrepareForSleep", "PrepareForShutdown"):
                    message = new_signal(MANAGER, member, "b", (True,))
                    if destination:
                        message.header.fields[HeaderFields.destination] = destination
                    other.send(message)
            other.close()
            return "sent"
        return "what is %s?" % command


def main():
    logind = Logind(sys.argv[2], int(sys.argv[3]))
    print("ready", flush=True)
    bus_socket = logind.bus.sock.fileno()
    pending = b""
    while True:
        ready, _, _ = select.select([0, bus_socket], [], [])
        if bus_socket in ready:
            logind.serve(0.01)
        if 0 in ready:
            piece = os.read(0, 4096)
            if not piece:
                return
            pending += piece
            while b"\n" in pending:
                line, pending = pending.split(b"\n", 1)
                print(logind.do(line.decode()), flush=True)


main()
