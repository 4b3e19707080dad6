"""Bugs put in on purpose, for the tests that see whether they are found."""

from readers import pieces, read_frames

from gabp.content_length import FrameReader

_kept: list[bytes] = []


def magic(data: bytes) -> None:
    # One letter more is one branch more: coverage leads there step by step.
    if len(data) > 3 and data[0] == 0x42:  # noqa: SIM102 - see above
        if data[1] == 0x41:  # noqa: SIM102 - see above
            if data[2] == 0x53:  # noqa: SIM102 - see above
                if data[3] == 0x43:
                    raise RuntimeError("found the planted bug")


class _CutBlind(FrameReader):
    def _still_incomplete(self) -> bool:
        # The end of the header is looked for in new bytes only, never across a cut.
        if not self._need and self._held.find(b"\r\n\r\n", self._searched) < 0:
            self._searched = len(self._held)
            return True
        return super()._still_incomplete()


def cut_blind(data: bytes) -> None:
    stream, cut = pieces(data)
    whole, parts = (read_frames(_CutBlind(max_body_bytes=64, max_header_bytes=96), each) for each in ([stream], cut))
    assert whole == parts, "found the planted bug"


def endless(data: bytes) -> None:
    while data[:1] == b"!":
        pass


def hoarder(data: bytes) -> None:
    _kept.append(data * 100_000)
