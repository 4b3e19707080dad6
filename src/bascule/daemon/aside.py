"""What was moved aside, as a start and `bascule doctor` name it. Standard library only, as doctor's checks are."""

import os
import re
from typing import NamedTuple

from bascule.foundation import paths

UNFINISHED = ".unfinished"
_NAME = re.compile(r"\d{8}T\d{6}Z-(?P<name>[a-z]+)-format-(?P<format>\d+)(\.\d+)?(?P<unfinished>\.unfinished)?")


class Aside(NamedTuple):
    """One directory of `paths.aside_dir`."""

    path: str
    name: str
    format: str
    finished: bool

    @property
    def what(self) -> str:
        return f"{self.name} and what undoes them, in format {self.format}, which this Bascule does not read"

    @property
    def how(self) -> str:
        if not self.finished:
            return "not all of it is moved yet: the next start goes on with it"
        return f"docs/backups.md says how to use it; when you do not need it: rm -r '{self.path}'"

    def size(self) -> int:
        """In bytes; looks at every file."""
        walk = os.walk(self.path)
        return sum(os.lstat(os.path.join(folder, name)).st_size for folder, _, names in walk for name in names)


def moved_aside(state_dir: str) -> list[Aside]:
    """What is there, the oldest first."""
    directory = paths.aside_dir(state_dir)
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return []
    matches = [match for name in names if (match := _NAME.fullmatch(name))]
    return [
        Aside(os.path.join(directory, match[0]), match["name"], match["format"], match["unfinished"] is None)
        for match in matches
    ]
