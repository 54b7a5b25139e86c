"""Run it with: ward test -- python3 test_diary.py"""

import os
import pathlib
import subprocess
import unittest

import diary


def ward(*words: str) -> None:
    """Below ward test a command needs no mount point and no passcode."""
    subprocess.run(["ward", *words, "--quiet"], check=True)


class DiaryTest(unittest.TestCase):
    def setUp(self) -> None:
        ward("unlock")
        self.diary = diary.Diary(pathlib.Path(os.environ["WARD_TEST_VOLUME"]) / self._testMethodName)
        self.diary.add("Monday: rain.")

    def test_stays_readable_during_the_grace_period(self) -> None:
        ward("lock")
        ward("advance", "9s")
        self.assertEqual(self.diary.entries(), ["Monday: rain."])
        ward("advance", "1s")
        self.assertRaises(diary.Locked, self.diary.entries)

    def test_locked_is_not_missing(self) -> None:
        ward("lock", "--now")
        self.assertRaises(diary.Locked, self.diary.entries)
        self.assertRaises(diary.Locked, self.diary.add, "Tuesday: sun.")
        ward("unlock")
        self.assertEqual(self.diary.entries(), ["Monday: rain."])

    def test_after_a_reboot(self) -> None:
        ward("reboot")
        self.assertRaises(diary.Locked, self.diary.entries)

    def test_a_full_disk_loses_nothing(self) -> None:
        ward("fill")
        try:
            with self.assertRaises(OSError):
                self.diary.add("x" * 100_000)
        finally:
            ward("fill", "--undo")
        self.assertEqual(self.diary.entries()[0], "Monday: rain.")


if __name__ == "__main__":
    unittest.main()
