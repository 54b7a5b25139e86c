"""ward-reader: lists, checks and extracts a ward volume without ward.

  ward-reader list VOLUME                    names, classes, sizes: needs this device's keys, and no passcode
  ward-reader check VOLUME                   reads everything and says what is damaged where
  ward-reader extract VOLUME TARGET          writes everything to a new directory

Keys: by the device's files and the passcode, or by a recovery kit and its code. The passcode and the code are asked for,
or come from a file or a descriptor, never from an argument. Without the passcode only class D can be read.

Exit status: 0 everything was read; 1 something was locked or could not be written; 10 not a volume; 12 wrong passcode or
code; 14 damaged (what and where is said on standard error); 65 unusable input, or a newer format; 78 no device key; 64,
66, 73 as in sysexits.h.
"""

import argparse
import getpass
import json
import os
import stat
import sys
import time

from .errors import DAMAGED, INPUT, NO_INPUT, SOME_FAILED, USAGE, FormatError, ReaderError
from .extraction import Extraction
from .keybag import RecoveryKit, open_with_device, open_with_kit, read_recovery_code
from .store import Directory
from .structures import CLASS_NAMES
from .volume import Volume, open_root


def default_state_directory():
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(base, "ward")


def arguments():
    parser = argparse.ArgumentParser(
        prog="ward-reader", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True, metavar="list | check | extract")
    for name, summary in [("list", "names, classes, sizes"), ("check", "read everything"), ("extract", "write everything")]:
        command = commands.add_parser(name, help=summary, description=__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
        command.add_argument("volume", help="the backing directory")
        if name == "extract":
            command.add_argument("target", help="a new directory")
        command.add_argument("--state-directory", default=default_state_directory(), metavar="DIR",
                             help="with device.key, or the one above it (default: %(default)s)")
        command.add_argument("--passcode-file", metavar="FILE", help="one newline at its end is dropped")
        command.add_argument("--passcode-fd", type=int, metavar="N")
        command.add_argument("--no-passcode", action="store_true", help="ask for none: class D only")
        command.add_argument("--recovery-kit", metavar="FILE")
        command.add_argument("--recovery-code-file", metavar="FILE")
        command.add_argument("--accept-older", action="store_true",
                             help="the keybag may be older than what this device wrote last")
        command.add_argument("--copied-in-use", action="store_true",
                             help="the volume is a copy that was made while it was in use: accept what that can leave")
        command.add_argument("--older-format", action="store_true",
                             help="with a kit: the copy is from before the end of an upgrade, and is read in the older format")
        command.add_argument("--json", action="store_true", help="one object a line")
    return parser.parse_args()


def secret_from(path, descriptor):
    try:
        with open(path if path is not None else descriptor, "rb") as file:
            data = file.read(4096)
    except OSError as error:
        raise ReaderError(f"the secret can't be read: {error.strerror}", "name a file or descriptor that can be read",
                          NO_INPUT) from None
    return data[:-1] if data.endswith(b"\n") else data


def prompt(text):
    if not os.path.exists("/dev/tty") or not sys.stdin.isatty():
        raise ReaderError("there is no terminal to ask on", "--passcode-file FILE, or --no-passcode", USAGE)
    return getpass.getpass(text)


def open_volume(options):
    root = open_root(Directory, options.volume)
    if options.recovery_kit is not None:
        try:
            with open(options.recovery_kit, "rb") as file:
                kit = RecoveryKit.read_text(file.read(RecoveryKit.TEXT_LIMIT + 1))
            if options.recovery_code_file is not None:
                code = read_recovery_code(secret_from(options.recovery_code_file, None).decode("ascii", "replace"))
            else:
                code = read_recovery_code(prompt("Recovery code: "))
        except OSError as error:
            raise ReaderError(f"{options.recovery_kit} can't be read: {error.strerror}", "name the kit's file",
                              NO_INPUT) from None
        except FormatError as error:
            raise ReaderError(str(error), "is this the kit, and is the code typed as it was written down?", INPUT) from None
        return Volume(root, open_with_kit(root, kit, code, options.older_format), options.copied_in_use)
    passcode = None
    if options.passcode_file is not None or options.passcode_fd is not None:
        passcode = secret_from(options.passcode_file, options.passcode_fd)
    elif options.command != "list" and not options.no_passcode:
        passcode = prompt("Passcode: ").encode("utf-8", "surrogateescape")
    opened = open_with_device(root, options.state_directory, passcode, options.accept_older)
    return Volume(root, opened, options.copied_in_use)


def show(path):
    """A path as a line can hold it."""
    text = "/" + path.decode("utf-8", "backslashreplace")
    return "".join(character if character.isprintable() else character.encode("unicode_escape").decode() for character in text)


def list_entry(entry, options):
    letter = CLASS_NAMES.get(entry.protection_class, "-")
    if options.json:
        print(json.dumps({
            "path": entry.path.decode("utf-8", "surrogateescape"), "class": letter if letter != "-" else None,
            "mode": f"{entry.mode:o}", "size": entry.size, "links": entry.status.st_nlink,
            "modified": entry.status.st_mtime_ns,
            "target": None if entry.link_target is None else entry.link_target.decode("utf-8", "surrogateescape"),
            "attributes": {name.decode("utf-8", "surrogateescape"): value.hex() for name, value in entry.attributes.items()},
            "synchronised": entry.is_synchronised,
        }))
        return
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.status.st_mtime))
    arrow = "" if entry.link_target is None else " -> " + show(entry.link_target)[1:]
    print(f"{stat.filemode(entry.mode)} {letter:2} {entry.size:>12} {when} {show(entry.path)}{arrow}")


def run(options):
    volume = open_volume(options)
    locked = left_out = 0
    if options.command == "extract":
        extraction = Extraction(volume, options.target, options.volume)
        extraction.run()
        locked, left_out = extraction.locked, extraction.left_out
    else:
        for entry, _ in volume.walk():
            if options.command == "list":
                list_entry(entry, options)
            elif entry.is_file and entry.content is not None:
                if volume.can_read(entry):
                    for _ in volume.read(entry):
                        pass
                else:
                    locked += 1
    sys.stdout.flush()
    for note in volume.notes:
        print(f"ward-reader: note: {note}", file=sys.stderr)
    for problem in volume.problems:
        place = "" if problem.first is None else f"bytes {problem.first} to {max(problem.end - 1, problem.first)}: "
        if options.json:
            print(json.dumps({"damaged": problem.path.decode("utf-8", "surrogateescape"), "what": problem.what,
                              "first": problem.first, "end": problem.end}))
        print(f"ward-reader: damaged: {show(problem.path)}: {place}{problem.what}", file=sys.stderr)
    if locked:
        print(f"ward-reader: note: {locked} files are locked: the passcode opens them", file=sys.stderr)
    return DAMAGED if volume.problems else SOME_FAILED if locked or left_out else 0


def main():
    try:
        status = run(arguments())
    except ReaderError as error:
        print(f"ward-reader: error: {error}", file=sys.stderr)
        print(f"ward-reader: hint: {error.hint}", file=sys.stderr)
        status = error.status
    except (KeyboardInterrupt, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = SOME_FAILED
    except OSError as error:
        print(f"ward-reader: error: {error.filename or 'the store'}: {error.strerror}", file=sys.stderr)
        print("ward-reader: hint: run this as the owner of the volume and of its keys", file=sys.stderr)
        status = NO_INPUT
    sys.exit(status)


if __name__ == "__main__":
    main()
