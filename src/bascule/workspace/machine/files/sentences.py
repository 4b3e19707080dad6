"""What went wrong with a file, as a sentence an agent can act on."""

import errno
import os
import stat
from difflib import get_close_matches

from bascule.workspace.ports import FileFault, StorageFault
from gabp.text import is_plain

# Names looked at for "did you mean"; more would make a missing file an expensive answer.
MAX_NEIGHBOURS = 1_000

_SENTENCES = {
    errno.EISDIR: "`{path}` is a directory",
    errno.ELOOP: "`{path}` goes through too many links, or links that lead in a circle",
    errno.EACCES: "Permission denied: `{path}`; its mode or owner does not let us",
    errno.EPERM: "Operation not permitted: `{path}`; its owner or attributes do not let us",
    errno.ENOSPC: "No space left on the disk: `{path}` was not changed; delete something first",
    errno.EDQUOT: "The disk quota is used up: `{path}` was not changed; delete something first",
    errno.EROFS: "Read-only file system: `{path}` cannot be changed",
    errno.EAGAIN: "`{path}` kept changing while it was opened; try again when nothing else changes it",
    errno.ENXIO: "`{path}` is a socket or a pipe; only regular files can be used",
    errno.EILSEQ: "`{path}`: this file system does not take such a name",
    errno.EINVAL: "`{path}`: this file system does not take such a name",
    errno.EFBIG: "`{path}` would be larger than this file system or a limit allows",
    errno.ENOTEMPTY: "`{path}` is a directory with something in it",
    errno.EMFILE: "Too many open files in the daemon; try again in a moment",
    errno.ENFILE: "Too many open files on this machine; try again in a moment",
    errno.EIO: "The disk failed while `{path}` was used (input/output error)",
}

# Not the path's fault: whatever is written next meets the same disk.
_STORAGE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe (FIFO)",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a link",
}


def fault_of(error: OSError, root: int, path: str) -> FileFault:
    if error.errno == errno.ENOENT:
        return FileFault(_missing(root, path))
    if error.errno == errno.EEXIST:
        # The spec's words.
        return FileFault("File already exists")
    if error.errno == errno.ENOTDIR:
        return FileFault(_not_a_directory(root, path))
    if error.errno == errno.EXDEV:
        return FileFault(_leaves(root, path))
    if error.errno == errno.ENAMETOOLONG:
        return FileFault(_too_long(root, path))
    sentence = _SENTENCES.get(error.errno or 0)
    if sentence is None:
        sentence = f"`{{path}}`: {error.strerror or 'it cannot be used'}"
    return (StorageFault if error.errno in _STORAGE else FileFault)(sentence.format(path=path))


def not_regular(path: str, mode: int) -> FileFault:
    kind = _KINDS.get(stat.S_IFMT(mode), "not a regular file")
    if stat.S_ISDIR(mode):
        return FileFault(f"`{path}` is a directory; file operations take files only")
    return FileFault(f"`{path}` is {kind}; only regular files can be used")


def too_large(path: str, size: int, limit: int) -> FileFault:
    return FileFault(
        f"`{path}` has {size:,} bytes; at most {limit:,} are allowed here: use a command to see or change a part of it"
    )


def in_artifacts(path: str) -> FileFault:
    return FileFault(
        f"`{path}` is in `artifacts/`, which is only for reading: evidence is kept there; write somewhere else"
    )


def read_only(path: str, mode: int) -> FileFault:
    return FileFault(
        f"`{path}` is read-only (mode {stat.S_IMODE(mode):04o}); make it writable first if it is meant to change"
    )


def _missing(root: int, path: str) -> str:
    """Which part of the path is missing, and what is there that looks like it. For the text only."""
    if not os.fstat(root).st_nlink:
        return "the workspace directory itself has been deleted; open the space again"
    found, place, fine = _first_bad_step(root, path)
    if found is not None and stat.S_ISLNK(found):
        return f"`{place}` is a link to something that does not exist"
    sentence = f"No such file: `{path}`"
    if place != path:
        sentence += f" (there is no `{place}`)"
    alike = get_close_matches(place.rpartition("/")[2], _names(root, fine), n=1)
    if alike:
        sentence += f"; did you mean `{fine}{'/' if fine else ''}{alike[0]}`?"
    return sentence


def _not_a_directory(root: int, path: str) -> str:
    _, place, _ = _first_bad_step(root, path)
    return f"`{place}` is not a directory, so there is no `{path}` in it" if place != path else f"`{path}` is a file"


def _leaves(root: int, path: str) -> str:
    found, place, _ = _first_bad_step(root, path)
    if found is not None and stat.S_ISLNK(found):
        return f"`{path}` leads out of the workspace through the link `{place}`; only what is inside can be used"
    return f"`{path}` is outside the workspace's file system (another one is mounted there); it cannot be used"


def _too_long(root: int, path: str) -> str:
    """The path has few enough characters; what one name may be is the file system's own rule, in bytes."""
    longest = max(len(os.fsencode(step)) for step in path.split("/"))
    try:
        limit = os.fpathconf(root, "PC_NAME_MAX")
    except (OSError, ValueError):
        limit = 0
    if 0 < limit < longest:
        return f"`{path}`: a name in it has {longest} bytes, and this file system takes {limit}; use a shorter one"
    return f"`{path}`: a link on the way leads to a name that is longer than this file system takes"


def _first_bad_step(root: int, path: str) -> tuple[int | None, str, str]:
    """The mode of the first step that is no directory (None: missing), the path up to it, and the one before it."""
    fine = ""
    directory = os.dup(root)
    try:
        for step in path.split("/"):
            place = f"{fine}/{step}" if fine else step
            try:
                mode = os.stat(step, dir_fd=directory, follow_symlinks=False).st_mode
            except OSError:
                return None, place, fine
            if not stat.S_ISDIR(mode):
                return mode, place, fine
            below = os.open(step, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
            os.close(directory)
            directory, fine = below, place
    except OSError:
        return None, path, fine
    finally:
        os.close(directory)
    return stat.S_IFDIR, path, fine


def _names(root: int, path: str) -> list[str]:
    names: list[str] = []
    try:
        directory = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root)
    except OSError:
        return names
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                names.append(entry.name)
                if len(names) >= MAX_NEIGHBOURS:
                    break
    finally:
        os.close(directory)
    return [name for name in names if is_plain(name)]
