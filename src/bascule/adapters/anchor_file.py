"""Anchors of the ledger, kept outside the database: one JSON line each, on disk before we go on."""

import os

from bascule.audit.ledger import Anchor
from bascule.wire import codec

# An anchor per thousand records: ten million records. Older ones guard nothing that retention has left.
MAX_ANCHORS_READ = 10_000

_anchor = codec.decoder(Anchor)
_CUT_BEGINS = b'{"seq":'


class AnchorFile:
    def __init__(self, path: str) -> None:
        self._path = path

    def append(self, anchor: Anchor) -> None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            # A crash may have cut the last line: it must not swallow this one.
            start = b"\n" if size and os.pread(descriptor, 1, size - 1) != b"\n" else b""
            os.write(descriptor, start + codec.encode(anchor) + b"\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def read(self) -> tuple[list[Anchor], list[str]]:
        """The anchors, and a sentence for each line that is none.

        A line that begins like an anchor and just ends early was cut by a crash or a full disk; it says nothing
        about the ledger.
        """
        try:
            with open(self._path, "rb") as file:
                lines = file.read().splitlines()
        except FileNotFoundError:
            return [], []
        anchors: list[Anchor] = []
        faults: list[str] = []
        for number, line in enumerate(lines, 1):
            try:
                anchors.append(_anchor.decode(line))
            except codec.BadJson:
                if not (line.startswith(_CUT_BEGINS[: len(line)]) and not line.endswith(b"}")):
                    faults.append(f"line {number} of the anchors file cannot be read")
        return anchors[-MAX_ANCHORS_READ:], faults
