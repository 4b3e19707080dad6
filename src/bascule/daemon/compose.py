"""Puts the house together: the only place that picks implementations."""

import asyncio
import contextlib
import os
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Literal

from bascule import __version__
from bascule.admin.denying import deny_by_notification
from bascule.admin.machine.announce import Announcer
from bascule.admin.machine.policy_file import PolicyFile
from bascule.admin.protocol import DAEMON_DOCTOR, LEDGER_VERIFY
from bascule.admin.records import CLEAN_STOP_KEY, DIGEST_KEY_KEY, HALT_KEY, DaemonFact
from bascule.bridge_list import BRIDGES, methods_of
from bascule.daemon.composition import Composition
from bascule.daemon.config import DaemonSettings
from bascule.daemon.logs import DaemonLog
from bascule.daemon.metrics import Metrics
from bascule.daemon.opening import ledger_problem
from bascule.daemon.outside_door import OUTSIDE_DOOR, OutsideDoors
from bascule.daemon.ports import ANCHORS, CONFIG_DIR, CONNECTIONS, CONSOLE_IS_OPEN, SIDE_APP, STATE_DIR, TOKENS
from bascule.daemon.quota import CallQuota
from bascule.daemon.sampling import Sampler
from bascule.daemon.secret_files import read_or_make_secret
from bascule.daemon.stop_door import HaltNote
from bascule.foundation import paths
from bascule.foundation.clock import Clock
from bascule.foundation.errors import Overloaded, StorageFull
from bascule.kernel.call import DAEMON, Principal
from bascule.kernel.declared import Declared
from bascule.kernel.event_ring import Fact, Kind
from bascule.kernel.faults import internal, log_fault
from bascule.kernel.identity.principals import WrongToken, identify
from bascule.kernel.identity.tokens import TokenBook, WrongTokenThrottle, hash_token
from bascule.kernel.journal import Transaction
from bascule.kernel.journal_ports import JournalStore
from bascule.kernel.ledger import Anchor
from bascule.kernel.link_protocol import McpRequest
from bascule.kernel.policy.engine import Policy
from bascule.kernel.ports import COUNT_MAIL, ON_QUESTION, PRESENCES
from bascule.kernel.route import Route
from bascule.kernel.rows import Shape
from bascule.kernel.settings import Config
from bascule.stores.anchor_file import AnchorFile
from bascule.stores.picture_files import PictureFiles
from bascule.surfaces.console.admission import ConsoleAdmission
from bascule.surfaces.console.app import ConsoleApp
from bascule.surfaces.console.static import StaticFiles
from bascule.surfaces.fair_share import CALLS_PER_TURN, FairShare
from bascule.surfaces.http.admission import Admission, OutsideAdmission, SpaceAdmission, loopback_hosts
from bascule.surfaces.http.app import App
from bascule.surfaces.http.endpoints import Form
from bascule.surfaces.http.endpoints import Mount as Application
from bascule.surfaces.http.routes import RouteTable, ServedRoutes
from bascule.surfaces.link import LinkConnection, LinkConnections
from bascule.surfaces.mcp.link_sessions import LinkSessions
from bascule.surfaces.mcp.mount import Mount
from bascule.surfaces.mcp.tools import chosen, hooks_of, toolsets_of
from bascule.surfaces.openapi import document
from bascule.wire import jsonrpc
from gabp import codec

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

# They look at the whole machine, or at every record.
_EXAMINE = frozenset({DAEMON_DOCTOR.name, LEDGER_VERIFY.name})


def routes_of(bridges: Iterable[Declared] = BRIDGES) -> tuple[Route, ...]:
    """Everything that HTTP serves."""
    return (*(route for bridge in bridges for route in bridge.routes), *PAGES, *MCP)


class Daemon(Composition):
    """Everything that lives between start and stop: the bridges, and the doors to them."""

    def __init__(
        self,
        config: Config,
        state_dir: str,
        clock: Clock,
        log: DaemonLog,
        store: JournalStore,
        *,
        config_dir: str | None = None,
        bridges: Sequence[Declared] = BRIDGES,
    ) -> None:
        config_dir = config_dir or paths.config_dir()
        settings = self.settings = config.of(DaemonSettings)
        self.log: DaemonLog = log
        self.ready = False
        self._closing = False
        self.local_token = read_or_make_secret(state_dir, os.path.basename(paths.local_token_file(state_dir)))
        self._local_hash = hash_token(self.local_token)
        self.tokens = TokenBook()
        self.connections = LinkConnections()
        self.metrics = Metrics()
        self.turns = FairShare(calls_per_turn=CALLS_PER_TURN, on_fault=partial(log_fault, log))
        self.anchors = AnchorFile(paths.anchors_file(state_dir))
        digest_key = read_or_make_secret(state_dir, _KEY_FILE)
        super().__init__(
            bridges,
            config,
            store=store,
            clock=clock,
            log=log,
            key=digest_key.encode(),
            on_anchor=self._anchor,
            policy_file=PolicyFile(config_dir),
            consent_limits=settings.approval_limits(),
            setting=settings.policy,
            state_dir=state_dir,
            auth=settings.auth,
            quota=CallQuota(
                clock, per_second=settings.calls_per_second, burst=settings.burst_calls, on_over=self.turns.over_quota
            ),
            observe=self.metrics.observe,
            pictures=PictureFiles(paths.pictures_dir(state_dir)),
            provided=[
                STATE_DIR.provided_by(state_dir),
                CONFIG_DIR.provided_by(config_dir),
                TOKENS.provided_by(self.tokens),
                CONNECTIONS.provided_by(self.connections),
                ANCHORS.provided_by(self.anchors),
                SIDE_APP.provided_by(self._side_app),
                OUTSIDE_DOOR.provided_by(
                    OutsideDoors(
                        self._outside_app,
                        clock,
                        log,
                        on_open=lambda at: self.doors.update(a2a=at),
                        on_wrong_token=partial(self._note_wrong_token, "a2a"),
                    )
                ),
                CONSOLE_IS_OPEN.provided_by(self.console_is_open),
            ],
        )
        self.halt_note = HaltNote(paths.halt_file(state_dir))
        self.on_resumed.append(self.halt_note.drop)
        presences = self.connections.presences = self.ports.need(PRESENCES)
        self._announcer = self._make_announcer() if settings.announce == "on" else None
        self.journal.on_fault = self._note_fault
        self.rows = methods_of(bridges)
        self.routes = routes_of(bridges)
        self._link_requests = jsonrpc.Requests(
            {row.name: row.params for row in self.rows} | {"mcp.request": McpRequest}
        )
        toolsets = toolsets_of(bridges)
        self.link_sessions = LinkSessions(
            self.gate,
            log,
            toolsets,
            hooks=hooks_of(bridges),
            console=self.console_address,
            console_is_open=self.console_is_open,
        )
        self.mcp = Mount(
            self.gate,
            log,
            on=settings.mcp == "on",
            tools=chosen(toolsets, settings.mcp_toolsets),
            trust=settings.mcp_trust_label,
            on_left=presences.left,
            console=self.console_address,
            console_is_open=self.console_is_open,
            tasks=self.link_sessions.mcp_tasks,
        )
        self._link_throttle = WrongTokenThrottle()
        for gauge in (gauge for bridge in self.bridges.values() for gauge in bridge.gauges):
            self.metrics.gauge(*gauge)
        self.metrics.gauge("bascule_link_connections", "Link connections.", lambda: len(self.connections.all))
        self.metrics.gauge("bascule_store_bytes", "Size of the database on disk.", store.size_bytes)
        self.metrics.gauge("bascule_store_fault", "1 while the store cannot be written.", self._has_fault)
        self.metrics.waiting = frozenset(filter(self._waits, self.gate.methods))
        self.sampler = Sampler(
            self.metrics,
            self.history,
            store=store,
            mail=self.ports.need(COUNT_MAIL),
            approvals_pending=lambda: len(self.desk.pending()),
        )
        self._record_start(hash_token(digest_key))

    def _waits(self, name: str) -> bool:
        """Whether the time of this method is that of what it waits for: a message, a person, a command, a game."""
        method = self.gate.methods[name]
        return method.row.shape is not Shape.REPLY or not method.inside or name in _EXAMINE

    def _make_announcer(self) -> Announcer:
        deny = partial(deny_by_notification, self.desk, self.journal)
        announcer = Announcer(log=self.log, console=self.console_address, deny=deny)
        self.desk.on_news.append(announcer)
        self.ports.need(ON_QUESTION).append(announcer.asked)
        return announcer

    def _change_policy(self, policy: Policy) -> None:
        super()._change_policy(policy)
        self.mcp.policy_changed()

    def _forget_agent(self, agent_id: str) -> None:
        super()._forget_agent(agent_id)
        self.link_sessions.mcp_tasks.end_agent(agent_id)

    def console_is_open(self) -> bool:
        """Whether somebody has a session there."""
        return bool(self.sessions.all())

    def console_address(self) -> str | None:
        """Where the person's console is, if this daemon serves one."""
        return self.doors.get("console")

    # -- doors --

    def link_connection(self) -> LinkConnection:
        return LinkConnection(
            self.gate,
            self._identify_link,
            self.connections,
            self.clock,
            log=self.log,
            requests=self._link_requests,
            turns=self.turns,
            mcp_sessions=self.link_sessions,
        )

    def web_app(self, door: Literal["unix", "tcp"], port: int = 0) -> App:
        admission = Admission(
            door,
            hosts=loopback_hosts(port),
            tokens=self.tokens,
            local_token_hash=self._local_hash,
            auth_on=self.settings.auth == "on",
            clock=self.clock,
            on_wrong_token=self._note_wrong_token,
        )
        return App(
            admission,
            RouteTable(self.routes),
            self.gate,
            self.turns,
            door=door,
            pages={
                "page.healthz": lambda: (200, b"text/plain", b"ok\n"),
                "page.readyz": self._readyz,
                "page.metrics": lambda: (200, b"text/plain; version=0.0.4", self.metrics.text().encode()),
                "page.openapi": lambda: (200, b"application/json", document(self.rows, self.routes)),
            },
            mounts=dict.fromkeys((route.method for route in MCP), self.mcp),
            on_status=self.metrics.request,
            on_fault=partial(internal, self.log),
            as_owner=PLAIN_METHODS if self.settings.auth == "off" and door == "tcp" else frozenset(),
            forms=self._forms(),
        )

    def console_app(self) -> ConsoleApp:
        admission = ConsoleAdmission(
            self.sessions,
            origins=self.sessions.origins,
            clock=self.clock,
            on_wrong_token=lambda: self._note_wrong_token("console"),
        )
        return ConsoleApp(
            admission,
            tuple(route for row in self.rows for route in row.routes),
            self.gate,
            self.turns,
            files=StaticFiles(),
            on_status=self.metrics.request,
            on_fault=partial(internal, self.log),
            forms=self._forms(),
        )

    def _forms(self) -> dict[str, Form]:
        return {name: Form(*form) for each in self.bridges.values() for name, form in each.http_forms.items()}

    def _side_app(self, admission: SpaceAdmission, served: frozenset[str], what: str) -> App:
        return App(
            admission,
            ServedRoutes(self.routes, served, what),
            self.gate,
            self.turns,
            door="space",
            pages={},
            mounts={},
            on_status=self.metrics.request,
            on_fault=partial(internal, self.log),
            closes_refused=True,
        )

    def _outside_app(self, admission: OutsideAdmission, table: RouteTable, mounts: dict[str, Application]) -> App:
        return App(
            admission,
            table,
            self.gate,
            self.turns,
            door="a2a",
            pages={},
            mounts=mounts,
            on_status=self.metrics.request,
            on_fault=partial(internal, self.log),
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

    def stop_waits(self) -> None:
        """Every call that waits is answered before the doors close."""
        self.ready = False
        self.link_sessions.stop()
        self.end()
        if self._announcer is not None:
            self._announcer.stop()

    async def close(self) -> None:
        """All that was accepted is written, the end of the chain is anchored, the store is closed."""
        await self.link_sessions.close()
        await super().close()
        if self._announcer is not None:
            await self._announcer.close()
        self.refusals.flush()
        tx = Transaction()
        tx.put(self.facts, CLEAN_STOP_KEY, DaemonFact("yes", self.clock.wall_ms()))
        try:
            await self.journal.commit(tx, DAEMON, "daemon.stop")
        except StorageFull as error:
            self.log("stop_not_recorded", level="error", error=error.message)
        # What was committed in the turn in which that landed.
        if (rest := self.journal.durable()) is not None:
            with contextlib.suppress(StorageFull):
                await rest
        self._closing = True
        anchor = self.journal.anchor("stop")
        self.log("stopped", ledger_records=anchor.seq, ledger_head=anchor.head)
        self.store.close()

    def _record_start(self, digest_key: str) -> None:
        """The next record names the end of the last life, so that cutting it off shows."""
        chain = self.journal.chain
        self.ledger_problem = ledger_problem(self.store, self.anchors, self.log)
        tx = Transaction()
        tx.subject = f"pid {os.getpid()}"
        tx.details = {
            "version": __version__,
            "records": chain.seq,
            "head": chain.head.hex(),
            "clean": CLEAN_STOP_KEY in self.facts.rows or chain.seq == 0,
            "durability": self.store.durability,
            "policy": self.gate.policy.name,
            "policy_digest": self.gate.policy.digest,
        }
        self.log("started", version=__version__, ledger_records=chain.seq, ledger_head=chain.head.hex())
        known = self.facts.rows.get(DIGEST_KEY_KEY)
        if known is not None and known.text != digest_key:
            # Digests of before can no longer be compared with: a retry of an older message is a conflict now.
            tx.details["digest_key"] = "changed"
            self.log("digest_key_changed", level="error", file=_KEY_FILE)
        if known is None or known.text != digest_key:
            tx.put(self.facts, DIGEST_KEY_KEY, DaemonFact(digest_key, self.started_at))
        # From now on a stop is unclean until `close` says otherwise.
        tx.put(self.facts, CLEAN_STOP_KEY, None)
        if HALT_KEY not in self.facts.rows and (halt := self.halt_note.read()) is not None:
            # The last life was stopped while its loop was held up, and ended before it could store that.
            self.gate.halt = halt
            tx.put(self.facts, HALT_KEY, DaemonFact(codec.encode(halt).decode(), halt.at))
            tx.details["stopped_by"] = halt.by
        tx.after.append(self.halt_note.drop)
        if self.ledger_problem is not None:
            tx.details["ledger_problem"] = self.ledger_problem
        if dead := self.desk.begin_life(tx):
            tx.details["grants_ended"] = dead
        self.journal.commit(tx, DAEMON, "daemon.start")
        for row in self.recover():
            self.log("unknown", level="warning", method=row.method, principal=row.principal, subject=row.subject)
        self.rulebook.look_at_file()
        self.journal.anchor("start")

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

    def _has_fault(self) -> float:
        return float(self.journal.fault is not None)

    def _note_fault(self, fault: str | None) -> None:
        if fault is None:
            self.log("store_recovered", level="warning")
            self.events.publish(Fact(kind=Kind.DAEMON, event="store_recovered"))
        else:
            self.log("store_failed", level="error", error=fault)
            self.events.publish(Fact(kind=Kind.DAEMON, event="store_failed"))

    def _note_wrong_token(self, door: str) -> None:
        self.log("wrong_token", level="warning", door=door)
