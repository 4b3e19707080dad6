"""Finding a path beneath a directory's descriptor, whatever links are on the way, also while they are changed.

Checking `realpath` and then opening loses the race against a process that swaps names: one read in sixteen went
outside when we measured it. So the kernel resolves and opens in one call, or we walk by hand and hold on to every
directory on the way. Both answer alike:

- a link that is relative and stays inside is followed; one that is absolute or leaves is EXDEV, and so are `/proc`'s
  magic links and another file system mounted inside (what a mount shows is not the workspace's content, and no
  checkpoint has it);
- with `links=False` any link is ELOOP.

`resolve` also says which path without links led there. A path without links is its own answer, which the kernel
confirms in one call; one with links is always walked, so that the names are those that were really opened.
"""

import errno
import os
from typing import NamedTuple, Protocol

from bascule.workspace.machine.files.syscalls import (
    RESOLVE_BENEATH,
    RESOLVE_CACHED,
    RESOLVE_NO_MAGICLINKS,
    RESOLVE_NO_SYMLINKS,
    RESOLVE_NO_XDEV,
    has_openat2,
    openat2,
    openat2_steady,
)

# Where there is no O_PATH (macOS), a directory must be readable to be walked through.
O_PATH: int = getattr(os, "O_PATH", os.O_RDONLY)
# As many as the kernel follows in one path.
MAX_LINKS = 40

_INSIDE = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV
_INSIDE_WITHOUT_LINKS = _INSIDE | RESOLVE_NO_SYMLINKS
_INSIDE_CACHED = _INSIDE_WITHOUT_LINKS | RESOLVE_CACHED
_DIRECTORY = O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


class Found(NamedTuple):
    """Where a path leads: a name in an open directory, which belongs to the caller now."""

    directory: int
    # Directories between the open one and the name that do not exist.
    missing: tuple[str, ...]
    # `.` when a link ended at the open directory itself.
    name: str
    # From the root to the name, without links.
    path: str


class Opener(Protocol):
    def open(self, root: int, path: str | bytes, flags: int, *, links: bool = True) -> int:
        """A descriptor of what exists at `path`; OSError as the module says. `path` may contain `..`."""

    def resolve(self, root: int, path: str, *, follow: bool) -> Found:
        """Links in directories are followed, one at the end only with `follow`; OSError as the module says."""

    def resolve_cached(self, root: int, path: str, *, follow: bool) -> Found | None:
        """Without waiting for a disk. None when that is not possible, or when there is more to it than a plain path."""


class KernelOpener:
    """The kernel resolves: openat2(RESOLVE_BENEATH)."""

    def open(self, root: int, path: str | bytes, flags: int, *, links: bool = True) -> int:
        return openat2_steady(root, path, flags, _INSIDE if links else _INSIDE_WITHOUT_LINKS)

    def resolve(self, root: int, path: str, *, follow: bool) -> Found:
        head, _, name = path.rpartition("/")
        if not _is_plain(path, name):
            return _walked(root, path, follow=follow)
        try:
            directory = openat2(root, head or ".", _DIRECTORY, _INSIDE_WITHOUT_LINKS)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOENT):
                raise
            return _walked(root, path, follow=follow)
        try:
            linked = follow and _link(directory, name) is not None
        except BaseException:
            os.close(directory)
            raise
        if linked:
            os.close(directory)
            return _walked(root, path, follow=follow)
        return Found(directory, (), name, path)

    def resolve_cached(self, root: int, path: str, *, follow: bool) -> Found | None:
        head, _, name = path.rpartition("/")
        if not _is_plain(path, name):
            return None
        try:
            directory = openat2(root, head or ".", _DIRECTORY, _INSIDE_CACHED)
        except OSError:
            return None
        if follow:
            try:
                # ELOOP for a link.
                os.close(openat2(directory, name, O_PATH, _INSIDE_CACHED))
            except OSError:
                os.close(directory)
                return None
        return Found(directory, (), name, path)


class WalkingOpener:
    """One name at a time, never following: links are read and their steps walked like any others.

    `..` goes back to the directory we came from, whose descriptor is still open, so nothing that is renamed
    meanwhile can lift the walk above the root.
    """

    def open(self, root: int, path: str | bytes, flags: int, *, links: bool = True) -> int:
        found = _walked(root, os.fsdecode(path), follow=not flags & os.O_NOFOLLOW, links=links)
        try:
            if found.missing:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            descriptor = os.open(found.name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=found.directory)
            try:
                _stay(descriptor, _mount(root))
            except BaseException:
                os.close(descriptor)
                raise
            return descriptor
        finally:
            os.close(found.directory)

    def resolve(self, root: int, path: str, *, follow: bool) -> Found:
        return _walked(root, path, follow=follow)

    def resolve_cached(self, root: int, path: str, *, follow: bool) -> Found | None:
        return None


def _walked(root: int, path: str, *, follow: bool, links: bool = True) -> Found:
    walk = _Walk(root, links=links)
    try:
        return walk.resolve(path, follow=follow)
    finally:
        walk.close()


class _Walk:
    def __init__(self, root: int, *, links: bool) -> None:
        self._root = root
        self._mount = _mount(root)
        self._links_left = MAX_LINKS if links else 0
        # The directories on the way, and the names they were opened by.
        self._opened: list[int] = []
        self._names: list[str] = []
        self._steps: list[str] = []

    def resolve(self, path: str, *, follow: bool) -> Found:
        self._push(path)
        while self._steps:
            step = self._steps.pop()
            if step == ".":
                continue
            if step == "..":
                if not self._opened:
                    raise OSError(errno.EXDEV, "the path leads out of the root")
                os.close(self._opened.pop())
                self._names.pop()
            elif self._steps:
                if not self._down(step):
                    return self._absent(step)
            elif not follow or (target := _link(self._here, step)) is None:
                return self._found((), step)
            else:
                self._follow(target)
        # A link to `.` or `..` ended the path at a directory we already hold.
        return self._found((), ".")

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

    def _down(self, step: str) -> bool:
        """Into a directory, or along a link; False when there is nothing of that name."""
        try:
            descriptor = os.open(step, _DIRECTORY | os.O_NOFOLLOW, dir_fd=self._here)
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
                raise
            target = _link(self._here, step)
            if target is not None:
                self._follow(target)
            elif error.errno == errno.ENOTDIR:
                # A file where a directory is needed.
                raise
            else:
                # It was a link a moment ago.
                self._follow(step)
            return True
        self._opened.append(descriptor)
        self._names.append(step)
        _stay(descriptor, self._mount)
        return True

    def _follow(self, target: str) -> None:
        if not self._links_left:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        self._links_left -= 1
        self._push(target)

    def _absent(self, step: str) -> Found:
        rest = [step, *reversed(self._steps)]
        if ".." in rest or "." in rest:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return self._found(tuple(rest[:-1]), rest[-1])

    def _found(self, missing: tuple[str, ...], name: str) -> Found:
        last = (name,) if name != "." else ()
        path = "/".join((*self._names, *missing, *last)) or "."
        return Found(self._opened.pop() if self._opened else os.dup(self._root), missing, name, path)


def _is_plain(path: str, name: str) -> bool:
    """The parser refuses the others; if one ever came here, it would be walked, and refused there."""
    return name not in ("", ".", "..") and not path.startswith("/")


def _link(directory: int, name: str) -> str | None:
    """Where the name points, if it is a link."""
    try:
        return os.readlink(name, dir_fd=directory)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            return None
        raise


def _stay(descriptor: int, mount: bytes | int) -> None:
    if _mount(descriptor) != mount:
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
