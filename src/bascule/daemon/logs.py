"""The daemon's log: structured lines, written off the hot path, never payloads.

A line is a tuple in a bounded queue until a thread writes it, so that logging every request costs the
loop a fraction of a microsecond. The file always holds JSON lines; a terminal gets the human form.
After `kill -9` the last tenth of a second may be missing here; what happened is in the ledger.
"""

import contextlib
import json
import os
import threading
import traceback
from collections import deque
from typing import Any, Literal, TextIO

import msgspec

from bascule.foundation.clock import Clock, rfc3339
from bascule.foundation.paths import make_private_dir
from bascule.kernel.journal_ports import LogLine
from gabp import codec
from gabp.text import is_plain

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
# Lines not yet written; a disk that stalls longer than this many lines costs lines, counted, not memory.
MAX_QUEUED = 20_000
FLUSH_SECONDS = 0.1
# Encoded in one pass, during which the loop stands still: a tenth of a millisecond.
BLOCK_LINES = 256
# One file and one older one: enough to find yesterday's fault, small enough to keep for good.
MAX_FILE_BYTES = 16 * 1024 * 1024

LogForm = Literal["human", "json", "off"]


class DaemonLog:
    """Callable like `kernel.journal_ports.Log`."""

    def __init__(
        self,
        clock: Clock,
        *,
        path: str | None,
        terminal: TextIO | None = None,
        form: LogForm = "human",
        level: str = "info",
        max_file_bytes: int = MAX_FILE_BYTES,
    ) -> None:
        self._clock = clock
        self._path = path
        self._terminal = terminal
        self._form = form
        self._colour = terminal is not None and not terminal.closed and terminal.isatty()
        self._wall_ms = clock.wall_ms
        self._levels = frozenset(each for each, rank in LEVELS.items() if rank >= LEVELS[level])
        self._max_file_bytes = max_file_bytes
        self._queue: deque[tuple[int, str, str | LogLine, dict[str, Any]]] = deque()
        self._lost = 0
        self._file: TextIO | None = None
        self._size = 0
        # Set by the first line after the thread wrote all it had: a thread without lines sleeps.
        self._wake = threading.Event()
        self._awake = False
        self._closing = threading.Event()
        if path is not None:
            make_private_dir(os.path.dirname(path))
            self._open()
        self._thread = threading.Thread(target=self._work, name="bascule-log", daemon=True)
        self._thread.start()

    def __call__(self, event: str | LogLine, /, *, level: str = "info", **fields: Any) -> None:
        if level not in self._levels:
            return
        queue = self._queue
        if len(queue) >= MAX_QUEUED:
            self._lost += 1
            return
        queue.append((self._wall_ms(), level, event, fields))
        if not self._awake:
            self._awake = True
            self._wake.set()

    def close(self) -> None:
        self._closing.set()
        self._wake.set()
        self._thread.join()
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None

    # -- on the log's thread --

    def _work(self) -> None:
        while not self._closing.is_set():
            self._wake.wait()
            self._wake.clear()
            # More lines come with the first: they are written together.
            self._closing.wait(FLUSH_SECONDS)
            # Before it looks: a line that comes meanwhile wakes it once too often, never too rarely.
            self._awake = False
            self._drain()
        self._drain()

    def _drain(self) -> None:
        shown: list[str] = []
        if self._lost:
            lost, self._lost = self._lost, 0
            self._queue.append((self._clock.wall_ms(), "warning", "log_lines_lost", {"count": lost}))
        to_terminal = self._terminal is not None and self._form != "off"
        entries = [self._queue.popleft() for _ in range(len(self._queue))]
        lines = [line for at in range(0, len(entries), BLOCK_LINES) for line in _lines(entries[at : at + BLOCK_LINES])]
        if to_terminal and self._form == "json":
            shown = lines
        elif to_terminal:
            shown = [text for entry in entries if (text := _human(*entry, colour=self._colour)) is not None]
        if lines:
            self._write("\n".join(lines) + "\n")
        if shown and self._terminal is not None and self._form != "off":
            text = "\n".join(shown) + "\n"
            try:
                # A lone surrogate in a name must cost its line nothing but its looks.
                self._terminal.write(text.encode(errors="backslashreplace").decode())
                self._terminal.flush()
            except (OSError, ValueError):
                # The terminal was closed under us; the file goes on.
                self._terminal = None

    def _write(self, text: str) -> None:
        if self._file is None:
            return
        try:
            self._file.write(text)
            self._file.flush()
            # Pure ASCII: json.dumps escapes the rest.
            self._size += len(text)
            if self._size > self._max_file_bytes:
                self._rotate()
        except (OSError, ValueError):
            # A full disk must not stop the daemon; the metrics and the 507 answers say so.
            return

    def _open(self) -> None:
        assert self._path is not None
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o600)
        self._size = os.fstat(descriptor).st_size
        self._file = os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace")

    def _rotate(self) -> None:
        assert self._file is not None
        assert self._path is not None
        # Whatever fails here, there is a file to write on: the old one under its name, or a new one.
        self._size = 0
        os.replace(self._path, self._path + ".1")
        old = self._file
        self._open()
        old.close()


def _lines(entries: list[tuple[int, str, str | LogLine, dict[str, Any]]]) -> list[str]:
    """Lines of calls and tickets are encoded in one pass: this thread shares the interpreter with the loop."""
    try:
        encoded = codec.encode_lines([event for _, _, event, _ in entries if isinstance(event, LogLine)])
    except UnicodeEncodeError:
        encoded = None
    if encoded is None or not encoded.isascii():
        # `_line` writes each of them in ASCII.
        return [_line(*entry) for entry in entries]
    rest = iter(encoded.decode().split("\n"))
    return [
        f'{{"at":"{rfc3339(at)}","level":"{level}",{next(rest)[1:]}'
        if isinstance(event, LogLine)
        else _line(at, level, event, fields)
        for at, level, event, fields in entries
    ]


def _line(at: int, level: str, event: str | LogLine, fields: dict[str, Any]) -> str:
    if isinstance(event, LogLine):
        with contextlib.suppress(UnicodeEncodeError):
            rest = codec.encode(event)
            if rest.isascii():
                return f'{{"at":"{rfc3339(at)}","level":"{level}",{rest[1:].decode()}'
        fields = msgspec.to_builtins(event)
        event = fields.pop("event")
    out: dict[str, Any] = {"at": rfc3339(at), "level": level, "event": event}
    for name, value in fields.items():
        if value is not None:
            out[name] = value if type(value) is str else _plain(value)
    try:
        # Several times as fast as json.dumps, on a thread that shares the interpreter with the loop.
        line = codec.encode(out)
    except (TypeError, UnicodeEncodeError):
        # A lone surrogate, or a value nobody can encode: slower, but nothing is lost.
        line = b"\xff"
    # ASCII throughout, so that no byte of a name can act on the terminal that prints the file.
    return line.decode() if line.isascii() else json.dumps(out, default=str)


def _human(at: int, level: str, event: str | LogLine, fields: dict[str, Any], *, colour: bool) -> str | None:
    """As a terminal shows it; None for what it does not."""
    if isinstance(event, LogLine):
        fields = msgspec.to_builtins(event)
        name: str = fields.pop("event")
    else:
        name = event
    if not _worth_showing(level, name):
        return None
    known = {field: _plain(value) for field, value in fields.items() if value is not None}
    return human(rfc3339(at), level, name, known, colour=colour)


def _worth_showing(level: str, event: str) -> bool:
    # On a terminal people follow tickets and agents; single calls are in the file.
    return event != "call" or level != "info"


def _plain(value: Any) -> Any:
    if isinstance(value, BaseException):
        return "".join(traceback.format_exception(value)).strip()
    if isinstance(value, float):
        return round(value, 3)
    return value if isinstance(value, str | int | bool | list | dict) else str(value)


_COLOURS = {"warning": "\x1b[33m", "error": "\x1b[31m"}


def human(at: str, level: str, event: str, fields: dict[str, Any], *, colour: bool) -> str:
    """`21:54:03.120 ticket.sent ticket=... agent=Jerry`, with control characters made visible."""
    words = [f"{name}={_quoted(value)}" for name, value in fields.items()]
    text = " ".join([at[11:23], f"{event:<18}", *words])
    start = _COLOURS.get(level, "") if colour else ""
    mark = "" if start or level in ("info", "debug") else f"{level.upper()} "
    return f"{start}{mark}{text}{chr(27) + '[0m' if start else ''}"


def _quoted(value: Any) -> str:
    text = str(value)
    if is_plain(text) and " " not in text:
        return text
    return json.dumps(text, ensure_ascii=not is_plain(text))
