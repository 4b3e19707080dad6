"""What a program shows and is typed, with times, as an asciicast (version 2): what profiles are made from.

A recording holds everything that was typed, passwords included: it is made when asked for, in a file of its owner's.
"""

import codecs
import json
import os
import time


class Recording:
    def __init__(self, path: str, rows: int, columns: int, title: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.fdopen(os.open(path, flags, 0o600), "w", encoding="utf-8")
        self._begun = time.monotonic()
        # A character that is cut between two pieces is written with the second.
        self._decoders = {kind: codecs.getincrementaldecoder("utf-8")("replace") for kind in "oi"}
        self._line({"version": 2, "width": columns, "height": rows, "title": os.path.basename(title)})

    def note(self, kind: str, data: bytes) -> None:
        text = self._decoders[kind].decode(data)
        if text:
            self._line([round(time.monotonic() - self._begun, 3), kind, text])

    def close(self) -> None:
        self._file.close()

    def _line(self, value: object) -> None:
        self._file.write(json.dumps(value, ensure_ascii=False) + "\n")
