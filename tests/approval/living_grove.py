"""A real daemon with a method whose effect is a line in a file, for link and HTTP."""

import json
import os
from typing import Any

from living import Living
from wires import LinkWire

from bascule.policy.text import text_digest

PASSPHRASE = {"passphrase": "correct horse battery staple"}
POLICY = """version = 1
extends = "standard"
[[rule]]
name = "trees-ask"
decision = "ask"
reason = "a tree is felled once"
methods = ["tree.cut"]
"""
# The person is set and unlocks in every test; what a hash costs is tested elsewhere.
_CHEAP = {"bascule.identity.passphrase.SCRYPT_LOG_N": 4}
# Put in before the daemon is made: rows, a route, and a handler that leaves a trace outside the store.
_TREES = """
import os
os.environ["BASCULE_CONFIG_DIR"] = {config!r}
if {failpoint!r}:
    from bascule.testing import failpoints
    failpoints.arm({failpoint!r})
from bascule.kernel.bridge import Bridge
from bascule.kernel.declared import Declared
from bascule.protocols.methods import Acts, Effect, Http, Params

class CutParams(Params, frozen=True, kw_only=True):
    path: str

ROW = Acts[CutParams, str]("tree.cut", "Cut a tree.", Http("POST", "/trees"), effect=Effect.WRITE)

def cut(call, params, doing):
    with open({trace!r}, "a") as trace:
        trace.write(params.path + chr(10))
    return "felled"

class Trees(Declared):
    name = "trees"
    rows = (ROW,)

    def make(self, lent, ports):
        return Bridge(declared=self, service=None, methods=[ROW.bind(cut)])

more_bridges.append(Trees())
"""


class Grove:
    """Lives of one daemon in one directory."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.state = f"{folder}/s"
        self.trace = f"{folder}/felled"
        self.config = f"{folder}/c"
        os.mkdir(self.config)
        with open(f"{self.config}/policy.toml", "w", encoding="utf-8") as file:
            file.write(POLICY)

    def live(
        self, failpoint: str = "", *, bug: str = "", constants: dict[str, Any] | None = None, **more: Any
    ) -> Living:
        trees = _TREES.format(config=self.config, trace=self.trace, failpoint=failpoint)
        return Living(self.state, bug=trees + bug, constants=_CHEAP | (constants or {}), **more)

    def felled(self) -> list[str]:
        if not os.path.exists(self.trace):
            return []
        with open(self.trace, encoding="utf-8") as trace:
            return trace.read().split()


def person(daemon: Living, *, new: bool = False) -> LinkWire:
    """A connection that the person has unlocked."""
    wire = LinkWire(daemon.link_socket).hello()
    if new:
        wire.call("person.set", PASSPHRASE)
    wire.call("person.unlock", PASSPHRASE)
    if new:
        wire.call("policy.accept", {"digest": text_digest(POLICY)})
    return wire


def decide(wire: LinkWire, decision: str = "approved", approval_id: str | None = None) -> str:
    if approval_id is None:
        approval_id = wire.call("approvals.list")[0]["approvalId"]
    wire.call("approvals.decide", {"approvalId": approval_id, "decision": decision})
    return approval_id


def records(wire: LinkWire, method: str = "tree.cut") -> list[str]:
    return [record["outcome"] for record in wire.call("ledger.show", {"what": method, "limit": 1000})]


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()
