"""Who is there: registration, tokens, presence."""

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any

import msgspec

from bascule.broker.events import EventHub
from bascule.broker.listed import list_elsewhere, list_groups
from bascule.broker.ports import Connections, TokenFiles
from bascule.broker.protocol import (
    AgentParams,
    AgentsListParams,
    AgentStatus,
    AgentView,
    HeartbeatResult,
    RegisterParams,
    RegisterResult,
    RevokeResult,
)
from bascule.broker.records import AgentRecord
from bascule.broker.roster import Presence, Roster
from bascule.broker.state import BrokerState
from bascule.foundation.agreement import passes_for_reserved
from bascule.foundation.clock import rfc3339
from bascule.foundation.errors import Conflict, InvalidRequest, NotFound, Overloaded, TooLarge
from bascule.foundation.ids import is_reserved_handle, new_token
from bascule.kernel.call import PERSON, Call, Principal, agent_of
from bascule.kernel.identity.tokens import TokenBook, hash_token
from bascule.kernel.journal import Transaction
from gabp import codec

# Names offered when a handle is taken; past that the reader has understood.
_MAX_SUFFIX = 1_000
# A sentence that lists who is online stays a sentence.
_NAMED_ONLINE = 10
# Of those that are there: a broadcast may name hundreds that are not.
_LOOKED_AT = 64


class Agents:
    def __init__(
        self,
        state: BrokerState,
        events: EventHub,
        tokens: TokenBook,
        files: TokenFiles,
        connections: Connections,
    ) -> None:
        self._state = state
        self._events = events
        self._tokens = tokens
        self._files = files
        self._connections = connections
        self._roster = Roster()
        self._presence = self._roster.presences
        # Called when a token is no longer valid: what was opened with it ends.
        self.on_revoked: list[Callable[[str], None]] = []
        # Called when an agent goes offline, and when its groups have changed.
        self.on_offline: Callable[[str], None] | None = None
        self.on_groups: Callable[[str], None] | None = None
        # Called when the list of agents, or who is online, has changed.
        self.on_list: list[Callable[[], None]] = []
        self._stopping = False
        # Handles by their lower case.
        self._spellings: dict[str, set[str]] = {}
        now, wall = state.clock.monotonic(), state.clock.wall_ms()
        state.agents.on_change = self._changed
        for agent_id, record in state.agents.rows.items():
            if record.token_hash is not None:
                tokens.add(agent_id, record.token_hash)
            # A wall clock that went backwards must not make anybody younger than now.
            ago = max(0, wall - record.seen_at)
            self._roster.add(record, now - ago / 1000)
            self._join(agent_id, record.groups)
            self._spell(agent_id)
            self._watch(agent_id)
        files.settle(tokens.find)

    def _spell(self, agent_id: str) -> None:
        self._spellings.setdefault(agent_id.lower(), set()).add(agent_id)

    # -- methods --

    def register(self, call: Call, params: RegisterParams, tx: Transaction) -> RegisterResult:
        agent_id = params.agent_id
        if passes_for_reserved(agent_id):
            raise InvalidRequest(
                f"`agentId`: {agent_id!r} is reserved, or passes for a name that is",
                hint=f"choose another handle, for instance {self._free_name('agent')}",
            )
        if is_reserved_handle(agent_id):
            raise InvalidRequest(
                f"`agentId`: {agent_id!r} is reserved: handles like this are those of spaces",
                hint="choose a handle that does not begin with spc_",
            )
        self._check_metadata(params.metadata)
        self._check_groups(agent_id, params.groups or [])
        tx.subject = agent_id
        state = self._state
        old = state.agents.rows.get(agent_id)
        own = agent_of(call.principal) == agent_id or (call.as_owner and old is not None and old.token_hash is not None)
        if params.exclusive and own and self._connections.others(agent_id, call.connection):
            raise self._taken(agent_id, "another live connection acts as it")
        how = self._claim(call.principal, agent_id, old, own=own)
        if old is None and len(state.agents.rows) >= state.limits.max_agents:
            raise Overloaded(
                f"{state.limits.max_agents} agents are registered",
                hint="`bascule gc` removes long-gone ones",
                retry_after=60.0,
            )
        # The record may have been removed while the agent was connected: then it starts anew.
        token = None if own and old is not None else new_token()
        now = state.clock.wall_ms()
        record = AgentRecord(
            agent_id=agent_id,
            type=params.type,
            metadata=params.metadata,
            heartbeat_interval_ms=params.heartbeat_interval_ms,
            token_hash=old.token_hash if token is None and old is not None else hash_token(token or ""),
            groups=list(dict.fromkeys(params.groups))
            if params.groups is not None
            else (old.groups if own and old else []),
            registered_at=now,
            seen_at=now,
        )
        if token is not None:
            self._files.prepare(agent_id, token)
        tx.put(state.agents, agent_id, record)
        tx.details = {"type": params.type, "how": how}
        tx.after.append(partial(self._registered, agent_id, token, how, call))
        if params.exclusive:
            self._connections.reserve(agent_id, call.connection)
        return RegisterResult(
            agent_id=agent_id,
            status="registered",
            expires_at=rfc3339(now + self._lifetime_ms(record)),
            agent_token=token,
            reconnected=token is None,
            unread=self.unread(agent_id),
        )

    def _claim(self, principal: Principal, agent_id: str, old: AgentRecord | None, *, own: bool) -> str:
        """How this caller comes to the handle; 409 when it may not."""
        if old is None:
            if (twin := self._twin(agent_id)) is not None:
                raise self._taken(agent_id, f"{twin} is registered, which differs in capital letters alone")
            return "new"
        if own:
            return "reconnect"
        if old.token_hash is None:
            return "declared"
        if principal == PERSON:
            return "takeover"
        if self._is_silent(agent_id):
            return "takeover"
        raise self._taken(agent_id, "registered by somebody else, and this call does not carry its token")

    def _is_silent(self, agent_id: str) -> bool:
        """So long that others may have its handle."""
        silent_ms = (self._state.clock.monotonic() - self._presence[agent_id].seen) * 1000
        return silent_ms >= self._state.limits.takeover_ms and not self._presence[agent_id].connections

    def _twin(self, agent_id: str) -> str | None:
        """An agent whose handle readers would take for this one."""
        for name in self._spellings.get(agent_id.lower(), ()):
            if name != agent_id and self._state.agents.rows[name].token_hash is not None and not self._is_silent(name):
                return name
        return None

    def _registered(self, agent_id: str, token: str | None, how: str, call: Call) -> None:
        if token is not None:
            if how == "takeover":
                # The old holder's connections must not count for the new one, now or when they end.
                self._evict(agent_id)
                self._presence[agent_id].connections = 0
            self._files.publish(agent_id, token)
        self.touch(agent_id)
        self._watch(agent_id)
        if self.on_groups is not None:
            self.on_groups(agent_id)
        self._events.emit("agent.registered", agent_id=agent_id, sender=str(call.principal), status=how)

    def revoke(self, call: Call, params: AgentParams, tx: Transaction) -> RevokeResult:
        record = self.find(params.agent_id)
        tx.subject = record.agent_id
        # Without a token the handle is free; the inbox stays for its next holder.
        tx.put(self._state.agents, record.agent_id, msgspec.structs.replace(record, token_hash=None))
        tx.after.append(partial(self._revoked, record.agent_id))
        return RevokeResult(agent_id=record.agent_id, status="revoked")

    def _revoked(self, agent_id: str) -> None:
        self._files.remove(agent_id)
        self._evict(agent_id)
        self.mark_gone(agent_id)
        self._events.emit("agent.revoked", agent_id=agent_id)

    def _evict(self, agent_id: str) -> None:
        self._connections.drop(agent_id)
        for callback in self.on_revoked:
            callback(agent_id)

    def heartbeat(self, call: Call, params: AgentParams) -> HeartbeatResult:
        record = self.find(params.agent_id)
        self.touch(params.agent_id)
        return HeartbeatResult(
            agent_id=params.agent_id,
            status=AgentStatus.ONLINE,
            expires_at=rfc3339(self._state.clock.wall_ms() + self._lifetime_ms(record)),
            unread=self.unread(params.agent_id),
        )

    def list_agents(self, call: Call, params: AgentsListParams) -> list[AgentView]:
        views = []
        # What agents say about themselves (panes, directories) is about the machine, and not for inside a sandbox.
        outside = not is_reserved_handle(agent_of(call.principal) or "")
        rows, presences, now = self._state.agents.rows, self._presence, self._state.clock.monotonic()
        wanted_type, wanted_status = params.type, params.status
        for agent_id in self._roster.candidates(wanted_type, wanted_status):
            record, presence = rows[agent_id], presences[agent_id]
            if wanted_type is not None and record.type != wanted_type:
                continue
            view, unread = presence.view, self.unread(agent_id)
            if (
                view is None
                or now >= presence.view_until
                or presence.viewed is not record
                or presence.viewed_wall != presence.seen_wall
                or presence.gone
                or view.unread != unread
            ):
                view = self._view(record, presence, unread, now)
            if wanted_status is None or view.status is wanted_status:
                views.append(view if outside else msgspec.structs.replace(view, metadata={}))
        return views + list_groups(self._state, self, params) + list_elsewhere(self._state, params)

    def _view(self, record: AgentRecord, presence: Presence, unread: int, now: float) -> AgentView:
        """Kept for the next list: most agents do nothing between two of them."""
        status = self._status_at(now, record, presence)
        # Without a token it is online by its connection alone, and that may end at any time.
        lasts = status is AgentStatus.ONLINE and record.token_hash is not None
        presence.view_until = presence.seen + self._lifetime_ms(record) / 1000 if lasts else now
        presence.viewed, presence.viewed_wall = record, presence.seen_wall
        presence.view = view = AgentView(
            agent_id=record.agent_id,
            type=record.type,
            status=status,
            last_heartbeat=rfc3339(presence.seen_wall),
            metadata=record.metadata,
            unread=unread,
            groups=record.groups,
        )
        return view

    # -- what the rest of the broker asks --

    def find(self, agent_id: str) -> AgentRecord:
        record = self._state.agents.rows.get(agent_id)
        if record is None:
            # Agents of spaces answer nobody: naming them would lead a sender to wait in vain.
            names = (name for name in islice(self._state.agents.rows, _LOOKED_AT) if not is_reserved_handle(name))
            online = islice((name for name in names if self.status(name) is AgentStatus.ONLINE), _NAMED_ONLINE)
            shown = ", ".join(sorted(online)) or "nobody"
            raise NotFound(
                "agent not registered",
                hint=f"online now: {shown}; the agent joins with `bridge-register --agent {agent_id}`",
                details={"agentId": agent_id},
            )
        return record

    def check_target(self, agent_id: str) -> None:
        """An agent or a group; 404 for anything else."""
        if agent_id not in self._state.groups:
            self.find(agent_id)

    def status(self, agent_id: str) -> AgentStatus:
        presence = self._presence.get(agent_id)
        if presence is None:
            if agent_id == PERSON:
                # Whether somebody sits there is not known; a question is announced at once and kept.
                return AgentStatus.ONLINE
            members = self._state.groups.get(agent_id, ())
            found = {self.status(member) for member in members}
            return next(
                (each for each in (AgentStatus.ONLINE, AgentStatus.UNKNOWN) if each in found), AgentStatus.OFFLINE
            )
        return self._status_at(self._state.clock.monotonic(), self._state.agents.rows[agent_id], presence)

    def _status_at(self, now: float, record: AgentRecord, presence: Presence) -> AgentStatus:
        if presence.gone:
            return AgentStatus.OFFLINE
        if presence.connections:
            return AgentStatus.ONLINE
        if record.token_hash is None:
            return AgentStatus.OFFLINE
        # The very sum that `_watch` arms: another rounding would let a deadline come up a moment too early, in circles.
        over = presence.seen + self._lifetime_ms(record) / 1000
        if now >= over:
            return AgentStatus.OFFLINE
        return AgentStatus.ONLINE if presence.seen_in_this_life else AgentStatus.UNKNOWN

    def seen_at(self, agent_id: str) -> int:
        """Wall time."""
        return self._presence[agent_id].seen_wall

    def unread(self, agent_id: str) -> int:
        inbox = self._state.inboxes.get(agent_id)
        return len(inbox) if inbox is not None else 0

    def online_count(self) -> int:
        return len(self._roster.online)

    def declare(self, tx: Transaction, record: AgentRecord) -> None:
        """An agent that only the configuration knows: it can be written to before it ever came."""
        tx.put(self._state.agents, record.agent_id, record)

    # -- presence --

    def seen(self, principal: Principal) -> None:
        """Any authenticated act of an agent is a heartbeat."""
        agent_id = agent_of(principal)
        if agent_id is not None:
            self.touch(agent_id)

    def touch(self, agent_id: str) -> None:
        presence = self._presence.get(agent_id)
        if presence is None:
            return
        clock = self._state.clock
        presence.seen = clock.monotonic()
        presence.seen_wall = clock.wall_ms()
        if not presence.online:
            presence.gone = False
            presence.seen_in_this_life = True
            self._set_online(agent_id, presence, online=True)
            self._events.emit("agent.online", agent_id=agent_id)
            self._watch(agent_id)

    def connected(self, agent_id: str) -> None:
        presence = self._presence.get(agent_id)
        if presence is not None:
            presence.connections += 1
            self.touch(agent_id)

    def disconnected(self, agent_id: str, *, gone: bool = True) -> None:
        """A link connection that ends is its process ending (`gone`); a closed HTTP stream is not.

        Nor is one that we close because we stop.
        """
        presence = self._presence.get(agent_id)
        if presence is not None and presence.connections:
            presence.connections -= 1
            if not presence.connections and gone and not self._stopping:
                self.mark_gone(agent_id)
            elif not gone:
                self.touch(agent_id)

    def left(self, agent_id: str) -> None:
        """Its last session at /mcp has ended: unless it has another connection, so has the agent."""
        presence = self._presence.get(agent_id)
        if presence is not None and not presence.connections and not self._stopping:
            self.mark_gone(agent_id)

    def mark_gone(self, agent_id: str) -> None:
        presence = self._presence.get(agent_id)
        if presence is not None:
            presence.gone = True
            self._note_offline(agent_id, presence)

    def unstored(self) -> list[AgentRecord]:
        """Records as they shall be stored, where the last sign of life is another than what is."""
        out = []
        for agent_id, presence in self._presence.items():
            if (now := (presence.seen_wall, presence.gone)) != presence.stored:
                presence.stored = now
                record = self._state.agents.rows[agent_id]
                out.append(msgspec.structs.replace(record, seen_at=presence.seen_wall, gone=presence.gone))
        return out

    def stop(self) -> None:
        self._stopping = True

    def long_gone(self) -> list[str]:
        limit = self._state.limits.agent_retention_ms
        now = self._state.clock.monotonic()
        return [
            agent_id
            for agent_id, presence in self._presence.items()
            if self.status(agent_id) is AgentStatus.OFFLINE
            # Declared in the configuration and never seen: it stays as long as it is declared.
            and self._state.agents.rows[agent_id].registered_at
            and (now - presence.seen) * 1000 >= limit
        ]

    def drop(self, tx: Transaction, agent_id: str) -> None:
        tx.put(self._state.agents, agent_id, None)
        tx.after.append(partial(self._files.remove, agent_id))
        tx.after.append(partial(self._events.emit, "agent.removed", agent_id=agent_id))

    def _lifetime_ms(self, record: AgentRecord) -> int:
        limits = self._state.limits
        if record.heartbeat_interval_ms is None:
            return limits.silence_ms
        return record.heartbeat_interval_ms * limits.missed_heartbeats

    def _watch(self, agent_id: str) -> None:
        presence = self._presence[agent_id]
        self._set_online(agent_id, presence, online=self.status(agent_id) is AgentStatus.ONLINE)
        if presence.online:
            record = self._state.agents.rows[agent_id]
            self._arm(agent_id, presence, presence.seen + self._lifetime_ms(record) / 1000)

    def _arm(self, agent_id: str, presence: Presence, when: float) -> None:
        """One entry in the heap per agent, however often it acts; a shorter interval adds an earlier one."""
        if when < presence.armed_at:
            presence.armed_at = when
            self._state.timers.at(when, partial(self._check, agent_id))

    def _check(self, agent_id: str, now: float) -> None:
        presence = self._presence.get(agent_id)
        if presence is None:
            return
        if now < presence.armed_at:
            # A shorter interval made an earlier entry, or this one is from before it.
            return
        presence.armed_at = float("inf")
        if self.status(agent_id) is AgentStatus.OFFLINE:
            self._note_offline(agent_id, presence)
        elif presence.connections:
            # Alive by its connection: look again in a lifetime, there is nothing to compute from `seen`.
            self._arm(agent_id, presence, now + self._lifetime_ms(self._state.agents.rows[agent_id]) / 1000)
        else:
            self._watch(agent_id)

    def _set_online(self, agent_id: str, presence: Presence, *, online: bool) -> None:
        self._roster.set_online(agent_id, presence, online=online)
        for callback in self.on_list:
            callback()

    def _note_offline(self, agent_id: str, presence: Presence) -> None:
        if presence.online:
            self._set_online(agent_id, presence, online=False)
            self._events.emit("agent.offline", agent_id=agent_id)
            if self.on_offline is not None:
                self.on_offline(agent_id)

    def _changed(self, agent_id: str, old: AgentRecord | None, new: AgentRecord | None) -> None:
        """Keep tokens and presence beside the table, forwards and backwards."""
        if old is not None and old.token_hash is not None:
            self._tokens.remove(agent_id)
        if new is not None and new.token_hash is not None:
            self._tokens.add(agent_id, new.token_hash)
        before, after = (old.groups if old else []), (new.groups if new else [])
        if old is None and new is not None:
            self._spell(agent_id)
            self._roster.add(new, self._state.clock.monotonic())
        elif old is not None and new is not None:
            self._roster.change_type(old, new)
        if before != after:
            self._leave(agent_id, before)
            self._join(agent_id, after)
        if old is not None and new is None:
            self._roster.remove(old)
            spellings = self._spellings[agent_id.lower()]
            spellings.discard(agent_id)
            if not spellings:
                del self._spellings[agent_id.lower()]

    def _join(self, agent_id: str, groups: list[str]) -> None:
        for group in groups:
            self._state.groups.setdefault(group, {})[agent_id] = None

    def _leave(self, agent_id: str, groups: list[str]) -> None:
        for group in groups:
            members = self._state.groups.get(group, {})
            members.pop(agent_id, None)
            if not members:
                self._state.groups.pop(group, None)

    def _check_groups(self, agent_id: str, groups: list[str]) -> None:
        """A name is an agent's or a group's, never both: a message must mean one of them."""
        if agent_id in self._state.groups:
            raise Conflict(f"handle {agent_id} is a group", hint="register under a name of its own")
        for group in groups:
            if passes_for_reserved(group) or is_reserved_handle(group):
                raise InvalidRequest(f"`groups`: {group!r} is reserved", hint="choose another name")
            if group == agent_id or group in self._state.agents.rows:
                raise Conflict(f"group {group} has the name of an agent", hint="choose another name for the group")

    def _taken(self, agent_id: str, why: str) -> Conflict:
        free = self._free_name(agent_id)
        return Conflict(
            f"handle {agent_id} is taken: {why}",
            hint=f"register as {free}, or come back with {agent_id}'s agentToken (bridge-register --agent {agent_id})",
            details={"agentId": agent_id, "free": free},
        )

    def _free_name(self, agent_id: str) -> str:
        for number in range(2, _MAX_SUFFIX):
            name = f"{agent_id[:58]}-{number}"
            if name.lower() not in self._spellings:
                return name
        return f"{agent_id[:50]}-{new_token()[:8]}"

    def _check_metadata(self, metadata: dict[str, Any]) -> None:
        check_metadata(metadata, self._state.limits.max_metadata_bytes)


def check_metadata(metadata: dict[str, Any], limit: int) -> bytes:
    encoded = codec.encode(metadata) if metadata else b"{}"
    if len(encoded) > limit:
        raise TooLarge(
            f"`metadata` is {len(encoded)} bytes; the limit is {limit}",
            hint="put large content into the payload",
        )
    return encoded
