"""The list of tools at `/mcp` is what the policy lets an agent use: who follows it hears when it has become another."""

import os
from pathlib import Path

import pytest
from living import Living, short_dir
from speaking import Agent
from wires import LinkWire

from inside import CHEAP_PASSPHRASE, policy_digest

CHANGED = "notifications/tools/list_changed"
PASSPHRASE = {"passphrase": "correct horse battery staple"}
DENY = '[[rule]]\nname = "no-{0}"\ndecision = "deny"\nreason = "no"\nmethods = ["{0}"]\n'


class Person:
    """Accepts policies, one after the other."""

    def __init__(self, daemon, file):
        self._file = file
        self.wire = LinkWire(daemon.link_socket).hello()
        self.wire.call("person.set", PASSPHRASE)
        self.wire.call("person.unlock", PASSPHRASE)
        self._count = 0

    def deny(self, *methods):
        self._count += 1
        text = f'version = 1\nextends = "standard"\n# {self._count}\n' + "".join(map(DENY.format, methods))
        self._file.write_text(text)
        self.wire.call("policy.accept", {"digest": policy_digest(text)})


@pytest.fixture(scope="module")
def world():
    with short_dir() as folder:
        config = Path(folder) / "c"
        config.mkdir()
        places = f'import os\nos.environ["BASCULE_CONFIG_DIR"] = {os.fspath(config)!r}\n'
        with Living(f"{folder}/s", bug=places, constants=CHEAP_PASSPHRASE, mcp="on") as daemon:
            person = Person(daemon, config / "policy.toml")
            yield daemon, person
            person.wire.close()


def names(client):
    return [each["name"] for each in client.ask("tools/list")["tools"]]


def test_a_stream_of_2026_hears_of_another_list_and_not_of_another_policy(world):
    daemon, person = world
    person.deny()
    client = Agent(daemon, "Ann").modern()
    assert client.ask("server/discover")["capabilities"]["tools"] == {"listChanged": True}
    with client.open("subscriptions/listen", notifications={"toolsListChanged": True}) as stream:
        assert stream.message()["params"]["notifications"] == {"toolsListChanged": True}
        # The same tools: nothing is said. Then one of them is gone.
        person.deny("daemon.gc")
        person.deny("messages.broadcast")
        assert stream.message()["method"] == CHANGED
        assert "broadcast_message" not in names(client)
        person.deny("messages.broadcast", "daemon.gc")
        person.deny()
        assert stream.message()["method"] == CHANGED
        assert "broadcast_message" in names(client)


def test_a_session_of_2025_hears_of_it_over_its_open_stream(world):
    daemon, person = world
    person.deny()
    session = Agent(daemon, "Bob").session()
    assert session.greeting["capabilities"]["tools"] == {"listChanged": True}
    assert "broadcast_message" in names(session)
    with session.listen() as stream:
        # An answer behind the request that opened the stream: it stands.
        names(session)
        person.deny("messages.broadcast")
        assert stream.message()["method"] == CHANGED
        assert "broadcast_message" not in names(session)
