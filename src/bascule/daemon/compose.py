"""Puts the house together: the only place that picks implementations."""

import asyncio
import os
from functools import partial
from typing import Literal

from bascule import __version__, places
from bascule.adapters.anchor_file import AnchorFile
from bascule.adapters.announce import Announcer
from bascule.adapters.picture_files import PictureFiles
from bascule.adapters.policy_file import PolicyFile
from bascule.adapters.token_files import StateTokenFiles
from bascule.approval.desk import Desk
from bascule.approval.effects import Effects, OnUnknown
from bascule.audit.begun import BegunBook
from bascule.audit.journal import Journal, Table, Transaction
from bascule.audit.ledger import Anchor
from bascule.audit.ports import JournalStore
from bascule.audit.refusals import Refusals
from bascule.bridges.broker import edge as broker_edge
from bascule.bridges.broker.records import AgentRecord
from bascule.bridges.broker.service import Broker
from bascule.bridges.desktop import edge as desktop_edge
from bascule.bridges.game import edge as game_edge
from bascule.bridges.house import edge as house_edge
from bascule.bridges.house.consent import Consent
from bascule.bridges.house.records import CLEAN_STOP_KEY, DIGEST_KEY_KEY, PERSON_KEY, HouseFact
from bascule.bridges.house.rulebook import Rulebook
from bascule.bridges.house.service import House
from bascule.bridges.workspace import edge as workspace_edge
from bascule.bridges.workspace.service import Workspace
from bascule.call import DAEMON, Principal
from bascule.clock import Clock, rfc3339
from bascule.daemon.compose_desktop import make_desktop
from bascule.daemon.compose_games import make_games
from bascule.daemon.compose_workspace import make_workspace
from bascule.daemon.config import Config, DeclaredAgent, declared_agents
from bascule.daemon.gauges import add_gauges
from bascule.daemon.link_door import LinkConnection, LinkConnections
from bascule.daemon.logs import DaemonLog
from bascule.daemon.metrics import Metrics
from bascule.daemon.opening import ledger_problem
from bascule.daemon.quota import CallQuota
from bascule.daemon.secret_files import read_or_make_secret
from bascule.daemon.space_doors import SPACE_METHODS, SpaceDoors
from bascule.dispatch import Dispatch
from bascule.errors import Internal, Overloaded, StorageFull
from bascule.identity.principals import WrongToken, identify
from bascule.identity.tokens import TokenBook, WrongTokenThrottle, hash_token
from bascule.ids import new_fault_id
from bascule.mcp.link_sessions import LinkSessions
from bascule.mcp.mount import Mount
from bascule.operations import Operations
from bascule.policy.engine import Policy
from bascule.protocols import approvals as approvals_protocol
from bascule.protocols import broker_methods as broker_protocol
from bascule.protocols import desktop_agents as desktop_protocol
from bascule.protocols import game_methods as game_protocol
from bascule.protocols import house as house_protocol
from bascule.protocols import workspace_methods as workspace_protocol
from bascule.protocols.house import StatusResult
from bascule.protocols.link import PROTOCOL_VERSION, McpRequest
from bascule.protocols.route import Route
from bascule.shim.tools import toolsets_in
from bascule.turns import CALLS_PER_TURN, Turns
from bascule.web.app import App, Form
from bascule.web.gate import Gate, SpaceGate, loopback_hosts
from bascule.web.openapi import document
from bascule.web.routes import RouteTable, ServedRoutes
from bascule.wire import jsonrpc

# Keys the digests in store and ledger, so that they say nothing without it.
_KEY_FILE = "digest.key"

PAGES: tuple[Route, ...] = (
    Route("GET", "/healthz", "page.healthz"),
    Route("GET", "/readyz", "page.readyz"),
    Route("GET", "/metrics", "page.metrics"),
    Route("GET", "/openapi.json", "page.openapi"),
)
MCP: tuple[Route, ...] = tuple(Route(verb, "/mcp", f"mcp.{verb.lower()}") for verb in ("POST", "GET", "DELETE"))
# What the broker spec's section 5 lets anybody on the machine do; with `--auth off` plain curl can.
PLAIN_METHODS = frozenset({"agents.register", "agents.heartbeat", "replies.post"})
_BRIDGES = (broker_edge, house_edge, workspace_edge, game_edge, desktop_edge)
ROUTES: tuple[Route, ...] = (*(route for bridge in _BRIDGES for route in bridge.ROUTES), *PAGES, *MCP)
_PROTOCOLS = (
    *(broker_protocol, house_protocol, approvals_protocol),
    *(workspace_protocol, game_protocol, desktop_protocol),
)
ROWS = tuple(row for protocol in _PROTOCOLS for row in protocol.METHODS)
# What rules can speak of: the methods, and the operations inside runs, to which no door leads.
RULED = (*ROWS, *workspace_protocol.OPERATIONS)


class Daemon:
    """Everything that lives between start and stop, made in order, on a running event loop."""

    def __init__(
        self,
        config: Config,
        state_dir: str,
        clock: Clock,
        log: DaemonLog,
        store: JournalStore,
        *,
        config_dir: str | None = None,
    ) -> None:
        config_dir = config_dir or places.config_dir()
        self.config = config
        self.state_dir = state_dir
        self.clock = clock
        self.log = log
        self.store = store
        self.ready = False
        self._closing = False
        self.doors: dict[str, str] = {}
        self._started = clock.monotonic()
        self._started_at = clock.wall_ms()
        self.local_token = read_or_make_secret(state_dir, os.path.basename(places.local_token_file(state_dir)))
        self._local_hash = hash_token(self.local_token)
        self.tokens = TokenBook()
        self.connections = LinkConnections()
        self.metrics = Metrics()
        self.turns = Turns(calls_per_turn=CALLS_PER_TURN)
        self.anchors = AnchorFile(places.anchors_file(state_dir))
        self.facts: Table[HouseFact] = Table("house", HouseFact)
        self.facts.rows.update(store.load("house", HouseFact))
        self.journal = Journal(store, clock, on_anchor=self._anchor)
        digest_key = read_or_make_secret(state_dir, _KEY_FILE)
        self.broker = Broker(
            store=store,
            journal=self.journal,
            clock=clock,
            limits=config.limits(),
            tokens=self.tokens,
            files=StateTokenFiles(state_dir, log),
            connections=self.connections,
            log=log,
            key=digest_key.encode(),
        )
        self.desk = Desk(
            store=store,
            journal=self.journal,
            clock=clock,
            timers=self.broker.state.deadlines,
            has_person=lambda: PERSON_KEY in self.facts.rows,
            log=log,
            key=digest_key.encode(),
            limits=config.approval_limits(),
            pictures=PictureFiles(places.pictures_dir(state_dir)),
        )
        self.effects = Effects(journal=self.journal, clock=clock, desk=self.desk, begun=BegunBook(store))
        rulebook = Rulebook(
            facts=self.facts,
            file=PolicyFile(config_dir),
            setting=config.policy,
            rows=RULED,
            clock=clock,
            log=log,
            desk=self.desk,
        )
        self.operations = Operations(
            policy=lambda: self.dispatch.policy,
            journal=self.journal,
            desk=self.desk,
            effects=self.effects,
            rows=(*workspace_protocol.METHODS, *workspace_protocol.OPERATIONS),
        )
        self.workspace = self._make_workspace(config_dir, digest_key.encode())
        self.games = make_games(config_dir, store, clock, log, policy=lambda: self.dispatch.policy, desk=self.desk)
        self.desktop = make_desktop(
            *(config, state_dir, config_dir),
            store=store,
            journal=self.journal,
            clock=clock,
            log=log,
            desk=self.desk,
            policy=lambda: self.dispatch.policy,
        )
        self.broker.agents.on_revoked += [self.desk.end_agent, self.games.forget_agent, self.desktop.forget_agent]
        self._announcer = Announcer(log=log) if config.announce == "on" else None
        if self._announcer is not None:
            self.desk.on_news.append(self._announcer)
        # Bridges that want to know what may have happened when the last life ended.
        self._on_unknown: list[OnUnknown] = [self.workspace.on_unknown]
        self.journal.on_fault = self._note_fault
        self.journal.start()
        self.connections.presences = self.broker.agents
        self.house = House(
            store=store,
            journal=self.journal,
            facts=self.facts,
            clock=clock,
            anchors=self.anchors,
            collectors=[self.broker, self.desk],
            status=self._status,
            ledger_days=config.ledger_days,
            consent=Consent(self.desk),
            rulebook=rulebook,
        )
        self.broker.sweep_also += [self.house.sweep, partial(self.desk.gc, dry_run=False), self.workspace.sweep]
        self.refusals = Refusals(self.journal, clock, self.broker.state.deadlines)
        self.dispatch = Dispatch(
            policy=rulebook.policy,
            desk=self.desk,
            effects=self.effects,
            journal=self.journal,
            refusals=self.refusals,
            quota=CallQuota(
                clock, per_second=config.calls_per_second, burst=config.burst_calls, on_over=self.turns.over_quota
            ),
            parties=self.broker.parties,
            seen=self.broker.agents.seen,
            log=log,
            observe=self.metrics.observe,
            plain=PLAIN_METHODS if config.auth == "off" else frozenset(),
            starters=self.workspace.starters(),
        )
        self._mount()
        rulebook.on_change = self._change_policy
        self._link_requests = jsonrpc.Requests({row.name: row.params for row in ROWS} | {"mcp.request": McpRequest})
        self.link_sessions, self.mcp = LinkSessions(self.dispatch, log), self._make_mcp()
        self._link_throttle = WrongTokenThrottle()
        add_gauges(self)
        self._record_start(hash_token(digest_key))
        self.broker.declare([_declared(agent, self._started_at) for agent in declared_agents(config)])

    def _mount(self) -> None:
        mount = self.dispatch.mount
        mount(broker_protocol.METHODS, self.broker.handlers(), self.broker.abandon())
        mount(house_protocol.METHODS, self.house.handlers())
        mount(approvals_protocol.METHODS, self.house.consent_handlers())
        mount(workspace_protocol.METHODS, self.workspace.handlers(), draw=self.workspace.draw())
        mount(game_protocol.METHODS, self.games.handlers(), draw=self.games.draw())
        mount(desktop_protocol.METHODS, self.desktop.handlers(), draw=self.desktop.draw())

    def _make_mcp(self) -> Mount:
        return Mount(
            self.dispatch,
            self.log,
            on=self.config.mcp == "on",
            toolsets=toolsets_in(self.config.mcp_toolsets),
            trust=self.config.mcp_trust_label,
            on_left=self.broker.agents.left,
        )

    def _make_workspace(self, config_dir: str, key: bytes) -> Workspace:
        ours = places.workspace_dir(self.state_dir)
        places.make_private_dir(ours)
        residents = self.broker.residents
        self.space_doors = SpaceDoors(os.path.join(ours, "doors"), self.space_app, residents.is_out)
        return make_workspace(
            self.config,
            ours,
            (self.state_dir, config_dir),
            store=self.store,
            journal=self.journal,
            clock=self.clock,
            log=self.log,
            operations=self.operations,
            key=key,
            policy_digest=lambda: self.dispatch.policy.digest,
            doors=self.space_doors,
            on_closed=residents.move_out,
        )

    # -- doors --

    def link_connection(self) -> LinkConnection:
        return LinkConnection(
            self.dispatch,
            self._identify_link,
            self.connections,
            self.clock,
            log=self.log,
            requests=self._link_requests,
            turns=self.turns,
            mcp_sessions=self.link_sessions,
        )

    def web_app(self, door: Literal["unix", "tcp"], port: int = 0) -> App:
        gate = Gate(
            door,
            hosts=loopback_hosts(port),
            tokens=self.tokens,
            local_token_hash=self._local_hash,
            auth_on=self.config.auth == "on",
            clock=self.clock,
            on_wrong_token=self._note_wrong_token,
        )
        return App(
            gate,
            RouteTable(ROUTES),
            self.dispatch,
            self.turns,
            door=door,
            pages={
                "page.healthz": lambda: (200, b"text/plain", b"ok\n"),
                "page.readyz": self._readyz,
                "page.metrics": lambda: (200, b"text/plain; version=0.0.4", self.metrics.text().encode()),
                "page.openapi": lambda: (200, b"application/json", document(ROWS, ROUTES)),
            },
            mounts=dict.fromkeys((route.method for route in MCP), self.mcp),
            on_status=self.metrics.request,
            on_fault=self._note_http_fault,
            forms={
                "runs.start": Form(workspace_edge.status_of, lambda error: self.workspace.runs.invalid(error.message))
            },
        )

    def space_app(self, space_id: str) -> App:
        """What a space's own socket leads to: messages, as the space's agent."""
        self.broker.residents.move_in(space_id, "space", {"space": self.workspace.spaces.record(space_id).name})
        return App(
            SpaceGate(space_id, self.broker.residents.is_welcome),
            ServedRoutes(ROUTES, SPACE_METHODS, "it is for messages only"),
            self.dispatch,
            self.turns,
            door="space",
            pages={},
            mounts={},
            on_status=self.metrics.request,
            on_fault=self._note_http_fault,
            closes_refused=True,
        )

    def _identify_link(self, token: str | None) -> Principal:
        try:
            return identify("link", None, self.tokens, self._local_hash, auth_on=True, token=token)
        except WrongToken as error:
            pause = self._link_throttle.failed(self.clock.monotonic())
            if pause is None:
                self._note_wrong_token("link")
                raise
            raise Overloaded("too many wrong tokens", hint=error.hint, retry_after=pause) from None

    def _readyz(self) -> tuple[int, bytes, bytes]:
        if not self.ready:
            return 503, b"text/plain", b"not ready\n"
        if self.journal.fault is not None:
            return 503, b"text/plain", f"cannot write: {self.journal.fault}\n".encode()
        return 200, b"text/plain", b"ready\n"

    # -- start and stop --

    async def open(self) -> None:
        """What needs more than being made; `close` is called by the same task."""
        await self.games.open()
        await self.desktop.open()
        await self.link_sessions.open()

    def stop_waits(self) -> None:
        """Everybody who waits gets an answer before the doors close."""
        self.ready = False
        self.link_sessions.stop()
        self.broker.end()
        self.desk.end()
        self.house.consent.end()
        self.workspace.end()
        self.games.end()
        self.desktop.end()
        if self._announcer is not None:
            self._announcer.stop()

    async def close(self) -> None:
        """All that was accepted is written, the end of the chain is anchored, the store is closed."""
        await self.link_sessions.close()
        await self.desktop.close()
        await self.games.close()
        await self.workspace.close()
        self.space_doors.close()
        self.broker.store_presence()
        self.refusals.flush()
        tx = Transaction()
        tx.put(self.facts, CLEAN_STOP_KEY, HouseFact("yes", self.clock.wall_ms()))
        seq = self.journal.commit(tx, DAEMON, "daemon.stop")
        durable = self.journal.settled(seq)
        if durable is not None:
            try:
                await durable
            except StorageFull as error:
                self.log("stop_not_recorded", level="error", error=error.message)
        self._closing = True
        anchor = self.journal.anchor("stop")
        self.log("stopped", ledger_records=anchor.seq, ledger_head=anchor.head)
        self.store.close()

    def _record_start(self, digest_key: str) -> None:
        """The next record names the end of the last life, so that cutting it off shows."""
        chain = self.journal.chain
        self._ledger_problem = ledger_problem(self.store, self.anchors, self.log)
        tx = Transaction()
        tx.subject = f"pid {os.getpid()}"
        tx.details = {
            "version": __version__,
            "records": chain.seq,
            "head": chain.head.hex(),
            "clean": CLEAN_STOP_KEY in self.facts.rows or chain.seq == 0,
            "durability": self.store.durability,
            "policy": self.dispatch.policy.name,
            "policy_digest": self.dispatch.policy.digest,
        }
        self.log("started", version=__version__, ledger_records=chain.seq, ledger_head=chain.head.hex())
        known = self.facts.rows.get(DIGEST_KEY_KEY)
        if known is not None and known.text != digest_key:
            # Digests of before can no longer be compared with: a retry of an older message is a conflict now.
            tx.details["digest_key"] = "changed"
            self.log("digest_key_changed", level="error", file=_KEY_FILE)
        if known is None or known.text != digest_key:
            tx.put(self.facts, DIGEST_KEY_KEY, HouseFact(digest_key, self._started_at))
        # From now on a stop is unclean until `close` says otherwise.
        tx.put(self.facts, CLEAN_STOP_KEY, None)
        if self._ledger_problem is not None:
            tx.details["ledger_problem"] = self._ledger_problem
        if dead := self.desk.begin_life(tx):
            tx.details["grants_ended"] = dead
        self.journal.commit(tx, DAEMON, "daemon.start")
        for row in self.effects.recover(self._on_unknown):
            self.log("unknown", level="warning", method=row.method, principal=row.principal, subject=row.subject)
        self.workspace.recover()
        self.house.rulebook.look_at_file()
        self.journal.anchor("start")

    def _change_policy(self, policy: Policy) -> None:
        self.dispatch.policy = policy

    def _anchor(self, anchor: Anchor) -> None:
        if self._closing:
            # The last one: it must be there before the process is gone.
            self._write_anchor(anchor)
        else:
            # Off the loop: an anchor is an fsync of its own, and nobody waits for it.
            asyncio.get_running_loop().run_in_executor(None, self._write_anchor, anchor)

    def _write_anchor(self, anchor: Anchor) -> None:
        if self.store.durability == "memory":
            return
        try:
            self.anchors.append(anchor)
        except OSError as error:
            self.log("anchor", level="error", error=error)
            return
        self.log("anchor", records=anchor.seq, head=anchor.head, why=anchor.why)

    # -- what others see --

    def _status(self, principal: Principal) -> StatusResult:
        state = self.broker.state
        return StatusResult(
            version=__version__,
            protocol=PROTOCOL_VERSION,
            pid=os.getpid(),
            started_at=rfc3339(self._started_at),
            uptime_s=round(self.clock.monotonic() - self._started, 3),
            state_dir=self.state_dir,
            doors=self.doors,
            durability=self.store.durability,
            policy=self.dispatch.policy.name,
            auth=self.config.auth,
            person=self.house.person.is_set,
            agents_online=self.broker.agents.online_count(),
            agents=len(state.agents.rows),
            tickets_open=state.open_count,
            tickets=len(state.tickets.rows),
            ledger_records=self.journal.chain.seq,
            ledger_head=self.journal.chain.head.hex(),
            ledger_problem=self._ledger_problem,
            principal=principal,
        )

    def _note_fault(self, fault: str | None) -> None:
        if fault is None:
            self.log("store_recovered", level="warning")
        else:
            self.log("store_failed", level="error", error=fault)

    def _note_http_fault(self, error: Exception) -> Internal:
        fault = new_fault_id()
        self.log("fault", level="error", id=fault, error=error)
        return Internal(f"internal error {fault}", hint=f"`bascule logs` shows what happened: look for {fault}")

    def _note_wrong_token(self, door: str) -> None:
        self.log("wrong_token", level="warning", door=door)


def _declared(agent: DeclaredAgent, now: int) -> AgentRecord:
    metadata = dict(agent.metadata)
    if agent.pane is not None:
        metadata.setdefault("paneId", agent.pane)
    return AgentRecord(agent_id=agent.agent_id, type=agent.type, metadata=metadata, seen_at=now)
