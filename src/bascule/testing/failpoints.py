"""Places where a daemon can be told to die: `BASCULE_FAILPOINT=store.commit:after@3` kills it when it has passed
there three times.

A point is the edge of a function that has a name, before or after it runs. Arming wraps that one function and
nothing else, so that an unarmed daemon has no trace of this. It dies by SIGKILL: nothing is flushed, closed or said.

The first word of a name says when a daemon gets there: `first` (a start in an empty directory), `start`, `stop`;
`effect` when it acts outside its store; `halt` when everything is stopped or resumed; `rest` when nothing happens for a
while; `mesh` when machines join, and ask each other; all others while it works.
"""

import importlib
import inspect
import itertools
import os
import re
import signal
from collections.abc import Callable
from typing import Any

from bascule.foundation.errors import InvalidRequest

BEFORE = ("before",)
AFTER = ("after",)
BOTH = (*BEFORE, *AFTER)
# Where it is, and which of its edges is no other point's edge as well.
PLACES = {
    "first.secret": ("bascule.daemon.compose:read_or_make_secret", AFTER),
    "first.secret-written": ("bascule.foundation.paths:write_synced", AFTER),
    "first.secret-in-place": ("bascule.foundation.paths:put_in_place", AFTER),
    "first.schema": ("bascule.stores.schema:_create", AFTER),
    "start.locked": ("bascule.daemon.lifecycle:bind_tcp", AFTER),
    "start.bind": ("bascule.daemon.lifecycle:bind_unix", AFTER),
    "start.open-store": ("bascule.daemon.lifecycle:open_store", AFTER),
    "start.load": ("bascule.broker.state:BrokerState.__init__", AFTER),
    "start.resume": ("bascule.broker.lifetimes:Lifetimes._resume", AFTER),
    "start.writer": ("bascule.kernel.journal:Journal.start", AFTER),
    "start.record": ("bascule.daemon.compose:Daemon._record_start", AFTER),
    "start.listen": ("bascule.surfaces.http.server:HttpDoor.start", AFTER),
    "start.settle": ("bascule.daemon.lifecycle:_settle_garbage", AFTER),
    "journal.commit": ("bascule.kernel.journal:Journal.commit", AFTER),
    "journal.land": ("bascule.kernel.journal:Journal._land", BOTH),
    "store.queue": ("bascule.stores.sqlite:SqliteStore.write", AFTER),
    "store.rows": ("bascule.stores.sqlite:SqliteStore._put_rows", BOTH),
    "store.ledger": ("bascule.stores.sqlite:SqliteStore._put_ledger", AFTER),
    "store.commit": ("bascule.stores.sqlite:SqliteStore._commit", BOTH),
    "store.fold": ("bascule.stores.sqlite:SqliteStore._fold_long_log", BOTH),
    "rest.fold": ("bascule.stores.sqlite:SqliteStore._fold", BOTH),
    "rest.round": ("bascule.stores.sqlite:SqliteStore._begin_round", BOTH),
    "rest.blank": ("bascule.stores.wal:Log.blank", BOTH),
    "rest.fill": ("bascule.stores.wal:_fill", BOTH),
    "effect.begun": ("bascule.kernel.effects:Effects.begin", AFTER),
    "effect.start": ("bascule.kernel.gate:Gate._act", BEFORE),
    "effect.finish": ("bascule.kernel.effects:Effects.finish", BOTH),
    "anchor.append": ("bascule.stores.anchor_file:AnchorFile.append", BOTH),
    "anchor.line": ("bascule.stores.anchor_file:_write_line", AFTER),
    "token.written": ("bascule.foundation.paths:write_synced", BOTH),
    "token.in-place": ("bascule.foundation.paths:put_in_place", BOTH),
    "agent.register": ("bascule.broker.agents:Agents.register", AFTER),
    "agent.registered": ("bascule.broker.agents:Agents._registered", BOTH),
    "ticket.send": ("bascule.broker.tickets:Tickets.send", AFTER),
    "ticket.sent": ("bascule.broker.tickets:Tickets._sent", BOTH),
    "ticket.broadcast": ("bascule.broker.broadcasts:Broadcasts.broadcast", AFTER),
    "ticket.ack": ("bascule.broker.tickets:Tickets.ack", AFTER),
    "ticket.acked": ("bascule.broker.tickets:Tickets.after_ack", BOTH),
    "ticket.reply": ("bascule.broker.tickets:Tickets.reply", AFTER),
    "ticket.replied": ("bascule.broker.tickets:Tickets._replied", BOTH),
    "ticket.cancel": ("bascule.broker.tickets:Tickets.cancel", AFTER),
    "ticket.time-out": ("bascule.broker.tickets:Tickets._time_out", BOTH),
    "ticket.expire": ("bascule.broker.tickets:Tickets._expire", BOTH),
    "wait.wake": ("bascule.broker.waits:Waits.settled", BOTH),
    "handover.poll": ("bascule.broker.waits:_Poll.hand_over", BOTH),
    "handover.stream": ("bascule.broker.waits:_InboxStream.hand_over", BOTH),
    "handover.put-back": ("bascule.broker.waits:Waits.put_back", BOTH),
    "sweep": ("bascule.broker.service:Broker.gc", AFTER),
    "respond.http": ("bascule.surfaces.http.connection:HttpConnection._write", BOTH),
    "respond.link": ("bascule.surfaces.link:LinkConnection._answer", BOTH),
    "halt.store": ("bascule.admin.stopping:Stopping._store", BOTH),
    "halt.stored": ("bascule.admin.stopping:Stopping._answer", AFTER),
    "halt.resume": ("bascule.admin.stopping:Stopping.resume", AFTER),
    "halt.resumed": ("bascule.admin.stopping:Stopping._resumed", BOTH),
    "mesh.began": ("bascule.mesh.membership_methods:MembershipMethods._begin", AFTER),
    "mesh.asked": ("bascule.mesh.joining:Joining.ask", AFTER),
    "mesh.accept": ("bascule.mesh.admissions:Admissions.accept", AFTER),
    "mesh.card": ("bascule.mesh.membership_methods:MembershipMethods._card_changed", BOTH),
    "mesh.joined": ("bascule.mesh.joining:Joining._accepted", BOTH),
    "mesh.fetched": ("bascule.mesh.admissions:Admissions.fetched", AFTER),
    "mesh.revoke": ("bascule.mesh.admissions:Admissions.revoke", AFTER),
    "mesh.hand-over": ("bascule.broker.tickets:Tickets.hand_over", AFTER),
    "mesh.show-reply": ("bascule.broker.tickets:Tickets.show_reply", AFTER),
    "stop.waits": ("bascule.daemon.compose:Daemon.stop_waits", BEFORE),
    "stop.farewell": ("bascule.daemon.lifecycle:_farewell", BEFORE),
    "stop.door": ("bascule.surfaces.http.server:HttpDoor.stop", BEFORE),
    "stop.close": ("bascule.daemon.compose:Daemon.close", BEFORE),
    "stop.presence": ("bascule.broker.service:Broker.store_presence", BEFORE),
    "stop.store": ("bascule.stores.sqlite:SqliteStore.close", BEFORE),
    "stop.sockets": ("bascule.daemon.lifecycle:_remove_sockets", BEFORE),
    "stop.log": ("bascule.daemon.logs:DaemonLog.close", BEFORE),
}
POINTS = tuple(f"{place}:{side}" for place, (_, sides) in PLACES.items() for side in sides)

_ARMED = re.compile(r"(?P<point>[a-z.-]+:[a-z]+)(@(?P<passing>[1-9][0-9]{0,8}))?")


def arm(text: str) -> None:
    """One of POINTS, and `@n` for the n-th passing instead of the first."""
    found = _ARMED.fullmatch(text)
    if found is None or found["point"] not in POINTS:
        raise InvalidRequest(
            f"BASCULE_FAILPOINT={text!r} is not a failpoint",
            hint=f"with @3 behind it for the third passing, one of: {', '.join(POINTS)}",
        )
    place, _, side = found["point"].partition(":")
    owner, name = _find(PLACES[place][0])
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
