"""Places where a daemon can be told to die: `BASCULE_FAILPOINT=store.commit:after@3` kills it when it has passed
there three times.

A point is the edge of a function that has a name, before or after it runs. Arming wraps that one function and
nothing else, so that an unarmed daemon has no trace of this. It dies by SIGKILL: nothing is flushed, closed or said.

The first word of a name says when a daemon gets there: `first` (a start in an empty directory), `start`, `stop`;
the rest while it works.
"""

import importlib
import inspect
import itertools
import os
import re
import signal
from collections.abc import Callable
from typing import Any

from bascule.errors import InvalidRequest

PLACES = {
    "first.secret": "bascule.daemon.compose:read_or_make_secret",
    "first.secret-written": "bascule.places:write_synced",
    "first.secret-in-place": "bascule.places:put_in_place",
    "first.schema": "bascule.stores.schema:_create",
    "start.locked": "bascule.daemon.lifecycle:bind_tcp",
    "start.bind": "bascule.daemon.lifecycle:bind_unix",
    "start.open-store": "bascule.daemon.lifecycle:open_store",
    "start.load": "bascule.bridges.broker.state:State.__init__",
    "start.resume": "bascule.bridges.broker.tickets:Tickets._resume",
    "start.writer": "bascule.audit.journal:Journal.start",
    "start.record": "bascule.daemon.compose:Daemon._record_start",
    "start.listen": "bascule.web.server:HttpDoor.start",
    "start.settle": "bascule.daemon.lifecycle:_settle_garbage",
    "journal.commit": "bascule.audit.journal:Journal.commit",
    "journal.land": "bascule.audit.journal:Journal._land",
    "store.queue": "bascule.stores.sqlite:SqliteStore.write",
    "store.rows": "bascule.stores.sqlite:SqliteStore._put_rows",
    "store.ledger": "bascule.stores.sqlite:SqliteStore._put_ledger",
    "store.commit": "bascule.stores.sqlite:SqliteStore._commit",
    "anchor.append": "bascule.adapters.anchor_file:AnchorFile.append",
    "anchor.line": "bascule.adapters.anchor_file:_write_line",
    "token.written": "bascule.places:write_synced",
    "token.in-place": "bascule.places:put_in_place",
    "agent.register": "bascule.bridges.broker.agents:Agents.register",
    "agent.registered": "bascule.bridges.broker.agents:Agents._registered",
    "ticket.send": "bascule.bridges.broker.tickets:Tickets.send",
    "ticket.sent": "bascule.bridges.broker.tickets:Tickets._sent",
    "ticket.broadcast": "bascule.bridges.broker.tickets:Tickets.broadcast",
    "ticket.ack": "bascule.bridges.broker.tickets:Tickets.ack",
    "ticket.acked": "bascule.bridges.broker.tickets:Tickets._after_ack",
    "ticket.reply": "bascule.bridges.broker.tickets:Tickets.reply",
    "ticket.replied": "bascule.bridges.broker.tickets:Tickets._replied",
    "ticket.cancel": "bascule.bridges.broker.tickets:Tickets.cancel",
    "ticket.time-out": "bascule.bridges.broker.tickets:Tickets._time_out",
    "ticket.expire": "bascule.bridges.broker.tickets:Tickets._expire",
    "wait.wake": "bascule.bridges.broker.waits:Waits.settled",
    "handover.poll": "bascule.bridges.broker.waits:_Poll.hand_over",
    "handover.stream": "bascule.bridges.broker.waits:_InboxStream.hand_over",
    "handover.put-back": "bascule.bridges.broker.waits:Waits.put_back",
    "sweep": "bascule.bridges.broker.service:Broker.gc",
    "respond.http": "bascule.web.app:App._answer",
    "respond.link": "bascule.daemon.link_door:LinkConnection._answer",
    "stop.waits": "bascule.daemon.compose:Daemon.stop_waits",
    "stop.farewell": "bascule.daemon.lifecycle:_farewell",
    "stop.door": "bascule.web.server:HttpDoor.stop",
    "stop.close": "bascule.daemon.compose:Daemon.close",
    "stop.presence": "bascule.bridges.broker.service:Broker.store_presence",
    "stop.store": "bascule.stores.sqlite:SqliteStore.close",
    "stop.sockets": "bascule.daemon.lifecycle:_remove_sockets",
    "stop.log": "bascule.daemon.logs:DaemonLog.close",
}
SIDES = ("before", "after")
POINTS = tuple(f"{place}:{side}" for place in PLACES for side in SIDES)

_ARMED = re.compile(r"(?P<point>[a-z.-]+:[a-z]+)(@(?P<passing>[1-9][0-9]{0,8}))?")


def arm(text: str) -> None:
    """`<place>:before|after`, and `@n` for the n-th passing instead of the first."""
    found = _ARMED.fullmatch(text)
    if found is None or found["point"] not in POINTS:
        raise InvalidRequest(
            f"BASCULE_FAILPOINT={text!r} is no failpoint",
            hint=f"<place>:before or <place>:after, @3 for the third passing; places: {', '.join(PLACES)}",
        )
    place, _, side = found["point"].partition(":")
    owner, name = _find(PLACES[place])
    setattr(owner, name, _deadly(getattr(owner, name), side, int(found["passing"] or 1)))


def _find(target: str) -> tuple[Any, str]:
    module, _, path = target.partition(":")
    *outer, name = path.split(".")
    owner = importlib.import_module(module)
    for each in outer:
        owner = getattr(owner, each)
    return owner, name


def _deadly(function: Callable[..., Any], side: str, fatal: int) -> Callable[..., Any]:
    """The function, and the end of the process at its edge."""
    passings = itertools.count(1)

    def passing() -> None:
        if next(passings) == fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    if inspect.iscoroutinefunction(function):

        async def later(*args: Any, **more: Any) -> Any:
            if side == "before":
                passing()
            answer = await function(*args, **more)
            if side == "after":
                passing()
            return answer

        return later

    def at_once(*args: Any, **more: Any) -> Any:
        if side == "before":
            passing()
        answer = function(*args, **more)
        if side == "after":
            passing()
        return answer

    return at_once
