"""What its user may set about messages, tickets and agents."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from bascule.broker.limits import BrokerLimits
from bascule.broker.protocol import AgentIdText
from bascule.foundation import paths
from bascule.foundation.agreement import passes_for_reserved
from bascule.foundation.ids import is_reserved_handle
from bascule.kernel.settings import BadConfig, Count, Ms, Settings, limits_in, read_file
from gabp import codec

_defaults = BrokerLimits()


class DeclaredAgent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """An agent known before it registers: messages to it are queued."""

    agent_id: AgentIdText
    type: str = "agent"
    metadata: dict[str, Any] = {}
    # A tmux pane hint, as `metadata.paneId`.
    pane: str | None = None


class BrokerSettings(Settings, frozen=True, kw_only=True):
    # (10) of the broker spec.
    spec_variables: ClassVar[Mapping[str, str]] = {
        "default_timeout_ms": "BRIDGE_DEFAULT_TIMEOUT_MS",
        "agent_registry": "BRIDGE_AGENT_REGISTRY",
    }

    # What a message to a known but offline agent gets: queued, or the spec's 404.
    offline: Literal["queue", "reject"] = "queue"
    # How long a sender waits for a reply unless it says otherwise, in milliseconds.
    default_timeout_ms: Ms = _defaults.default_timeout_ms
    # How long a settled ticket is kept, in milliseconds.
    ticket_ttl_ms: Ms = _defaults.ticket_ttl_ms
    # How long a receiver has to acknowledge before a message is offered again, in milliseconds.
    lease_ms: Ms = _defaults.lease_ms
    # The largest payload of a message or reply, in bytes.
    max_payload_bytes: Annotated[int, Meta(ge=1, le=4 * 1024 * 1024)] = _defaults.max_payload_bytes
    # Messages waiting in one inbox.
    max_inbox_messages: Count = _defaults.max_inbox_messages
    # Bytes waiting in one inbox.
    max_inbox_bytes: Count = _defaults.max_inbox_bytes
    # Of these from one sender.
    max_inbox_messages_per_sender: Count = _defaults.max_inbox_messages_per_sender
    # Bytes of these from one sender.
    max_inbox_bytes_per_sender: Count = _defaults.max_inbox_bytes_per_sender
    # Unsettled tickets of one sender.
    max_open_tickets: Count = _defaults.max_open_tickets
    # Unsettled tickets of one sender that is not on this machine, such as a client beyond A2A.
    max_open_tickets_outside: Count = _defaults.max_open_tickets_outside
    # Messages and replies of one principal that are kept, settled tickets included.
    max_kept_messages: Count = _defaults.max_kept_messages
    # Bytes of them.
    max_kept_bytes: Count = _defaults.max_kept_bytes
    # Long polls one principal may hold open.
    max_waits: Count = _defaults.max_waits
    # Registered agents, online or not.
    max_agents: Count = _defaults.max_agents
    # A JSON file with a list of agents to know from the start (the broker spec's registry file).
    agent_registry: str | None = None
    # Agents to know from the start: agentId, type, metadata, pane.
    agents: list[DeclaredAgent] = []

    def limits(self) -> BrokerLimits:
        return limits_in(self, BrokerLimits, reject_offline=self.offline == "reject")

    def declared_agents(self) -> list[DeclaredAgent]:
        """Agents of the settings and of the registry file."""
        agents = list(self.agents)
        if self.agent_registry is not None:
            path = paths.expand(self.agent_registry)
            try:
                agents.extend(codec.decode(read_file(path), list[DeclaredAgent]))
            except codec.BadJson as error:
                raise BadConfig(
                    f"{path}: {error.message}", hint="the registry is a JSON list of {agentId, type, metadata}"
                ) from error
        for agent in agents:
            if passes_for_reserved(agent.agent_id):
                raise BadConfig(
                    f"agent {agent.agent_id!r} cannot be declared: its handle is reserved, or passes for one that is",
                    hint="choose another handle",
                )
            if is_reserved_handle(agent.agent_id):
                raise BadConfig(
                    f"agent {agent.agent_id!r} cannot be declared: handles like this are those of spaces",
                    hint="choose a handle that does not begin with spc_",
                )
        return agents

    def check(self, _ours: Sequence[str], /) -> None:
        self.declared_agents()
