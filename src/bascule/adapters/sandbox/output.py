"""What a command says: shown as head and tail, spooled for paging, never more in memory than a limit."""

import os
from collections import deque

from bascule.adapters.sandbox.limits import Limits
from bascule.bridges.workspace.ports import Captured, LogPage

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

    __slots__ = ("_file", "_limits", "_memory", "_path", "dropped", "size")

    def __init__(self, path: str, limits: Limits) -> None:
        self._path = path
        self._limits = limits
        self._memory = bytearray()
        self._file: int | None = None
        self.size = 0
        self.dropped = 0

    @property
    def on_disk(self) -> int:
        return self.size if self._file is not None else 0

    def feed(self, data: bytes) -> None:
        room = self._limits.spool_bytes - self.size
        if len(data) > room:
            self.dropped += len(data) - room
            data = data[:room]
        if not data:
            return
        if self._file is None and len(self._memory) + len(data) <= self._limits.spool_in_memory_bytes:
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
            data, self._memory = bytes(self._memory) + data, bytearray()
        while data:
            data = data[os.write(self._file, data) :]

    def page(self, offset: int, limit: int) -> LogPage:
        memory, file = self._memory, self._file
        data = bytes(memory[offset : offset + limit]) if file is None else os.pread(file, limit, offset)
        return LogPage(data=data, offset=offset, size=self.size, dropped=self.dropped)

    def forget(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
            os.unlink(self._path)
        self._memory = bytearray()
