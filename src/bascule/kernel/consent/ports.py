"""What the desk needs from the outside."""

from typing import Protocol


class Pictures(Protocol):
    """Files that only the person's own programs can read."""

    def save(self, name: str, png: bytes, /) -> str:
        """Where it is; OSError when there is no room."""

    def read(self, path: str, /) -> bytes | None:
        """Blocking. None when it is gone, or is not what `save` wrote."""

    def remove(self, path: str, /) -> None: ...

    def keep_only(self, paths: set[str], /) -> None: ...
