"""Where the git repositories of a workspace are, as far as names tell."""

import contextlib
import os
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from bascule.workspace.machine.files.root import ARTIFACTS

# Git's own record: huge, and git has its own ways to go back, so no checkpoint holds it.
GIT = ".git"
# Entries looked at in one search.
MAX_WALKED = 500_000

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Repositories(NamedTuple):
    inodes: dict[str, int]
    # Whether every directory was looked at.
    complete: bool


def find_repositories(root: int, folders: Sequence[str] = ("",), most: int = MAX_WALKED) -> Repositories:
    """Blocking. Every place called `.git` in these folders, the nearest first, in as many entries as `most`."""
    found: dict[str, int] = {}
    left = most
    waiting = deque(folders)
    while waiting:
        folder = waiting.popleft()
        with contextlib.suppress(OSError):
            descriptor = os.open(folder or ".", _DIRECTORY, dir_fd=root)
            try:
                with os.scandir(descriptor) as entries:
                    for entry in entries:
                        left -= 1
                        place = f"{folder}/{entry.name}" if folder else entry.name
                        if entry.name == GIT:
                            found[place] = entry.inode()
                        elif entry.is_dir(follow_symlinks=False) and place != ARTIFACTS:
                            waiting.append(place)
                        if left <= 0:
                            return Repositories(found, complete=False)
            finally:
                os.close(descriptor)
    return Repositories(found, complete=True)
