"""Puts the broker together."""

from bascule.broker.machine.token_files import StateTokenFiles
from bascule.broker.records import AgentRecord
from bascule.broker.service import Broker
from bascule.broker.settings import BrokerSettings, DeclaredAgent
from bascule.daemon.ports import CONNECTIONS, STATE_DIR, TOKENS
from bascule.kernel.bridge import Bridge, Lent, Ports


def make_broker(lent: Lent, ports: Ports) -> Bridge:
    settings = lent.config.of(BrokerSettings)
    now = lent.clock.wall_ms()
    return Broker(
        store=lent.store,
        journal=lent.journal,
        clock=lent.clock,
        timers=lent.timers,
        limits=settings.limits(),
        tokens=ports.need(TOKENS),
        files=StateTokenFiles(ports.need(STATE_DIR), lent.log),
        connections=ports.need(CONNECTIONS),
        log=lent.log,
        key=lent.key,
        on_revoked=lent.forget_agent,
        configured=[_configured(agent, now) for agent in settings.declared_agents()],
    ).bridge()


def _configured(agent: DeclaredAgent, now: int) -> AgentRecord:
    metadata = dict(agent.metadata)
    if agent.pane is not None:
        metadata.setdefault("paneId", agent.pane)
    return AgentRecord(agent_id=agent.agent_id, type=agent.type, metadata=metadata, seen_at=now)
