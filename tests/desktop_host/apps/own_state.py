"""What a fixture program knows about itself, written to a file at each change: tests believe this, not our replies."""

import json
import os
import sys


class OwnState:
    """The state file is replaced whole, so that a reader never sees half of it."""

    def __init__(self, path):
        self._path = path
        self._values = {"pid": os.getpid(), "ready": False}

    def set(self, **values):
        self._values.update(values)
        temporary = f"{self._path}.{os.getpid()}.new"
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(self._values, file)
        os.replace(temporary, self._path)

    def add(self, name, count=1):
        self.set(**{name: self._values.get(name, 0) + count})

    def append(self, name, item):
        self.set(**{name: [*self._values.get(name, []), item]})


def arguments():
    """`program STATE-FILE [--title TEXT] [--rows N]`."""
    state, rest = OwnState(sys.argv[1]), sys.argv[2:]
    options = {"title": "Fixture", "rows": "0"}
    options.update(zip((name.lstrip("-") for name in rest[::2]), rest[1::2], strict=True))
    return state, options["title"], int(options["rows"])
