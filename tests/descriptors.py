"""Which descriptors of this process were opened since a moment and are still open.

Not a count: the garbage collector may close what an earlier test left, at any time.
"""

import contextlib
import os


class Descriptors:
    """Those that are open now, to compare with later."""

    def __init__(self) -> None:
        self._before = _files_by_descriptor()

    def left(self) -> list[str]:
        """What each descriptor that was opened since leads to."""
        found = []
        for number, file in _files_by_descriptor().items():
            if self._before.get(number) != file:
                with contextlib.suppress(FileNotFoundError):
                    found.append(os.readlink(f"/dev/fd/{number}"))
        return found


def _files_by_descriptor() -> dict[int, tuple[int, int]]:
    """Device and inode of each: the name of a file that is removed meanwhile would change."""
    files = {}
    for number in map(int, os.listdir("/dev/fd")):
        # The one that listing took is closed by now.
        with contextlib.suppress(OSError):
            at = os.fstat(number)
            files[number] = (at.st_dev, at.st_ino)
    return files
