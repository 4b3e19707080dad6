"""Machines of other people: a person here is asked once whether their agents may write to ours."""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from bascule.foundation.errors import ApprovalRequired, BasculeError, Forbidden, PolicyDenied
from bascule.kernel.call import DAEMON, Call, Principal, node_of, node_principal
from bascule.kernel.journal import Journal, Transaction
from bascule.mesh import rows
from bascule.mesh.nodes import Node
from bascule.mesh.state import MeshState


class Meetings:
    def __init__(
        self,
        state: MeshState,
        journal: Journal,
        *,
        call: Callable[[Principal, str, Any, Callable[[BasculeError], None]], None],
        on_met: Callable[[str], None],
    ) -> None:
        """`call`: see `Arrivals.call`. `on_met`: called with a node whose agents may write to ours now."""
        self._state = state
        self._journal = journal
        self._call = call
        self._on_met = on_met
        # Nodes about which a person is asked, with the key of the machine that is meant.
        self._asked: dict[str, str] = {}

    def ask(self, node: Node) -> None:
        name = node.card.node
        if name in self._asked:
            return
        self._asked[name] = node.card.sign
        params = rows.MeetParams(node=name, owner=node.card.owner_name or node.card.owner, own=node.own)
        self._call(node_principal(name), rows.MEET.name, params, partial(self._not_met, name))

    def meet(self, call: Call, params: rows.MeetParams, tx: Transaction) -> None:
        assert node_of(call.principal) == params.node, "made in `ask`"
        tx.subject = params.node
        self._put_met(tx, params.node, met=True)
        tx.after.append(partial(self._met, params.node))

    def _put_met(self, tx: Transaction, name: str, *, met: bool) -> None:
        """Of the machine that the person was asked about: another one may have its name by now, and is asked about
        again."""
        peer = self._state.peer(name)
        asked = self._asked.get(name, "")
        tx.put(self._state.peers, name, msgspec.structs.replace(peer, met=met, met_key=asked))

    def _met(self, name: str) -> None:
        self._asked.pop(name, None)
        self._on_met(name)

    def _not_met(self, name: str, error: BasculeError) -> None:
        if isinstance(error, PolicyDenied | Forbidden) and not isinstance(error, ApprovalRequired):
            tx = Transaction()
            tx.subject = name
            self._put_met(tx, name, met=False)
            self._journal.commit(tx, DAEMON, "mesh.meet", "denied")
        self._asked.pop(name, None)
