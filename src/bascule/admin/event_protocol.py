"""The row of `events.all`: one stream of everything that happens, for the user of the machine."""

from typing import Annotated

import msgspec
from msgspec import Meta

from bascule.kernel.rows import LOCAL_USER, Http, Params, Result, Streams, rows_of

# Every kind with a comma between them fits.
MAX_KINDS_CHARS = 200


class AllEventsParams(Params, frozen=True, kw_only=True):
    # Go on behind this cursor; without one from now on, beginning with an item that names the cursor.
    after: Annotated[int, Meta(ge=0, le=2**53)] | None = None
    # Only these, with commas between them: agent, ticket, approval, run, process, game, desktop, person, daemon.
    kinds: Annotated[str, Meta(max_length=MAX_KINDS_CHARS)] | None = None


class EventItem(Result, frozen=True, kw_only=True):
    """Something that happened: ids, names and states, never payloads."""

    # Rises by one with every event, also over restarts of the daemon.
    cursor: int
    at: str
    # agent, ticket, approval, run, process, game, desktop, person or daemon.
    kind: str
    # Of the kind: `sent` of a ticket, `asked` of an approval. Of the daemon also `open`, the begin of a stream without
    # `after`, and `gap`: events before this one are not here, so what was read before is to be read again.
    event: str
    # Of the ticket, approval, run, process, game or execution; an agent's handle.
    id: str | None = None
    # Whose doing it is, or who asks.
    principal: str | None = None
    # To whom a ticket goes.
    agent_id: str | None = None
    from_: str | None = msgspec.field(default=None, name="from")
    status: str | None = None
    # One line, with control and bidi characters made visible.
    text: str | None = None


EVENTS_ALL = Streams[AllEventsParams, EventItem](
    "events.all",
    "Follow everything that happens: agents, tickets, approvals, runs, processes, games, desktop; never payloads.",
    Http("GET", "/v1/events/all"),
    who=LOCAL_USER,
)

METHODS = rows_of(globals())
