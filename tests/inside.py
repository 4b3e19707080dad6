"""The one way from the black-box tests (conformance, e2e, mcp) and their helpers into the package.

These tests treat Bascule as its users have it: commands, sockets, files, MCP, and the documented Python API
(`bascule.client`, `bascule_mod`, `gabp`), which they import directly. For the rest they come here: programs and daemons
to start, functions that a specification demands but no door offers, a house in memory, limits that may change. So a
rebuild of the inside changes this file and no test of theirs; `test_house.py` holds them to it.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from msgspec import structs

from bascule.daemon.config import from_values as settings_from
from bascule.daemon.config import load
from bascule.desktop.rows import SESSION_VARIABLES
from bascule.kernel.ledger import Anchor
from bascule.kernel.policy.text import text_digest as policy_digest
from bascule.kernel.settings import BadConfig
from bascule.stores.anchor_file import AnchorFile
from bascule.terminals.tmux import Tmux
from bascule.wire.canonical import canonical
from bascule.wire.canonical import digest as canonical_digest
from bascule.workspace.schemas import events_schema, operations_schema
from bascule.workspace.validation import (
    BadOperation,
    parse_operation,
    validate_operation,
    validate_operations_message,
)
from gabp.codec import decode as decode_json

__all__ = [
    "BASCULE",
    "CHEAP_PASSPHRASE",
    "DAEMON_PROGRAM",
    "SESSION_VARIABLES",
    "BadConfig",
    "BadOperation",
    "Tmux",
    "append_anchor",
    "canonical",
    "canonical_digest",
    "decode_json",
    "events_schema",
    "load_settings",
    "loaded_command",
    "max_mcp_sessions",
    "memory_house",
    "operations_schema",
    "parse_operation",
    "policy_digest",
    "run_daemon_with_mcp_server",
    "validate_operation",
    "validate_operations_message",
    "with_trees",
]

# -- commands ------------------------------------------------------------------------------------------

# `bascule`, with the interpreter of the tests.
BASCULE = [sys.executable, "-P", "-m", "bascule.cli.start"]


def loaded_command() -> Callable[[Sequence[str]], int]:
    """What `bascule` runs, with everything imported that it would import late: for forks of this process."""
    import bascule.daemon.lifecycle
    from bascule.cli.main import build_parser, main

    assert bascule.daemon.lifecycle
    assert build_parser()
    return main


# -- settings ------------------------------------------------------------------------------------------


def load_settings(config_dir: str, environment: dict[str, str]) -> SimpleNamespace:
    """Every key with its value, whichever bridge declares it."""
    loaded = load(config_dir, environment)
    return SimpleNamespace(**{key: value for part in loaded.parts for key, value in structs.asdict(part).items()})


# -- daemons -------------------------------------------------------------------------------------------

# What `bascule up` does, and beside it: constants of modules set before anything starts (a test need not
# wait ten seconds to see that ten seconds are enforced), lines of Python that put a bug in on purpose or a bridge into
# `more_bridges`, and another user's identity.
DAEMON_PROGRAM = """
import importlib, json, os, sys
said = json.loads(sys.argv[1])
more_bridges = []
exec(said["bug"])
for name, value in said["constants"].items():
    module, _, attribute = name.rpartition(".")
    assert hasattr(importlib.import_module(module), attribute), name
    setattr(importlib.import_module(module), attribute, value)
from bascule.bridge_list import BRIDGES
from bascule.daemon.config import from_values
from bascule.daemon.lifecycle import run
if said["uid"] is not None:
    os.setgroups([])
    os.setgid(said["uid"])
    os.setuid(said["uid"])
bridges = (*BRIDGES, *more_bridges)
ready = lambda daemon: print("ready", flush=True)
sys.exit(run(from_values(said["config"], bridges=bridges), said["state"], on_ready=ready, bridges=bridges))
"""
# For tests in which a person is set and unlocks; what a hash costs is tested elsewhere.
CHEAP_PASSPHRASE = {"bascule.kernel.identity.passphrase.SCRYPT_LOG_N": 4}

# Run before the daemon is made: a bridge whose one handler leaves a trace outside the store.
_TREES = """
if {failpoint!r}:
    from bascule.testing import failpoints
    failpoints.arm({failpoint!r})
from bascule.kernel.bridge import Bridge
from bascule.kernel.declared import Declared
from bascule.kernel.rows import Acts, Effect, Http, Params

class CutParams(Params, frozen=True, kw_only=True):
    path: str

ROW = Acts[CutParams, str]("tree.cut", "Cut a tree.", Http("POST", "/trees"), effect=Effect.WRITE)

def cut(call, params, effect):
    with open({trace!r}, "a") as trace:
        trace.write(params.path + chr(10))
    return "felled"

class Trees(Declared):
    name = "trees"
    rows = (ROW,)

    def make(self, kernel, ports):
        return Bridge(declared=self, service=None, methods=[ROW.bind(cut)])

more_bridges.append(Trees())
"""


def with_trees(trace: str, failpoint: str = "") -> str:
    """Lines for a daemon's start that give it `tree.cut` (`POST /trees`), whose effect is a line in the file `trace`.

    The policy may ask about it, and it is recorded ahead of its effect.
    """
    return _TREES.format(trace=trace, failpoint=failpoint)


def _tasks_around(tasks: Any, body: Callable[[Any], Any]) -> Any:
    """The daemon's tasks as the middleware of another server, whose tools that are tasks `body` finds."""
    import mcp_types as types
    from mcp.shared.exceptions import MCPError

    from bascule.surfaces.mcp.http_tasks import HttpTasks, TaskCall
    from bascule.surfaces.mcp.tasks import Outcome

    def begin(context: Any) -> Any:
        params = types.CallToolRequestParams.model_validate(context.params)
        run = body(params)

        async def work(task: Any) -> Any:
            try:
                return Outcome({"isError": False, **await run(task.ask, params)})
            except MCPError as error:
                return Outcome(error={"code": error.error.code, "message": error.error.message})

        return None if run is None else TaskCall(os.urandom(8).hex(), work, waits=True)

    return HttpTasks(tasks, begin, None)


def run_daemon_with_mcp_server(
    server: Any, state: str, port: int, *, token: str, task_body: Callable[[Any], Any]
) -> int:
    """The daemon as it is, with this server of the MCP SDK at /mcp, where every request comes as if with `token`."""
    from bascule.daemon import lifecycle
    from bascule.daemon.compose import Daemon
    from bascule.kernel.identity.tokens import hash_token
    from bascule.surfaces.mcp.door import McpDoor
    from bascule.surfaces.mcp.sessions import Sessions

    class Fixture(Daemon):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.mcp.load = lambda: SimpleNamespace(open_door=lambda *_, **__: McpDoor(server, Sessions()))
            server.middleware = [_tasks_around(self.link_sessions.mcp_tasks, task_body)]
            server.extensions = {"io.modelcontextprotocol/tasks": {}}

        def web_app(self, *arguments: Any, **options: Any) -> Any:
            self.tokens.add("Suite", hash_token(token))
            app = super().web_app(*arguments, **options)

            admit = app.admit

            def with_bearer(request: Any) -> Any:
                bearer = (b"authorization", b"Bearer " + token.encode())
                # A request that waited is admitted twice.
                if bearer not in request.headers:
                    request.headers.append(bearer)
                return admit(request)

            app.admit = with_bearer
            return app

    lifecycle.Daemon = Fixture  # type: ignore[misc] # the one class that this daemon has another of
    config = settings_from({"port": port, "durability": "memory", "log": "off"})
    return lifecycle.run(config, state, on_ready=lambda _: os.write(1, b"ready\n"))


@contextlib.contextmanager
def memory_house(
    *, directories: Collection[str] = (), sandbox_problem: str | None = None, disk_full: bool = False
) -> Iterator[Callable[[str, str, dict[str, Any]], Any]]:
    """`call(principal, method, params)` of a house in memory, on a machine with these troubles."""
    from bascule.testing.house import House
    from bascule.testing.machine import Machine

    machine = Machine()
    for directory in directories:
        machine.directory(directory)
    machine.problem = sandbox_problem
    machine.disk_full = disk_full
    with House(machine=machine) as house:
        yield house.call


# -- limits and files ----------------------------------------------------------------------------------


def max_mcp_sessions() -> int:
    """Sessions at /mcp that one agent may have."""
    from bascule.surfaces.mcp.sessions import MAX_SESSIONS_PER_AGENT

    return MAX_SESSIONS_PER_AGENT


def append_anchor(path: str, *, seq: int, head: str, at: int, why: str) -> None:
    """As the daemon writes one: with a checksum that fits."""
    AnchorFile(path).append(Anchor(seq=seq, head=head, at=at, why=why))
