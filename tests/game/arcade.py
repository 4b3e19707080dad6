"""A real daemon with games: in its own process, with its own `games.toml`, and agents over `bascule mcp`."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from living import Living, short_dir
from raw_client import RawClient
from wires import LinkWire

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PASSPHRASE = {"passphrase": "correct horse battery staple"}
# The person is set and unlocks in every test; what a hash costs is tested elsewhere.
CHEAP = {"bascule.kernel.identity.passphrase.SCRYPT_LOG_N": 4}
# Nobody here waits as long as a real client does.
QUICK = {"approval_hold_ms": 200}
# The user's own bridge.json is not for tests: it is found from HOME.
_PLACES = """
import os
os.environ["BASCULE_CONFIG_DIR"] = {config!r}
os.environ["SDL_VIDEODRIVER"] = "dummy"
os.environ["PYGAME_HIDE_SUPPORT_PROMPT"] = "1"
os.environ["HOME"] = {home!r}
"""


class Arcade:
    """Lives of one daemon in one directory, and its games."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.state = f"{folder}/s"
        self.config = self.folder / "config"
        self.config.mkdir()
        self.toml = self.config / "games.toml"
        self.bridge_json = self.folder / ".config/gabp/bridge.json"
        self.mod = self.folder / "mod.py"
        self.runs_file = self.folder / "runs"

    def live(self, *, quick: bool = False, **more: Any) -> Living:
        places = _PLACES.format(config=str(self.config), home=str(self.folder))
        return Living(self.state, bug=places, constants=CHEAP, **(QUICK if quick else {}), **more)

    def list_examples(self) -> None:
        text = (EXAMPLES / "games.toml").read_text()
        self.toml.write_text(text.replace("PYTHON", sys.executable).replace("EXAMPLES", str(EXAMPLES)))

    def list_mod(self, source: str, *names: str, **more: Any) -> None:
        """Games that all run this source."""
        self.mod.write_text(source)
        options = {"transport": "stdio", **more}
        self.toml.write_text(
            "\n".join(
                line
                for name in names or ("arena",)
                for line in (
                    f"[games.{name}]",
                    f"command = {sys.executable!r}",
                    f"args = [{str(self.mod)!r}]",
                    *(f"{key} = {value!r}" for key, value in options.items()),
                    f"env = {{ RUNS_FILE = {str(self.runs_file)!r} }}",
                )
            )
        )

    def runs(self) -> list[str]:
        return self.runs_file.read_text().split() if self.runs_file.exists() else []


@contextmanager
def arcade() -> Iterator[Arcade]:
    with short_dir() as folder:
        yield Arcade(folder)


class Player(RawClient):
    """An agent that plays: tool results as they are meant for a program."""

    def __init__(self, arcade: Arcade, name: str) -> None:
        super().__init__(arcade.state, "--toolset", "agents,games", "--agent", name, "--no-start")

    def __enter__(self) -> Self:
        super().__enter__()
        self.initialize()
        return self

    def use(self, name: str, **arguments: Any) -> dict[str, Any]:
        result = self.call(name, **arguments)
        assert not result.get("isError"), result["content"][0]["text"]
        return result["structuredContent"]

    def failure(self, name: str, **arguments: Any) -> dict[str, Any]:
        """What a model reads of a call that failed: for its client it is an error."""
        result = self.call(name, **arguments)
        assert result["isError"], result
        return result["structuredContent"]

    def refusal(self, name: str, **arguments: Any) -> str:
        result = self.call(name, **arguments)
        assert result["isError"], result
        return result["content"][0]["text"]

    def begin(self, name: str, **arguments: Any) -> int:
        return self.start_call(name, **arguments)

    def finish(self, number: int) -> dict[str, Any]:
        return self.answer_to(number)["result"]["structuredContent"]


def person(daemon: Living) -> LinkWire:
    wire = LinkWire(daemon.link_socket).hello()
    if not wire.call("person.status")["set"]:
        wire.call("person.set", PASSPHRASE)
    wire.call("person.unlock", PASSPHRASE)
    return wire


def decide(owner: LinkWire, approval_id: str, decision: str = "approved") -> dict[str, Any]:
    shown = owner.call("approvals.show", {"approvalId": approval_id})
    owner.call("approvals.decide", {"approvalId": approval_id, "decision": decision})
    return shown
