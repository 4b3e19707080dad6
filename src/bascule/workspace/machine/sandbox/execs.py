"""Which program a process is about to execute: read from its memory and resolved as the kernel would.

The answer to "may it?" is given before the kernel reads the same memory again, so a program with two threads can
still exchange the path in between: deny rules name programs, the sandbox is the wall. What we cannot resolve is
never let through.
"""

import errno
import os
import re
import stat
import struct
import time
from collections.abc import Iterator
from typing import NamedTuple

from bascule.workspace.machine.sandbox.kernel import Memory, open_in_root

# PATH_MAX
MAX_PATH_BYTES = 4096
# Rules look at the beginning of a command line; so do we.
MAX_ARGUMENTS = 256
# One argument: the longest command of the protocol is 4096 characters, of up to four bytes each.
MAX_ARGUMENT_BYTES = 16 * 1024
MAX_ARGV_BYTES = 128 * 1024
# Most words are short, and most command lines have few: these are read at once.
SHORT_BYTES = 256
FEW_ARGUMENTS = 16
# As the kernel: the first line of a script, and how often a script's interpreter may be a script.
SHEBANG_BYTES = 256
MAX_INTERPRETERS = 5

# Two changes of a file that lie further apart have different times, whatever the kernel's tick and the file system are.
SETTLED_NS = 3_000_000_000

AT_EMPTY_PATH = 0x1000
AT_FDCWD = -100
# What a process calls its own files; these names mean ours when we resolve them.
_OWN = re.compile(r"/+proc/+(?:self|thread-self)/+(?P<what>exe|cwd|root|fd/+(?P<number>\d+))(?P<rest>/.*)?", re.DOTALL)
_DEV_FD = re.compile(r"/+dev/+(?:fd/+(?P<number>\d+)|(?P<name>stdin|stdout|stderr))")
_STANDARD = {"stdin": 0, "stdout": 1, "stderr": 2}


class Unresolved(Exception):
    """Nothing that can be executed; the process is told this error and the kernel is not asked."""

    def __init__(self, number: int) -> None:
        super().__init__(os.strerror(number))
        self.number = number


class Named(NamedTuple):
    """A file as execve and execveat are told of it."""

    path: str
    directory: int = AT_FDCWD
    flags: int = 0


def read_request(memory: Memory, pid: int, path: int, argv: int) -> tuple[str, tuple[str, ...]]:
    """What execve is given by two addresses: the path, and the words of argv, of which a null pointer means none."""
    if argv == 0:
        (start,) = memory.pieces(pid, [(path, SHORT_BYTES)])
        return _text(memory, pid, path, MAX_PATH_BYTES, start), ()
    start, pointers = memory.pieces(pid, [(path, SHORT_BYTES), (argv, 8 * FEW_ARGUMENTS)])
    addresses = _addresses(pointers)
    if len(addresses) == len(pointers) // 8:
        addresses = _addresses(memory.read(pid, argv, 8 * MAX_ARGUMENTS))
    return _text(memory, pid, path, MAX_PATH_BYTES, start), tuple(_words(memory, pid, addresses))


def _addresses(data: bytes) -> list[int]:
    """Up to a null pointer, or the end of what there is."""
    found: list[int] = []
    for (pointer,) in struct.iter_unpack("=Q", data[: len(data) // 8 * 8]):
        if pointer == 0:
            break
        found.append(pointer)
    return found


def _words(memory: Memory, pid: int, addresses: list[int]) -> Iterator[str]:
    left = MAX_ARGV_BYTES
    for some in range(0, len(addresses), FEW_ARGUMENTS):
        few = addresses[some : some + FEW_ARGUMENTS]
        starts = memory.pieces(pid, [(address, SHORT_BYTES) for address in few])
        for address, start in zip(few, starts, strict=True):
            if left <= 0:
                return
            word = _text(memory, pid, address, min(left, MAX_ARGUMENT_BYTES), start)
            left -= len(word) + 1
            yield word


def _text(memory: Memory, pid: int, address: int, most: int, start: bytes) -> str:
    """`start` is what was read of it already: all of it, for most."""
    if b"\0" not in start and len(start) < most:
        start += memory.read(pid, address + len(start), most - len(start))
    return os.fsdecode(start[:most].partition(b"\0")[0])


class Process:
    """Who is executing, seen through its files in /proc. A `root` that is given stays the caller's to close."""

    def __init__(self, pid: int, root: int | None = None) -> None:
        self.pid = pid
        self._root = root
        self._opened: int | None = None

    def close(self) -> None:
        if self._opened is not None:
            os.close(self._opened)
            self._opened = self._root = None

    def root(self) -> int:
        if self._root is None:
            self._root = os.open(f"/proc/{self.pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            self._opened = self._root
        return self._root

    def open(self, named: Named) -> int:
        """The file it means; `Unresolved` when there is none, or none that we could name."""
        path = named.path
        if not path:
            if named.flags & AT_EMPTY_PATH:
                return self._open_own(f"fd/{named.directory}")
            raise Unresolved(errno.ENOENT)
        if not path.startswith("/"):
            path = f"{self._directory(named.directory)}/{path}"
        if (own := _DEV_FD.fullmatch(path)) is not None:
            return self._open_own(f"fd/{own['number'] or _STANDARD[own['name']]}")
        if (own := _OWN.fullmatch(path)) is not None:
            rest = own["rest"] or ""
            if own["what"] == "root":
                path = rest or "/"
            elif own["what"] == "cwd":
                path = self._directory(AT_FDCWD) + rest
            elif not rest:
                return self._open_own(own["what"])
            else:
                path = self._directory(int(own["number"] or -1)) + rest
        try:
            return open_in_root(self.root(), path)
        except OSError as error:
            raise Unresolved(errno.EACCES if error.errno == errno.EXDEV else error.errno or errno.EACCES) from None

    def _open_own(self, what: str) -> int:
        try:
            return os.open(f"/proc/{self.pid}/{what}", os.O_PATH | os.O_CLOEXEC)
        except OSError as error:
            raise Unresolved(error.errno or errno.EACCES) from None

    def _directory(self, descriptor: int) -> str:
        name = "cwd" if descriptor == AT_FDCWD else f"fd/{descriptor}"
        try:
            return os.readlink(f"/proc/{self.pid}/{name}")
        except OSError as error:
            raise Unresolved(errno.EBADF if descriptor != AT_FDCWD else error.errno or errno.ENOENT) from None


class Version(NamedTuple):
    """A file with the content that it had."""

    device: int
    inode: int
    changed_ns: int
    size: int

    @classmethod
    def of(cls, found: os.stat_result) -> "Version":
        return cls(found.st_dev, found.st_ino, found.st_ctime_ns, found.st_size)


def is_settled(descriptor: int, found: os.stat_result) -> bool:
    """Whether this file cannot get another content while its version stays the same.

    Two changes within one tick of the kernel's clock have the same time (before Linux 6.13), and a mapped file changes
    without its times where the kernel executes what is open for writing (6.11, 6.12). So: the cell has it from a
    read-only mount, and it is not new.
    """
    if not os.fstatvfs(descriptor).f_flag & os.ST_RDONLY:
        return False
    return time.time_ns() - found.st_ctime_ns > SETTLED_NS


class Interpreters:
    """The first lines of scripts; of files that commands cannot write to they are remembered."""

    MOST = 1024

    def __init__(self) -> None:
        self._known: dict[Version, tuple[str, ...]] = {}

    def of(self, descriptor: int, found: os.stat_result) -> tuple[str, ...]:
        """Interpreter and its one argument; empty for everything that is not a script."""
        if not stat.S_ISREG(found.st_mode):
            return ()
        version = Version.of(found)
        words = self._known.get(version)
        if words is None:
            words = _first_line(descriptor)
            if is_settled(descriptor, found):
                if len(self._known) >= self.MOST:
                    self._known.clear()
                self._known[version] = words
        return words


def _first_line(descriptor: int) -> tuple[str, ...]:
    try:
        opened = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        # It may be executable and not readable, for us as well.
        return ()
    try:
        data = os.read(opened, SHEBANG_BYTES)
    except OSError:
        return ()
    finally:
        os.close(opened)
    if not data.startswith(b"#!"):
        return ()
    line = data[2:].partition(b"\n")[0].strip(b" \t")
    interpreter, _, rest = line.replace(b"\t", b" ").partition(b" ")
    words = [interpreter, rest.strip(b" ")] if rest.strip(b" ") else [interpreter]
    return tuple(os.fsdecode(word) for word in words if word)
