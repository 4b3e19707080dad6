"""A stream in pieces: every reader must give the same result however it is cut."""

from itertools import pairwise

from hypothesis import strategies as st

# Relative places, so that one strategy suits streams of any length.
cuts = st.lists(st.floats(0, 1), max_size=12)


def pieces(data: bytes, places: list[float]) -> list[bytes]:
    ends = sorted(int(place * len(data)) for place in places)
    return [data[start:end] for start, end in pairwise([0, *ends, len(data)])]


def single_bytes(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(len(data))]
