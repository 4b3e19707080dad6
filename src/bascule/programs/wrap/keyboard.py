"""What the person has typed, as far as it can be known from the keys: is there a line that is not sent yet?

The wrapper types only between the person's lines. It cannot see the program's input box, so it follows the keys and
errs towards silence: after anything that may have put text on the line (an arrow key that recalls history, a
completion, a paste) the line counts as begun until Enter or Ctrl-C.

Terminals answer questions of programs on the same wire (cursor position, colours, focus, mouse): nobody typed those.
"""

import re

# A person who pauses this long between two keys is not in the middle of a word.
TYPING_SECONDS = 1.5

_ENTER = 0x0D
_NEWLINE = 0x0A
_CTRL_C = 0x03
_CTRL_D = 0x04
_CTRL_L = 0x0C
_CTRL_U = 0x15
_ESCAPE = 0x1B
_ERASE = (0x08, 0x7F)
_PASTE_BEGIN = b"200~"
_PASTE_END = b"\x1b[201~"
# Final letters of what a terminal says by itself: positions, attributes, status, focus, modes, window reports.
_REPORTS = frozenset(b"RcnIOyt")
_ENDS_STRING = re.compile(rb"\x1b\\|\x07")
# No terminal says these in a string: somebody pressed Alt and a key that looks like its beginning, and then a line.
_NOT_IN_STRING = re.compile(rb"[\r\n\x03]")
# A terminal says a string in one breath, over the slowest line too; what is not over by then was such a key.
STRING_SECONDS = 2.0
# kitty's protocol writes Ctrl-C as a number.
_CTRL_C_REPORTED = b"99;5u"
# A terminal sends a sequence at once; an Escape this much older than what follows was the key.
ESCAPE_SECONDS = 0.1
# The same protocol reports released keys, and Escape.
_KEY_RELEASED = re.compile(rb":3[u~A-Z]\Z")
_ESCAPE_REPORTED = b"27u"
# Longer than any key or report; what is not over by then is not a sequence.
MAX_SEQUENCE_BYTES = 64


class Keyboard:
    """Bytes of the person in; `drafting` and `last_key` out. The same however the bytes are cut."""

    def __init__(self, *, is_terminal: bool = True) -> None:
        # A pipe has no Enter key: its lines end with a newline.
        self._submits = _ENTER if is_terminal else _NEWLINE
        # Characters on the line, while nothing but characters and Backspace was pressed.
        self._plain = 0
        # Something was pressed whose effect is not known from here.
        self._unknown = False
        self._begun = b""
        self._begun_at = float("-inf")
        self._pasting = False
        # A report of the terminal that is a string: ends with ST or BEL.
        self._in_string = False
        self._string_at = float("-inf")
        self.last_key = float("-inf")

    @property
    def drafting(self) -> bool:
        """There may be a line that the person has not sent."""
        # A string that has not ended may be a key and what was typed after it.
        return self._unknown or self._plain > 0 or self._pasting or self._in_string

    def is_typing(self, now: float) -> bool:
        return self.drafting or now - self.last_key < TYPING_SECONDS

    def feed(self, data: bytes, now: float) -> None:
        if self._begun == b"\x1b" and now - self._begun_at > ESCAPE_SECONDS and not (self._pasting or self._in_string):
            self._begun = b""
        if self._in_string and now - self._string_at > STRING_SECONDS:
            self._in_string, self._unknown = False, True
        data, self._begun = self._begun + data, b""
        self._begun_at = now
        at = 0
        while at < len(data):
            if self._pasting:
                at = self._through_paste(data, at, now)
            elif self._in_string:
                at = self._through_string(data, at)
            elif data[at] == _ESCAPE:
                at = self._sequence(data, at, now)
            else:
                self._key(data[at], now)
                at += 1

    def _key(self, key: int, now: float) -> None:
        # Continuation bytes of UTF-8 belong to the character that was counted.
        if 0x80 <= key <= 0xBF:
            return
        self.last_key = now
        if key in (self._submits, _CTRL_C):
            self._plain, self._unknown = 0, False
        elif key in _ERASE:
            self._plain = max(0, self._plain - 1)
        elif key == _CTRL_U and not self._unknown:
            self._plain = 0
        elif key >= 0x20:
            self._plain += 1
        elif key not in (_CTRL_D, _CTRL_L, _CTRL_U):
            # Tab completes, Ctrl-R and Ctrl-P recall, Ctrl-Y yanks, Ctrl-A moves, Ctrl-J begins another line.
            self._unknown = True

    def _sequence(self, data: bytes, at: int, now: float) -> int:
        """One escape sequence; where it ends. A cut one is kept for the next piece."""
        kind = data[at + 1 : at + 2]
        if not kind:
            # The Esc key by itself, or the beginning of more: it changes nothing either way.
            self._begun = data[at:]
            return len(data)
        if kind in (b"]", b"P", b"_", b"^"):
            self._in_string, self._string_at = True, now
            return at + 2
        if kind == b"[":
            end = next((i for i in range(at + 2, len(data)) if 0x40 <= data[i] <= 0x7E), None)
            if end is None:
                if len(data) - at < MAX_SEQUENCE_BYTES:
                    self._begun = data[at:]
                    return len(data)
                end = len(data) - 1
            self._control(data[at + 2 : end + 1], now)
            return end + 1
        if kind == b"O":
            if len(data) < at + 3:
                self._begun = data[at:]
                return len(data)
            self._control(data[at + 2 : at + 3], now)
            return at + 3
        # Alt and a key; Alt-Enter begins another line in most programs.
        self.last_key, self._unknown = now, True
        return at + 2

    def _control(self, sequence: bytes, now: float) -> None:
        final = sequence[-1]
        if sequence == _PASTE_BEGIN:
            self._pasting, self.last_key = True, now
            return
        # Mouse reports begin with `<`; clicks and wheel write nothing.
        reported = (
            (len(sequence) > 1 and final in _REPORTS) or sequence in (b"I", b"O") or sequence[:1] in (b"<", b"?", b"M")
        )
        if reported or sequence == _ESCAPE_REPORTED or _KEY_RELEASED.search(sequence):
            return
        self.last_key = now
        if sequence == _CTRL_C_REPORTED:
            self._plain, self._unknown = 0, False
        elif final in b"CD" and not self.drafting:
            # Left and right on an empty line.
            return
        else:
            self._unknown = True

    def _through_paste(self, data: bytes, at: int, now: float) -> int:
        self.last_key = now
        end = data.find(_PASTE_END, at)
        if end < 0:
            # The end may be cut: keep what could be its beginning.
            kept = _cut_tail(data, at, _PASTE_END)
            self._unknown = self._unknown or len(data) - kept > at
            self._begun = data[len(data) - kept :] if kept else b""
            return len(data)
        self._pasting = False
        self._unknown = self._unknown or end > at
        return end + len(_PASTE_END)

    def _through_string(self, data: bytes, at: int) -> int:
        found = _ENDS_STRING.search(data, at)
        typed = _NOT_IN_STRING.search(data, at, found.start() if found else len(data))
        if typed is not None:
            self._in_string, self._unknown = False, True
            return typed.start()
        if found is None:
            if data.endswith(b"\x1b"):
                self._begun = b"\x1b"
            return len(data)
        self._in_string = False
        return found.end()


def _cut_tail(data: bytes, at: int, mark: bytes) -> int:
    """How many bytes at the end of `data` may be the beginning of `mark`."""
    for size in range(min(len(mark) - 1, len(data) - at), 0, -1):
        if data.endswith(mark[:size]):
            return size
    return 0
