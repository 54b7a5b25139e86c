"""Runs a program in a terminal of its own and reports its screen: the part of ECMA-48 that ward watch uses.

terminal.py COLUMNS ROWS -- PROGRAM ARGUMENTS…: reads commands from standard input, one JSON list a line, answers one JSON
object a line. ["wait", TEXT, SECONDS]: until TEXT is on the screen; ["beyond", BYTES, SECONDS]: until it has written more
than BYTES; ["type", TEXT]; ["resize", COLUMNS, ROWS]; ["signal", NUMBER]: after SIGTSTP, waits until the program has
stopped; ["end", SECONDS]: waits for the program's end. Each answer has `ok`, `lines`, and after the end `status`,
`restored` (the terminal's modes are the same as before), `alternate` and `cursor` (as the program left them), `bytes` (the
length of its output).
"""
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time

SEQUENCE = re.compile(rb"\x1b\[([?0-9;]*)([A-Za-z])")


class Screen:
    def __init__(self, columns, rows):
        self.alternate, self.cursor, self.bytes = False, True, 0
        self.pending = b""
        self.resize(columns, rows)

    def resize(self, columns, rows):
        self.columns, self.rows = columns, rows
        self.clear()

    def clear(self):
        self.cells = [[" "] * self.columns for _ in range(self.rows)]
        self.row = self.column = 0

    def feed(self, data):
        self.bytes += len(data)
        data = self.pending + data
        at = 0
        while at < len(data):
            if data[at] == 0x1B:
                match = SEQUENCE.match(data, at)
                if not match:
                    if len(data) - at > 32:
                        raise SystemExit("not a sequence this terminal knows: %r" % data[at : at + 32])
                    break
                self.control(match.group(1).decode(), match.group(2).decode())
                at = match.end()
                continue
            length = 1 if data[at] < 0x80 else 2 if data[at] < 0xE0 else 3 if data[at] < 0xF0 else 4
            if at + length > len(data):
                break
            self.put(data[at : at + length].decode("utf-8", "replace"))
            at += length
        self.pending = data[at:]

    def put(self, character):
        if character == "\r":
            self.column = 0
        elif character == "\n":
            self.row = min(self.row + 1, self.rows - 1)
        elif self.row < self.rows and self.column < self.columns:
            self.cells[self.row][self.column] = character
            self.column += 1

    def control(self, parameters, final):
        if final in "hl" and parameters == "?1049":
            self.alternate = final == "h"
        elif final in "hl" and parameters == "?25":
            self.cursor = final == "h"
        elif final == "H":
            row, column = (int(part) for part in parameters.split(";"))
            self.row, self.column = row - 1, column - 1
        elif final == "J":
            self.clear()
        elif final == "K" and self.row < self.rows:
            for column in range(self.column, self.columns):
                self.cells[self.row][column] = " "

    def lines(self):
        return ["".join(row).rstrip() for row in self.cells]


def main():
    columns, rows = int(sys.argv[1]), int(sys.argv[2])
    master, slave = pty.openpty()
    size = lambda c, r: fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", r, c, 0, 0))
    size(columns, rows)
    before = termios.tcgetattr(slave)
    child = os.fork()
    if child == 0:
        os.login_tty(slave) if hasattr(os, "login_tty") else child_terminal(slave)
        os.execvp(sys.argv[4], sys.argv[4:])
    screen = Screen(columns, rows)
    ended = None

    def read(seconds):
        """Returns whether there was output."""
        ready, _, _ = select.select([master], [], [], seconds)
        if ready:
            try:
                screen.feed(os.read(master, 65536))
            except OSError:
                return False
        return bool(ready)

    def has_ended():
        nonlocal ended
        if ended is None:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                ended = os.waitstatus_to_exitcode(status)
        return ended is not None

    def drain():
        """Reads the rest of the output after the program's end: it comes in pieces."""
        while read(0.05):
            pass

    for request in sys.stdin:
        name, *arguments = json.loads(request)
        ok = True
        if name == "wait":
            until = time.monotonic() + arguments[1]
            shows = lambda: any(arguments[0] in line for line in screen.lines())
            while not shows() and time.monotonic() < until and not has_ended():
                read(0.1)
            if has_ended():
                drain()
            ok = shows()
        elif name == "beyond":
            until = time.monotonic() + arguments[1]
            while screen.bytes <= arguments[0] and time.monotonic() < until and not has_ended():
                read(0.1)
            ok = screen.bytes > arguments[0]
        elif name == "type":
            os.write(master, arguments[0].encode())
        elif name == "resize":
            screen.resize(*arguments)
            size(*arguments)
        elif name == "signal":
            os.kill(child, arguments[0])
            if arguments[0] == signal.SIGTSTP:
                os.waitid(os.P_PID, child, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        elif name == "end":
            until = time.monotonic() + arguments[0]
            while not has_ended() and time.monotonic() < until:
                read(0.05)
            ok = has_ended()
            drain()
        answer = {"ok": ok, "lines": screen.lines(), "bytes": screen.bytes}
        if ended is not None:
            answer["status"] = ended
            answer["restored"] = termios.tcgetattr(slave) == before
            answer["alternate"], answer["cursor"] = screen.alternate, screen.cursor
        print(json.dumps(answer), flush=True)
    if not has_ended():
        os.kill(child, 9)
        os.waitpid(child, 0)


def child_terminal(slave):
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    for descriptor in range(3):
        os.dup2(slave, descriptor)


main()
