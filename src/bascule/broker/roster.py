"""When each agent was last seen, and indexes by type and presence: a list need not look at every agent."""

from collections.abc import Iterable
from itertools import count

from bascule.broker.protocol import AgentStatus, AgentView
from bascule.broker.records import AgentRecord


class Presence:
    """When an agent was last seen, in this life's clock."""

    __slots__ = (
        *("armed_at", "connections", "gone", "online", "order"),
        *("seen", "seen_in_this_life", "seen_wall", "stored"),
        *("view", "view_until", "viewed", "viewed_wall"),
    )

    def __init__(self, order: int, seen: float, seen_wall: int, *, gone: bool) -> None:
        # Its place among all agents, the first to come first.
        self.order = order
        self.seen = seen
        self.seen_wall = seen_wall
        # What is on disk of both.
        self.stored = (seen_wall, gone)
        # Live link connections that act as this agent.
        self.connections = 0
        # Its last connection ended: the process is gone, whatever the clock says.
        self.gone = gone
        self.online = False
        # False after a restart, until it acts: whether its process still runs is not known.
        self.seen_in_this_life = False
        # When the heap looks at it next.
        self.armed_at = float("inf")
        # How it was last listed, until when that is so if it does nothing, and by which record and sign of life.
        self.view: AgentView | None = None
        self.view_until = 0.0
        self.viewed: AgentRecord | None = None
        self.viewed_wall = 0


class Roster:
    """The presence of every agent in the table; `Agents` keeps both in step."""

    def __init__(self) -> None:
        self.presences: dict[str, Presence] = {}
        # Those whose presence says `online`: counted for every look at the daemon's status.
        self.online: set[str] = set()
        # Those not seen in this life.
        self.unseen: set[str] = set()
        self.by_type: dict[str, set[str]] = {}
        self._order = count()

    def add(self, record: AgentRecord, seen: float) -> None:
        self.presences[record.agent_id] = Presence(next(self._order), seen, record.seen_at, gone=record.gone)
        self.unseen.add(record.agent_id)
        self.by_type.setdefault(record.type, set()).add(record.agent_id)

    def remove(self, record: AgentRecord) -> None:
        del self.presences[record.agent_id]
        self.online.discard(record.agent_id)
        self.unseen.discard(record.agent_id)
        self._leave_type(record)

    def change_type(self, old: AgentRecord, new: AgentRecord) -> None:
        if old.type != new.type:
            self._leave_type(old)
            self.by_type.setdefault(new.type, set()).add(new.agent_id)

    def set_online(self, agent_id: str, presence: Presence, *, online: bool) -> None:
        presence.online = online
        if online:
            self.online.add(agent_id)
            self.unseen.discard(agent_id)
        else:
            self.online.discard(agent_id)

    def candidates(self, type_: str | None, status: AgentStatus | None) -> Iterable[str]:
        """Every agent of that type and status, and possibly others, in the order they came.

        Only the clock says who is offline, so for that status every agent is a candidate.
        """
        sets: list[set[str]] = [self.by_type.get(type_, set())] if type_ is not None else []
        if status is AgentStatus.ONLINE:
            sets.append(self.online)
        elif status is AgentStatus.UNKNOWN:
            sets.append(self.unseen)
        if not sets:
            return self.presences
        fewest = min(sets, key=len)
        return sorted(fewest, key=lambda agent_id: self.presences[agent_id].order)

    def _leave_type(self, record: AgentRecord) -> None:
        members = self.by_type[record.type]
        members.discard(record.agent_id)
        if not members:
            del self.by_type[record.type]
