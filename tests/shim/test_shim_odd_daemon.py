"""What fuzzing found: a daemon, or what poses as one, that answers oddly does not end the client's session."""

import json
import os
from typing import Any

import pytest

from bascule.local_client.choice import own_door
from bascule.local_client.link import Frames
from bascule.programs.mcp_stdio.identity import Identity
from bascule.programs.mcp_stdio.link import Link
from bascule.programs.mcp_stdio.serve import Program
from bascule.programs.mcp_stdio.starter import Starter


class Scripted:
    """Carries link messages: keeps what is sent, and gives what the test puts in."""

    def __init__(self) -> None:
        self.unsent = bytearray()
        self.sent: list[dict[str, Any]] = []
        self.waiting: list[dict[str, Any]] = []

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        """Nothing is open."""

    def flush(self) -> None:
        """Nothing waits."""

    def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)

    def stopped_peer(self) -> int:
        return 0

    def send_body(self, body: bytes) -> None:
        self.sent.append(json.loads(body))

    def receive(self) -> list[dict[str, Any]]:
        waiting, self.waiting = self.waiting, []
        return waiting


class Scene:
    def __init__(self, state: str, stdout: int) -> None:
        self.daemon = Scripted()
        self.link = Link(
            lambda: self.daemon, "here", Starter(state, enabled=False), lambda: 1.0, {"toolsets": ["agents"]}
        )
        self.shim = Program(
            self.link,
            lambda _client: Identity(own_door(state), "Jerry", "test", {}),
            starts=False,
            toolsets=["agents"],
            stdin=-1,
            stdout=stdout,
            clock=lambda: 1.0,
        )

    def client(self, number: int, method: str, **params: Any) -> None:
        self.shim._on_line(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode())

    def answers(self, *messages: dict[str, Any]) -> None:
        self.daemon.waiting += messages
        self.link.on_readable()

    def answer(self, result: Any) -> None:
        """To what was asked last."""
        self.answers({"jsonrpc": "2.0", "id": self.daemon.sent[-1]["id"], "result": result})


@pytest.fixture
def scene(state):
    null = os.open("/dev/null", os.O_WRONLY)
    yield Scene(state, null)
    os.close(null)


@pytest.mark.parametrize("result", [None, [], "x", 7])
def test_a_registration_answered_with_no_object_is_an_error_that_is_reported(scene, result):
    scene.client(1, "initialize")
    for _ in range(2):
        scene.answer({})
    assert scene.daemon.sent[-1]["method"] == "agents.register"
    scene.answer(result)
    assert "is not an object" in str(scene.link.fault)
    assert not scene.link.ready


@pytest.mark.parametrize("fields", [{"unread": "many"}, {"unread": None}, {"agentToken": 7}, {"agentToken": []}])
def test_a_registration_with_odd_fields_is_taken_without_them(scene, fields):
    scene.client(1, "initialize")
    for result in ({}, {}, fields, {}):
        scene.answer(result)
    assert scene.link.ready


def opened(scene):
    scene.client(1, "initialize")
    for result in ({}, {}, {}, {}):
        scene.answer(result)
    assert scene.link.ready


@pytest.mark.parametrize("params", [[], None, "x", {}, {"message": 7}, {"number": 1}, {"number": 1, "wanted": {}}])
@pytest.mark.parametrize("method", ["mcp.message", "mcp.become", "mcp.unheard", 7])
def test_a_notification_without_the_usual_fields_is_passed_over(scene, method, params):
    opened(scene)
    scene.answers({"jsonrpc": "2.0", "method": method, "params": params})
    assert scene.link.ready


def test_frames_that_hold_no_object_are_refused():
    from bascule.local_client.exits import BadAnswer

    with pytest.raises(BadAnswer):
        Frames().feed(b"Content-Length: 2\r\n\r\n[]")
