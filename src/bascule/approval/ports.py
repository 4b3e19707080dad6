"""What the desk needs from the outside."""

from collections.abc import Callable
from typing import Any, Protocol


class Timers(Protocol):
    """One heap of deadlines for the whole daemon."""

    def after_ms(self, ms: float, what: Callable[[float], None], /) -> Any:
        """`what` is called with the time then; the answer is for `call_off`."""

    def call_off(self, deadline: Any, /) -> None: ...
