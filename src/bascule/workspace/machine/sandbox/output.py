"""What a command says: shown as head and tail, spooled for paging, never more in memory than a limit."""

import contextlib
import os
from collections import deque

from bascule.workspace.machine.sandbox.limits import SandboxLimits
from bascule.workspace.ports import Captured, LogPage

# One read. A pipe holds this much unless someone made it larger.
CHUNK_BYTES = 64 * 1024


class HeadAndTail:
    """The first and the last bytes of a stream of any length."""

    __slots__ = ("_head", "_head_size", "_most", "_tail", "_tail_size", "size")

    def __init__(self, most: int) -> None:
        self._most = most // 2
        self._head: list[bytes] = []
        self._head_size = 0
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self.size = 0

    def feed(self, data: bytes) -> None:
        self.size += len(data)
        room = self._most - self._head_size
        if room > 0:
            self._head.append(data[:room])
            self._head_size += len(self._head[-1])
            data = data[room:]
        if not data:
            return
        self._tail.append(data)
        self._tail_size += len(data)
        # Whole chunks go while what stays is enough; the last cut is made when it is shown.
        while self._tail_size - len(self._tail[0]) >= self._most:
            self._tail_size -= len(self._tail.popleft())

    def shown(self) -> Captured:
        if not self.size:
            return Captured()
        head, tail = b"".join(self._head), b"".join(self._tail)
        if len(head) + len(tail) == self.size and len(tail) <= self._most:
            return Captured(text=(head + tail).decode("utf-8", "replace"), size=self.size)
        tail = tail[-self._most :]
        # A character cut in two would become a replacement that the command never said.
        head, tail = _whole_end(head), _whole_start(tail)
        left_out = self.size - len(head) - len(tail)
        text = "".join(
            (
                head.decode("utf-8", "replace"),
                f"\n[... {left_out:,} bytes left out here; the logs have them ...]\n",
                tail.decode("utf-8", "replace"),
            )
        )
        return Captured(text=text, size=self.size, truncated=True)


def _whole_end(data: bytes) -> bytes:
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        needed = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return data[:-back] if needed > back else data
    return data


def _whole_start(data: bytes) -> bytes:
    start = 0
    while start < min(3, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:]


class Spool:
    """One stream's output in order, up to a limit: in memory while it is small, then in a file."""

    __slots__ = ("_file", "_limits", "_memory", "_on_disk", "_path", "dropped", "size")

    def __init__(self, path: str, limits: SandboxLimits) -> None:
        self._path = path
        self._limits = limits
        self._memory = bytearray()
        self._on_disk = False
        self._file: int | None = None
        self.size = 0
        self.dropped = 0

    def feed(self, data: bytes) -> None:
        room = self._limits.spool_bytes - self.size
        if len(data) > room:
            self.dropped += len(data) - room
            data = data[:room]
        if not data:
            return
        if not self._on_disk and len(self._memory) + len(data) <= self._limits.spool_in_memory_bytes:
            self._memory += data
            self.size += len(data)
            return
        try:
            self._write(data)
        except OSError:
            # The disk is full: the command's output goes on being shown, and what is missing is counted.
            self.dropped += len(data)
        else:
            self.size += len(data)

    def _write(self, data: bytes) -> None:
        if self._file is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            self._file = os.open(self._path, flags, 0o600)
            self._on_disk = True
            data, self._memory = bytes(self._memory) + data, bytearray()
        while data:
            data = data[os.write(self._file, data) :]

    def end(self) -> None:
        """Nothing more will come. Thousands of ended ones are kept: none of them keeps a descriptor."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def page(self, offset: int, limit: int) -> LogPage:
        data = self._read(offset, limit) if self._on_disk else bytes(self._memory[offset : offset + limit])
        return LogPage(data=data, offset=offset, size=self.size, dropped=self.dropped)

    def _read(self, offset: int, limit: int) -> bytes:
        # Not beyond what was counted: a write that failed half-way may have left more.
        limit = min(limit, max(0, self.size - offset))
        descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            return os.pread(descriptor, limit, offset)
        finally:
            os.close(descriptor)

    def forget(self) -> None:
        self.end()
        if self._on_disk:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)
        self._memory = bytearray()
