"""Agents of the house: their handle is given out by the daemon, which knows them by the door they come through.

A space's commands are one such agent. There is no token for it that anybody could hold, steal or present, and nobody
can register its handle (`ids.is_reserved_handle`), neither before it moves in nor after it has left.
"""

from typing import Any

from bascule.broker.agents import Agents
from bascule.broker.records import AgentRecord
from bascule.broker.state import BrokerState
from bascule.foundation.ids import new_token
from bascule.kernel.call import DAEMON
from bascule.kernel.identity.tokens import hash_token
from bascule.kernel.journal import Journal, Transaction


class SpaceAgents:
    def __init__(self, state: BrokerState, agents: Agents, journal: Journal) -> None:
        self._state = state
        self._agents = agents
        self._journal = journal

    def add_agent(self, handle: str, type_: str, metadata: dict[str, Any]) -> None:
        """It can be written to from now on; an earlier agent of the space keeps inbox, and revocation."""
        if handle in self._state.agents.rows:
            return
        now = self._state.clock.wall_ms()
        record = AgentRecord(
            agent_id=handle,
            type=type_,
            metadata=metadata,
            # The hash of what nobody knows; without any the record would be one that a person has revoked.
            token_hash=hash_token(new_token()),
            seen_at=now,
        )
        tx = Transaction()
        tx.subject = handle
        tx.details = {"type": type_}
        self._agents.declare(tx, record)
        self._journal.commit(tx, DAEMON, "agents.declare")
        # Not online before it has said something.
        self._agents.mark_gone(handle)

    def may_connect(self, handle: str) -> bool:
        """False once a person has revoked it."""
        record = self._state.agents.rows.get(handle)
        return record is not None and record.token_hash is not None

    def mark_offline(self, handle: str) -> None:
        """Its door is closed: nobody can act as it for now."""
        self._agents.mark_gone(handle)

    def remove_agent(self, tx: Transaction, handle: str) -> None:
        """For good. What was not fetched goes as it does for every agent that is gone."""
        if handle in self._state.agents.rows:
            self._agents.drop(tx, handle)
