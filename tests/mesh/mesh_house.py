"""A house whose machine is a fake: a hub that notes who may log in, and a post that notes what is put."""

import asyncio
from collections.abc import Callable
from typing import Any

from joining_scene import Joiner

from bascule.foundation.deferred import Deferred
from bascule.kernel.bridge import Bridge, KernelServices, Ports
from bascule.kernel.ports import REMOTE_MAIL, REMOTES
from bascule.mesh.connection import Connection
from bascule.mesh.knock import KnockAnswer, read_answer
from bascule.mesh.machine_ports import JoinLogin, NotReached, OnJoin, OnWiped
from bascule.mesh.ports import Board, Fault, Hub, PostState, Reader
from bascule.mesh.records import Membership
from bascule.mesh.service import Mesh
from bascule.mesh.settings import MeshSettings
from bascule.testing.house import House
from patience import PATIENCE


class FakeHub:
    def __init__(self, machine: "FakeMachine") -> None:
        self.machine = machine
        self.addresses = ["192.0.2.7:4222", "desk:4222"]
        self.certificate = "c" * 64
        self.certificate_pem = "PEM"
        self.own_address = "127.0.0.1:4222"
        self.closed = False
        self.started = False

    async def start(self) -> None:
        self.machine.fail_where("start")
        self.started = True

    async def admit(self, node: str, bus_key: str) -> None:
        assert self.started, "as the real one has it"
        self.machine.fail_where("admit")
        self.machine.admitted[node] = bus_key

    async def expel(self, node: str) -> None:
        self.machine.admitted.pop(node, None)

    async def invite(self, bus_key: str, seconds: float) -> None:
        self.machine.invited[bus_key] = seconds

    async def withdraw(self, bus_key: str) -> None:
        self.machine.invited.pop(bus_key, None)

    async def close(self) -> None:
        self.closed = True


class FakePost:
    def __init__(self, machine: "FakeMachine") -> None:
        self.machine = machine
        self.state = PostState(open=True, server="tls://127.0.0.1:4222", version="2.15.1", skew_ms=0)
        self.max_bytes = 1_000_000
        self.values: dict[tuple[Board, str], bytes] = {}
        self.reader: Reader | None = None
        self.handler: OnJoin | None = None

    def on_join(self, handler: OnJoin) -> None:
        self.handler = handler

    def on_wiped(self, handler: OnWiped) -> None:
        """Nothing is wiped here: tests/mesh_live does that to real servers."""

    async def open(self, reader: Reader) -> None:
        self.reader = reader

    def send(self, dest: str, data: bytes) -> bool:
        return False

    def mail(self, dest: str, data: bytes) -> Deferred[None]:
        taken: Deferred[None] = Deferred()
        taken.set_result(None)
        return taken

    def put(self, board: Board, key: str, value: bytes) -> None:
        self.values[board, key] = value

    async def close(self) -> None:
        self.state = PostState(open=False)


class FakeMachine:
    def __init__(self) -> None:
        # What outlives a daemon, as the server's own file does.
        self.admitted: dict[str, str] = {}
        self.invited: dict[str, float] = {}
        self.removed = 0
        self.absent: str | None = None
        self.faults: dict[str, NotReached] = {}
        self.host = "Desk.example.org"
        self.post: FakePost | None = None
        self.hub: FakeHub | None = None
        # How a question to join is answered: the other side, or None for nobody.
        self.answers: list[bytes] = []

    def fail_where(self, place: str) -> None:
        if place in self.faults:
            raise self.faults[place]

    def missing(self, *, hub: bool) -> str | None:
        return self.absent

    def names(self) -> tuple[str, str]:
        return self.host, "ann"

    def make_hub(self, own: Membership) -> FakeHub:
        self.hub = FakeHub(self)
        return self.hub

    async def remove_hub(self, own: Membership) -> None:
        self.removed += 1

    def make_post(self, own: Membership) -> Any:
        self.post = FakePost(self)
        return self.post

    async def set_up(self, own: Membership, hub: Hub | None) -> None:
        self.fail_where("set_up")

    async def fetch_certificate(self, host: str, port: int) -> tuple[str, str]:
        self.fail_where("fetch")
        return "PEM", "c" * 64

    async def ask_to_join(self, login: JoinLogin, node: str, data: bytes, seconds: float) -> bytes:
        if not self.answers:
            raise NotReached(Fault.UNREACHABLE, "nobody answers")
        return self.answers.pop(0)

    def creds_problem(self, path: str) -> str | None:
        return None


class MeshHouse(House):
    """`person` begins, invites and accepts; `knock` is another machine at the door."""

    def __init__(self, fake: FakeMachine | None = None, **settings: Any) -> None:
        self.fake = fake or FakeMachine()
        super().__init__(join=lambda _: None, **settings)

    def _make_mesh(self, kernel: KernelServices, ports: Ports) -> Bridge:
        self.parts = Mesh(
            kernel=kernel,
            mail=ports.need(REMOTE_MAIL),
            remotes=ports.need(REMOTES),
            settings=MeshSettings(),
            machine=self.fake,
        )
        return self.parts.bridge()

    def person(self, method: str, **params: Any) -> Any:
        answer = self.call("person", method, params)
        self.follow()
        return answer

    def new_mesh(self) -> str:
        code: str = self.person("mesh.new", mesh="home")["code"]
        return code

    def follow(self) -> None:
        """Until the machine is as the store says."""
        self._within(_followed(self.parts.members.connection))

    def until(self, condition: Callable[[], object]) -> None:
        """Let what runs in the background go on until this is true."""
        self._within(_until(condition))

    def knock(self, joiner: Joiner, *, reveal: bool = True) -> KnockAnswer:
        for last in (False, True) if reveal else (False,):
            data = self._within(self.parts.members.answer_knock("", joiner.bytes(reveal=last)))
            joiner.answer = read_answer(data)
        assert joiner.answer is not None
        return joiner.answer

    def posted(self, key: str, value: bytes | None) -> None:
        """Somebody has put this on the board of cards."""
        assert self.fake.post is not None
        reader = self.fake.post.reader
        assert reader is not None
        self.run(lambda: reader.posted(Board.CARDS, key, value, 0))

    def restart(self, **how: Any) -> None:
        if not how.get("clean", True):
            self._within(self.parts.members.close())
        super().restart(**how)
        self.follow()


async def _until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - knocking sets no event
            await asyncio.sleep(0.02)


async def _followed(connection: Connection) -> None:
    await connection.follow()
