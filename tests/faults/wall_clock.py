"""The wall clock of a daemon, moved under it by libfaketime."""

import glob
import os

from lacking import missing_here


class WallClock:
    """What libfaketime shows to processes started from now on, and to those that run already."""

    def __init__(self, path, monkeypatch):
        libraries = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
        if not libraries:
            missing_here("no libfaketime to move a process's clock with (Debian: libfaketime)")
        self._path = os.fspath(path)
        self.set("+0")
        monkeypatch.setenv("LD_PRELOAD", libraries[0])
        monkeypatch.setenv("FAKETIME_TIMESTAMP_FILE", self._path)
        monkeypatch.setenv("FAKETIME_NO_CACHE", "1")
        # Without this a backward jump holds up the event loop itself, which no machine's clock does.
        monkeypatch.setenv("FAKETIME_DONT_FAKE_MONOTONIC", "1")

    def set(self, text):
        with open(f"{self._path}.new", "w") as file:
            file.write(text + "\n")
        os.replace(f"{self._path}.new", self._path)
