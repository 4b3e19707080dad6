"""The program's screen as text, scrollback included: a terminal emulator (pyte) for `--auto-reply`.

It reads about a megabyte a second, so it is kept off the way between program and person: what was written is put
aside, and read when somebody wants to know.
"""

import asyncio
import contextlib
import re
from typing import Any

from bascule.local_client.exits import WrongUsage
from bascule.programs.wrap.output import SEQUENCE

# Lines kept above the screen: an answer that is longer is a file.
HISTORY_LINES = 5_000
# Written and not looked at: of more than this the beginning is lost, and the answer says so by being cut.
MAX_BACKLOG_BYTES = 2 * 1024 * 1024
# Read in one go before others get their turn: a few milliseconds.
SLICE_BYTES = 8 * 1024
_ESCAPES = re.compile(rb"(?=\x1b)")
# What pyte raises, none of it on purpose.
_STUMBLES = (ArithmeticError, AttributeError, LookupError, NameError, TypeError, ValueError)


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
        screen = self._screen
        if (rows, columns) == (screen.lines, screen.columns):
            return
        dropped = max(0, screen.lines - rows)
        screen.resize(rows, columns)
        # pyte drops rows at the top and leaves the cursor where it was, which may be below the last one.
        screen.cursor.y = min(max(0, screen.cursor.y - dropped), rows - 1)
        screen.cursor.x = min(screen.cursor.x, columns - 1)

    def row(self) -> str:
        """The row the cursor is in; empty while there is more to read than one look may take."""
        if len(self._backlog) > SLICE_BYTES:
            self._feed(bytes(self._backlog[:SLICE_BYTES]))
            del self._backlog[:SLICE_BYTES]
            return ""
        self._feed(bytes(self._backlog))
        self._backlog.clear()
        return self._text(self._screen.buffer[min(self._screen.cursor.y, self._screen.lines - 1)])

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
        return [self._text(line).rstrip() for line in above] + self._shown()

    async def _read(self) -> None:
        while self._backlog:
            piece = bytes(self._backlog[:SLICE_BYTES])
            del self._backlog[:SLICE_BYTES]
            self._feed(piece)
            await asyncio.sleep(0)

    def _feed(self, data: bytes) -> None:
        # From escape to escape: pyte stumbles over sequences that no terminal minds (`CSI ? 5 L`) and forgets what came
        # with them. That nobody rings any more for a program that writes one would be worse than a letter out of place.
        for piece in _ESCAPES.split(data):
            try:
                self._stream.feed(piece)
            except _STUMBLES:
                odd = SEQUENCE.match(piece)
                with contextlib.suppress(*_STUMBLES):
                    self._stream.feed(piece[odd.end() :] if odd else b"")

    def _text(self, line: Any) -> str:
        """Without pyte's `display`, which breaks on the half of a wide character."""
        return "".join(line[column].data for column in range(self._screen.columns))

    def _shown(self) -> list[str]:
        shown = [self._text(self._screen.buffer[row]).rstrip() for row in range(self._screen.lines)]
        while shown and not shown[-1]:
            shown.pop()
        return shown
