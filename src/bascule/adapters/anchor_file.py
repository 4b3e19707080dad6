"""Anchors of the ledger, kept outside the database: one JSON line each, on disk before we go on."""

import os

from bascule.audit.ledger import Anchor
from bascule.wire import codec

# An anchor per thousand records: ten million records. Older ones guard nothing that retention has left.
MAX_ANCHORS_READ = 10_000

_anchor = codec.decoder(Anchor)


class AnchorFile:
    def __init__(self, path: str) -> None:
        self._path = path

    def append(self, anchor: Anchor) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o600)
        try:
            os.write(descriptor, codec.encode(anchor) + b"\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def read(self) -> tuple[list[Anchor], list[str]]:
        """The anchors, and a sentence for each line that is none."""
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
                # The last line may have been cut by a crash; the ledger itself is not touched by that.
                if number != len(lines):
                    faults.append(f"line {number} of the anchors file cannot be read")
        return anchors[-MAX_ANCHORS_READ:], faults
