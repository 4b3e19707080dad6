"""What a tool may know about the call it answers, by naming a parameter of type `Context`."""

from collections.abc import Callable

from msgspec import UNSET

from gabp import messages


class Context:
    """Given to tools that ask for it; never part of their schema."""

    __slots__ = ("_cancelled", "_send", "request_id")

    def __init__(self, request_id: str, send: Callable[[messages.Progress], None]) -> None:
        self.request_id = request_id
        self._send = send
        self._cancelled = False

    @property
    def cancelled(self) -> bool:
        """The caller has gone or does not want it any more. A tool that yields is ended at its next step."""
        return self._cancelled

    def cancel(self) -> None:
        self._cancelled = True

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the caller how far it is, if it listens."""
        self._send(
            messages.Progress(
                request_id=self.request_id,
                progress=done,
                total=UNSET if total is None else total,
                message=UNSET if message is None else message,
            )
        )
