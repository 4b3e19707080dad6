"""The broker behind its method rows: puts the parts together."""

from collections.abc import Awaitable, Callable, Sequence

from bascule.broker import rows
from bascule.broker.agents import Agents
from bascule.broker.broadcasts import Broadcasts
from bascule.broker.declared import BrokerDeclared
from bascule.broker.events import EventHub
from bascule.broker.gathering import Gathering
from bascule.broker.groups import Groups
from bascule.broker.limits import BrokerLimits
from bascule.broker.lists import Lists
from bascule.broker.ports import Connections, TokenFiles
from bascule.broker.protocol import TicketParams, TicketView
from bascule.broker.records import AgentRecord
from bascule.broker.remote_mail import RemoteMail
from bascule.broker.space_agents import SpaceAgents
from bascule.broker.state import BrokerState
from bascule.broker.tickets import Tickets
from bascule.broker.views import sides, ticket_view
from bascule.broker.waits import Waits
from bascule.foundation.clock import Clock
from bascule.foundation.deferred import Deferred
from bascule.foundation.timers import Timers
from bascule.kernel.bridge import Bridge, Gauge
from bascule.kernel.call import DAEMON, Call, Principal, agent_principal
from bascule.kernel.event_ring import EventRing
from bascule.kernel.identity.tokens import TokenBook
from bascule.kernel.journal import Journal, Transaction
from bascule.kernel.journal_ports import JournalStore, Log
from bascule.kernel.ports import (
    COUNT_MAIL,
    ON_QUESTION,
    PARTIES,
    PRESENCES,
    PUBLISHED,
    REMOTE_MAIL,
    REMOTES,
    SEEN,
    SPACE_AGENTS,
    MailCount,
)
from bascule.kernel.retention import GcItem


class Broker:
    def __init__(
        self,
        *,
        store: JournalStore,
        journal: Journal,
        clock: Clock,
        timers: Timers,
        limits: BrokerLimits,
        tokens: TokenBook,
        files: TokenFiles,
        connections: Connections,
        log: Log,
        event_ring: EventRing,
        key: bytes,
        on_revoked: Callable[[str], None] = lambda _agent_id: None,
        has_person: Callable[[], bool] = lambda: True,
        configured: Sequence[AgentRecord] = (),
    ) -> None:
        """`configured`: agents of the settings, known from the start."""
        self._journal = journal
        self._configured = configured
        self.state = BrokerState(store, clock, timers, limits)
        self.events = EventHub(clock, log, event_ring)
        self.agents = Agents(self.state, self.events, tokens, files, connections)
        self.space_agents = SpaceAgents(self.state, self.agents, journal)
        self.waits = Waits(self.state, self.events, self.agents, journal)
        self.tickets = Tickets(
            self.state,
            self.agents,
            self.events,
            journal,
            key=key,
            waits=self.waits,
            has_person=has_person,
        )
        self.broadcasts = Broadcasts(self.state, self.agents, self.tickets)
        self.groups = Groups(self.state, self.agents, self.events, journal, self.waits)
        self.remote_mail = RemoteMail(self.state, self.agents, self.tickets, self.groups)
        self.gathering = Gathering(self.state, self.waits, journal)
        self.lists = Lists(self.state)
        # After `waits`, which ends what was opened with the token.
        self.agents.on_revoked.append(on_revoked)

    def bridge(self) -> Bridge:
        return Bridge(
            declared=BrokerDeclared(),
            service=self,
            methods=[
                rows.AGENTS_REGISTER.bind(self.agents.register),
                rows.AGENTS_HEARTBEAT.bind(self.agents.heartbeat),
                rows.AGENTS_LIST.bind(self.agents.list_agents),
                rows.AGENTS_REVOKE.bind(self.agents.revoke),
                rows.MESSAGES_SEND.bind(self.tickets.send),
                rows.MESSAGES_BROADCAST.bind(self.broadcasts.broadcast),
                rows.REPLIES_POST.bind(self.tickets.reply),
                rows.REPLIES_WAIT.bind(self.waits.wait_reply),
                rows.REPLIES_STREAM.bind(self.waits.stream_reply),
                rows.REPLIES_GATHER.bind(self.gathering.gather),
                rows.INBOX_TAKE.bind(self.waits.take, abandon=self.waits.give_back),
                rows.INBOX_WATCH.bind(self.waits.watch, abandon=self.waits.bells.unring),
                rows.INBOX_STREAM.bind(self.waits.stream_inbox),
                rows.INBOX_ACK.bind(self.tickets.ack),
                rows.TICKETS_CANCEL.bind(self.tickets.cancel),
                rows.TICKETS_LIST.bind(self.lists.tickets),
                rows.TICKETS_SHOW.bind(self.show_ticket),
                rows.CONVERSATIONS_LIST.bind(self.lists.conversations),
                rows.CONVERSATIONS_SHOW.bind(self.lists.conversation),
                rows.EVENTS_RECENT.bind(self.events.recent),
                rows.EVENTS_STREAM.bind(self.waits.stream_events),
            ],
            provides=[
                PARTIES.provided_by(self.parties),
                SEEN.provided_by(self.agents.seen),
                PRESENCES.provided_by(self.agents),
                SPACE_AGENTS.provided_by(self.space_agents),
                COUNT_MAIL.provided_by(self.count),
                ON_QUESTION.provided_by(self.tickets.on_question),
                PUBLISHED.provided_by(self.tickets.published),
                REMOTES.provided_by(self.state.remotes),
                REMOTE_MAIL.provided_by(self.remote_mail),
            ],
            gauges=[
                Gauge("bascule_tickets", "Tickets kept.", lambda: len(self.state.tickets.rows)),
                Gauge("bascule_tickets_open", "Tickets not settled.", lambda: self.state.open_count),
                Gauge("bascule_agents", "Agents known.", lambda: len(self.state.agents.rows)),
                Gauge("bascule_agents_online", "Agents online.", self.agents.online_count),
                Gauge("bascule_waits", "Long polls and streams held open.", self.waits.count),
            ],
            recover=self.declare_configured,
            collect=self.gc,
            sweep=self.sweep,
            stop=self.stop,
            end=self.end,
            waiting=self.waits.count,
            close=self.close,
        )

    def parties(self, ticket_id: str) -> tuple[Principal, ...]:
        ticket = self.state.ticket(ticket_id)
        if ticket.group is None:
            return sides(ticket)
        return (Principal(ticket.sender), *map(agent_principal, self.state.holders(ticket)))

    # -- reads --

    def show_ticket(self, call: Call, params: TicketParams) -> TicketView:
        return ticket_view(self.state, self.state.ticket(params.ticket_id), call.principal, payloads=True)

    # -- its life --

    def declare_configured(self) -> None:
        self.declare(self._configured)

    def declare(self, records: Sequence[AgentRecord]) -> None:
        """Agents of the configuration: known from the start, offline until they come."""
        tx = Transaction()
        for record in records:
            if record.agent_id not in self.state.agents.rows:
                self.agents.declare(tx, record)
        if tx.changes:
            tx.details = {"agents": len(tx.changes)}
            self._journal.commit(tx, DAEMON, "agents.declare")

    def gc(self, tx: Transaction, *, dry_run: bool) -> list[GcItem]:
        """What is past its retention; removed through `tx` unless it is only asked about."""
        stale_ids = self.tickets.lifetimes.forgettable_ids()
        agents = self.agents.long_gone()
        messages = self.tickets.lifetimes.long_undelivered()
        if not dry_run:
            for ticket in messages:
                self.tickets.drop(tx, ticket)
            for agent_id in agents:
                self.agents.drop(tx, agent_id)
            for key in stale_ids:
                self.tickets.forget_id(tx, key)
        week = "kept for 7 days"
        return [
            GcItem(what="messages nobody fetched", count=len(messages), why=week),
            GcItem(what="agents long offline", count=len(agents), why=week),
            GcItem(what="ids of expired tickets", count=len(stale_ids), why="remembered for 24 hours"),
        ]

    def store_presence(self) -> None:
        """Last signs of life: soft state, written now and then, without a ledger record."""
        tx = Transaction()
        for record in self.agents.unstored():
            tx.put(self.state.agents, record.agent_id, record)
        if tx.changes:
            self._journal.commit_quietly(tx)

    def stop(self, _tx: Transaction) -> Awaitable[str]:
        """Callers that wait are answered; their messages and tickets stay as they are."""
        count = self.waits.answer_all()
        done: Deferred[str] = Deferred()
        done.set_result(f"{count} waits answered" if count else "nobody was waiting")
        return done

    def end(self) -> None:
        self.agents.stop()
        self.waits.end()
        self.events.end()

    def sweep(self, _tx: Transaction) -> list[GcItem]:
        self.store_presence()
        self.state.drop_idle_inboxes()
        return []

    async def close(self) -> None:
        self.store_presence()

    def count(self) -> MailCount:
        return MailCount(
            agents=len(self.state.agents.rows),
            agents_online=self.agents.online_count(),
            tickets=len(self.state.tickets.rows),
            tickets_open=self.state.open_count,
        )
