"""Anchors of the ledger, kept outside the database: one JSON line each, on disk before we go on."""

import os
import re
import zlib

from bascule.foundation.paths import sync_dir
from bascule.kernel.ledger import Anchor
from gabp import codec

# The ledger is kept for 90 days: one a minute are 130,000, and ten million records more. Older ones guard nothing that
# retention has left.
MAX_ANCHORS_READ = 230_000
# What a start looks at: some hundred anchors, as many reads of one row each.
NEWEST_BYTES = 32 * 1024

_anchor = codec.decoder(Anchor)
_CUT_BEGINS = b'{"seq":'
# Closes a line: what the ledger cannot confirm (when, and why) would otherwise change unnoticed.
_CHECKSUM = re.compile(rb',"crc":"([0-9a-f]{8})"(\})?')


class AnchorFile:
    def __init__(self, path: str) -> None:
        self._path = path

    def append(self, anchor: Anchor) -> None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            _write_line(descriptor, size, anchor)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if not size:
            sync_dir(os.path.dirname(self._path))

    def newest(self) -> list[Anchor]:
        """The last few, oldest first, from the file's end alone."""
        try:
            with open(self._path, "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - NEWEST_BYTES))
                lines = file.read(NEWEST_BYTES).splitlines()
        except FileNotFoundError:
            return []
        # The first line may be half of one: then it is not read as an anchor.
        return [anchor for line in lines if (anchor := _read(line)) is not None]

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
            anchor = _read(line)
            if anchor is not None:
                anchors.append(anchor)
            elif not _was_cut(line):
                faults.append(f"line {number} of the anchors file is not an anchor of ours: changed or damaged")
        return anchors[-MAX_ANCHORS_READ:], faults


def _line(anchor: Anchor) -> bytes:
    body = codec.encode(anchor)
    return b'%s,"crc":"%08x"}' % (body[:-1], zlib.crc32(body))


def _read(line: bytes) -> Anchor | None:
    found = _CHECKSUM.search(line)
    if found is not None:
        body = line[: found.start()] + b"}"
        if found.end() != len(line) or found[2] is None or int(found[1], 16) != zlib.crc32(body):
            return None
        line = body
    # Lines of version 0.1 have no checksum.
    try:
        return _anchor.decode(line)
    except codec.BadJson:
        return None


def _was_cut(line: bytes) -> bool:
    begins = line.startswith(_CUT_BEGINS[: len(line)])
    return begins and not line.endswith(b"}") and _CHECKSUM.search(line) is None


def _write_line(descriptor: int, size: int, anchor: Anchor) -> None:
    # A crash may have cut the last line: it must not swallow this one.
    start = b"\n" if size and os.pread(descriptor, 1, size - 1) != b"\n" else b""
    os.write(descriptor, start + _line(anchor) + b"\n")
