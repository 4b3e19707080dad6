"""The side that wants to join: it asks once while its person waits, then knocks until somebody there has answered."""

import asyncio
import os
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from bascule import __version__
from bascule.foundation.backoff import Backoff
from bascule.foundation.clock import Clock
from bascule.foundation.errors import BasculeError, Conflict, InvalidRequest, Overloaded, PeerFailed, StorageFull
from bascule.foundation.tasks import Tasks
from bascule.kernel.call import DAEMON
from bascule.kernel.journal import Journal, Transaction
from bascule.mesh.admissions import FETCH_SECONDS, REQUEST_SECONDS, party_of
from bascule.mesh.cards import BadCard, Keys, bytes_of, read_card, text_of
from bascule.mesh.join_code import JoinCode, bus_key, proof_key, public_text
from bascule.mesh.knock import (
    NUMBER_BYTES,
    AnswerState,
    BadKnock,
    Knock,
    KnockAnswer,
    Refusal,
    commitment_of,
    read_answer,
    words_between,
    write_knock,
)
from bascule.mesh.machine_ports import JoinLogin, Machine, NotReached
from bascule.mesh.membership import Event, OwnPlace, keys_of, seeds_of
from bascule.mesh.membership_records import Asking
from bascule.mesh.ports import Fault
from bascule.mesh.records import Membership, Standing
from bascule.mesh.roster import Roster

# For one knock: a connection, a login and a commit at the other end.
KNOCK_SECONDS = 10.0
# A server that lets somebody else in reads its settings anew, and may drop who is just connecting.
FIRST_TRIES = 4
# Between knocks: a person who has just said yes sees it at once, and one who is at lunch costs little.
FIRST_KNOCK_SECONDS = 0.3
LONGEST_KNOCK_SECONDS = 3.0


class Way(NamedTuple):
    """How the holder of the mesh key is reached before one is a member: by a code, or with a creds file."""

    servers: tuple[str, ...]
    code: JoinCode | None = None
    certificate: str | None = None
    creds_file: str | None = None


class Joining:
    def __init__(
        self,
        *,
        machine: Machine,
        place: OwnPlace,
        roster: Roster,
        journal: Journal,
        clock: Clock,
        tasks: Tasks,
    ) -> None:
        self._machine = machine
        self._place = place
        self._roster = roster
        self._journal = journal
        self._clock = clock
        self._tasks = tasks
        self._knocking = False
        # How the last attempt of this life ended, and what the last knock met.
        self.ended: str | None = None
        self.problem: str | None = None

    # -- while the person waits --

    async def find_server(self, code: JoinCode) -> Way:
        """The first address that shows the certificate of the code."""
        if code.expires_ms <= self._clock.wall_ms():
            raise Conflict(
                "this join code has expired",
                hint="make another one on the machine that made it: `bascule mesh invite`; "
                "a code is good for 10 minutes, so compare the clocks if it is a new one",
            )
        found = await asyncio.gather(*(self._look(each, code.certificate.hex()) for each in code.addresses))
        for address, pem in zip(code.addresses, found, strict=True):
            if isinstance(pem, str):
                return Way((f"tls://{address}",), code=code, certificate=pem)
        if any(error is None for error in found):
            raise Conflict(
                "the server shows another certificate than the one in the join code",
                hint="somebody else answers at its address, or its hub was made anew: "
                "make a new code there with `bascule mesh invite` and compare the addresses",
                details={"addresses": list(code.addresses)},
            )
        raise PeerFailed(
            f"no address of the join code answers: {', '.join(code.addresses)}",
            hint="is that machine on, in the same network, and its port open in its firewall? "
            "`bascule mesh status` there says where it listens",
            details={"reasons": [str(error) for error in found]},
        )

    async def _look(self, address: str, wanted: str) -> "str | NotReached | None":
        """The certificate as PEM; None: another one."""
        host, _, port = address.rpartition(":")
        try:
            pem, digest = await self._machine.fetch_certificate(host.strip("[]"), int(port))
        except NotReached as error:
            return error
        return pem if digest == wanted else None

    async def ask(self, way: Way, node: str) -> Membership:
        """Knock for the first time; the row of a node that waits. Nothing is stored yet."""
        keys = Keys.new()
        number = text_of(os.urandom(NUMBER_BYTES))
        secret = None if way.code is None else way.code.secret
        row = Membership(
            mesh="" if way.code is None else way.code.mesh,
            node=node,
            standing=Standing.WAITING,
            mesh_key="" if way.code is None else text_of(way.code.mesh_key),
            keys=seeds_of(keys),
            owner="",
            servers=way.servers,
            certificate=way.certificate,
            creds_file=way.creds_file,
        )
        answer = await self._first_answer(row, secret, number)
        if answer.state is not AnswerState.WAITING:
            raise _refusal(answer, node)
        if answer.mesh_key is None or answer.holder is None or answer.number is None:
            raise PeerFailed("the other machine's answer is not complete", hint="compare the versions of both")
        if way.code is not None and (answer.mesh_key, answer.mesh) != (row.mesh_key, row.mesh):
            raise Conflict(
                "the answer is of another mesh than the one in the join code",
                hint="somebody else answers there: make a new code with `bascule mesh invite`",
            )
        now = self._clock.wall_ms()
        asking = Asking(
            secret=None if secret is None else text_of(secret),
            number=number,
            holder=answer.holder,
            holder_number=answer.number,
            asked_at=now,
            ends_at=now + (answer.left_ms or REQUEST_SECONDS * 1000),
        )
        return msgspec.structs.replace(row, mesh=answer.mesh, mesh_key=answer.mesh_key, asking=asking)

    async def _first_answer(self, row: Membership, secret: bytes | None, number: str) -> KnockAnswer:
        waits = Backoff(FIRST_KNOCK_SECONDS, LONGEST_KNOCK_SECONDS)
        for _ in range(FIRST_TRIES - 1):
            try:
                return await self._knock(row, secret, number, reveal=False)
            except NotReached as error:
                if error.fault is not Fault.UNREACHABLE:
                    raise
            await asyncio.sleep(next(waits))
        return await self._knock(row, secret, number, reveal=False)

    # -- afterwards --

    def start(self) -> None:
        """While this node waits; called whenever its place has changed."""
        if self._place.standing is Standing.WAITING and not self._knocking:
            self._knocking = True
            self.ended = self.problem = None
            self._tasks.start(self._go_on(), "joining a mesh")

    async def _go_on(self) -> None:
        waits = Backoff(FIRST_KNOCK_SECONDS, LONGEST_KNOCK_SECONDS)
        try:
            while (row := self._place.row) is not None and row.asking is not None:
                try:
                    self.problem = await self._try(row, row.asking)
                except StorageFull as error:
                    # Whatever was to change is undone: this node waits as before.
                    self.ended, self.problem = None, error.message
                await asyncio.sleep(next(waits))
        finally:
            self._knocking = False

    async def _try(self, row: Membership, asking: Asking) -> str | None:
        """Knock once, and do what follows from the answer; what is wrong, if anything."""
        try:
            await self._once(row, asking)
        except NotReached as error:
            await self._give_up_late(asking, error)
            return error.detail
        except (BadKnock, BadCard) as error:
            return f"the answer cannot be used: {error}"
        return None

    async def _once(self, row: Membership, asking: Asking) -> None:
        answer = await self._knock(row, _secret(asking), asking.number, reveal=True)
        if self._place.row != row:
            # A person gave up meanwhile.
            return
        if answer.state is AnswerState.ACCEPTED and asking.must_compare:
            # Whoever runs the servers could have answered, with a mesh of theirs. The card stays there for a day.
            if self._clock.wall_ms() >= asking.ends_at + FETCH_SECONDS * 1000:
                await self._end("nobody here compared the words")
        elif answer.state is AnswerState.ACCEPTED:
            await self._accepted(row, asking, answer)
        elif answer.state is not AnswerState.WAITING:
            refusal = _refusal(answer, row.node)
            await self._end(f"{refusal.message}; {refusal.hint}")
        elif (answer.mesh_key, answer.holder) != (row.mesh_key, asking.holder):
            await self._end("another machine answers than the one that was asked: nothing was joined")
        elif answer.number != asking.holder_number:
            await self._ask_again(row, asking)

    async def _ask_again(self, row: Membership, asking: Asking) -> None:
        """The holder has lost its number. Ours was shown already, so it must be another one too: see `knock`."""
        number = text_of(os.urandom(NUMBER_BYTES))
        answer = await self._knock(row, _secret(asking), number, reveal=False)
        if answer.state is not AnswerState.WAITING or answer.number is None or self._place.row != row:
            return
        again = msgspec.structs.replace(
            asking,
            number=number,
            holder_number=answer.number,
            ends_at=self._clock.wall_ms() + answer.left_ms,
            compared=False,
        )
        with Transaction() as tx:
            tx.subject = row.node
            self._place.change(tx, Event.ASKED_AGAIN, msgspec.structs.replace(row, asking=again))
        # The number is shown once it is on our disk: never two for one of the holder's.
        await self._journal.commit(tx, DAEMON, "mesh.askedAgain")

    async def _accepted(self, row: Membership, asking: Asking, answer: KnockAnswer) -> None:
        signed = (answer.card or "").encode()
        card = read_card(row.mesh_key, row.mesh, signed)
        if (card.node, card.sign, card.box, card.bus) != (row.node, *keys_of(row).public):
            raise BadCard("it is not for this node's keys")
        member = msgspec.structs.replace(
            row,
            owner=card.owner,
            owner_name=card.owner_name,
            asking=None,
        )
        with Transaction() as tx:
            tx.subject = row.node
            tx.details = {"mesh": row.mesh, "by": asking.holder.node, "key": card.sign}
            self._place.change(tx, Event.ACCEPTED, member)
            self._roster.put(tx, card.node, signed)
        await self._journal.commit(tx, DAEMON, "mesh.joined")

    async def _give_up_late(self, asking: Asking, error: NotReached) -> None:
        """A server that is off may come back with our card; one that does not let us in any more will not."""
        now = self._clock.wall_ms()
        refused = error.fault is Fault.REFUSED and now >= asking.ends_at
        if refused or now >= asking.ends_at + FETCH_SECONDS * 1000:
            await self._end("nobody accepted this node in time: ask for a new code")

    async def _end(self, why: str) -> None:
        self.ended = why
        with Transaction() as tx:
            tx.subject = self._place.row.node if self._place.row is not None else None
            tx.details = {"reason": why}
            self._place.change(tx, Event.ENDED)
        await self._journal.commit(tx, DAEMON, "mesh.notJoined")

    # -- one knock --

    async def _knock(self, row: Membership, secret: bytes | None, number: str, *, reveal: bool) -> KnockAnswer:
        keys = keys_of(row)
        knock = Knock(
            joiner=party_of(row),
            commitment=commitment_of(number),
            number=number if reveal else None,
            invitation=None if secret is None else public_text(bus_key(secret)),
            version=__version__,
        )
        login = JoinLogin(
            servers=row.servers,
            bus=keys.bus if secret is None else bus_key(secret),
            certificate=row.certificate,
            creds_file=row.creds_file,
        )
        data = write_knock(knock, keys.sign, None if secret is None else proof_key(secret))
        return read_answer(await self._machine.ask_to_join(login, row.node, data, KNOCK_SECONDS))


def words_of_row(row: Membership) -> str | None:
    """What a waiting node shows its person."""
    asking = row.asking
    if asking is None:
        return None
    return words_between(
        mesh=row.mesh,
        mesh_key=row.mesh_key,
        joiner=party_of(row),
        holder=asking.holder,
        numbers=(asking.number, asking.holder_number),
    )


def check_servers(servers: Sequence[str]) -> tuple[str, ...]:
    for each in servers:
        scheme, _, rest = each.partition("://")
        host, _, port = rest.rpartition(":") if rest.rpartition(":")[2].isdigit() else (rest, "", "4222")
        if scheme not in ("nats", "tls") or not host or not 0 < int(port) < 65_536 or any(map(str.isspace, each)):
            raise InvalidRequest(
                f"{each!r} is not the address of a NATS server",
                hint="write nats://host:port or tls://host:port, several with commas between them",
            )
    return tuple(servers)


def _secret(asking: Asking) -> bytes | None:
    return None if asking.secret is None else bytes_of(asking.secret)


def _refusal(answer: KnockAnswer, node: str) -> BasculeError:
    if answer.state is AnswerState.DENIED:
        return Conflict("the person at the other machine said no", hint="ask them, then join again with a new code")
    if answer.refusal == Refusal.NAME_TAKEN:
        return Conflict(
            f"a node is called {node} already",
            hint=f"choose another name: `bascule join CODE --node {node}-2`",
        )
    if answer.refusal == Refusal.NAME_RESERVED:
        return Conflict(f"{node} is not a name for a node", hint="choose another one with --node")
    if answer.refusal == Refusal.CODE_USED:
        return Conflict(
            "this join code was used already, by another machine",
            hint="if that was not you, deny it there (`bascule node list`, `bascule node deny NAME`); "
            "then make a new code: `bascule mesh invite`",
        )
    if answer.refusal == Refusal.CODE_UNKNOWN:
        return Conflict(
            "this join code has expired, or was never made there", hint="make a new one: `bascule mesh invite`"
        )
    if answer.refusal == Refusal.OVER:
        return Conflict(
            "nobody accepted this node in time",
            hint="make a new code: `bascule mesh invite`, and accept within 10 minutes",
        )
    if answer.refusal == Refusal.FULL:
        return Overloaded(
            "too many nodes ask to join there", hint="deny those that are not wanted, or try again in 10 minutes"
        )
    return PeerFailed(
        "the other machine does not take this question",
        hint="compare the versions of both",
        details={"said": answer.refusal},
    )
