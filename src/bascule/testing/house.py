"""The daemon without its doors: every gate, the broker and the ledger, in memory, under a clock of yours.

    with House() as house:
        house.register("Jerry")
        house.call("local", "messages.send", {"agentId": "Jerry", "payload": "hello"})
        house.call("agent:Jerry", "inbox.take", {"agentId": "Jerry"})["messages"][0]["payload"]
        house.advance(60)

Params and answers are plain JSON values with the names of the wire; refusals are raised as the errors of
`bascule.foundation.errors`. A call that has nothing to answer yet raises `StillWaiting`; `begin` holds such a call
open. The house has an event loop of its own, so it is for tests that are not themselves coroutines.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol, Self, TypeVar

import msgspec

from bascule.admin import protocol as house_protocol
from bascule.bridge_list import BRIDGES
from bascule.broker.limits import BrokerLimits
from bascule.broker.service import Broker
from bascule.daemon.composition import Composition
from bascule.daemon.config import from_values
from bascule.daemon.ports import ANCHORS, STATE_DIR
from bascule.desktop.compose import compose
from bascule.desktop.ports import EvidenceReader, Launcher, Workspaces
from bascule.desktop.service import DesktopBridge
from bascule.foundation.deferred import Deferred, within
from bascule.foundation.stream import Stream
from bascule.kernel.bridge import Bridge, KernelServices, Ports
from bascule.kernel.call import DAEMON, PERSON, Call, ConsoleSession, Principal, agent_principal
from bascule.kernel.consent.limits import ConsentLimits
from bascule.kernel.consent.ports import Pictures
from bascule.kernel.identity.tokens import TokenBook
from bascule.kernel.journal import Transaction
from bascule.kernel.journal_ports import JournalStore, LogLine
from bascule.kernel.ledger import SEGMENT_RECORDS
from bascule.kernel.policy.engine import Policy
from bascule.kernel.policy.presets import DEFAULT_PRESET
from bascule.kernel.ports import REMOTE_MAIL, REMOTES
from bascule.kernel.rows import Bound, Shape
from bascule.mesh.declared import MeshDeclared
from bascule.mesh.settings import MeshSettings
from bascule.mesh.traffic import MeshTraffic
from bascule.stores.memory import MemoryStore
from bascule.stores.sqlite import SqliteStore
from bascule.testing.clock import FakeClock
from bascule.testing.fakes import (
    FakeConnection,
    FakeConnections,
    FakePolicyFile,
    FakeTokenFiles,
    MemoryAnchors,
    NoEvidence,
    NoQuota,
)
from bascule.testing.machine import (
    FakeCheckpointStore,
    FakeSandboxes,
    FakeScratch,
    Machine,
    NoGitStates,
    NothingOutside,
)
from bascule.testing.pending import OpenStream, Pending, StillWaiting, as_read
from bascule.testing.stores import StoreOfOneLife
from bascule.workspace.limits import WorkspaceLimits
from bascule.workspace.ports import Standing
from bascule.workspace.service import Workspace
from gabp import codec

__all__ = ["House", "OpenStream", "Pending", "StillWaiting", "agent"]

T = TypeVar("T")

# Real seconds for a real disk or scrypt; a test that needs more hangs.
PATIENCE_SECONDS = 10.0
# Turns of the loop after which every callback that a call scheduled has run, and theirs.
_TURNS = 4
_KEY = b"testing"


class Screen(Launcher, Workspaces, Protocol):
    """What the desktop bridge needs of a machine."""

    # Where pictures for the person go.
    pictures: Pictures | None

    def program_of(self, pid: int, /) -> str | None: ...


class House:
    """One life of the daemon at a time; `restart` begins the next one on the same store."""

    def __init__(
        self,
        *,
        clock: FakeClock | None = None,
        store: JournalStore | None = None,
        limits: BrokerLimits | None = None,
        policy: Policy | None = None,
        consent_limits: ConsentLimits | None = None,
        methods: tuple[Bound, ...] = (),
        machine: Machine | None = None,
        workspace_limits: WorkspaceLimits | None = None,
        screen: Screen | None = None,
        evidence: EvidenceReader | None = None,
        join: Callable[[MeshTraffic], None] | None = None,
        ledger_days: int = 90,
        segment_records: int = SEGMENT_RECORDS,
    ) -> None:
        self.clock = clock or FakeClock()
        self.store: JournalStore = store or MemoryStore()
        self.limits = limits or BrokerLimits()
        self._policy = policy
        self._consent_limits = consent_limits
        # More methods than the house has, or one in place of ours: what a bridge of one's own would do.
        self._methods = methods
        # Where spaces are: directories and commands as the test says.
        self.machine = machine or Machine()
        self._workspace_limits = workspace_limits
        # With one there is a desktop bridge, and its host is as the test says.
        self._screen = screen
        self._evidence = evidence or NoEvidence()
        # Called in each life with what passes messages between this house and others.
        self._join = join
        self.mesh: MeshTraffic | None = None
        self.desktop: DesktopBridge | None = None
        self.policy_file = FakePolicyFile()
        self.anchors = MemoryAnchors()
        self.files = FakeTokenFiles()
        # Every log line: its event and its fields.
        self.log: list[tuple[str, dict[str, Any]]] = []
        self._ledger_days = ledger_days
        self._segment_records = segment_records
        self._loop = asyncio.new_event_loop()
        self._start_life()

    # -- calling --

    def call(
        self,
        principal: str,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        connection: object | None = None,
        session: ConsoleSession | None = None,
    ) -> Any:
        """Carry out a call and answer as its client would read it."""
        pending = self.begin(principal, method, params, connection=connection, session=session)
        if not pending.done and self.gate.methods[method].row.shape is not Shape.WAIT:
            self._within(self._patiently(pending.later))
        return pending.result()

    def begin(
        self,
        principal: str,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        connection: object | None = None,
        session: ConsoleSession | None = None,
    ) -> Pending:
        """Start a call and hold it open; refusals are raised at once, as an edge would meet them."""
        if principal == PERSON and connection is None and session is None:
            # Nobody is the person anywhere else; the ledger names it in the record of an approval.
            connection = FakeConnection(self.clock)
        call = Call(
            Principal(principal),
            method,
            codec.encode(params or {}),
            door="testing",
            connection=connection,
            session=session,
        )
        return Pending(self, call, self.run(lambda: self.gate.call(call)))

    def register(self, agent_id: str, **params: Any) -> str:
        """Register a free handle as `local` would, and return its agentToken."""
        token = self.call("local", "agents.register", {"agentId": agent_id, **params})["agentToken"]
        assert isinstance(token, str)
        return token

    def connect(self, agent_id: str) -> FakeConnection:
        """A link connection says hello with the agent's token."""
        connection = FakeConnection(self.clock)
        self.connections.by_agent.setdefault(agent_id, []).append(connection)
        self.run(lambda: self.broker.agents.connected(agent_id))
        return connection

    def disconnect(self, agent_id: str, connection: FakeConnection) -> None:
        """It is lost."""
        members = self.connections.by_agent.get(agent_id, [])
        if connection in members:
            members.remove(connection)
        self.run(lambda: self.broker.agents.disconnected(agent_id))

    # -- time --

    def advance(self, seconds: float) -> None:
        """Let time pass; what becomes due on the way happens at its own moment."""
        self._within(self._advance(self.clock.monotonic() + seconds))

    def stall(self, seconds: float) -> None:
        """Let time pass while the loop is busy: whatever became due happens at once, at the end."""

        async def late() -> None:
            self.clock.advance(seconds)
            await self._tick_all()

        self._within(late())

    def restart(self, *, down_seconds: float = 0.0, clean: bool = True) -> None:
        """Stop, stay down, start again. Not clean is what kill -9 leaves: nothing is said or stored on the way."""
        if clean:
            self._stop()
        else:
            self._store_of_life.die()
            self._within(self.gate.close(0))
            self._within(self.workspace.tasks.close())
            self._close_desktop()
            self._close_mesh()
        self.clock.advance(down_seconds)
        self._start_life()

    # -- what a test looks at --

    def events(self) -> list[dict[str, Any]]:
        """The lifecycle events of this life, oldest first."""
        stream = self.call("local", "events.stream", {"after": 0})
        assert isinstance(stream, OpenStream)
        items = stream.items()
        stream.close()
        return items

    def ledger(self) -> list[dict[str, Any]]:
        """The newest ledger records (up to a page), oldest first."""
        page: list[dict[str, Any]] = self.call("local", "ledger.tail", {"limit": house_protocol.MAX_LEDGER_PAGE})
        return page

    def shown(self, answer: Any) -> Any:
        return OpenStream(self, answer) if isinstance(answer, Stream) else as_read(answer)

    def run(self, act: Callable[[], T]) -> T:
        """Do something on the house's loop and let what it scheduled happen."""

        async def inside() -> T:
            result = act()
            await self._settle()
            return result

        return self._within(inside())

    def at_once(self, *acts: Callable[[], Any]) -> list[Any]:
        """Do several things before the loop turns, as one busy moment of a daemon does."""
        return self.run(lambda: [act() for act in acts])

    def close(self) -> None:
        """End the loop and the store."""
        if not self._loop.is_closed():
            self._stop()
            self.store.close()
            self._within(self._loop.shutdown_default_executor())
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- inside --

    def _start_life(self) -> None:
        self.run(self._begin_life)
        self._within(self.life.open())

    def _stop(self) -> None:
        self.run(self.life.end)
        self._within(self.gate.close(0))
        self._within(self.life.close())

    def _close_desktop(self) -> None:
        if self.desktop is not None:
            self.run(self.desktop.end)
            self._within(self.desktop.close())

    def _close_mesh(self) -> None:
        bridge = self.life.bridges["mesh"]

        async def close() -> None:
            if bridge.close is not None:
                await bridge.close()

        self._within(close())

    def _begin_life(self) -> None:
        self.tokens = TokenBook()
        self.connections = FakeConnections()
        self._store_of_life: Any = StoreOfOneLife(self.store)
        faked: dict[str, Any] = {
            "broker": self._make_broker,
            "workspace": self._make_workspace,
            "desktop": self._make_desktop,
        }
        if self._join is not None:
            faked["mesh"] = self._make_mesh
        absent = {"game"} if self._screen is not None else {"game", "desktop"}
        life = self.life = Composition(
            [each for each in BRIDGES if each.name not in absent],
            from_values({"ledger_days": self._ledger_days}),
            make=faked,
            provided=[ANCHORS.provided_by(self.anchors), STATE_DIR.provided_by("/dev/null/nowhere")],
            store=self._store_of_life,
            clock=self.clock,
            log=self._log,
            key=_KEY,
            on_anchor=self.anchors.anchors.append,
            policy_file=self.policy_file,
            setting=DEFAULT_PRESET,
            policy=self._policy,
            quota=NoQuota(),
            observe=lambda _method, _outcome, _seconds: None,
            pictures=self._screen.pictures if self._screen is not None else None,
            consent_limits=self._consent_limits,
            segment_records=self._segment_records,
            methods=self._methods,
        )
        self.journal, self.desk, self.effects = life.journal, life.desk, life.effects
        self.gate, self.timers = life.gate, life.timers
        tx = Transaction()
        if self.desk.begin_life(tx):
            self.journal.commit(tx, DAEMON, "daemon.start")
        life.recover()

    def _make_broker(self, kernel: KernelServices, _ports: Ports) -> Bridge:
        self.broker = Broker(
            store=kernel.store,
            journal=kernel.journal,
            clock=kernel.clock,
            timers=kernel.timers,
            limits=self.limits,
            tokens=self.tokens,
            files=self.files,
            connections=self.connections,
            log=kernel.log,
            event_ring=kernel.events,
            key=kernel.key,
            on_revoked=kernel.forget_agent,
        )
        return self.broker.bridge()

    def _make_mesh(self, kernel: KernelServices, ports: Ports) -> Bridge:
        """Messages between machines alone: who is a member is the test's to say."""
        self.mesh = mesh = MeshTraffic(
            kernel=kernel, mail=ports.need(REMOTE_MAIL), remotes=ports.need(REMOTES), settings=MeshSettings()
        )
        assert self._join is not None
        self._join(mesh)
        played = mesh.methods()
        names = {each.row.name for each in played}
        others = [Bound(row, _not_played) for row in MeshDeclared.rows if row.name not in names]
        return Bridge(declared=MeshDeclared(), service=mesh, methods=[*played, *others], sweep=mesh.sweep)

    def _make_workspace(self, kernel: KernelServices, _ports: Ports) -> Bridge:
        self.workspace = Workspace(
            store=kernel.store,
            journal=kernel.journal,
            clock=kernel.clock,
            gate=kernel.gate,
            files=self.machine,
            sandboxes=FakeSandboxes(self.machine),
            checkpoints=FakeCheckpointStore(self.machine),
            scratch=FakeScratch(self.machine),
            git=NoGitStates(),
            outside=NothingOutside(),
            # Calls of a House come from no process.
            standing_of=lambda pid: Standing(frozenset([pid]), is_below_client=False),
            log=kernel.log,
            key=kernel.key,
            events=kernel.events,
            limits=self._workspace_limits,
            sandbox=self.machine.sandbox,
        )
        return self.workspace.bridge()

    def _make_desktop(self, kernel: KernelServices, _ports: Ports) -> Bridge:
        assert self._screen is not None
        self.desktop = compose(kernel, self._screen, self._screen, self._screen.program_of, self._evidence)
        return self.desktop.bridge()

    @property
    def policy(self) -> Policy:
        """The one in force."""
        return self.gate.policy

    def _within(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(coroutine)

    async def _advance(self, until: float) -> None:
        while (due := self.timers.next()) is not None and due <= until:
            self.clock.move_to(max(due, self.clock.monotonic()))
            await self._tick_all()
        self.clock.move_to(until)

    async def _tick_all(self) -> None:
        now = self.clock.monotonic()
        while (due := self.timers.next()) is not None and due <= now:
            self.timers.tick(now)
            await self._settle()

    async def _settle(self) -> None:
        if isinstance(self.store, SqliteStore):
            # A thread writes, and time that stands still for the house passes for a disk.
            durable = self.journal.durable()
            if durable is not None:
                await self._patiently(durable)
        for _ in range(_TURNS):
            await asyncio.sleep(0)

    @staticmethod
    async def _patiently(later: Deferred[Any] | None) -> None:
        if later is not None:
            await within(PATIENCE_SECONDS, later)

    def _log(self, event: str | LogLine, /, *, level: str = "info", **fields: Any) -> None:
        if isinstance(event, LogLine):
            fields = msgspec.to_builtins(event)
        name = fields.pop("event") if isinstance(event, LogLine) else event
        self.log.append((name, {"level": level, **fields}))


def _not_played(*_: object) -> None:
    raise NotImplementedError("a house does not play how machines join")


def agent(agent_id: str) -> Principal:
    """`agent("Jerry")` is the principal that Jerry's token proves."""
    return agent_principal(agent_id)
