"""What `mesh.status` and `mesh.nodes` show. No key, seed or code is in it."""

from collections.abc import Iterator, Mapping

from bascule.foundation.clock import Clock, rfc3339
from bascule.kernel.call import LOCAL, PERSON, Principal
from bascule.mesh.admissions import Admissions
from bascule.mesh.cards import DAY_MS, Card
from bascule.mesh.connection import Connection
from bascule.mesh.joining import Joining, words_of_row
from bascule.mesh.membership import OwnPlace
from bascule.mesh.membership_protocol import (
    CARD_ENDS,
    CLOCK_DIFFERS,
    MeshFault,
    MeshJoining,
    MeshNode,
    MeshNodes,
    MeshStatus,
)
from bascule.mesh.membership_records import JoinRequest
from bascule.mesh.ports import Fault, PostState
from bascule.mesh.records import Membership, Standing
from bascule.mesh.roster import Roster
from bascule.mesh.skew import SKEW_STOP_MS, SKEW_WARN_MS

# A card that nobody renews by then: its holder is off for weeks, or gone.
CARD_ENDS_SOON_DAYS = 14

REMEDIES: Mapping[Fault, str] = {
    Fault.UNREACHABLE: "is that machine on and in the network? it is tried again for ever, and messages wait here",
    Fault.REFUSED: "`bascule node list` on the machine that holds the mesh key says whether this node was revoked; "
    "then `bascule mesh leave`, and join again with a new code",
    Fault.FORBIDDEN: "the server's operator has to allow it: docs/mesh.md lists what a node needs",
    Fault.FULL: "free space on the server's disk, or raise its limit; messages wait in the outbox meanwhile",
    Fault.NOT_SET_UP: "free space on the server's disk and restart it, or turn JetStream on there; `bascule mesh init` "
    "makes the streams",
    Fault.MISSING: "pip install 'bascule[mesh-hub]' into the daemon's Python, then restart the daemon",
}


class Views:
    def __init__(
        self,
        *,
        place: OwnPlace,
        roster: Roster,
        admissions: Admissions,
        connection: Connection,
        joining: Joining,
        clock: Clock,
    ) -> None:
        self._place = place
        self._roster = roster
        self._admissions = admissions
        self._connection = connection
        self._joining = joining
        self._clock = clock

    def standing(self) -> str:
        return self._place.standing or "none"

    def status(self, principal: Principal) -> MeshStatus:
        row, post, hub = self._place.row, self._connection.post, self._connection.hub
        if row is None:
            return MeshStatus(standing="none", ended=self._joining.ended)
        if row.standing is Standing.WAITING:
            return self._waiting(row, principal)
        state = PostState(open=False) if post is None else post.state
        own = self._roster.known(row.node)
        return MeshStatus(
            standing=row.standing,
            mesh=row.mesh,
            node=row.node,
            owner=row.owner_name,
            holder=row.mesh_secret is not None,
            server=state.server or ", ".join(row.servers),
            server_version=state.version or None,
            connected=state.open,
            clock_skew_ms=state.skew_ms,
            card_ends=None if own is None else rfc3339(own.not_after),
            addresses=[] if hub is None else list(hub.addresses),
            asking=[each.joiner.node for each in self._admissions.asked()],
            nodes=[each for each in self.nodes(principal).nodes if not each.here],
            faults=list(self._faults(row, state, own)),
        )

    def _waiting(self, row: Membership, principal: Principal) -> MeshStatus:
        asking = row.asking
        assert asking is not None
        joining = MeshJoining(
            holder=asking.holder.node,
            words=words_of_row(row) if principal in (LOCAL, PERSON) else None,
            compare=asking.must_compare,
            asked_at=rfc3339(asking.asked_at),
            ends_at=rfc3339(asking.ends_at),
        )
        problem = self._joining.problem
        return MeshStatus(
            standing=Standing.WAITING,
            mesh=row.mesh,
            node=row.node,
            server=", ".join(row.servers),
            joining=joining,
            faults=[]
            if problem is None
            else [MeshFault(what=problem, remedy="it is tried again until somebody answers")],
        )

    def nodes(self, principal: Principal) -> MeshNodes:
        row = self._place.row
        if row is None or row.standing is Standing.WAITING:
            return MeshNodes(mesh=None if row is None else row.mesh)
        members = [self._node(row, card) for card in sorted(self._roster.all(), key=lambda card: card.node)]
        waiting = [self._asking(each, principal) for each in self._admissions.asked()]
        return MeshNodes(mesh=row.mesh, nodes=members + waiting)

    def _node(self, row: Membership, card: Card) -> MeshNode:
        here = card.node == row.node
        now = self._clock.wall_ms()
        facts = self._connection.traffic.facts(card.node)
        over = card.not_after <= now
        # Who is not connected knows nothing of the others.
        connected = self._connection.post is not None and self._connection.post.state.open
        return MeshNode(
            node=card.node,
            standing="revoked" if self._roster.is_revoked(card) else "expired" if over else "member",
            owner=card.owner_name,
            own=card.owner == row.owner,
            here=here,
            holder=here and row.mesh_secret is not None,
            reachable=facts.reachable if connected and not here else None,
            since=rfc3339(facts.since) if facts.since else None,
            version=facts.version,
            card_ends=rfc3339(card.not_after),
            outbox_items=facts.outbox_items,
            outbox_bytes=facts.outbox_bytes,
            lag_ms=None if facts.oldest_at is None else max(0, now - facts.oldest_at),
        )

    def _asking(self, request: JoinRequest, principal: Principal) -> MeshNode:
        invite = self._admissions.invites.rows.get(request.invitation or "")
        return MeshNode(
            node=request.joiner.node,
            standing="waiting",
            owner="" if invite is None else invite.owner_name,
            own=invite is not None and self._place.row is not None and invite.owner == self._place.row.owner,
            version=request.version,
            words=request.words if principal in (LOCAL, PERSON) else None,
            asked_at=rfc3339(request.asked_at),
            ends_at=rfc3339(request.ends_at),
        )

    def _faults(self, row: Membership, state: PostState, own: Card | None) -> Iterator[MeshFault]:
        if row.standing is Standing.REVOKED:
            yield MeshFault(
                what="this node's card was revoked", remedy="`bascule mesh leave`, then join with a new code"
            )
        elif row.standing is Standing.CLONED:
            yield MeshFault(
                what="two daemons live with this node's keys: a copied disk; both have stopped",
                remedy="`bascule mesh keep` on the machine that stays, `bascule mesh leave` on the other",
            )
        if self._connection.problem is not None:
            yield MeshFault(
                what=self._connection.problem, remedy="it is tried again for ever; local agents are unaffected"
            )
        if state.fault is not None:
            yield MeshFault(what=state.detail or state.fault.value, remedy=REMEDIES[state.fault])
        skew = abs(state.skew_ms or 0)
        if skew >= SKEW_WARN_MS:
            stops = "mail is not taken" if skew >= SKEW_STOP_MS else "from an hour on mail is not taken"
            yield MeshFault(
                what=f"{CLOCK_DIFFERS} from the server's by {skew // 1000} s: {stops}",
                remedy="set the clock of this machine or of the server, best by NTP",
            )
        if own is not None and own.not_after - self._clock.wall_ms() < CARD_ENDS_SOON_DAYS * DAY_MS:
            yield MeshFault(
                what=f"{CARD_ENDS} at {rfc3339(own.not_after)} and nobody has renewed it",
                remedy="start the daemon that holds the mesh key, and let both be connected for a minute",
            )
