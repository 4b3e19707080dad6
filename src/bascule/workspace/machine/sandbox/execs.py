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
from typing import NamedTuple

from bascule.workspace.machine.sandbox.kernel import open_in_root, peek

# PATH_MAX
MAX_PATH_BYTES = 4096
# Rules look at the beginning of a command line; so do we.
MAX_ARGUMENTS = 256
# One argument: the longest command of the protocol is 4096 characters, of up to four bytes each.
MAX_ARGUMENT_BYTES = 16 * 1024
MAX_ARGV_BYTES = 128 * 1024
SHORT_BYTES = 256
# As the kernel: the first line of a script, and how often a script's interpreter may be a script.
SHEBANG_BYTES = 256
MAX_INTERPRETERS = 5

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


def read_words(pid: int, address: int) -> tuple[str, ...]:
    """argv; a null pointer ends it."""
    if address == 0:
        return ()
    data = peek(pid, address, 8 * MAX_ARGUMENTS)
    words: list[str] = []
    left = MAX_ARGV_BYTES
    for (pointer,) in struct.iter_unpack("=Q", data[: len(data) // 8 * 8]):
        if pointer == 0 or left <= 0:
            break
        words.append(read_text(pid, pointer, min(left, MAX_ARGUMENT_BYTES)))
        left -= len(words[-1]) + 1
    return tuple(words)


def read_text(pid: int, address: int, most: int) -> str:
    # Most words are short.
    data = peek(pid, address, min(most, SHORT_BYTES))
    if b"\0" not in data and len(data) == SHORT_BYTES < most:
        data += peek(pid, address + SHORT_BYTES, most - SHORT_BYTES)
    return os.fsdecode(data.partition(b"\0")[0])


class Process:
    """Who is executing, seen through its files in /proc."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._root = -1

    def close(self) -> None:
        if self._root >= 0:
            os.close(self._root)
            self._root = -1

    def root(self) -> int:
        if self._root < 0:
            self._root = os.open(f"/proc/{self.pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
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


class Interpreters:
    """The first lines of scripts, remembered by what their files look like: a change of content changes ctime."""

    MOST = 1024

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, int, int], tuple[str, ...]] = {}

    def of(self, descriptor: int, found: os.stat_result) -> tuple[str, ...]:
        """Interpreter and its one argument; empty for everything that is no script."""
        if not stat.S_ISREG(found.st_mode):
            return ()
        key = (found.st_dev, found.st_ino, found.st_ctime_ns, found.st_size)
        words = self._known.get(key)
        if words is None:
            if len(self._known) >= self.MOST:
                self._known.clear()
            words = self._known[key] = _first_line(descriptor)
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
