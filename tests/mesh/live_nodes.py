"""Real daemons that join each other over a real hub on loopback, each with a person at its link."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from living import Living, eventually, short_dir
from wires import LinkWire

from inside import CHEAP_PASSPHRASE
from patience import PATIENCE
from ports import free_port

PASSPHRASE = "correct horse battery staple"
# Nothing of the user's own settings; a point to die at, where one is named.
_START = """
import os
os.environ["BASCULE_CONFIG_DIR"] = "/nonexistent"
if {failpoint!r}:
    from bascule.testing import failpoints
    failpoints.arm({failpoint!r})
"""


class Refused(Exception):
    """What the daemon answered in place of a result."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.data: dict[str, Any] = error.get("data") or {}


class LiveNode:
    """One daemon; it may be killed and started again in the same directory."""

    # More lines of the program that starts it.
    bug = ""

    def __init__(self, folder: str, name: str, *, failpoint: str = "", bug: str = "", **constants: Any) -> None:
        self.name = name
        self.bug = bug
        self.state = os.path.join(folder, name)
        self.constants = {key.replace("__", "."): value for key, value in constants.items()}
        self.is_new = True
        self.start(failpoint)

    def start(self, failpoint: str = "") -> None:
        self.daemon = Living(
            self.state,
            bug=_START.format(failpoint=failpoint) + self.bug,
            constants=CHEAP_PASSPHRASE | self.constants,
            log="off",
        )
        self.wire = LinkWire(self.daemon.link_socket).hello()
        if self.is_new:
            self.wire.call("person.set", {"passphrase": PASSPHRASE})
            self.is_new = False
        self.wire.call("person.unlock", {"passphrase": PASSPHRASE})

    def call(self, method: str, /, **params: Any) -> Any:
        """As the person."""
        answer = self.wire.answer(self.wire.request(method, params))
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["result"]

    def ask_and_die(self, method: str, /, **params: Any) -> None:
        """A call whose daemon dies on the way."""
        self.wire.request(method, params)
        self.daemon.process.wait(PATIENCE)
        self.wire.close()

    def kill(self) -> None:
        self.wire.close()
        self.daemon.kill()

    def stop(self) -> None:
        """As `bascule down` does: it says good-bye to the others."""
        self.wire.close()
        assert self.daemon.stop() == 0

    def restart(self, failpoint: str = "") -> None:
        self.kill()
        self.start(failpoint)

    def close(self) -> None:
        self.wire.close()
        if self.daemon.process.poll() is None:
            self.daemon.kill()

    # -- the mesh --

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.call("mesh.status")
        return status

    def begin(self) -> str:
        """A mesh `home` with a hub; the first code."""
        invited = self.call("mesh.new", mesh="home", node=self.name, listen=f"127.0.0.1:{free_port()}")
        code: str = invited["code"]
        return code

    def invite(self, **params: Any) -> str:
        code: str = self.call("mesh.invite", **params)["code"]
        return code

    def join(self, code: str, node: str | None = None) -> dict[str, Any]:
        status: dict[str, Any] = self.call("mesh.join", code=code, node=node or self.name)
        return status

    def asking(self, node: str) -> dict[str, Any]:
        """Once it asks here."""

        def look() -> dict[str, Any] | None:
            nodes = self.call("mesh.nodes").get("nodes", [])
            return next((each for each in nodes if each["node"] == node and each["standing"] == "waiting"), None)

        found: dict[str, Any] = eventually(look, f"{node} asks at {self.name}")
        return found

    def accept(self, node: str) -> Any:
        return self.call("mesh.accept", node=node, words=self.asking(node)["words"])

    def deny(self, node: str) -> Any:
        self.asking(node)
        return self.call("mesh.deny", node=node)

    def await_standing(self, standing: str) -> dict[str, Any]:
        found: dict[str, Any] = eventually(
            lambda: (status := self.status())["standing"] == standing and status, f"{self.name} is {standing}"
        )
        return found

    def await_connected(self) -> None:
        eventually(lambda: self.status().get("connected"), f"{self.name} is connected")

    def reaches(self, node: str) -> bool:
        return any(each["node"] == node and each.get("reachable") for each in self.status().get("nodes", []))

    def await_reachable(self, node: str) -> None:
        eventually(lambda: self.reaches(node), f"{self.name} reaches {node}")


@contextlib.contextmanager
def live_nodes(*names: str, **constants: Any) -> Iterator[list[LiveNode]]:
    nodes: list[LiveNode] = []
    with short_dir() as folder:
        try:
            # One by one: what has started is ended even if the next one does not.
            for name in names:
                node = LiveNode(folder, name, **constants)
                nodes.append(node)
            yield nodes
        finally:
            for node in nodes:
                node.close()
