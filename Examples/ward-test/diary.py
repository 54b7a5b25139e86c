"""A diary of class A (complete): readable only while the device is unlocked."""

import os
import pathlib


class Locked(Exception):
    """The device is locked; the diary is all right. Come back after the next unlock."""


class Diary:
    def __init__(self, directory: pathlib.Path) -> None:
        directory.mkdir(exist_ok=True)
        # New files in it take the directory's class.
        os.setxattr(directory, "user.ward.class", b"complete")
        self.path = directory / "diary.txt"

    def entries(self) -> list[str]:
        try:
            return self.path.read_text().splitlines()
        except FileNotFoundError:
            return []
        except PermissionError as error:
            raise Locked from error

    def add(self, entry: str) -> None:
        try:
            with self.path.open("a") as file:
                file.write(entry + "\n")
                file.flush()
                os.fsync(file.fileno())
        except PermissionError as error:
            raise Locked from error
