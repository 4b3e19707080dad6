"""Where a directory lies: which parts of which file systems are in it, whatever names and mounts lead there.

A directory below another, one that is mounted twice and one behind a link are the same files under several paths. The
kernel's list of mounts says of each which part of which file system it shows; two directories overlap when one shows
what the other shows, or something above or below it.
"""

import os
import re

from bascule.workspace.ports import Extent

_MOUNTS = "/proc/self/mountinfo"
# Blanks, line ends and backslashes in names, as the kernel writes them.
_ESCAPED = re.compile(rb"\\([0-7]{3})")


def extent_of(descriptor: int, path: str) -> Extent:
    """Of an open directory, as it is named now; `path` is how it was opened, for systems without a list of mounts."""
    try:
        place = os.fsencode(os.readlink(f"/proc/self/fd/{descriptor}"))
        with open(f"/proc/self/fdinfo/{descriptor}", "rb") as file:
            mount = next(line.split()[1] for line in file if line.startswith(b"mnt_id:"))
        with open(_MOUNTS, "rb") as file:
            lines = file.read().splitlines()
    except (OSError, StopIteration):
        return frozenset({("", path)})
    return frozenset(_shown(lines, mount, place)) or frozenset({("", path)})


def _shown(lines: list[bytes], mount: bytes, place: bytes) -> list[tuple[str, str]]:
    """proc(5): mount id, parent's id, device, the part of the file system that is shown, where it is mounted."""
    found = []
    for line in lines:
        number, _, device, part, where = line.split(b" ", 5)[:5]
        shown, point = _plain(part), _plain(where)
        if number == mount:
            inside = place if point == b"/" else place[len(point) :]
            found.append((device.decode(), os.fsdecode(b"/".join((shown.rstrip(b"/"), inside.strip(b"/"))))))
        elif point.startswith(place.rstrip(b"/") + b"/"):
            found.append((device.decode(), os.fsdecode(shown)))
    return found


def _plain(name: bytes) -> bytes:
    return _ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), name)
