"""One file of somebody else's: read, edited in memory, compared, and replaced so that it is never half written."""

import difflib
import hashlib
import os
import stat
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from bascule.cli.setup.blocks import BadBlock
from bascule.cli.setup.json_text import BadJson
from bascule.cli.setup.record import Entry
from bascule.cli.setup.toml_text import BadToml
from bascule.foundation import paths
from bascule.local_client.exits import DoorError

# Claude Code keeps histories in its file; beyond this it is not a settings file.
MAX_FILE_BYTES = 64 * 1024 * 1024
# Enough to see where it goes. Neighbouring lines may hold other programs' secrets.
CONTEXT_LINES = 1
# A file written in one line would fill the screen, and show everything in it.
MAX_LINE_CHARS = 160

# The new text; None when the file has nothing left in it and goes.
Edit = Callable[[str], str | None]


class CannotChange(DoorError):
    """A file that must not, or cannot, be edited."""


@dataclass(kw_only=True)
class Change:
    """What is to happen to one file."""

    path: str
    edit: Edit
    # For a file that is not there yet; an existing one keeps its own.
    mode: int = 0o644
    # Where the path leads to, what stood there, and what shall.
    target: str = field(init=False)
    old: str | None = field(init=False)
    new: str | None = field(init=False)
    # What was made for it, once it is written.
    made: Entry = field(init=False, default_factory=Entry)

    def __post_init__(self) -> None:
        # A link into a repository of settings is followed: the file is edited where it is kept.
        self.target = os.path.realpath(self.path)
        self.old, self._status = _read(self.path, self.target)
        try:
            self.new = self.edit(self.old or "")
        except (BadJson, BadToml, BadBlock) as fault:
            raise CannotChange(f"{self.path} is left as it is: {fault}", "repair it, then run this again") from None

    @property
    def is_needed(self) -> bool:
        return self.new != self.old and not (self.old is None and not self.new)

    def diff(self) -> str:
        old = _lines(self.old)
        new = _lines(self.new)
        lines = difflib.unified_diff(
            old,
            new,
            self.path if self.old is not None else "/dev/null",
            self.path if self.new is not None else "/dev/null",
            lineterm="",
            n=CONTEXT_LINES,
        )
        return "\n".join(line if len(line) <= MAX_LINE_CHARS else line[:MAX_LINE_CHARS] + " ..." for line in lines)

    def counts(self) -> tuple[int, int]:
        """Lines that come and lines that go."""
        # Without the two lines that name the file.
        lines = list(difflib.unified_diff(_lines(self.old), _lines(self.new), n=0))[2:]
        return sum(line.startswith("+") for line in lines), sum(line.startswith("-") for line in lines)

    def write(self) -> None:
        try:
            self._write()
        except OSError as fault:
            raise CannotChange(f"{self.path} cannot be written: {fault.strerror or fault}") from None

    def _write(self) -> None:
        folder = os.path.dirname(self.target)
        self.made.file = self._status is None
        self.made.paths = list(getattr(self.edit, "made", []))
        self.made.before, self.made.after = digest(self.old or ""), digest(self.new or "")
        self.made.back = list(getattr(self.edit, "back", []))
        self.made.endings = line_endings(self.old or "")
        self._make_dirs(folder)
        if _stamp(self.target) != _stamp_of(self._status):
            raise CannotChange(
                f"{self.path} was changed by somebody else in this very moment", "run this again; nothing is lost"
            )
        if self.new is None:
            os.unlink(self.target)
            paths.sync_dir(folder)
            return
        temporary = f"{self.target}.bascule-{os.getpid()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, self.mode if self._status is None else 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(self.new.encode())
                if self._status is not None:
                    self._keep_ownership(file.fileno(), self._status)
                file.flush()
                os.fsync(file.fileno())
            os.rename(temporary, self.target)
        except BaseException:
            os.unlink(temporary)
            raise
        paths.sync_dir(folder)

    def _keep_ownership(self, descriptor: int, status: os.stat_result) -> None:
        if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
            # Root sets up a user's client; anybody else may only give it a group of their own.
            os.fchown(descriptor, status.st_uid, status.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(status.st_mode))

    def _make_dirs(self, folder: str) -> None:
        missing = []
        while not os.path.isdir(folder):
            missing.append(folder)
            folder = os.path.dirname(folder)
        for each in reversed(missing):
            os.mkdir(each, 0o755)
            self.made.dirs.append(each)


def _read(path: str, target: str) -> tuple[str | None, os.stat_result | None]:
    try:
        # O_NONBLOCK: a pipe somebody put there must not make us wait for its writer.
        descriptor = os.open(target, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None, None
    except OSError as fault:
        raise CannotChange(f"{path} cannot be read: {fault.strerror}") from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise CannotChange(f"{path} is not a file", "move it away, then run this again")
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise CannotChange(f"{path} is larger than {MAX_FILE_BYTES} bytes: is it the right file?")
    try:
        return data.decode(), status
    except UnicodeDecodeError as fault:
        raise CannotChange(f"{path} is not UTF-8 (byte {fault.start})", "repair it, then run this again") from None


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# What follows a digest of a last line that has no ending.
_NO_ENDING = " none"


def line_endings(text: str) -> list[str]:
    """Short digests of the lines that end with CR LF, or with nothing."""
    *lines, last = text.split("\n")
    endings = [_short(line[:-1]) for line in lines if line.endswith("\r")]
    return endings + ([_short(last) + _NO_ENDING] if last else [])


def with_line_endings(text: str, endings: Collection[str]) -> str:
    """The text with the endings that these lines had."""
    *lines, last = text.split("\n")
    lines = [line if line.endswith("\r") or _short(line) not in endings else line + "\r" for line in lines]
    if not last and lines and _short(lines[-1].removesuffix("\r")) + _NO_ENDING in endings:
        last = lines.pop().removesuffix("\r")
    return "\n".join([*lines, last])


def _short(line: str) -> str:
    return digest(line)[:16]


def _lines(text: str | None) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        return _stamp_of(os.stat(path))
    except FileNotFoundError:
        return None


def _stamp_of(status: os.stat_result | None) -> tuple[int, int, int] | None:
    return None if status is None else (status.st_ino, status.st_size, status.st_mtime_ns)
