"""What the desk needs from the outside."""

from collections.abc import Callable
from typing import Any, Protocol


class Timers(Protocol):
    """One heap of deadlines for the whole daemon."""

    def after_ms(self, ms: float, what: Callable[[float], None], /) -> Any:
        """`what` is called with the time then; the answer is for `call_off`."""

    def call_off(self, deadline: Any, /) -> None: ...


class Pictures(Protocol):
    """Files that only the person's own programs can read."""

    def save(self, name: str, png: bytes, /) -> str:
        """Where it is; OSError when there is no room."""

    def remove(self, path: str, /) -> None: ...

    def keep_only(self, paths: set[str], /) -> None: ...
