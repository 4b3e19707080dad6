"""What the beginning of a PNG says. Whatever else is in it is for the program that draws it."""

from typing import Final

SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
# The signature, then the first chunk: its length, `IHDR`, width, height.
_WIDTH, _HEIGHT = slice(16, 20), slice(20, 24)


def pixels(data: bytes) -> int:
    """Width times height; 0 for what does not begin as a PNG."""
    if not data.startswith(SIGNATURE):
        return 0
    return int.from_bytes(data[_WIDTH]) * int.from_bytes(data[_HEIGHT])
