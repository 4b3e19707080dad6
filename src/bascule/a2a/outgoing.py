"""Messages to agents elsewhere: `Weather@a2a` (the port `Elsewhere` of the broker).

    waiting -> begun -> accepted -> over
                 |         a task there; it is looked at until it ends
                 +-> over  answered at once, refused, or its end is unknown

A letter is a row in the transaction of its ticket. `begun` is on disk before the request leaves: after a crash it means
that the message may have arrived. Then it goes again only to an agent whose card says that a message id counts once;
for all others the ticket ends, saying that nobody knows. What has certainly not arrived goes back to `waiting`.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import msgspec

from bascule.a2a.peers import Peers, read_token
from bascule.a2a.ports import AgentClient, EndUnknown, NotSent, PeerAnswer, PeerState, Refused
from bascule.a2a.protocol import BEHIND, PeerParams, PeerView
from bascule.a2a.records import Letter, Peer, Stage
from bascule.foundation.backoff import Backoff
from bascule.foundation.errors import BasculeError, InvalidRequest, NotFound, Overloaded, StorageFull, Unavailable
from bascule.foundation.tasks import Tasks
from bascule.foundation.text import one_line
from bascule.kernel.call import Call, agent_principal
from bascule.kernel.faults import EventLog, log_fault
from bascule.kernel.journal import Journal, Table, Transaction
from bascule.kernel.journal_ports import JournalStore
from bascule.kernel.ports import IncomingReply, RemoteAgent, RemoteDelivery, RemoteMail
from bascule.kernel.ports import Outgoing as Message
from bascule.kernel.rows import Nothing
from gabp import codec

# Messages to one agent that are not over: each is a task of the loop and a poll.
MAX_LETTERS_PER_PEER = 200
# Requests to one agent at a time.
MAX_REQUESTS_PER_PEER = 4
# An answer is a message, not a file transfer: as much as an agent here may say.
MAX_REPLY_BYTES = 1024 * 1024
# How often a message goes again to an agent that takes a message id once, when its end is unknown.
MAX_TRIES = 8
# Between two looks at a task, and between two tries to reach an agent.
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 30.0
_STORE_AGAIN_SECONDS = 1.0
_MAX_REASON_CHARS = 500
_UNKNOWN = "it is not known whether the message arrived"

_WITHOUT_RESULT = (PeerState.CANCELED, PeerState.FAILED, PeerState.REJECTED, PeerState.AUTH_REQUIRED)
# What is left of a payload that need not be sent again.
_NOTHING = msgspec.Raw(b"null")

_replace = msgspec.structs.replace


class Outgoing:
    def __init__(
        self,
        store: JournalStore,
        journal: Journal,
        *,
        peers: Peers,
        mail: RemoteMail,
        client: Callable[[], AgentClient],
        log: EventLog,
        key: Callable[[str], str],
        is_stopped: Callable[[], bool],
    ) -> None:
        """`key` makes the message id of a ticket id: nobody elsewhere learns what tickets are called here. While
        `is_stopped`, nothing is sent."""
        self._journal = journal
        self._peers = peers
        self._mail = mail
        self._client = client
        self._log = log
        self._key = key
        self._is_stopped = is_stopped
        self._letters: Table[Letter] = Table("outside_letters", Letter, self._changed)
        # Not over, by agent.
        self._open: dict[str, set[str]] = {}
        for ticket_id, letter in store.load("outside_letters", Letter):
            self._letters.apply(ticket_id, letter)
        self._tasks = Tasks(lambda name, error: log_fault(log, error, task=name))
        self._delivering: dict[str, asyncio.Event] = {}
        self._turns: dict[str, asyncio.Semaphore] = {}
        self._used = False
        peers.on_added.append(self._wake_all)

    # -- methods --

    def list_agents(self, call: Call, params: Nothing) -> list[PeerView]:
        rows = sorted(self._peers.table.rows.items())
        return [self._peers.view(name, peer, len(self._open.get(name, ()))) for name, peer in rows]

    def remove_agent(self, call: Call, params: PeerParams, tx: Transaction) -> PeerView:
        name = params.name.removesuffix(f"@{BEHIND}")
        peer = self._peers.table.rows.get(name)
        if peer is None:
            raise NotFound(f"{name} is not listed", hint="`bascule a2a list` lists who is")
        waiting = sorted(self._open.get(name, ()))
        view = self._peers.view(name, peer, len(waiting))
        tx.put(self._peers.table, name, None)
        for ticket_id in waiting:
            self._end(tx, ticket_id, self._letters.rows[ticket_id])
            self._mail.refuse(tx, ticket_id, f"{name}@{BEHIND} was taken off the list")
        tx.subject = f"{name}@{BEHIND}"
        tx.after.append(partial(self._peers.forget, name))
        return view

    # -- for the broker --

    def find(self, target: str) -> RemoteAgent:
        return self._peers.find(target)

    def agents(self) -> Iterable[RemoteAgent]:
        return [self._peers.agent(name, peer) for name, peer in sorted(self._peers.table.rows.items())]

    def send(self, tx: Transaction, message: Message) -> None:
        name = message.target.rpartition("@")[0]
        count = len(self._open.get(name, ()))
        if count >= MAX_LETTERS_PER_PEER:
            raise Overloaded(
                f"{count} messages wait for {message.target}",
                hint="wait for its answers, or cancel some",
                retry_after=5.0,
            )
        letter = Letter(
            peer=name,
            message_id=self._key(message.ticket_id),
            payload=msgspec.Raw(message.payload),
            conversation_id=message.conversation_id,
            expect_reply=message.expect_reply,
            at=message.at,
            sender=message.sender,
        )
        tx.put(self._letters, message.ticket_id, letter)
        tx.after.append(partial(self._start_delivery, message.ticket_id))

    def ended(self, tx: Transaction, ticket_id: str, status: str) -> None:
        letter = self._letters.rows.get(ticket_id)
        # When its time is over it goes on: a late answer still counts.
        if letter is None or status != "cancelled" or letter.stage is Stage.OVER:
            return
        if letter.stage is Stage.WAITING:
            self._end(tx, ticket_id, letter)
        else:
            tx.put(self._letters, ticket_id, _replace(letter, cancel=True))
        tx.after.append(partial(self._wake, ticket_id))

    def dropped(self, tx: Transaction, ticket_id: str) -> None:
        if ticket_id in self._letters.rows:
            tx.put(self._letters, ticket_id, None)
            tx.after.append(partial(self._wake, ticket_id))

    def acked(self, tx: Transaction, ticket_id: str) -> None:
        """No agent here has copies of theirs."""

    def replied(self, tx: Transaction, ticket_id: str, reply: IncomingReply) -> None:
        """The same."""

    def delivery(self, ticket_id: str) -> RemoteDelivery | None:
        letter = self._letters.rows.get(ticket_id)
        if letter is None or letter.stage is Stage.OVER:
            return None
        state = {Stage.WAITING: "outbox", Stage.BEGUN: "mailed", Stage.ACCEPTED: "arrived"}[letter.stage]
        return RemoteDelivery(state, letter.at)

    # -- its life --

    def count(self) -> int:
        return sum(map(len, self._open.values()))

    def start(self) -> None:
        """What the last life left goes on."""
        for tickets in list(self._open.values()):
            for ticket_id in sorted(tickets):
                self._start_delivery(ticket_id)

    def resume(self, tx: Transaction) -> None:
        """A person lets things begin again: what waits is woken in the turn in which that counts, and looks in the
        next one."""
        tx.after += [partial(self._wake_all, name) for name in self._open]

    async def close(self) -> None:
        await self._tasks.close()
        if self._used:
            await self._client().close()

    # -- one letter --

    def _start_delivery(self, ticket_id: str) -> None:
        if ticket_id not in self._delivering:
            self._delivering[ticket_id] = asyncio.Event()
            self._tasks.start(self._deliver(ticket_id), f"letter {ticket_id}")

    async def _deliver(self, ticket_id: str) -> None:
        """Until it is over. One step at a time: each leaves the row as a crash right after it must find it."""
        pauses = Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        tries = 0
        try:
            while (letter := self._letters.rows.get(ticket_id)) is not None and letter.stage is not Stage.OVER:
                peer = self._peers.table.rows.get(letter.peer)
                if peer is None:
                    return
                if self._is_stopped():
                    await self._pause(ticket_id, LONGEST_PAUSE_SECONDS)
                    continue
                # How often it was sent without an end that is known.
                tries = tries + 1 if letter.stage is Stage.BEGUN else 0
                problem = await self._try(ticket_id, letter, peer, last=not peer.once or tries >= MAX_TRIES)
                self._peers.reached(letter.peer, problem)
                if self._stage(ticket_id) is not letter.stage:
                    pauses.reset()
                await self._pause(ticket_id, next(pauses))
        finally:
            self._delivering.pop(ticket_id, None)

    async def _try(self, ticket_id: str, letter: Letter, peer: Peer, *, last: bool) -> str | None:
        """One step; what is wrong with the agent, if anything. `last`: after an unknown end it is not sent again."""
        try:
            await self._step(ticket_id, letter, peer)
        except Refused as error:
            await self._refuse(ticket_id, str(error))
        except EndUnknown as error:
            # A task that was accepted is only looked at, however often.
            if last and letter.stage is not Stage.ACCEPTED:
                await self._refuse(ticket_id, f"{_UNKNOWN}: {error}")
            return str(error)
        except NotSent as error:
            return str(error)
        except (StorageFull, Unavailable) as error:
            # No room on the disk, or the SDK is not installed any more.
            return error.message
        return None

    async def _step(self, ticket_id: str, letter: Letter, peer: Peer) -> None:
        turn = self._turns.setdefault(letter.peer, asyncio.Semaphore(MAX_REQUESTS_PER_PEER))
        async with turn:
            try:
                token = await asyncio.to_thread(read_token, peer.token_file)
            except InvalidRequest as error:
                raise NotSent(error.message) from None
            self._used = True
            match letter.stage:
                case Stage.WAITING:
                    await self._begin(ticket_id, letter, peer, token)
                case Stage.BEGUN:
                    if not peer.once:
                        # Of the life before, which ended in the middle.
                        raise EndUnknown("the daemon ended while it was being sent")
                    await self._send(ticket_id, letter, peer, token)
                case Stage.ACCEPTED if letter.cancel:
                    await self._client().cancel(peer, token, letter.task_id)
                    await self._store("a2a.cancelled", ticket_id, lambda tx, now: self._end(tx, ticket_id, now))
                case Stage.ACCEPTED:
                    await self._receive(ticket_id, await self._client().look(peer, token, letter.task_id))
                case Stage.OVER:
                    pass

    async def _begin(self, ticket_id: str, letter: Letter, peer: Peer, token: str | None) -> None:
        if not await self._peers.is_as_added(letter.peer, peer, token):
            await self._stop_changed(letter.peer, peer)
            return
        # The record is on disk before anything leaves.
        await self._store(
            "a2a.send", ticket_id, lambda tx, now: self._put(tx, ticket_id, now, stage=Stage.BEGUN), Stage.WAITING
        )
        begun = self._letters.rows.get(ticket_id)
        if begun is None or begun.stage is not Stage.BEGUN:
            # Withdrawn meanwhile: nothing has left.
            return
        if begun.cancel:
            await self._store("a2a.withdrawn", ticket_id, lambda tx, now: self._end(tx, ticket_id, now))
            return
        try:
            await self._send(ticket_id, begun, peer, token)
        except NotSent:
            await self._store("a2a.notSent", ticket_id, partial(self._not_sent, ticket_id))
            raise

    async def _send(self, ticket_id: str, letter: Letter, peer: Peer, token: str | None) -> None:
        before = self._letters.rows.get(self._before(ticket_id, letter))
        answer = await self._client().send(
            peer,
            token,
            letter,
            task_id=before.task_id if before is not None and before.wants_input else "",
            context_id=before.context_id if before is not None else "",
        )
        await self._receive(ticket_id, answer)

    def _before(self, ticket_id: str, letter: Letter) -> str:
        """The letter of the same conversation that the agent answered last. Of the same sender: anybody here may name a
        conversation, and the agent there would go on with it as if it were the first one."""
        if letter.conversation_id is None:
            return ""
        return max(
            (
                (each.at, other)
                for other, each in self._letters.rows.items()
                if (each.peer, each.conversation_id, each.sender)
                == (letter.peer, letter.conversation_id, letter.sender)
                and other != ticket_id
                and each.context_id
            ),
            default=(0, ""),
        )[1]

    async def _receive(self, ticket_id: str, answer: PeerAnswer) -> None:
        match answer.state:
            case PeerState.WORKING:
                now = self._letters.rows.get(ticket_id)
                if now is None or now.stage is not Stage.ACCEPTED:
                    await self._store("a2a.accepted", ticket_id, partial(self._accept, ticket_id, answer))
            case state if state in _WITHOUT_RESULT and not answer.payload:
                await self._refuse(ticket_id, f"the agent says {state.value}, and not why")
            case _:
                # What it says is for the sender alone, also when it failed: a reason is seen by all who watch.
                await self._store("a2a.answer", ticket_id, partial(self._answer, ticket_id, answer))

    # -- changes, each with its record --

    def _accept(self, ticket_id: str, answer: PeerAnswer, tx: Transaction, letter: Letter) -> None:
        stage = Stage.ACCEPTED if letter.expect_reply or letter.cancel else Stage.OVER
        changed = _replace(letter, stage=stage, task_id=answer.task_id, context_id=answer.context_id)
        tx.put(self._letters, ticket_id, changed)
        self._mail.acknowledge(tx, ticket_id)

    def _answer(self, ticket_id: str, answer: PeerAnswer, tx: Transaction, letter: Letter) -> None:
        payload = codec.encode(answer.payload)
        if len(payload) > MAX_REPLY_BYTES:
            self._refuse_now(
                ticket_id, f"its answer has {len(payload)} bytes; at most {MAX_REPLY_BYTES} are taken", tx, letter
            )
            return
        asks = answer.state is PeerState.INPUT_REQUIRED and bool(answer.task_id)
        over = _replace(
            letter,
            stage=Stage.OVER,
            payload=_NOTHING,
            task_id=answer.task_id,
            context_id=answer.context_id,
            wants_input=asks,
        )
        tx.put(self._letters, ticket_id, over)
        done = answer.state is PeerState.COMPLETED
        metadata: dict[str, Any] = {} if done else {"a2a": {"state": answer.state.value}}
        sender = agent_principal(f"{letter.peer}@{BEHIND}")
        if not letter.cancel:
            self._mail.answer(tx, ticket_id, IncomingReply(sender=sender, number=1, payload=payload, metadata=metadata))

    async def _refuse(self, ticket_id: str, reason: str) -> None:
        await self._store("a2a.refused", ticket_id, partial(self._refuse_now, ticket_id, reason))

    def _refuse_now(self, ticket_id: str, reason: str, tx: Transaction, letter: Letter) -> None:
        reason = one_line(reason, _MAX_REASON_CHARS)
        tx.details = {"reason": reason}
        self._end(tx, ticket_id, letter)
        self._mail.refuse(tx, ticket_id, f"{letter.peer}@{BEHIND}: {reason}")

    def _end(self, tx: Transaction, ticket_id: str, letter: Letter) -> None:
        tx.put(self._letters, ticket_id, _replace(letter, stage=Stage.OVER, payload=_NOTHING))

    def _put(self, tx: Transaction, ticket_id: str, letter: Letter, *, stage: Stage) -> None:
        tx.put(self._letters, ticket_id, _replace(letter, stage=stage))

    def _not_sent(self, ticket_id: str, tx: Transaction, letter: Letter) -> None:
        # Withdrawn while it was tried: there is nothing left to send, however long the agent stays away.
        if letter.cancel:
            self._end(tx, ticket_id, letter)
        else:
            self._put(tx, ticket_id, letter, stage=Stage.WAITING)

    async def _stop_changed(self, name: str, peer: Peer) -> None:
        """Its card is another one: nothing goes there, and whoever waits is told."""
        if self._peers.table.rows.get(name) != peer:
            # Added again, or taken off the list, while its card was looked at.
            return
        self._log("a2a_card_changed", level="warning", agent=f"{name}@{BEHIND}", url=peer.url)
        tx = Transaction()
        with tx:
            tx.put(self._peers.table, name, _replace(peer, changed=True))
            tx.subject = f"{name}@{BEHIND}"
        await self._journal.commit(tx, agent_principal(f"{name}@{BEHIND}"), "a2a.cardChanged")
        for ticket_id in sorted(self._open.get(name, ())):
            if self._stage(ticket_id) is Stage.WAITING:
                await self._refuse(ticket_id, "its agent card changed; the user of this machine has to add it again")

    async def _store(
        self,
        method: str,
        ticket_id: str,
        change: Callable[[Transaction, Letter], None],
        only: Stage | None = None,
    ) -> None:
        """On disk when this returns. A disk that is full is waited for: what was heard must not be lost."""
        while True:
            letter = self._letters.rows.get(ticket_id)
            if letter is None or letter.stage is Stage.OVER or (only is not None and letter.stage is not only):
                return
            tx = Transaction()
            tx.subject = ticket_id
            try:
                with tx:
                    change(tx, letter)
            except BasculeError as error:
                # The ticket is gone or withdrawn: nobody waits for this.
                tx = Transaction()
                tx.subject = ticket_id
                tx.details = {"not kept": error.code}
                self._end(tx, ticket_id, letter)
            try:
                await self._journal.commit(tx, agent_principal(f"{letter.peer}@{BEHIND}"), method)
            except StorageFull:
                await asyncio.sleep(_STORE_AGAIN_SECONDS)
            else:
                return

    # -- inside --

    def _stage(self, ticket_id: str) -> Stage | None:
        letter = self._letters.rows.get(ticket_id)
        return letter.stage if letter is not None else None

    async def _pause(self, ticket_id: str, seconds: float) -> None:
        letter = self._letters.rows.get(ticket_id)
        if letter is None or letter.stage is Stage.OVER:
            return
        waking = self._delivering[ticket_id]
        try:
            async with asyncio.timeout(seconds):
                await waking.wait()
        except TimeoutError:
            pass
        waking.clear()

    def _wake(self, ticket_id: str) -> None:
        if (waking := self._delivering.get(ticket_id)) is not None:
            waking.set()

    def _wake_all(self, name: str) -> None:
        for ticket_id in self._open.get(name, ()):
            self._wake(ticket_id)

    def _changed(self, ticket_id: str, old: Letter | None, new: Letter | None) -> None:
        if old is not None and old.stage is not Stage.OVER:
            members = self._open[old.peer]
            members.discard(ticket_id)
            if not members:
                del self._open[old.peer]
        if new is not None and new.stage is not Stage.OVER:
            self._open.setdefault(new.peer, set()).add(ticket_id)
