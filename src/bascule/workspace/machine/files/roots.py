"""Which directories may be a workspace."""

import os
import pwd
import stat
from collections.abc import Iterable

from bascule.foundation import paths
from bascule.workspace.machine.files.beneath import O_PATH, Opener, best_opener
from bascule.workspace.machine.files.root import WorkspaceRoot
from bascule.workspace.ports import DIRECTORY, EMPTY, FileFault
from bascule.workspace.protocol import MAX_CONTENT_BYTES

# Nobody's project. What lies inside (`/opt/site`, `/usr/src/app`) may be one, except for the kernel's own.
_SYSTEM = frozenset(
    {
        *("/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib32", "/lib64", "/libx32", "/media", "/mnt", "/opt"),
        *("/proc", "/root", "/run", "/sbin", "/srv", "/sys", "/usr", "/usr/bin", "/usr/lib", "/usr/sbin", "/usr/share"),
        *("/tmp", "/var/tmp"),  # noqa: S108 - named to be refused
        *("/var", "/var/lib", "/Applications", "/Library", "/System", "/Users"),
    }
)
_KERNEL = ("/dev", "/proc", "/sys")
# Below, accounts belong to services, whose homes (`/var/www`) are often what somebody works on.
_FIRST_PERSON = 1_000
# What new files and directories are masked with. The daemon's own umask keeps its state private and must not
# make a person's project unreadable to the person's tools.
DEFAULT_UMASK = 0o022


class WorkspaceFiles:
    def __init__(
        self,
        forbidden: tuple[str, ...],
        *,
        umask: int = DEFAULT_UMASK,
        opener: Opener | None = None,
        max_content: int = MAX_CONTENT_BYTES,
    ) -> None:
        self._forbidden = forbidden
        self._umask = umask
        self._opener = opener or best_opener()
        self._max_content = max_content

    def open_root(self, path: str) -> WorkspaceRoot:
        root = self._open(path)
        try:
            self._check(root)
        except BaseException:
            root.close()
            raise
        return root

    def open_copy(self, path: str) -> WorkspaceRoot:
        """A directory that the daemon itself filled in its own state directory; never one that a caller named."""
        return self._open(path, lasting=False)

    def what_is_at(self, path: str) -> str | None:
        try:
            found = os.lstat(path)
            if stat.S_ISLNK(found.st_mode):
                return f"a link to {os.readlink(path)}"
            if not stat.S_ISDIR(found.st_mode):
                return "a file"
            return DIRECTORY if os.listdir(path) else EMPTY
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:
            # One that does not let us look into it.
            return DIRECTORY

    def is_directory(self, path: str, identity: tuple[int, int]) -> bool:
        try:
            found = os.lstat(path)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == identity

    def missing(self, root: str, names: Iterable[str]) -> list[str]:
        return [name for name in names if not os.path.lexists(os.path.join(root, name))]

    def make_directory(self, path: str, mode: int | None, owner: tuple[int, int] | None) -> None:
        try:
            os.makedirs(path, exist_ok=True)
            if owner is not None and os.geteuid() == 0:
                os.chown(path, *owner)
            if mode is not None:
                os.chmod(path, mode)
        except OSError as error:
            raise FileFault(f"{path} cannot be made again: {error.strerror}") from error

    def move_directory(self, source: str, target: str) -> None:
        try:
            os.rename(source, target)
        except OSError as error:
            raise FileFault(f"{source} cannot be moved to {target}: {error.strerror}; move it by hand") from error

    def _open(self, path: str, *, lasting: bool = True) -> WorkspaceRoot:
        if "\0" in path or not os.path.isabs(path):
            raise FileFault(f"a workspace is named by its absolute path, which {path!r} is not")
        try:
            real = os.path.realpath(path, strict=True)
            descriptor = os.open(real, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except NotADirectoryError:
            raise FileFault(f"{path} is not a directory; a workspace is one") from None
        except FileNotFoundError:
            raise FileFault(f"{path} does not exist; make the directory first") from None
        except OSError as error:
            raise FileFault(f"{path} cannot be opened as a workspace: {error.strerror}") from error
        return WorkspaceRoot(
            descriptor, real, self._opener, umask=self._umask, max_content=self._max_content, lasting=lasting
        )

    def _check(self, root: WorkspaceRoot) -> None:
        """On the directory that was opened, and those that hold it: what its path leads to may be swapped by now.

        Identities are compared, because a mount or a file system without case has other names for a directory.
        """
        above = _holders(root.fileno())
        real = root.path
        if _identity(real) != root.identity:
            raise FileFault(f"{real} was replaced while it was opened; try again")
        if os.geteuid() not in (0, os.fstat(root.fileno()).st_uid):
            raise FileFault(f"{real} belongs to another user; a workspace must be a directory of your own")
        system = {_identity(place) for place in _SYSTEM}
        if root.identity in system or len(above) == 0 or {_identity(place) for place in _KERNEL} & above:
            raise FileFault(f"{real} is a directory of the system; choose one that holds a project")
        for home in _homes():
            if root.identity in _line(home):
                raise FileFault(f"{real} is a home directory, or holds one; choose a directory inside it")
        for place in self._forbidden:
            if root.identity in _line(place) or _identity(place) in above:
                raise FileFault(f"{real} is, holds or lies in a directory of Bascule itself ({place}); choose another")


def _homes() -> set[str]:
    ours = os.geteuid()
    return {os.path.realpath(paths.home())} | {
        os.path.realpath(entry.pw_dir)
        for entry in pwd.getpwall()
        if entry.pw_dir and (entry.pw_uid in (0, ours) or entry.pw_uid >= _FIRST_PERSON)
    }


def _holders(descriptor: int) -> set[tuple[int, int] | None]:
    """Identities of the directories that hold an open one; none hold `/`."""
    found: set[tuple[int, int] | None] = set()
    here = os.dup(descriptor)
    try:
        while True:
            above = os.open("..", O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=here)
            same = os.path.sameopenfile(above, here)
            os.close(here)
            here = above
            if same:
                return found
            held_by = os.fstat(here)
            found.add((held_by.st_dev, held_by.st_ino))
    except OSError as error:
        raise FileFault(f"the directories that hold the workspace cannot be read: {error.strerror}") from error
    finally:
        os.close(here)


def _line(path: str) -> set[tuple[int, int] | None]:
    """Identities of a directory and all that hold it; what does not exist (yet) has none."""
    place = os.path.realpath(path)
    found = {_identity(place)}
    while place != os.path.dirname(place):
        place = os.path.dirname(place)
        found.add(_identity(place))
    return found - {None}


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
