"""Brings the machine to what the store says: our server, who may log in there, the post, what is on the board.

One task goes over all of it whenever something has changed (`follow`), and again after a while where something failed.
Everything it does may be done twice, so a daemon that died in between goes on where it was.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from bascule.foundation.backoff import Backoff
from bascule.foundation.clock import Clock
from bascule.foundation.deferred import Deferred
from bascule.foundation.tasks import Tasks
from bascule.kernel.journal_ports import Log
from bascule.mesh.admissions import Admissions
from bascule.mesh.machine_ports import Machine, MemberHub, MemberPost, NotReached, OnJoin, Traffic
from bascule.mesh.membership import OwnPlace
from bascule.mesh.ports import Board, Reader
from bascule.mesh.records import Membership, Standing
from bascule.mesh.roster import Roster

# A server that does not start is tried again, soon and then now and then.
FIRST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 30.0
_CARDS: Final = Board.CARDS


class Connection:
    def __init__(
        self,
        *,
        machine: Machine,
        place: OwnPlace,
        roster: Roster,
        admissions: Admissions,
        traffic: Traffic,
        clock: Clock,
        log: Log,
        tasks: Tasks,
    ) -> None:
        self._machine = machine
        self._place = place
        self._roster = roster
        self._admissions = admissions
        self.traffic = traffic
        self._clock = clock
        self._log = log
        self._tasks = tasks
        self.hub: MemberHub | None = None
        self.post: MemberPost | None = None
        # The row that hub and post were made for.
        self._of: Membership | None = None
        # What was said to the hub, and put on the board, in this life of it.
        self._admitted: dict[str, str] = {}
        self._invited: dict[str, int] = {}
        self._put: dict[str, bytes] = {}
        # Why the machine is not as the store says, in a line for a person.
        self.problem: str | None = None
        self._changed = asyncio.Event()
        # Started with the first thing to do: most daemons are in no mesh.
        self._is_running = False
        self._waiting: list[Deferred[None]] = []
        self.on_join: OnJoin | None = None
        self.on_card: Callable[[str, bytes], None] = lambda _key, _value: None

    # -- from outside --

    def start(self) -> None:
        if self._place.row is not None:
            self.notice()

    def adopt(self, hub: MemberHub) -> None:
        """A server that was started before its mesh was stored."""
        self.hub = hub

    def notice(self) -> None:
        """Something in the store has changed."""
        if not self._is_running:
            self._is_running = True
            self._tasks.start(self._run(), "the mesh")
        self._changed.set()

    def follow(self) -> Deferred[None]:
        """Settled when the machine was brought to what the store says now, or that failed."""
        waiting: Deferred[None] = Deferred()
        self._waiting.append(waiting)
        self.notice()
        return waiting

    async def close(self) -> None:
        await self._end()
        for waiting in self._waiting:
            waiting.cancel()

    # -- the task --

    async def _run(self) -> None:
        waits = Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
        waiting: list[Deferred[None]] = []
        try:
            while True:
                delay = None if self.problem is None else next(waits)
                try:
                    async with asyncio.timeout(delay):
                        await self._changed.wait()
                except TimeoutError:
                    pass
                self._changed.clear()
                waiting, self._waiting = self._waiting, []
                problem = await self._try()
                if problem is None:
                    waits.reset()
                elif problem != self.problem:
                    self._log("mesh.problem", level="warning", problem=problem)
                self.problem = problem
                _settle(waiting)
        except BaseException as error:
            # Nobody waits for it any longer. After a fault of ours the next change starts it again, at the end none.
            self._is_running = isinstance(error, asyncio.CancelledError)
            self.problem = self.problem or "it stopped at an internal error, which is in the log"
            _settle(waiting)
            raise

    async def _try(self) -> str | None:
        try:
            await self._reconcile()
        except NotReached as error:
            return error.detail
        except OSError as error:
            return f"{type(error).__name__}: {error}"
        return None

    async def _reconcile(self) -> None:
        row = self._place.row
        if row is None or row.standing is not Standing.MEMBER or (self._of is not None and not _same(self._of, row)):
            await self._end()
        if row is None or row.standing is not Standing.MEMBER:
            return
        self._of = row
        if self.post is not None:
            # Before anybody is cut off: who is revoked reads it, and says so to its person.
            self._show_cards(row, self.post)
        if row.hub_listen is not None:
            if self.hub is None:
                self.hub = await self._start_hub(row)
            await self._sync(self.hub)
        if self._place.row is not row:
            # Somebody left meanwhile: a post for the old row would speak with keys that nobody takes any more.
            return
        if self.post is None:
            self.post = self._machine.make_post(row)
            if row.mesh_secret is not None and self.on_join is not None:
                self.post.on_join(self.on_join)
                self.post.on_wiped(partial(self._make_again, row))
            await self.post.open(_CardReader(self.traffic.begin(self.post, row), self._take_card))
        self._show_cards(row, self.post)

    async def _start_hub(self, row: Membership) -> MemberHub:
        """One that did not start is not kept: it can neither admit anybody nor start a second time."""
        hub = self._machine.make_hub(row)
        try:
            await hub.start()
        except BaseException:
            await hub.close()
            raise
        return hub

    async def _make_again(self, row: Membership) -> None:
        """The server has lost everything. No promise rests on it: what was under way is in the outboxes."""
        self._log("mesh.wiped", level="warning", servers=", ".join(row.servers))
        await self._machine.set_up(row, self.hub)

    async def _end(self) -> None:
        post, hub = self.post, self.hub
        self.post = self.hub = self._of = None
        self._admitted, self._invited, self._put = {}, {}, {}
        if post is not None:
            self.traffic.end()
            await post.close()
        if hub is not None:
            await hub.close()

    async def _sync(self, hub: MemberHub) -> None:
        """Those who are revoked first."""
        cards = list(self._roster.all())
        for card in cards:
            if self._roster.is_revoked(card) and self._admitted.get(card.node) != "":
                await hub.expel(card.node)
                self._admitted[card.node] = ""
        for card in cards:
            if not self._roster.is_revoked(card) and self._admitted.get(card.node) != card.bus:
                await hub.admit(card.node, card.bus)
                self._admitted[card.node] = card.bus
        wanted = self._admissions.open_invites()
        for key in set(self._invited) - set(wanted):
            await hub.withdraw(key)
            del self._invited[key]
        for key, until in wanted.items():
            if self._invited.get(key) != until:
                await hub.invite(key, (until - self._clock.wall_ms()) / 1000)
                self._invited[key] = until

    def _show_cards(self, row: Membership, post: MemberPost) -> None:
        """Our own; where the mesh key is, everybody's, and the list of those revoked."""
        keys = self._roster.table.rows if row.mesh_secret is not None else (row.node,)
        for key in keys:
            signed = self._roster.signed(key)
            if signed is not None and self._put.get(key) != signed:
                post.put(_CARDS, key, signed)
                self._put[key] = signed

    def _take_card(self, key: str, value: bytes | None) -> None:
        if value == self._roster.signed(key):
            return
        if value is not None:
            self.on_card(key, value)
        # Gone from the board, or older than ours: what we have put there goes there again.
        if self._put.pop(key, None) is not None:
            self.notice()


class _CardReader:
    """Cards are for the roster; whatever else comes, and they too, is for the traffic."""

    def __init__(self, reader: Reader, on_card: Callable[[str, bytes | None], None]) -> None:
        self._reader = reader
        self._on_card = on_card
        self.opened = reader.opened
        self.closed = reader.closed
        self.live = reader.live
        self.mailed = reader.mailed

    def posted(self, board: Board, key: str, value: bytes | None, age_ms: int) -> None:
        if board is Board.CARDS:
            self._on_card(key, value)
        self._reader.posted(board, key, value, age_ms)


def _settle(waiting: list[Deferred[None]]) -> None:
    for each in waiting:
        if not each.done():
            each.set_result(None)


def _same(one: Membership, other: Membership) -> bool:
    """Whether hub and post of the one serve the other: a newer card needs no new connection."""
    return (one.mesh_key, one.node, one.keys, one.servers) == (other.mesh_key, other.node, other.keys, other.servers)
