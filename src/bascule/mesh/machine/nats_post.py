"""The post of the mesh over NATS: connects for ever, reads our mailbox and the boards, and says what is wrong.

One connection after the other, each used from login to loss. Whatever was on its way then is not confirmed; the outbox
sends it again.
"""

import asyncio
import contextlib
import itertools
import logging
import random
import time
from collections.abc import Callable

from bascule.foundation.backoff import Backoff
from bascule.foundation.deferred import Deferred
from bascule.foundation.tasks import Tasks
from bascule.mesh.cards import Keys
from bascule.mesh.machine import layout
from bascule.mesh.machine.bus import NO_STREAM, ApiFault, Bus, is_late, wall_ms
from bascule.mesh.machine.feed import BOARD_PACE, MAIL_PACE, Feed, Letter
from bascule.mesh.machine.login import BusFault, Login
from bascule.mesh.machine.nats_wire import Message
from bascule.mesh.machine_ports import NotReached, OnJoin, OnWiped
from bascule.mesh.ports import Board, Fault, NotMailed, PostState, Reader

_logger = logging.getLogger(__name__)

# A hub on a laptop is back within seconds; a server that is gone for days is asked twelve times a minute.
FIRST_RETRY_SECONDS = 0.2
LONGEST_RETRY_SECONDS = 5.0
# A value that the server did not take is put again after this.
PUT_AGAIN_SECONDS = 5.0
# Requests to join that are answered at once; each costs a signature, and anybody with a code may send them.
MAX_JOINING = 16
# In a second: a joiner knocks three times in its first one, and somebody with a code could knock without end. Each
# costs about a millisecond.
MAX_KNOCKS_PER_SECOND = 50
# After letters were not stored: how soon one to ourselves is tried.
MAIL_AGAIN_SECONDS = 5.0
# What is wrong at once: a person reads the first. A server can name any number of subjects.
MAX_FAULTS = 50
# An echo that was under way for longer says too little about the server's clock.
MAX_ECHO_SECONDS = 2.0
# What every server takes that was never configured otherwise.
_DEFAULT_MAX_BYTES = 1024 * 1024


def _log(what: str, error: BaseException) -> None:
    _logger.error("the mesh: %s failed", what, exc_info=error)


class NatsPost:
    def __init__(
        self,
        node: str,
        keys: Keys,
        servers: tuple[str, ...],
        *,
        certificate: str | None = None,
        creds_file: str | None = None,
        report: Callable[[str, BaseException], object] = _log,
    ) -> None:
        self._node = node
        self._login = Login(node, keys.bus, servers, certificate, creds_file)
        self._report = report
        self._tasks = Tasks(report)
        self.state = PostState(open=False, fault=Fault.UNREACHABLE, detail="not connected yet")
        self.max_bytes = _DEFAULT_MAX_BYTES
        self._reader: Reader | None = None
        self._bus: Bus | None = None
        # What is wrong although we are connected, by what does not work.
        self._faults: dict[str, BusFault] = {}
        self._values: dict[tuple[Board, str], bytes] = {}
        # The server's clock minus the loop's, in milliseconds; and when our sign of life was sent.
        self._server_offset: float | None = None
        self._put_at: float | None = None
        self._on_join: OnJoin | None = None
        self._on_wiped: OnWiped | None = None
        # A stream is gone although another one is there.
        self._wiped = False
        self._joining = 0
        # The second, and how many knocks there were in it.
        self._knocks = (0, 0)
        self._probing = False
        # A letter to ourselves is due, as large as the last one that was not stored.
        self._mails_again = False
        self._not_stored = 0
        self._mailbox = ""
        self._read_up_to = 0

    # -- Post

    async def open(self, reader: Reader) -> None:
        self._reader = reader
        self._tasks.start(self._run(), "the connection to NATS")

    def send(self, dest: str, data: bytes) -> bool:
        bus = self._bus
        return bus is not None and bus.publish(layout.live(dest, self._node), data)

    def mail(self, dest: str, data: bytes) -> Deferred[None]:
        out: Deferred[None] = Deferred()
        bus = self._bus
        if bus is None:
            out.set_exception(NotMailed(self.state.fault or Fault.UNREACHABLE, self.state.detail))
            return out

        def answered(later: Deferred[bytes]) -> None:
            fault = _fault_of(bus, later)
            self._not_stored = len(data) if fault is not None else 0
            if fault is not None and is_late(fault):
                fault = self._faults.get("mail", fault)
                self._find_out_why(bus)
            elif fault is not None or "mail" in self._faults:
                self._fault("mail", fault)
            if out.done():
                return
            if fault is None:
                out.set_result(None)
            else:
                out.set_exception(NotMailed(fault.fault, fault.detail))

        bus.request(layout.mail(dest, self._node), data).add_done_callback(answered)
        return out

    def put(self, board: Board, key: str, value: bytes) -> None:
        self._values[board, key] = value
        if self._bus is not None:
            self._put(self._bus, board, key, value)

    async def close(self) -> None:
        bus = self._bus
        # Others hear at once that we are gone, instead of after the time of a sign of life.
        if bus is not None and (Board.LIVE, self._node) in self._values:
            bus.publish(layout.board_key(Board.LIVE, self._node), b"", headers={"KV-Operation": "DEL"})
        self._values.clear()
        if bus is not None:
            await bus.answers()
        await self._tasks.close()
        self._show(PostState(open=False, detail="closed"))

    # -- joining

    def on_join(self, handler: OnJoin) -> None:
        """Gets the name that is wished for and the request, and returns the answer. Before `open`."""
        self._on_join = handler

    def on_wiped(self, handler: OnWiped) -> None:
        """Makes the streams again that are gone; `NotReached` when that fails. Before `open`."""
        self._on_wiped = handler

    # -- the connection

    async def _run(self) -> None:
        waits = Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
        servers = list(self._login.servers)
        # Not all nodes at the same one.
        random.shuffle(servers)
        for server in itertools.cycle(servers):
            try:
                bus = await Bus.connect(self._login, server, self._report)
                try:
                    await self._use(bus, waits)
                finally:
                    self._leave(bus)
            except BusFault as fault:
                self._show(PostState(open=False, fault=fault.fault, detail=fault.detail))
                if self._wiped or _is_wiped(fault):
                    await self._make_again()
            await asyncio.sleep(next(waits))

    async def _make_again(self) -> None:
        """Who may not, or cannot now, sees what the next connection finds."""
        if self._on_wiped is not None:
            with contextlib.suppress(NotReached):
                await self._on_wiped()
                self._wiped = False

    async def _use(self, bus: Bus, waits: Backoff) -> None:
        """Until it is lost."""
        assert self._reader is not None
        bus.on_forbidden = self._on_forbidden
        self.max_bytes = bus.max_bytes
        self._faults.clear()
        bus.subscribe(layout.live(self._node, "*"), self._on_live)
        if self._on_join is not None:
            bus.subscribe(f"{layout.JOIN}.*", self._on_join_request)
        name, last = await self._mailbox_now(bus)
        self._bus, self._mailbox = bus, name
        self._show(PostState(open=True, server=bus.server, version=bus.version))
        self._read_up_to = self._reader.opened(name)
        if self._read_up_to > last:
            # The server lost the end of it: numbers that we have seen are given again. Everything is read once more.
            self._reader.closed()
            self._read_up_to = self._reader.opened(f"{name} up to {last}")
        waits.reset()
        for (board, key), value in self._values.items():
            self._put(bus, board, key, value)
        feeds = [self._mail_feed(bus), *(self._board_feed(bus, board) for board in Board)]
        tasks = [self._tasks.start(feed.run(), "a stream of the mesh") for feed in feeds]
        try:
            why = await bus.lost.copy()
        finally:
            for task in tasks:
                task.cancel()
        raise BusFault(Fault.UNREACHABLE, f"{bus.server}: {why}; connecting again")

    def _leave(self, bus: Bus) -> None:
        was_open, self._bus = self._bus is bus, None
        if was_open:
            detail = f"the connection to {bus.server} was lost; connecting again"
            self._show(PostState(open=False, fault=Fault.UNREACHABLE, detail=detail))
            assert self._reader is not None
            self._reader.closed()
        bus.close()

    async def _mailbox_now(self, bus: Bus) -> tuple[str, int]:
        """Which creation of the stream this is, and its last number."""
        loop = asyncio.get_running_loop()
        before = loop.time()
        info = await bus.api(f"STREAM.INFO.{layout.STREAM}")
        if info.ts:
            self._set_server_time(wall_ms(info.ts), (before + loop.time()) / 2)
        return info.created, info.state.last_seq

    def _mail_feed(self, bus: Bus) -> Feed:
        mailbox = self._mailbox

        async def start() -> int:
            name, last = await self._mailbox_now(bus)
            if name != mailbox or last < self._read_up_to:
                bus.lose("the stream was made anew")
                raise BusFault(Fault.UNREACHABLE, f"the stream of {bus.server} was made anew; connecting again")
            return self._read_up_to + 1

        return Feed(
            bus,
            layout.STREAM,
            self._node,
            layout.mail(self._node, "*"),
            self._on_mail,
            pace=MAIL_PACE,
            start=start,
            report=lambda fault: self._fault("mailbox", fault),
        )

    def _board_feed(self, bus: Bus, board: Board) -> Feed:
        prefix = len(layout.board_key(board, ""))

        def take(letter: Letter) -> None:
            assert self._reader is not None
            key = letter.subject[prefix:]
            if board is Board.LIVE and key == self._node:
                self._on_echo(letter)
            self._reader.posted(board, key, None if letter.gone else letter.data, self._age_ms(letter.stored_ms))

        return Feed(
            bus,
            layout.bucket(board),
            self._node,
            layout.board_key(board, ">"),
            take,
            pace=BOARD_PACE,
            report=lambda fault: self._fault(f"board {board}", fault),
        )

    # -- what comes

    def _on_live(self, message: Message) -> None:
        # What comes before `opened`, or after `closed`, is for nobody.
        if self._bus is not None:
            assert self._reader is not None
            self._reader.live(message.subject.rpartition(".")[2], message.data)

    def _on_mail(self, letter: Letter) -> None:
        assert self._reader is not None
        self._read_up_to = letter.number
        self._reader.mailed(letter.subject.rpartition(".")[2], letter.data, letter.number)

    def _on_join_request(self, message: Message) -> None:
        # To the inbox of an invited key only: the server lets us answer anywhere, and whoever asks names the place. It
        # could be a command to the server, such as to delete the stream.
        if not message.reply.startswith(layout.inbox("U")) or self._joining >= MAX_JOINING:
            return
        second = int(asyncio.get_running_loop().time())
        count = self._knocks[1] + 1 if self._knocks[0] == second else 1
        self._knocks = (second, count)
        if count > MAX_KNOCKS_PER_SECOND:
            return
        self._joining += 1
        self._tasks.start(self._answer_join(message), "a request to join")

    async def _answer_join(self, message: Message) -> None:
        assert self._on_join is not None
        try:
            answer = await self._on_join(message.subject.rpartition(".")[2], message.data)
            if self._bus is not None:
                self._bus.publish(message.reply, answer)
        finally:
            self._joining -= 1

    # -- boards

    def _put(self, bus: Bus, board: Board, key: str, value: bytes) -> None:
        loop = asyncio.get_running_loop()
        if board is Board.LIVE and key == self._node:
            self._put_at = loop.time()

        def answered(later: Deferred[bytes]) -> None:
            fault = _fault_of(bus, later)
            if fault is not None or f"put {board}" in self._faults:
                self._fault(f"put {board}", fault)
            if fault is not None:
                loop.call_later(PUT_AGAIN_SECONDS, again)

        def again() -> None:
            # Unless there is a newer one, or a newer connection, which puts everything itself.
            if self._bus is bus and self._values.get((board, key)) is value:
                self._put(bus, board, key, value)

        bus.request(layout.board_key(board, key), value).add_done_callback(answered)

    # -- clocks

    def _on_echo(self, letter: Letter) -> None:
        """Our own sign of life comes back with the server's time: that is how the clocks are compared for ever."""
        now = asyncio.get_running_loop().time()
        sent, self._put_at = self._put_at, None
        if sent is not None and now - sent < MAX_ECHO_SECONDS and not letter.gone:
            self._set_server_time(letter.stored_ms, (sent + now) / 2)
            self._show(self.state)

    def _set_server_time(self, server_ms: float, at: float) -> None:
        self._server_offset = server_ms - at * 1_000

    def _server_ms(self) -> float:
        if self._server_offset is None:
            return time.time() * 1_000
        return self._server_offset + asyncio.get_running_loop().time() * 1_000

    def _age_ms(self, stored_ms: int) -> int:
        return max(0, round(self._server_ms() - stored_ms))

    # -- what is wrong

    def _on_forbidden(self, subject: str, fault: BusFault) -> None:
        if len(self._faults) < MAX_FAULTS:
            self._fault(f"forbidden {subject}", fault)

    def _fault(self, what: str, fault: BusFault | None) -> None:
        if fault is None:
            self._faults.pop(what, None)
        else:
            self._faults[what] = fault
            if what == "mail" and not self._mails_again:
                self._mails_again = True
                asyncio.get_running_loop().call_later(MAIL_AGAIN_SECONDS, self._mail_again)
            if _is_wiped(fault) and self._on_wiped is not None and self._bus is not None:
                self._wiped = True
                self._bus.lose("a stream of it is gone")
        self._show(self.state)

    def _mail_again(self) -> None:
        """A letter to ourselves, which opens for nobody: there may be none for others to show that it is well again."""
        self._mails_again = False
        if self._bus is not None and "mail" in self._faults:
            self.mail(self._node, bytes(self._not_stored))

    def _show(self, state: PostState) -> None:
        if state.open:
            worst = next(iter(self._faults.values()), None)
            fault, detail = (None, "") if worst is None else (worst.fault, worst.detail)
            state = state._replace(fault=fault, detail=detail)
        skew = None if self._server_offset is None else round(time.time() * 1_000 - self._server_ms())
        self.state = state._replace(skew_ms=skew)

    def _find_out_why(self, bus: Bus) -> None:
        """A letter was not confirmed. A server whose disk is full is silent about letters, and answers questions."""
        if not self._probing:
            self._probing = True
            self._tasks.start(self._probe(bus), "a question to NATS")

    async def _probe(self, bus: Bus) -> None:
        try:
            await bus.api(f"STREAM.INFO.{layout.STREAM}")
        except BusFault as fault:
            self._fault("mail", fault)
        else:
            detail = f"{bus.server} answers and stores nothing: its disk is full, or failing; make room and restart it"
            self._fault("mail", BusFault(Fault.FULL, detail))
        finally:
            self._probing = False


def _is_wiped(fault: BusFault) -> bool:
    return isinstance(fault, ApiFault) and fault.code == NO_STREAM


def _fault_of(bus: Bus, later: Deferred[bytes]) -> BusFault | None:
    if later.cancelled():
        return BusFault(Fault.UNREACHABLE, "withdrawn")
    error = later.exception()
    if isinstance(error, BusFault):
        return error
    try:
        bus.read(later.result())
    except BusFault as fault:
        return fault
    return None
