"""Opening a path beneath a directory's descriptor, whatever links are on the way and whoever changes them meanwhile.

Checking `realpath` and then opening loses the race against a process that swaps names: one read in sixteen went
outside when we measured it. So the kernel resolves and opens in one call, or we walk by hand and hold on to every
directory on the way. Both answer alike:

- a link that is relative and stays inside is followed; one that is absolute or leaves is EXDEV, and so are `/proc`'s
  magic links and another file system mounted inside (what a mount shows is not the workspace's content, and no
  checkpoint has it);
- with `links=False` any link is ELOOP.
"""

import errno
import os
import stat
from typing import Protocol

from bascule.adapters.files.syscalls import (
    RESOLVE_BENEATH,
    RESOLVE_NO_MAGICLINKS,
    RESOLVE_NO_SYMLINKS,
    RESOLVE_NO_XDEV,
    has_openat2,
    openat2,
)

# Where there is no O_PATH (macOS), a directory must be readable to be walked through.
O_PATH: int = getattr(os, "O_PATH", os.O_RDONLY)
# As many as the kernel follows in one path.
MAX_LINKS = 40
# "The kernel could not ensure that a `..` component didn't escape (due to a race condition)": openat2(2) says to
# try again. A thousand lost races in a row are an attack.
MAX_RACES = 1_000

_INSIDE = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV
_INSIDE_WITHOUT_LINKS = _INSIDE | RESOLVE_NO_SYMLINKS


class Opener(Protocol):
    def open(self, root: int, path: str | bytes, flags: int, *, links: bool = True) -> int:
        """A descriptor of what exists at `path`; OSError as the module says. `path` may contain `..`."""


class KernelOpener:
    """The kernel resolves: openat2(RESOLVE_BENEATH)."""

    def open(self, root: int, path: str | bytes, flags: int, *, links: bool = True) -> int:
        resolve = _INSIDE if links else _INSIDE_WITHOUT_LINKS
        for _ in range(MAX_RACES):
            try:
                return openat2(root, path, flags, resolve)
            except BlockingIOError:
                continue
        raise OSError(errno.EAGAIN, "the path kept changing while it was opened")


class WalkingOpener:
    """One name at a time, never following: links are read and their steps walked like any others.

    `..` goes back to the directory we came from, whose descriptor is still open, so nothing that is renamed
    meanwhile can lift the walk above the root.
    """

    def open(self, root: int, path: str | bytes, flags: int, *, links: bool = True) -> int:
        walk = _Walk(root, links=links)
        try:
            return walk.open(os.fsdecode(path), flags | os.O_CLOEXEC)
        finally:
            walk.close()


class _Walk:
    def __init__(self, root: int, *, links: bool) -> None:
        self._root = root
        self._mount = _mount(root)
        self._links_left = MAX_LINKS if links else 0
        self._opened: list[int] = []
        self._steps: list[str] = []

    def open(self, path: str, flags: int) -> int:
        self._push(path)
        while self._steps:
            step = self._steps.pop()
            if step == ".":
                continue
            if step == "..":
                if not self._opened:
                    raise OSError(errno.EXDEV, "the path leads out of the root")
                os.close(self._opened.pop())
            elif self._steps:
                self._down(step)
            else:
                found = self._final(step, flags)
                if found is not None:
                    return found
        # A link to `.` or `..` ended the path at a directory we already hold.
        return os.open(".", flags, dir_fd=self._here)

    def close(self) -> None:
        for descriptor in self._opened:
            os.close(descriptor)

    @property
    def _here(self) -> int:
        return self._opened[-1] if self._opened else self._root

    def _push(self, path: str) -> None:
        if not path or path.startswith("/"):
            raise OSError(errno.EXDEV if path else errno.ENOENT, "not a relative path")
        steps = [step for step in path.split("/") if step not in ("", ".")]
        if path.endswith(("/", "/.")) or not steps:
            # Whatever comes before must be a directory.
            steps.append(".")
        self._steps.extend(reversed(steps))

    def _down(self, step: str) -> None:
        try:
            descriptor = os.open(step, O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._here)
        except OSError as error:
            if not self._follow(step, error):
                raise
            return
        self._opened.append(descriptor)
        self._stay(descriptor)

    def _final(self, step: str, flags: int) -> int | None:
        try:
            descriptor = os.open(step, flags | os.O_NOFOLLOW, dir_fd=self._here)
        except OSError as error:
            if not flags & os.O_NOFOLLOW and self._follow(step, error):
                return None
            raise
        try:
            self._stay(descriptor)
            # O_PATH with O_NOFOLLOW opens the link itself.
            if not flags & os.O_NOFOLLOW and stat.S_ISLNK(os.fstat(descriptor).st_mode):
                self._follow(step, OSError(errno.ELOOP, os.strerror(errno.ELOOP)))
                os.close(descriptor)
                return None
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def _follow(self, step: str, refused: OSError) -> bool:
        """Walk where the link points, if that is what the refusal was about."""
        if refused.errno not in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
            return False
        try:
            target = os.readlink(step, dir_fd=self._here)
        except OSError as error:
            if error.errno == errno.EINVAL and refused.errno == errno.ENOTDIR:
                # A file where a directory is needed.
                return False
            if error.errno != errno.EINVAL:
                raise
            # It was a link a moment ago.
            target = step
        if not self._links_left:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        self._links_left -= 1
        self._push(target)
        return True

    def _stay(self, descriptor: int) -> None:
        if _mount(descriptor) != self._mount:
            raise OSError(errno.EXDEV, "another file system is mounted there")


def _mount(descriptor: int) -> bytes | int:
    """Which mount it is on; a bind mount of the same device is another one."""
    try:
        with open(f"/proc/self/fdinfo/{descriptor}", "rb", buffering=0) as file:
            for line in file.read(4_096).splitlines():
                if line.startswith(b"mnt_id:"):
                    return line
    except OSError:
        # No /proc: devices are all there is to tell mounts apart.
        pass
    return os.fstat(descriptor).st_dev


def best_opener() -> Opener:
    return KernelOpener() if has_openat2() else WalkingOpener()
