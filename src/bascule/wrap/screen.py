"""The program's screen as text, scrollback included: a terminal emulator (pyte) for `--auto-reply`.

It reads about a megabyte a second, so it is kept off the way between program and person: what was written is put
aside, and read when somebody wants to know.
"""

import asyncio
from typing import Any

from bascule.doors.exits import WrongUsage

# Lines kept above the screen: an answer that is longer is a file.
HISTORY_LINES = 5_000
# Written and not looked at: of more than this the beginning is lost, and the answer says so by being cut.
MAX_BACKLOG_BYTES = 2 * 1024 * 1024
# Read in one go before others get their turn: a few milliseconds.
SLICE_BYTES = 8 * 1024


def is_there() -> bool:
    from importlib.util import find_spec  # noqa: PLC0415 - looked for only where a profile wants it

    return find_spec("pyte") is not None


def emulator() -> Any:
    """pyte, an extra."""
    try:
        import pyte  # noqa: PLC0415 - an extra, and 60 ms
    except ImportError:
        raise WrongUsage(
            "--auto-reply reads the program's screen with pyte, which is not installed",
            "install it with: pip install 'bascule[wrap]'",
        ) from None
    return pyte


class Transcript:
    def __init__(self, rows: int, columns: int) -> None:
        pyte = emulator()
        self._screen = pyte.HistoryScreen(columns, rows, history=HISTORY_LINES, ratio=0.5)
        self._stream = pyte.ByteStream(self._screen)
        self._backlog = bytearray()
        self.cut = False

    def put_aside(self, data: bytes) -> None:
        self._backlog += data
        if len(self._backlog) > MAX_BACKLOG_BYTES:
            self.cut = True
            del self._backlog[: len(self._backlog) - MAX_BACKLOG_BYTES]

    def resize(self, rows: int, columns: int) -> None:
        if (rows, columns) != (self._screen.lines, self._screen.columns):
            self._screen.resize(rows, columns)

    def row(self) -> str:
        """The row the cursor is in; empty while there is more to read than one look may take."""
        if len(self._backlog) > SLICE_BYTES:
            self._stream.feed(bytes(self._backlog[:SLICE_BYTES]))
            del self._backlog[:SLICE_BYTES]
            return ""
        self._stream.feed(bytes(self._backlog))
        self._backlog.clear()
        return str(self._screen.display[self._screen.cursor.y])

    async def fresh(self) -> list[str]:
        """What is on the screen; what is above it is forgotten.

        A full history drops a line for each that comes: nothing of it would be found at its old place again, and all
        of it would pass for new.
        """
        await self._read()
        self._screen.history.top.clear()
        self.cut = False
        return self._shown()

    async def lines(self) -> list[str]:
        """Everything that is on the screen, or was since it was `fresh`, from the top."""
        await self._read()
        above = self._screen.history.top
        self.cut = self.cut or len(above) == HISTORY_LINES
        width = self._screen.columns
        return ["".join(line[column].data for column in range(width)).rstrip() for line in above] + self._shown()

    async def _read(self) -> None:
        while self._backlog:
            piece = bytes(self._backlog[:SLICE_BYTES])
            del self._backlog[:SLICE_BYTES]
            self._stream.feed(piece)
            await asyncio.sleep(0)

    def _shown(self) -> list[str]:
        shown = [line.rstrip() for line in self._screen.display]
        while shown and not shown[-1]:
            shown.pop()
        return shown
