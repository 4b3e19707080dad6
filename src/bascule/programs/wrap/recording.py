"""What a program shows and is typed, with times, as an asciicast (version 2): what profiles are made from.

A recording holds everything that was typed, passwords included: it is made when asked for, in a file of its owner's.
"""

import codecs
import contextlib
import json
import os
import stat
import time


class Recording:
    def __init__(self, path: str, rows: int, columns: int, title: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            # One that was there before may be open to others.
            os.fchmod(descriptor, 0o600)
        # Line by line: what is buffered would be lost with the wrapper, and a full disk found out at the end only.
        self._file = os.fdopen(descriptor, "w", encoding="utf-8", buffering=1)
        # Why nothing more is written down.
        self.fault: str | None = None
        self._begun = time.monotonic()
        # A character that is cut between two pieces is written with the second.
        self._decoders = {kind: codecs.getincrementaldecoder("utf-8")("replace") for kind in "oi"}
        self._line({"version": 2, "width": columns, "height": rows, "title": os.path.basename(title)})

    def note(self, kind: str, data: bytes) -> None:
        text = self._decoders[kind].decode(data)
        if text:
            self._line([round(time.monotonic() - self._begun, 3), kind, text])

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()

    def _line(self, value: object) -> None:
        if self.fault is not None:
            return
        try:
            self._file.write(json.dumps(value, ensure_ascii=False) + "\n")
        except OSError as fault:
            # The program's bytes are on their way to the person: a full disk must not keep them.
            self.fault = fault.strerror or str(fault)
