"""Broadcasts: one ticket each."""

import hashlib

from bascule.broker.agents import Agents
from bascule.broker.protocol import (
    MAX_BROADCAST,
    MAX_BROADCAST_BYTES,
    AgentStatus,
    BroadcastFailure,
    BroadcastParams,
    BroadcastResult,
    BroadcastTicket,
    SendParams,
)
from bascule.broker.state import BrokerState
from bascule.broker.tickets import Tickets, Written
from bascule.foundation.agreement import MAX_TICKET_ID_CHARS
from bascule.foundation.errors import BasculeError, InvalidRequest, NotFound, TooLarge
from bascule.foundation.ids import new_ticket_id
from bascule.kernel.call import Call, agent_of
from bascule.kernel.journal import Transaction

# Of a name that is too long to stand in an id: 128 bits.
_DIGEST_CHARS = 32


class Broadcasts:
    def __init__(self, state: BrokerState, agents: Agents, tickets: Tickets) -> None:
        self._state = state
        self._agents = agents
        self._tickets = tickets

    def broadcast(self, call: Call, params: BroadcastParams, tx: Transaction) -> BroadcastResult:
        broadcast_id = params.broadcast_id or new_ticket_id(self._state.clock.wall_ms())
        targets = self._targets(call, params)
        written = self._written(params, len(targets))
        tickets: list[BroadcastTicket] = []
        failed: list[BroadcastFailure] = []
        for agent_id in targets:
            one = SendParams(
                agent_id=agent_id,
                payload=params.payload,
                ticket_id=_part_of_broadcast(broadcast_id, agent_id),
                metadata=params.metadata,
                expect_reply=params.expect_reply,
                timeout_ms=params.timeout_ms,
                conversation_id=params.conversation_id,
            )
            try:
                sent = self._tickets.send(call, one, tx, written=written)
            except BasculeError as error:
                # `send` refuses before it changes anything, so the others go on.
                failed.append(BroadcastFailure(agent_id=agent_id, error=error.body()))
            else:
                tickets.append(
                    BroadcastTicket(
                        agent_id=agent_id,
                        ticket_id=sent.ticket_id,
                        status=sent.status,
                        agent_status=sent.agent_status,
                    )
                )
        if tx.puts:
            tx.subject = broadcast_id
            tx.details = {"to": [ticket.agent_id for ticket in tickets], "failed": len(failed)}
        return BroadcastResult(broadcast_id=broadcast_id, tickets=tickets, failed=failed)

    def _written(self, params: BroadcastParams, count: int) -> Written | TooLarge:
        """Once, whoever gets it."""
        try:
            written = self._tickets.written(params)
        except TooLarge as error:
            return error
        together = len(written.payload) * count
        if together > MAX_BROADCAST_BYTES:
            raise TooLarge(
                f"`payload` for {count} agents is {together} bytes; the limit is {MAX_BROADCAST_BYTES}",
                hint="write it to a file and send its path",
            )
        return written

    def _targets(self, call: Call, params: BroadcastParams) -> list[str]:
        if params.agent_ids is not None:
            if params.type is not None:
                raise InvalidRequest("give `agentIds` or `type`, not both")
            return list(dict.fromkeys(params.agent_ids))
        own = agent_of(call.principal)
        targets = [
            record.agent_id
            for record in self._state.agents.rows.values()
            if record.agent_id != own
            and params.type in (None, record.type)
            and self._agents.status(record.agent_id) is not AgentStatus.OFFLINE
        ]
        if params.scope == "mesh":
            targets += [
                each.agent_id
                for each in self._state.remotes.agents()
                if params.type in (None, each.type) and each.status == AgentStatus.ONLINE
            ]
        if not targets:
            raise NotFound("nobody to send to", hint="no other agent is online; GET /agents lists them")
        if len(targets) > MAX_BROADCAST:
            raise TooLarge(
                f"{len(targets)} agents are online; one broadcast reaches {MAX_BROADCAST}",
                hint="name them in `agentIds`",
            )
        return targets


def _part_of_broadcast(broadcast_id: str, agent_id: str) -> str:
    # Ids have no `@`, and a machine's name behind a long handle would not fit.
    part = hashlib.sha256(agent_id.encode()).hexdigest()[:_DIGEST_CHARS] if "@" in agent_id else agent_id
    return f"{broadcast_id}.{part}"[:MAX_TICKET_ID_CHARS]
