"""What the program's output says about itself: the modes it has switched on, and the line it stopped in.

On the hot path: a program may write hundreds of megabytes. Nothing is looked at unless an escape byte is in it, and
the last line is put together only when somebody asks for it.
"""

import re

BRACKETED_PASTE = 2004
# What a program that was killed leaves behind on the person's terminal: mouse, focus, paste and the second screen.
_LEFTOVERS = (9, 1000, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 47, 1047, 1049, BRACKETED_PASTE)
_SWITCH = re.compile(rb"\x1b\[\?([0-9;]{1,64})([hl])")
_TITLE = re.compile(rb"\x1b\][02];([^\x07\x1b]{0,512})(\x07|\x1b\\)")
# What the next piece may complete: a switch, or a title.
_CUT = re.compile(rb"\x1b(\[(\?[0-9;]{0,64})?|\][02]?(;[^\x07\x1b]{0,512}\x1b?)?)?\Z")
CURSOR = 25
# `ESC c` resets the terminal, modes and all.
_RESET = b"\x1bc"
SEQUENCE = re.compile(
    rb"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI
    rb"|\x1b\][^\x07\x1b]*(\x07|\x1b\\)"  # OSC: titles
    rb"|\x1b[PX^_][^\x1b]*\x1b\\"  # strings
    rb"|\x1b[ -/]*[0-~]"  # everything short
)
# Enough for a prompt with colours and a title around it.
TAIL_BYTES = 4096


class Output:
    """Bytes of the program in, the same for however they are cut."""

    def __init__(self) -> None:
        self._on: set[int] = {CURSOR}
        # What the program calls itself; coding agents show there whether they work.
        self.title: str | None = None
        self._cut = b""
        self._tail = b""
        self._last = b""
        self.last_output = float("-inf")
        # Bytes so far: who waits for an echo sees whether anything came.
        self.count = 0

    @property
    def takes_pastes(self) -> bool:
        return BRACKETED_PASTE in self._on

    @property
    def shows_cursor(self) -> bool:
        return CURSOR in self._on

    def feed(self, data: bytes, now: float) -> None:
        self.last_output = now
        self.count += len(data)
        if len(data) < TAIL_BYTES:
            self._tail = (self._tail + self._last)[-TAIL_BYTES:]
        else:
            self._tail = b""
        self._last = data
        if self._cut or b"\x1b" in data:
            self._switches(self._cut + data)

    def _switches(self, data: bytes) -> None:
        if _RESET in data:
            self._on = {CURSOR}
            data = data[data.rindex(_RESET) :]
        for found in _SWITCH.finditer(data):
            numbers = {int(number) for number in found[1].split(b";") if number}
            if found[2] == b"h":
                self._on |= numbers
            else:
                self._on -= numbers
        for title in _TITLE.finditer(data):
            self.title = title[1].decode("utf-8", "replace")
        cut = _CUT.search(data)
        self._cut = cut[0] if cut else b""

    def last_line(self) -> str:
        """The line the cursor is in, roughly: what was written since the last line break, colours removed."""
        text = SEQUENCE.sub(b"", (self._tail + self._last)[-TAIL_BYTES:])
        line = text[text.rfind(b"\n") + 1 :]
        # A carriage return goes back to the beginning and writes over it.
        line = line.rstrip(b"\r").rpartition(b"\r")[2]
        kept = bytearray()
        for byte in line:
            if byte == 0x08:
                del kept[-1:]
            elif byte >= 0x20:
                kept.append(byte)
        return kept.decode("utf-8", "replace")

    def leftovers(self) -> bytes:
        """What puts the person's terminal back to where the program found it."""
        off = b"".join(b"\x1b[?%dl" % number for number in _LEFTOVERS if number in self._on)
        return off if self.shows_cursor and not off else off + b"\x1b[?25h"
