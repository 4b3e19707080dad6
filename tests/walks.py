"""Seven requests followed through a real daemon, one of them on into a second daemon.

`python tests/walks.py` prints the files that each passes, in order.

The recording begins when the daemon has read nothing of the request yet, on a connection that is open already, and ends
when the client has the whole answer. Each request is made once before, so that nothing is loaded on the way.
"""

import contextlib
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / folder) for folder in ("daemon", "desktop_host", "console", "mesh")]

from desktop_rig import Desktop  # noqa: E402 - found by the path above
from lacking_desktop import missing_here  # noqa: E402 - found by the path above
from live_nodes import LiveNode  # noqa: E402 - found by the path above
from living import Living, eventually, short_dir  # noqa: E402 - found by the path above
from pages import Page, signed  # noqa: E402 - found by the path above
from wires import Answer, Caller, LinkWire, Wire  # noqa: E402 - found by the path above

from patience import PATIENCE  # noqa: E402 - after the path, like its neighbours
from soft_key import SoftKey  # noqa: E402 - after the path, like its neighbours
from walk_tracer import Control, Hop, program  # noqa: E402 - after the path, like its neighbours

CHECKOUT = str(Path(__file__).resolve().parent.parent)
PASSPHRASE = {"passphrase": "correct horse battery staple"}
# The session of whoever runs this is not the one that is clicked in.
SESSION = ("DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR")
PLACES = """
import os
os.environ["BASCULE_CONFIG_DIR"] = {config!r}
os.environ["HOME"] = {home!r}
for name in {session!r}:
    os.environ.pop(name, None)
"""
MOD = """
from bascule_mod import Mod
mod = Mod("arena")

@mod.tool
def greet(name: str = "you") -> str:
    "Say hello."
    return "hello " + name

mod.serve()
"""


class Walk(NamedTuple):
    name: str
    hops: list[Hop]
    # The section about the way to the gate.
    door: str = "door"
    # Through how many daemons it goes, each with a gate of its own.
    daemons: int = 1

    @property
    def files(self) -> list[str]:
        """In the order in which they are first entered."""
        return list(dict.fromkeys(hop.file for hop in self.hops))

    @property
    def between_files(self) -> int:
        """How often a reader who follows it turns to another file: each pair of functions once."""
        return sum(hop.is_between_files for hop in self.hops)

    def __str__(self) -> str:
        counts = f"{self.name}: {len(self.files)} files, {self.between_files} hops between files"
        lines = [counts]
        for file in self.files:
            functions = dict.fromkeys(hop.function for hop in self.hops if hop.file == file and hop.is_between_files)
            lines.append(f"  {file}: {', '.join(functions)}")
        return "\n".join(lines)


class Rig:
    """One daemon with a game; `walk` follows a request through it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "config").mkdir()
        (folder / "work").mkdir()
        (folder / "mod.py").write_text(MOD)
        game = (
            f"[games.arena]\ncommand = {sys.executable!r}\nargs = [{str(folder / 'mod.py')!r}]\ntransport = 'stdio'\n"
        )
        (folder / "config" / "games.toml").write_text(game)
        control = str(folder / "control")
        places = PLACES.format(config=str(folder / "config"), home=str(folder), session=SESSION)
        self.daemon = Living(
            str(folder / "s"),
            bug=places + program(CHECKOUT, control),
            constants={"bascule.kernel.identity.passphrase.SCRYPT_LOG_N": 4},
            desktop_root=str(folder),
            console_port=0,
            # Nobody here waits as long as a real client does.
            approval_hold_ms=100,
        )
        self.control = Control(control)
        self.person = LinkWire(self.daemon.link_socket, PATIENCE).hello()
        self.person.call("person.set", PASSPHRASE)
        self.person.call("person.unlock", PASSPHRASE)
        self.local = Caller(self.daemon)
        self.agent = self.local.register("Jerry")

    def close(self) -> None:
        self.person.close()
        self.daemon.stop()

    def ask(self, path: str, body: Any, caller: Caller | None = None) -> Answer:
        return self._ask(caller or self.agent, path, body)[0]

    def walk(
        self, name: str, path: str, body: Any, caller: "Caller | Page | None" = None, *, proof: str | None = None
    ) -> Walk:
        answer, at = self._ask(caller or self.agent, path, body, self.control.begin, proof=proof)
        hops = self.control.end(at)
        assert answer.status == 200, answer
        return Walk(name, hops, "console" if isinstance(caller, Page) else "door")

    def _ask(
        self,
        caller: "Caller | Page",
        path: str,
        body: Any,
        before: Callable[[], None] = lambda: None,
        *,
        proof: str | None = None,
    ) -> tuple[Answer, int]:
        if isinstance(caller, Page):
            address, first, looking = ("127.0.0.1", caller.port), "/v1/console/session", caller.headers("GET")
            headers = [*caller.headers("POST"), *([("Bascule-Proof", proof)] if proof is not None else [])]
        else:
            address, first, looking = self.daemon.tcp, "/healthz", caller.headers
            headers = [*caller.headers, ("Content-Type", "application/json")]
        with Wire(address, PATIENCE) as wire:
            # Answered: the connection is made, and nothing of it is left to do.
            assert wire.ask("GET", first, looking).status == 200
            before()
            answer = wire.ask("POST", path, headers, json.dumps(body).encode())
            return answer, time.monotonic_ns()


def send(rig: Rig) -> Walk:
    """A message to an agent that does not wait for one."""
    rig.ask("/agents/Jerry/send", {"payload": "first"})
    return rig.walk("send", "/agents/Jerry/send", {"payload": "hello"})


def shell(rig: Rig) -> Walk:
    """A run of one command that the policy allows, until it is over; its cell is there already."""
    if shutil.which("bwrap") is None:
        missing_here("bubblewrap is not installed")
    space = rig.local.post("/v1/spaces", {"path": str(rig.folder / "work")}).json["spaceId"]
    path = f"/v1/spaces/{space}/runs"
    message = {"protocolVersion": "1.0", "operations": [{"type": "shell", "command": "echo hello"}]}
    first = rig.ask(path, message, rig.local)
    assert first.json["status"] == "completed", first.json
    return rig.walk("shell", path, message, rig.local)


def click(rig: Rig, desktop: Desktop) -> Walk:
    """The second call of a click: a person has said yes to the first."""
    session = {name: desktop.environment[name] for name in SESSION if name in desktop.environment}
    rig.person.call("desktop.enable", {"environment": session})
    app = desktop.start("gtk3")
    button = {"selector": {"byRole": "AXButton", "titleContains": "Press me"}}
    params = {"route": {"app": {"pid": app.pid}}, "target": button}

    def approve() -> None:
        approval = rig.ask("/v1/desktop/click", params).error["details"]["approvalId"]
        rig.person.call("approvals.decide", {"approvalId": approval, "decision": "approved"})

    approve()
    assert rig.ask("/v1/desktop/click", params).status == 200
    approve()
    walk = rig.walk("click", "/v1/desktop/click", params)
    app.kill()
    return walk


def game(rig: Rig) -> Walk:
    """A tool of a running game that is not destructive."""
    assert rig.ask("/v1/games/arena/start", {}).status == 200
    params = {"tool": "arena/greet", "arguments": {"name": "Anna"}}
    rig.ask("/v1/games/arena/call", params)
    return rig.walk("game", "/v1/games/arena/call", params)


class SignedIn:
    """A page of the console that the person has signed in on with a passkey."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.key = SoftKey()
        self.page = Page(rig.daemon).pair()
        self.page.enrol(rig.person.call("passkeys.invite")["code"], self.key)
        assert self.page.sign_in(self.key).status == 200
        self._space = rig.local.post("/v1/spaces", {"path": str(rig.folder / "work")}).json["spaceId"]

    def question(self, command: str) -> tuple[str, dict[str, Any]]:
        """The id of a new question, and the challenge for a yes to it."""
        refused = self._rig.ask(f"/v1/spaces/{self._space}/processes", {"command": command})
        approval_id = refused.error["details"]["approvalId"]
        return approval_id, self.page.challenge("approvals.decide", {"approvalId": approval_id, **YES})


YES = {"decision": "approved"}


def touch(rig: Rig, person: SignedIn) -> Walk:
    """The answer of a passkey to a challenge for exactly one approval."""
    person.page.prove(person.question("rm -rf ./elm")[1], person.key)
    _, challenge = person.question("rm -rf ./fir")
    return rig.walk("touch", "/v1/person/prove", signed(challenge, person.key), person.page)


def decide(rig: Rig, person: SignedIn) -> Walk:
    """The approval itself, with the proof that the touch gave."""
    page, key = person.page, person.key
    approval_id, challenge = person.question("rm -rf ./oak")
    proof = page.prove(challenge, key)
    page.ok(f"/v1/approvals/{approval_id}/decision", YES, more={"Bascule-Proof": proof})
    approval_id, challenge = person.question("rm -rf ./ash")
    return rig.walk("decide", f"/v1/approvals/{approval_id}/decision", YES, page, proof=page.prove(challenge, key))


_TO_ANNA = "/agents/Anna@laptop/send"


class Laptop:
    """A second daemon, which the rig's has joined in a mesh; Anna is there."""

    def __init__(self, rig: Rig) -> None:
        control = str(rig.folder / "laptop-control")
        self._rig = rig
        self.node = LiveNode(str(rig.folder), "laptop", bug=program(CHECKOUT, control))
        self.control = Control(control)
        Caller(self.node.daemon).register("Anna")
        rig.person.call("mesh.join", {"code": self.node.begin(), "node": "desk"})
        self.node.accept("desk")
        self.node.await_reachable("desk")
        eventually(lambda: self._seen().get("reachable"), "the rig reaches the laptop")

    def await_receipts(self) -> None:
        eventually(lambda: not self._seen().get("outboxItems"), "nothing waits for the laptop")

    def _seen(self) -> dict[str, Any]:
        nodes = self._rig.person.call("mesh.status").get("nodes", [])
        return next((each for each in nodes if each["node"] == "laptop"), {})


def remote(rig: Rig, laptop: Laptop) -> Walk:
    """A message to an agent of another machine, until that machine's receipt has taken it out of the outbox here."""
    rig.ask(_TO_ANNA, {"payload": "first"})
    # Machines of a mesh also say that they are there, at any moment: the shortest walk is one without that.
    return min((_remote_once(rig, laptop) for _ in range(3)), key=lambda walk: len(walk.hops))


def _remote_once(rig: Rig, laptop: Laptop) -> Walk:
    laptop.await_receipts()
    controls = (rig.control, laptop.control)
    answer, _ = rig._ask(rig.agent, _TO_ANNA, {"payload": "hello"}, lambda: [each.begin() for each in controls])
    assert answer.status == 200, answer
    eventually(lambda: rig.control.has_passed("Outbox.remove"), "the receipt is taken")
    now = time.monotonic_ns()
    # Of one machine, so of one monotonic clock.
    return Walk("remote", sorted(hop for each in controls for hop in each.end(now)), daemons=2)


@contextlib.contextmanager
def opened_laptop(rig: Rig) -> Iterator[Laptop]:
    laptop = Laptop(rig)
    try:
        yield laptop
        # Nothing of the mesh is in the walks that follow.
        rig.person.call("mesh.leave")
    finally:
        laptop.node.close()


@contextlib.contextmanager
def opened_rig() -> Iterator[Rig]:
    with short_dir() as folder:
        rig = Rig(Path(folder))
        try:
            yield rig
        finally:
            rig.close()


@contextlib.contextmanager
def opened_desktop() -> Iterator[Desktop]:
    desktop = Desktop()
    try:
        yield desktop
    finally:
        desktop.close()


if __name__ == "__main__":
    with opened_rig() as rig, opened_desktop() as desktop, opened_laptop(rig) as laptop:
        person = SignedIn(rig)
        for walk in (
            send(rig),
            remote(rig, laptop),
            shell(rig),
            click(rig, desktop),
            game(rig),
            touch(rig, person),
            decide(rig, person),
        ):
            sys.stdout.write(f"{walk}\n\n")
