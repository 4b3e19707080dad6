"""Looking for processes from outside, by a word in their environment that only they can have."""

import os
from collections.abc import Iterator


def with_word(word: str) -> list[int]:
    """Every process of the machine, zombies aside, that was started with it."""
    return [pid for pid in processes() if word.encode() in _read(f"/proc/{pid}/environ")]


def processes() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def children_of(parent: int) -> list[int]:
    """Zombies too."""
    found = []
    for pid in processes():
        text = _read(f"/proc/{pid}/stat")
        if text and int(text[text.rindex(b")") + 2 :].split()[1]) == parent:
            found.append(pid)
    return found


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
