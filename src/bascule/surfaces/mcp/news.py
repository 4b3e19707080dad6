"""Says that there is more to read in the resource; what there is, the subscriber reads.

Every event that concerns the agent is news for `bascule://transactions/recent`, and only of that agent: the stream
behind it is opened as the agent, with the agent's own handle as its filter.
"""

import asyncio
from collections.abc import Callable

from bascule.broker.protocol import EventsParams
from bascule.foundation.stream import Stream
from bascule.kernel.call import Call, Principal, agent_of
from bascule.kernel.gate import Gate

# A burst of events is one piece of news: the client reads once for all of them.
NEWS_SECONDS = 0.1


class News:
    """One open stream of events, thinned out."""

    def __init__(
        self,
        gate: Gate,
        principal: Principal,
        notify: Callable[[], None],
        ended: Callable[[], None] | None = None,
        *,
        door: str,
    ) -> None:
        self._notify = notify
        self._ended = ended
        self._soon: asyncio.TimerHandle | None = None
        stream = gate.call(Call(principal, "events.stream", EventsParams(agent_id=agent_of(principal)), door=door))
        assert isinstance(stream, Stream)
        self._stream = stream
        stream.on_ready = self._ready

    def close(self) -> None:
        self._stream.on_ready = None
        self._stream.close()
        if self._soon is not None:
            self._soon.cancel()

    def _ready(self) -> None:
        items, dropped = self._stream.drain()
        if (items or dropped) and self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(NEWS_SECONDS, self._now)
        if self._stream.ended and self._ended is not None:
            self._ended()

    def _now(self) -> None:
        self._soon = None
        self._notify()
