"""Machines of other people: a person here is asked once whether their agents may write to ours."""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from bascule.foundation.clock import Clock
from bascule.foundation.errors import ApprovalRequired, BasculeError, Forbidden, NotFound, PolicyDenied
from bascule.kernel.call import DAEMON, Call, Principal, node_of, node_principal
from bascule.kernel.journal import Journal, Transaction
from bascule.mesh import rows
from bascule.mesh.membership_protocol import MeshNodeParams
from bascule.mesh.nodes import Node, Nodes
from bascule.mesh.state import MeshState

# What the policy says of a machine is asked again after this; a person's answer holds until it is taken back.
REFUSED_SECONDS = 60.0
# Of a refusal that is a person's answer.
APPROVAL_ID = "approvalId"


class Meetings:
    def __init__(
        self,
        state: MeshState,
        journal: Journal,
        clock: Clock,
        nodes: Nodes,
        *,
        call: Callable[[Principal, str, Any, Callable[[BasculeError], None]], None],
        on_answer: Callable[[str], None],
    ) -> None:
        """`call`: see `Arrivals.call`. `on_answer`: called with a node whose messages wait with it for what is known
        now: whether its agents may write to ours."""
        self._state = state
        self._journal = journal
        self._call = call
        self._clock = clock
        self._nodes = nodes
        self._on_answer = on_answer
        # Nodes about which a person is asked, with the key of the machine that is meant.
        self._asked: dict[str, str] = {}
        # Nodes that the policy refuses: the key, why, and until when it is not asked again. No person said so.
        self._refused: dict[str, tuple[str, str, float]] = {}

    def ask(self, node: Node) -> str | None:
        """Why its messages are refused, where that is known now; else they come again when it is."""
        name = node.card.node
        if name not in self._asked and self._refusal(node) is None:
            self._asked[name] = node.card.sign
            params = rows.MeetParams(node=name, owner=node.card.owner_name or node.card.owner, own=node.own)
            self._call(node_principal(name), rows.MEET.name, params, partial(self._not_met, name))
        return self._refusal(node)

    def _refusal(self, node: Node) -> str | None:
        key, why, until = self._refused.get(node.card.node, ("", "", 0.0))
        return why if key == node.card.sign and self._clock.monotonic() < until else None

    def met(self) -> list[rows.MetNode]:
        return [self._view(name) for name in sorted(self._state.peers.rows) if self._state.peer(name).met is not None]

    def forget(self, call: Call, params: MeshNodeParams, tx: Transaction) -> rows.MetNode:
        name = params.node
        peer = self._state.peers.rows.get(name)
        if peer is None or peer.met is None:
            raise NotFound(f"nothing was answered about a machine {name}", hint="`bascule mesh met` lists the answers")
        view = self._view(name)
        tx.subject = name
        tx.put(self._state.peers, name, msgspec.structs.replace(peer, met=None, met_key=""))
        return view

    def _view(self, name: str) -> rows.MetNode:
        peer, node = self._state.peer(name), self._nodes.get(name)
        return rows.MetNode(
            node=name,
            owner=(node.card.owner_name or node.card.owner) if node is not None else None,
            allowed=bool(peer.met),
            replaced=node is not None and node.card.sign != peer.met_key,
        )

    def meet(self, call: Call, params: rows.MeetParams, tx: Transaction) -> None:
        assert node_of(call.principal) == params.node, "made in `ask`"
        tx.subject = params.node
        self._put_met(tx, params.node, met=True)
        tx.after.append(partial(self._answered, params.node))

    def _put_met(self, tx: Transaction, name: str, *, met: bool) -> None:
        """Of the machine that the person was asked about: another one may have its name by now, and is asked about
        again."""
        peer = self._state.peer(name)
        asked = self._asked.get(name, "")
        tx.put(self._state.peers, name, msgspec.structs.replace(peer, met=met, met_key=asked))

    def _answered(self, name: str) -> None:
        """Either way its outbox tries again now, and is told."""
        self._asked.pop(name, None)
        self._on_answer(name)

    def _not_met(self, name: str, error: BasculeError) -> None:
        if not isinstance(error, PolicyDenied | Forbidden) or isinstance(error, ApprovalRequired):
            # Nobody answered in time: its next message asks again.
            self._asked.pop(name, None)
        elif APPROVAL_ID in (error.details or {}):
            tx = Transaction()
            tx.subject = name
            self._put_met(tx, name, met=False)
            tx.after.append(partial(self._answered, name))
            self._journal.commit(tx, DAEMON, "mesh.meet", "denied")
        else:
            until = self._clock.monotonic() + REFUSED_SECONDS
            self._refused[name] = (self._asked.get(name, ""), error.message, until)
            self._answered(name)
