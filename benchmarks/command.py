"""What the benchmarks on a disk of their own have in common: arguments, a run in namespaces, and where its result goes."""

import argparse
import json
import os
import pathlib
import sys
import time

import isolation
import systems


def parser(description: str) -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--ward", default=str(systems.ROOT / ".build/release/ward"), help="the program to measure")
    arguments.add_argument("--quick", action="store_true", help="much less of everything: minutes")
    arguments.add_argument("--image", type=pathlib.Path, default=pathlib.Path("/var/tmp"),
                           help="where the image of the disk goes (%(default)s)")
    arguments.add_argument("--patience", type=int, help="seconds to wait for a quiet machine, in all")
    arguments.add_argument("--json", type=pathlib.Path, help="also write every figure here")
    arguments.add_argument("--from", dest="source", type=pathlib.Path,
                           help="measure nothing: report on this file of figures")
    arguments.add_argument("--write", type=pathlib.Path, help="also put the tables into this Markdown file, a chart beside it")
    arguments.set_defaults(against=None)
    return arguments


def choose(arguments: argparse.ArgumentParser, given: str, known) -> list[str]:
    names = given.split(",")
    for name in names:
        if name not in known:
            arguments.error(f"unknown: {name}; known are {', '.join(known)}")
    return names


def available(names: list[str], kinds: dict, result: dict) -> list[str]:
    """Those that can be had here; the others are told."""
    for name in names:
        if why := kinds[name].missing():
            result["left_out"][name] = why
            print(f"note: {name} is left out: {why}", file=sys.stderr)
    return [name for name in names if name not in result["left_out"]]


class Patience:
    """Waits for a quiet machine, up to so many seconds in all, and counts how often that was in vain."""

    def __init__(self, seconds: float, result: dict) -> None:
        self.left, self.result = seconds, result

    def wait(self) -> None:
        begin = time.monotonic()
        self.result["cells"] += 1
        self.result["busy"] += not systems.wait_until_quiet(self.left)
        self.left = max(1.0, self.left - (time.monotonic() - begin))


def result(options, body) -> dict:
    """What `body(scratch, result)` adds to a result, in namespaces of its own; or what --from has."""
    if options.source:
        return json.loads(options.source.read_text(encoding="utf-8"))
    if os.geteuid():
        sys.exit("error: this needs root, for a loop device and a file system on it\nhint: run it with sudo")
    programs = {"ward": options.ward} | ({"ward-before": options.against} if options.against else {})
    for program in programs.values():
        if not os.access(program, os.X_OK):
            sys.exit(f"error: no program {program}\nhint: run make first")
    found = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "machine": systems.machine(), "versions": {}, "left_out": {},
             "cells": 0, "busy": 0}

    def work(scratch: pathlib.Path) -> dict:
        options.ward = str(scratch / "ward")
        options.against = options.against and str(scratch / "ward-before")
        body(scratch, found)
        return found

    return isolation.alone(work, programs)


def finish(options, result: dict, section: str, text: str, chart: tuple[str, str] | None = None,
           page: str | None = None) -> None:
    """`chart` is the end of the picture's name, and the picture; `page` is what the Markdown file gets, if not `text`."""
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(text)
    if options.write:
        systems.write_section(options.write, section, page or text)
        if chart:
            options.write.with_name(f"{options.write.stem}{chart[0]}.svg").write_text(chart[1], encoding="utf-8")


def notes(result: dict, *more: str) -> str:
    """The circumstances of a run, as a table."""
    rows = [("measured on", result["date"]), ("machine", result["machine"])]
    rows.append(("versions", ", ".join(version for version in result["versions"].values() if version)))
    if more:
        rows.append(("with", "; ".join(more)))
    rows += [(f"{name} is left out", why) for name, why in result["left_out"].items()]
    if result["busy"]:
        rows.append(("disturbed", f"{result['busy']} of {result['cells']} measurements began on a busy machine"))
    return "\n".join(["| circumstances | |", "| --- | --- |", *(f"| {name} | {text} |" for name, text in rows)])
