"""Puts the broker together."""

from bascule.broker.machine.token_files import StateTokenFiles
from bascule.broker.records import AgentRecord
from bascule.broker.service import Broker
from bascule.broker.settings import BrokerSettings, DeclaredAgent
from bascule.daemon.ports import CONNECTIONS, STATE_DIR, TOKENS
from bascule.kernel.bridge import Bridge, KernelServices, Ports


def make_broker(kernel: KernelServices, ports: Ports) -> Bridge:
    settings = kernel.config.of(BrokerSettings)
    now = kernel.clock.wall_ms()
    return Broker(
        store=kernel.store,
        journal=kernel.journal,
        clock=kernel.clock,
        timers=kernel.timers,
        limits=settings.limits(),
        tokens=ports.need(TOKENS),
        files=StateTokenFiles(ports.need(STATE_DIR), kernel.log),
        connections=ports.need(CONNECTIONS),
        log=kernel.log,
        event_ring=kernel.events,
        key=kernel.key,
        on_revoked=kernel.forget_agent,
        has_person=kernel.desk.has_person,
        configured=[_configured(agent, now) for agent in settings.declared_agents()],
    ).bridge()


def _configured(agent: DeclaredAgent, now: int) -> AgentRecord:
    metadata = dict(agent.metadata)
    if agent.pane is not None:
        metadata.setdefault("paneId", agent.pane)
    return AgentRecord(agent_id=agent.agent_id, type=agent.type, metadata=metadata, seen_at=now)
