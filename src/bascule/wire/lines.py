"""Newline-delimited messages: MCP over stdio, and the log output of child processes."""

# One JSON-RPC message per line, as large as a frame may be.
DEFAULT_MAX_LINE_BYTES = 8 * 1024 * 1024


class LineTooLong(Exception):
    """A line is over the limit; the reader stays dead, for the rest of that line is still to come."""

    def __init__(self, max_line_bytes: int) -> None:
        super().__init__(max_line_bytes)
        self.message = f"a line is longer than {max_line_bytes} bytes"
        # Lines completed by the same feed, before the long one.
        self.lines: list[bytes] = []

    def __str__(self) -> str:
        return self.message


class LineReader:
    """Bytes in, whole lines out, without their ending: LF, or CR LF."""

    __slots__ = ("_dead", "_held", "_max_line_bytes")

    def __init__(self, max_line_bytes: int = DEFAULT_MAX_LINE_BYTES) -> None:
        self._max_line_bytes = max_line_bytes
        self._held = bytearray()
        self._dead = False

    @property
    def mid_line(self) -> bool:
        """Bytes of an incomplete line are held."""
        return bool(self._held)

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes. Raises LineTooLong at the first long line and ever after."""
        if self._dead:
            raise LineTooLong(self._max_line_bytes)
        # Only new bytes are searched, so that a slow writer costs linear time.
        first, *others = data.split(b"\n")
        self._held += first
        lines: list[bytes] = []
        if others:
            *whole, rest = others
            self._add(bytes(self._held), lines)
            for line in whole:
                self._add(line, lines)
            self._held = bytearray(rest)
        # The CR of an ending that is not whole yet does not count.
        if len(self._held) - self._held.endswith(b"\r") > self._max_line_bytes:
            self._fail(lines)
        return lines

    def finish(self) -> bytes:
        """What came after the last newline when the stream ended: b"" if it ended properly."""
        rest = bytes(self._held)
        self._held.clear()
        return rest

    def _add(self, line: bytes, lines: list[bytes]) -> None:
        line = line.removesuffix(b"\r")
        if len(line) > self._max_line_bytes:
            self._fail(lines)
        lines.append(line)

    def _fail(self, lines: list[bytes]) -> None:
        self._dead = True
        self._held.clear()
        failure = LineTooLong(self._max_line_bytes)
        failure.lines = lines
        raise failure
