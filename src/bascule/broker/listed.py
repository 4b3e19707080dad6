"""What `agents.list` shows beside the agents of this daemon: their groups, and agents elsewhere."""

from typing import Protocol

from bascule.broker.protocol import AgentsListParams, AgentStatus, AgentView
from bascule.broker.state import BrokerState
from bascule.foundation.clock import rfc3339

# What a group is listed as.
GROUP_TYPE = "group"


class Presences(Protocol):
    def status(self, agent_id: str) -> AgentStatus: ...

    def seen_at(self, agent_id: str) -> int: ...

    def unread(self, agent_id: str) -> int: ...


def list_groups(state: BrokerState, agents: Presences, params: AgentsListParams) -> list[AgentView]:
    if params.type not in (None, GROUP_TYPE):
        return []
    views = []
    for group, members in state.groups.items():
        status = agents.status(group)
        if params.status in (None, status):
            views.append(
                AgentView(
                    agent_id=group,
                    type=GROUP_TYPE,
                    status=status,
                    last_heartbeat=rfc3339(max(map(agents.seen_at, members))),
                    metadata={"members": sorted(members)},
                    unread=agents.unread(group),
                )
            )
    return views


def list_elsewhere(state: BrokerState, params: AgentsListParams) -> list[AgentView]:
    return [
        AgentView(
            agent_id=each.agent_id,
            type=each.type,
            status=AgentStatus(each.status),
            last_heartbeat=rfc3339(each.seen_at) if each.seen_at else None,
            metadata=each.metadata,
            groups=list(each.groups),
        )
        for each in state.remotes.agents()
        if params.type in (None, each.type) and params.status in (None, each.status)
    ]
