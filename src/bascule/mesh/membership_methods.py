"""The methods about membership: begin a mesh, join one, let nodes in and take their cards away."""

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bascule.foundation.agreement import MAX_NODE_CHARS
from bascule.foundation.clock import Clock, rfc3339
from bascule.foundation.deferred import Deferred
from bascule.foundation.errors import Conflict, InvalidRequest, PeerFailed, Unavailable
from bascule.foundation.ids import new_id
from bascule.foundation.tasks import Tasks
from bascule.kernel.call import DAEMON, Call
from bascule.kernel.effects import RecordedEffect
from bascule.kernel.event_ring import EventRing, Fact, Kind
from bascule.kernel.journal import Journal, Transaction
from bascule.kernel.resolution import Resolution
from bascule.kernel.retention import GcItem
from bascule.kernel.rows import Bound, Nothing
from bascule.mesh import rows
from bascule.mesh.admissions import Admissions, mesh_secret
from bascule.mesh.cards import CARD_DAYS, DAY_MS, Card, Keys, sign_card, text_of
from bascule.mesh.connection import Connection
from bascule.mesh.join_code import BadCode, JoinCode, public_text, read_code, write_code
from bascule.mesh.joining import Joining, Way, check_servers, words_of_row
from bascule.mesh.knock import AnswerState, BadKnock, KnockAnswer, Refusal, read_knock, write_answer
from bascule.mesh.machine_ports import Machine, MemberHub, NotReached
from bascule.mesh.membership import Event, OwnPlace, seeds_of
from bascule.mesh.membership_news import MembershipNews
from bascule.mesh.membership_protocol import (
    AcceptNodeParams,
    InitMeshParams,
    JoinMeshParams,
    MeshInviteParams,
    MeshInviteResult,
    MeshNodeParams,
    MeshNodeResult,
    MeshNodes,
    MeshStatus,
    NewMeshParams,
)
from bascule.mesh.membership_views import REMEDIES, Views
from bascule.mesh.names import RESERVED_NODES
from bascule.mesh.ports import Fault
from bascule.mesh.records import Membership, Standing
from bascule.mesh.roster import REVOKED_KEY, Roster

_NOT_IN_A_NAME = re.compile(r"[^a-z0-9]+")


class MembershipMethods:
    def __init__(
        self,
        *,
        machine: Machine,
        place: OwnPlace,
        roster: Roster,
        admissions: Admissions,
        connection: Connection,
        joining: Joining,
        views: Views,
        journal: Journal,
        clock: Clock,
        events: EventRing,
        tasks: Tasks,
    ) -> None:
        self._machine = machine
        self.place = place
        self.roster = roster
        self.admissions = admissions
        self.connection = connection
        self.joining = joining
        self._views = views
        self._journal = journal
        self._clock = clock
        self._events = events
        self._tasks = tasks
        # One of `new`, `init`, `join` is under way.
        self._busy = False
        place.on_change = self._place_changed
        connection.on_join = self.answer_knock
        self.news = MembershipNews(place, roster, admissions, connection, journal)
        connection.on_card = self.news.take_card
        roster.on_change.append(self._card_changed)

    def methods(self) -> Sequence[Bound]:
        return [
            rows.MESH_STATUS.bind(self.status),
            rows.MESH_NODES.bind(self.nodes),
            rows.MESH_NEW.bind(self.new, resolve=lambda _call, params: Resolution(subject=params.mesh)),
            rows.MESH_INIT.bind(self.init, resolve=lambda _call, params: Resolution(subject=params.mesh)),
            rows.MESH_INVITE.bind(self.invite),
            rows.MESH_JOIN.bind(self.join, resolve=lambda _call, params: Resolution(subject=params.node)),
            rows.MESH_ACCEPT.bind(self.accept),
            rows.MESH_DENY.bind(self.deny),
            rows.MESH_REVOKE.bind(self.revoke),
            rows.MESH_KEEP.bind(self.keep),
            rows.MESH_LEAVE.bind(self.leave),
        ]

    # -- its life --

    def recover(self) -> None:
        """Before any door is open: what is sent to another node is taken from the first call on."""
        self.roster.load()
        self._update_traffic()
        for card in list(self.roster.all()):
            if self.roster.is_revoked(card):
                self.connection.traffic.revoked(card)

    def open(self) -> None:
        self.connection.start()
        self.joining.start()

    async def close(self) -> None:
        await self._tasks.close()
        await self.connection.close()

    def sweep(self, tx: Transaction) -> list[GcItem]:
        own = self.place.member
        if own is None or own.mesh_secret is None:
            return []
        forgotten = self.admissions.forget(tx)
        renewed = self.admissions.renew(tx, own)
        if forgotten or renewed:
            tx.after.append(self.connection.notice)
        return [
            GcItem(what="mesh requests", count=forgotten, why="nobody answered them in time"),
            GcItem(what="mesh cards", count=len(renewed), why="renewed: they would have ended soon"),
        ]

    def _place_changed(self) -> None:
        """Our own place has changed, and that is on disk."""
        self._events.publish(Fact(kind=Kind.NODE, event="moved", status=self._views.standing()))
        self._update_traffic()
        self.connection.notice()
        self.joining.start()

    def _update_traffic(self) -> None:
        if (own := self.place.member) is not None:
            self.connection.traffic.member(own)
        else:
            self.connection.traffic.not_member()

    def _card_changed(self, key: str) -> None:
        traffic = self.connection.traffic
        if key != REVOKED_KEY:
            traffic.card_changed(key)
        for card in list(self.roster.all()) if key == REVOKED_KEY else ():
            if self.roster.is_revoked(card):
                traffic.revoked(card)
        self.connection.notice()

    # -- looking --

    def status(self, call: Call, params: Nothing) -> MeshStatus:
        return self._views.status(call.principal)

    def nodes(self, call: Call, params: Nothing) -> MeshNodes:
        return self._views.nodes(call.principal)

    # -- beginning a mesh --

    async def new(self, call: Call, params: NewMeshParams, effect: RecordedEffect) -> MeshInviteResult:
        with self._exclusively(Event.BEGIN):
            self._must_have(hub=True)
            row, card = self._first_row(params.mesh, params.node, params.owner_name)
            row = msgspec.structs.replace(row, hub_listen=params.listen)
            hub = self._machine.make_hub(row)
            try:
                await hub.start()
                row = msgspec.structs.replace(
                    row, servers=(f"tls://{hub.own_address}",), certificate=hub.certificate_pem
                )
                await self._machine.set_up(row, hub)
                key, invitation, code = self.admissions.new_invite(
                    row, addresses=hub.addresses, certificate=hub.certificate, owner_name=None
                )
                with Transaction() as tx:
                    tx.after.append(lambda: self.connection.adopt(hub))
                    self._begin(tx, row, card)
                    tx.put(self.admissions.invites, key, invitation)
                await self._journal.commit(tx, call.principal, "mesh.began")
            except BaseException as error:
                await hub.close()
                await self._machine.remove_hub(row)
                if isinstance(error, NotReached):
                    raise _not_reached(error) from None
                raise
            # The code is of use once the server knows its key.
            await self.connection.follow()
            effect.details |= {"node": row.node, "listen": params.listen}
            return self._invited(row, hub, code, "")

    async def init(self, call: Call, params: InitMeshParams, effect: RecordedEffect) -> MeshStatus:
        with self._exclusively(Event.BEGIN):
            self._must_have(hub=False)
            row, card = self._first_row(params.mesh, params.node, params.owner_name)
            row = msgspec.structs.replace(
                row,
                servers=check_servers(params.servers),
                creds_file=self._creds(params.creds_file),
                replicas=params.replicas,
            )
            try:
                await self._machine.set_up(row, None)
            except NotReached as error:
                raise _not_reached(error) from None

            with Transaction() as tx:
                self._begin(tx, row, card)
            await self._journal.commit(tx, call.principal, "mesh.began")
            await self.connection.follow()
            effect.details |= {"node": row.node}
            return self._views.status(call.principal)

    def _begin(self, tx: Transaction, row: Membership, card: bytes) -> None:
        tx.subject = row.mesh
        tx.details = {"node": row.node}
        # Cards are read with the key of our row, so it comes first.
        self.place.change(tx, Event.BEGIN, row)
        self.roster.put(tx, row.node, card)

    def _first_row(self, mesh: str, node: str | None, owner_name: str | None) -> tuple[Membership, bytes]:
        """Of the node that begins a mesh, and holds its key from then on."""
        secret, keys = Ed25519PrivateKey.generate(), Keys.new()
        sign, box, bus = keys.public
        name, owner = self._node_name(node), new_id("own")
        shown = owner_name or self._machine.names()[1]
        card = Card(
            mesh=mesh,
            node=name,
            sign=sign,
            box=box,
            bus=bus,
            owner=owner,
            owner_name=shown,
            not_after=self._clock.wall_ms() + CARD_DAYS * DAY_MS,
        )
        signed = sign_card(secret, card)
        row = Membership(
            mesh=mesh,
            node=name,
            standing=Standing.MEMBER,
            mesh_key=public_text(secret),
            mesh_secret=text_of(secret.private_bytes_raw()),
            keys=seeds_of(keys),
            owner=owner,
            owner_name=shown,
        )
        return row, signed

    # -- codes --

    def invite(self, call: Call, params: MeshInviteParams, tx: Transaction) -> None:
        own = self.place.must_be_member()
        mesh_secret(own)
        hub = self.connection.hub
        if own.hub_listen is None:
            raise Conflict(
                "this mesh is on NATS servers of yours, so it has no join codes",
                hint=f"on the other machine: `bascule join {','.join(own.servers)} --creds FILE`; then accept it here",
            )
        if hub is None or not hub.certificate:
            raise Unavailable(
                "the mesh's server does not run",
                hint=self.connection.problem or "try again in a moment; `bascule mesh status` says what is wrong",
            )
        key, invitation, code = self.admissions.new_invite(
            own, addresses=hub.addresses, certificate=hub.certificate, owner_name=params.owner_name
        )
        tx.put(self.admissions.invites, key, invitation)
        tx.subject = own.mesh
        tx.details = {"owner": invitation.owner, "expiresAt": rfc3339(invitation.expires_at)}
        shown = "" if invitation.owner == own.owner else invitation.owner_name
        self._after_the_machine(tx, lambda: self._invited(own, hub, code, shown))

    def _invited(self, own: Membership, hub: MemberHub, code: JoinCode, owner_name: str) -> MeshInviteResult:
        return MeshInviteResult(
            code=write_code(code),
            mesh=own.mesh,
            node=own.node,
            expires_at=rfc3339(code.expires_ms),
            owner_name=owner_name,
            addresses=list(hub.addresses),
        )

    # -- joining --

    async def join(self, call: Call, params: JoinMeshParams, effect: RecordedEffect) -> MeshStatus:
        if params.words is not None:
            return await self._compare(call, params.words)
        with self._exclusively(Event.ASK):
            self._must_have(hub=False)
            node = self._node_name(params.node)
            try:
                way = await self._way(params)
                row = await self.joining.ask(way, node)
            except NotReached as error:
                if params.code is not None and error.fault is Fault.REFUSED:
                    raise Conflict(
                        "the server does not know this join code: it has expired, or was used and accepted",
                        hint="make a new one on the machine that made it: `bascule mesh invite`",
                    ) from None
                raise _not_reached(error) from None
            except BadKnock as error:
                raise PeerFailed(
                    f"the other machine's answer cannot be used: {error}", hint="compare the versions of both"
                ) from None
            with Transaction() as tx:
                tx.subject = row.node
                tx.details = {"mesh": row.mesh, "at": row.asking.holder.node if row.asking is not None else None}
                self.place.change(tx, Event.ASK, row)
            await self._journal.commit(tx, call.principal, "mesh.asks")
            effect.details |= {"node": row.node, "mesh": row.mesh}
            return self._views.status(call.principal)

    async def _compare(self, call: Call, words: str) -> MeshStatus:
        row = self.place.row
        self.place.must_allow(Event.COMPARED)
        assert row is not None
        assert row.asking is not None
        if words != words_of_row(row):
            raise Conflict("the words are others by now", hint="look again: `bascule mesh status` shows them")
        with Transaction() as tx:
            tx.subject = row.node
            asking = msgspec.structs.replace(row.asking, compared=True)
            self.place.change(tx, Event.COMPARED, msgspec.structs.replace(row, asking=asking))
        await self._journal.commit(tx, call.principal, "mesh.compared")
        return self._views.status(call.principal)

    async def _way(self, params: JoinMeshParams) -> Way:
        if (params.code is None) == (params.servers is None):
            raise InvalidRequest("give a join code, or servers", hint="one of the two")
        if params.code is None:
            assert params.servers is not None
            return Way(check_servers(params.servers), creds_file=self._creds(params.creds_file))
        try:
            code = read_code(params.code)
        except BadCode as error:
            raise InvalidRequest(
                f"this is not a whole join code: {error}",
                hint="copy all of it, from `bsc1-` to its end; `bascule mesh invite` on the other machine makes one",
            ) from None
        return await self.joining.find_server(code)

    # -- letting in --

    async def answer_knock(self, _name: str, data: bytes) -> bytes:
        """Called by the post, for everybody who has a code or may log in."""
        own = self.place.member
        if own is None or own.mesh_secret is None:
            return write_answer(KnockAnswer(state=AnswerState.REFUSED, refusal=Refusal.BAD.value))
        try:
            opened = read_knock(data)
        except BadKnock:
            return write_answer(KnockAnswer(state=AnswerState.REFUSED, refusal=Refusal.BAD.value))
        with Transaction() as tx:
            answer = self.admissions.take(tx, own, opened)
        if tx.puts:
            node = opened.knock.joiner.node
            tx.after.append(lambda: self._events.publish(Fact(kind=Kind.NODE, event="asked", id=node)))
            # A joiner that hears of the question finds it still there after a crash.
            await self._journal.commit(tx, DAEMON, "mesh.asked")
        return write_answer(answer)

    def accept(self, call: Call, params: AcceptNodeParams, tx: Transaction) -> None:
        own = self.place.must_be_member()
        card = self.admissions.accept(tx, own, params.node, params.words, params.owner_name)
        self._after_the_machine(tx, lambda: self._result(own, card, "member"))

    def deny(self, call: Call, params: MeshNodeParams, tx: Transaction) -> MeshNodeResult:
        self.place.must_be_member()
        request = self.admissions.deny(tx, params.node)
        tx.after.append(self.connection.notice)
        return MeshNodeResult(node=request.joiner.node, standing="denied")

    def revoke(self, call: Call, params: MeshNodeParams, tx: Transaction) -> None:
        own = self.place.must_be_member()
        card = self.admissions.revoke(tx, own, params.node)
        self._after_the_machine(tx, lambda: self._result(own, card, "revoked"))

    def _result(self, own: Membership, card: Card, standing: str) -> MeshNodeResult:
        return MeshNodeResult(
            node=card.node,
            standing=standing,
            owner=card.owner_name,
            own=card.owner == own.owner,
            problem=self.connection.problem,
        )

    # -- staying and leaving --

    def keep(self, call: Call, params: Nothing, tx: Transaction) -> None:
        self.place.change(tx, Event.KEPT)
        tx.subject = self.place.must_be_member().node
        self._after_the_machine(tx, lambda: self._views.status(call.principal))

    def leave(self, call: Call, params: Nothing, tx: Transaction) -> None:
        row = self.place.row
        self.place.must_allow(Event.LEFT)
        assert row is not None
        tx.subject = row.node
        tx.details = {"mesh": row.mesh}
        self.connection.traffic.left(tx)
        self.admissions.clear(tx)
        # Cards are read with the key of our row: they go first, and come back after it.
        self.roster.clear(tx)
        self.place.change(tx, Event.LEFT)
        self.connection.traffic.left(tx)
        self.joining.ended = None
        if row.hub_listen is not None:
            tx.after.append(lambda: self._start_removing(row))
        self._after_the_machine(tx, lambda: self._views.status(call.principal))

    def _start_removing(self, row: Membership) -> None:
        self._tasks.start(self._remove_hub(row), "removing the hub's files")

    async def _remove_hub(self, row: Membership) -> None:
        await self.connection.follow()
        if self.place.row is None:
            await self._machine.remove_hub(row)

    # -- parts --

    def _after_the_machine(self, tx: Transaction, answer: Callable[[], object]) -> None:
        """Answer when the change is on disk and the machine is as the store says, or says why it is not."""
        later: Deferred[object] = Deferred()

        def landed() -> None:
            def followed(_: Deferred[None]) -> None:
                if not later.done():
                    later.set_result(answer())

            self.connection.follow().add_done_callback(followed)

        tx.after.append(landed)
        tx.then = lambda _: later

    @contextlib.contextmanager
    def _exclusively(self, event: Event) -> Iterator[None]:
        """One at a time: each of them takes seconds, and changes what the others start from."""
        self.place.must_allow(event)
        if self._busy:
            raise Conflict("another `mesh` command is under way", hint="wait until it has ended")
        self._busy = True
        try:
            yield
        finally:
            self._busy = False

    def _must_have(self, *, hub: bool) -> None:
        missing = self._machine.missing(hub=hub)
        if missing is not None:
            raise Unavailable(missing, hint="install it into the daemon's Python, then restart the daemon")

    def _creds(self, path: str | None) -> str | None:
        if path is not None and (problem := self._machine.creds_problem(path)) is not None:
            raise InvalidRequest(
                f"{path} cannot be used: {problem}", hint="give the file that its operator made for you"
            )
        return path

    def _node_name(self, wanted: str | None) -> str:
        if wanted is not None:
            if wanted in RESERVED_NODES:
                raise InvalidRequest(f"{wanted} is not a name for a node", hint="choose another one with --node")
            return wanted
        host = self._machine.names()[0].partition(".")[0].lower()
        name = _NOT_IN_A_NAME.sub("-", host).strip("-")[:MAX_NODE_CHARS].strip("-")
        if not name or name in RESERVED_NODES | {"localhost"}:
            raise InvalidRequest(
                f"this machine is called {host!r}, which is not a name for a node", hint="choose one with --node"
            )
        return name


def _not_reached(error: NotReached) -> PeerFailed:
    return PeerFailed(error.detail, hint=REMEDIES[error.fault], details={"fault": error.fault.value})
