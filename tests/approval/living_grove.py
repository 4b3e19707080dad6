"""A real daemon with a method whose effect is a line in a file, for link and HTTP."""

import json
import os
from typing import Any

from living import Living
from wires import LinkWire

from inside import CHEAP_PASSPHRASE, policy_digest, with_trees

PASSPHRASE = {"passphrase": "correct horse battery staple"}
POLICY = """version = 1
extends = "standard"
[[rule]]
name = "trees-ask"
decision = "ask"
reason = "a tree is felled once"
methods = ["tree.cut"]
"""
# Nothing of the user's own settings.
_PLACES = """
import os
os.environ["BASCULE_CONFIG_DIR"] = {config!r}
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
        lines = _PLACES.format(config=self.config) + with_trees(self.trace, failpoint) + bug
        return Living(self.state, bug=lines, constants=CHEAP_PASSPHRASE | (constants or {}), **more)

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
        wire.call("policy.accept", {"digest": policy_digest(POLICY)})
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
