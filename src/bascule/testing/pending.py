"""A call as its client sees it: an answer that may still come, or a stream that is read."""

from typing import TYPE_CHECKING, Any

from bascule.foundation.deferred import Deferred
from bascule.foundation.stream import Stream
from bascule.kernel.call import Call
from gabp import codec

if TYPE_CHECKING:
    from bascule.testing.house import House

_plain = codec.decoder(Any, max_depth=codec.MAX_ANSWER_DEPTH)


def as_read(value: Any) -> Any:
    """Plain JSON values, as a client reads them."""
    return _plain.decode(codec.encode(value))


class StillWaiting(AssertionError):
    """The call has no answer yet. Use `House.begin` to hold it open while other things happen."""


class OpenStream:
    """The reader's end of a stream."""

    def __init__(self, house: "House", stream: Stream) -> None:
        self._house = house
        self.stream = stream

    @property
    def ended(self) -> bool:
        return self.stream.ended

    def items(self) -> list[Any]:
        """What came since the last look."""
        items, _ = self.stream.drain()
        return [as_read(item) for item in items]

    def close(self) -> None:
        """The reader goes away."""
        self._house.run(self.stream.close)


class Pending:
    """A call that was begun. Its answer may be there, may come, or its client may go away first."""

    def __init__(self, house: "House", call: Call, answer: Any) -> None:
        self._house = house
        self._call = call
        self._answer = answer

    @property
    def later(self) -> Deferred[Any] | None:
        """What an edge would hold, for tests that need to cancel without letting the loop turn."""
        return self._answer if isinstance(self._answer, Deferred) else None

    @property
    def done(self) -> bool:
        later = self.later
        return later is None or later.done()

    def result(self) -> Any:
        """The answer as the client reads it; raises the refusal, or `StillWaiting`."""
        return self._house.shown(self._raw())

    def cancel(self) -> None:
        """The client goes away before there is an answer: a killed long poll."""
        if self.later is not None:
            self._house.run(self.later.cancel)

    def abandon(self) -> None:
        """The client is gone when the answer is there and could be written: what edges then call."""
        answer = self._raw()
        self._house.run(lambda: self._house.gate.abandoned(self._call, answer))

    def leave(self) -> None:
        """The client goes away, whether or not its answer is there: what an edge does when it notices."""
        if self.done:
            self.abandon()
        else:
            self.cancel()

    def _raw(self) -> Any:
        if not self.done:
            raise StillWaiting(f"{self._call.method} has no answer yet")
        return self.later.result() if self.later is not None else self._answer
