"""The loop with its clocks set short, and the start of a daemon: in this process, on pipes."""

import json
import os
import sys
import threading
import time

from fake_link import HOLD, FakeLink
from raw_client import CLIENT_INFO

from bascule.foundation import paths
from bascule.local_client.choice import own_door
from bascule.local_client.exits import DoorError
from bascule.local_client.link import LinkSocket
from bascule.programs.mcp_stdio.identity import Identity
from bascule.programs.mcp_stdio.link import Link
from bascule.programs.mcp_stdio.serve import Program
from bascule.programs.mcp_stdio.starter import KEPT_ENVIRONMENT, Starter
from bascule.programs.mcp_stdio.tools import toolsets
from patience import PATIENCE


class InThread:
    """The program on two pipes, with what a test needs set short."""

    def __init__(self, state, starter=None, **settings):
        self._state = state
        self._starter = starter or Starter(state, enabled=False)
        self._settings = settings

    def __enter__(self):
        reading, self._to_shim = os.pipe()
        self._from_shim, writing = os.pipe()
        self._lines = os.fdopen(self._from_shim, encoding="utf-8")
        link = Link(lambda: LinkSocket(self._state), self._state, self._starter, time.monotonic, {})
        shim = Program(
            link,
            lambda _client: Identity(own_door(self._state), "Jerry", "test", {}),
            starts=self._starter.enabled,
            toolsets=toolsets(),
            stdin=reading,
            stdout=writing,
            **self._settings,
        )

        def run():
            self.exit_code = shim.run()
            os.close(reading)
            os.close(writing)

        self._thread = threading.Thread(target=run)
        self._thread.start()
        self.ask(0, "initialize", clientInfo=CLIENT_INFO)
        self.opened = self.next()
        return self

    def __exit__(self, *_):
        os.close(self._to_shim)
        self._thread.join(PATIENCE)
        self._lines.close()

    def ask(self, number, method, **params):
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        os.write(self._to_shim, json.dumps(message).encode() + b"\n")

    def next(self):
        return json.loads(self._lines.readline())


def answers(value):
    return lambda _peer, _params: value


def test_only_so_many_calls_are_open_at_once(state, monkeypatch):
    monkeypatch.setattr("bascule.programs.mcp_stdio.serve.MAX_CALLS", 2)
    with FakeLink(state, wait_for_message=answers(HOLD)), InThread(state) as shim:
        for number in (1, 2, 3):
            shim.ask(number, "tools/call", name="wait_for_message")
        refused = shim.next()
        assert refused["id"] == 3
        assert refused["result"]["isError"]


def test_an_id_in_use_is_refused(state):
    with FakeLink(state, wait_for_message=answers(HOLD)), InThread(state) as shim:
        shim.ask(1, "tools/call", name="wait_for_message")
        shim.ask(1, "tools/call", name="wait_for_message")
        assert shim.next()["error"]["code"] == -32600


def test_a_daemon_that_hangs_is_left_for_a_new_connection(state, monkeypatch):
    monkeypatch.setattr("bascule.programs.mcp_stdio.link.ANSWER_SECONDS", 0.05)
    left = [HOLD, {"agents": []}]
    hello = []

    def once(peer, params):
        # The third hello on a connection asks whether the daemon is there.
        hello.append(peer)
        return HOLD if hello.count(peer) > 3 else FakeLink._hello(daemon, peer, params)

    daemon = FakeLink(state, list_agents=lambda _peer, _params: left.pop(0), hello=once)
    with daemon, InThread(state) as shim:
        shim.ask(1, "tools/call", name="list_agents")
        assert shim.next()["result"]["structuredContent"]["agents"] == []
        assert len(daemon.peers) == 2


def test_a_daemon_that_says_that_it_is_there_is_waited_for(state, monkeypatch):
    monkeypatch.setattr("bascule.programs.mcp_stdio.link.ANSWER_SECONDS", 0.05)
    with FakeLink(state, list_agents=answers(HOLD)) as daemon, InThread(state) as shim:
        shim.ask(1, "tools/call", name="list_agents")
        # Three to come in, and then it is asked again and again.
        daemon.wait_for("hello", 6)
        assert len(daemon.peers) == 1


def test_nobody_comes_and_the_model_is_told_how_to_start_it(state, monkeypatch):
    monkeypatch.setattr("bascule.programs.mcp_stdio.link.CONTACT_SECONDS", 0.05)
    with InThread(state) as shim:
        shim.ask(1, "tools/call", name="list_agents")
        result = shim.next()["result"]
    assert result["isError"]
    assert "start it with `bascule up -d`" in result["content"][0]["text"]


# -- starting the daemon --------------------------------------------------------------------------

# Says in one line what it was given.
NOTE = (
    "import os, sys, json;print(json.dumps([dict(os.environ), os.getcwd(), os.getsid(0)]), file=open(sys.argv[1], 'a'))"
)


def wait_until(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        os.sched_yield()


def test_of_two_starters_one_starts(state, tmp_path):
    log_file = tmp_path / "said"
    command = (sys.executable, "-c", NOTE, str(log_file))
    one, two = Starter(state, command=command), Starter(state, command=command)
    one.begin()
    two.begin()
    assert two._process is None
    one._process.wait(PATIENCE)
    assert len(log_file.read_text().splitlines()) == 1
    one.finish()
    # Whoever finds none afterwards may try again.
    two.begin()
    two._process.wait(PATIENCE)
    two.finish()
    assert len(log_file.read_text().splitlines()) == 2


def test_a_started_daemon_gets_a_clean_environment_and_a_session_of_its_own(state, tmp_path, monkeypatch):
    monkeypatch.setenv("BRIDGE_AGENT_TOKEN", "secret")
    monkeypatch.setenv("LANG", "C.UTF-8")
    log_file = tmp_path / "said"
    starter = Starter(state, command=(sys.executable, "-c", NOTE, str(log_file)))
    starter.begin()
    pid = starter._process.pid
    starter._process.wait(PATIENCE)
    starter.finish()
    environment, cwd, session = json.loads(log_file.read_text())
    # The interpreter itself adds LC_CTYPE where the locale is C.
    assert set(environment) <= {*KEPT_ENVIRONMENT, "LC_CTYPE"}
    assert environment["LANG"] == "C.UTF-8"
    assert (cwd, session) == (state, pid)


def test_a_daemon_that_cannot_start_says_why(state, monkeypatch):
    command = (sys.executable, "-c", "import sys; sys.exit('port 5050 is taken')")
    with InThread(state, Starter(state, command=command)) as shim:
        assert "is being started" in shim.opened["result"]["instructions"]
        shim.ask(1, "tools/call", name="list_agents")
        result = shim.next()["result"]
    assert result["isError"]
    assert "could not be started: port 5050 is taken" in result["content"][0]["text"]


def test_an_unsafe_state_directory_is_reported(state):
    os.chmod(state, 0o755)
    with InThread(state, Starter(state)) as shim:
        shim.ask(1, "tools/call", name="list_agents")
        result = shim.next()["result"]
    assert result["isError"]
    assert "open to other users" in result["content"][0]["text"]


def test_a_project_with_our_name_in_it_does_not_become_the_daemon(state):
    assert "-P" in Starter(state)._command


def test_a_disabled_starter_does_nothing(state):
    starter = Starter(state, enabled=False)
    starter.begin()
    assert starter.failure() is None
    assert not os.path.exists(os.path.join(state, "start.lock"))


def test_the_call_that_found_no_daemon_is_answered_by_the_one_it_started(state, tmp_path):
    started = tmp_path / "started"
    starter = Starter(state, command=(sys.executable, "-c", f"open({str(started)!r}, 'w')"))
    with InThread(state, starter) as shim:
        shim.ask(1, "tools/call", name="list_agents")
        wait_until(started.exists)
        with FakeLink(state, list_agents=answers({"agents": []})):
            assert shim.next()["result"]["structuredContent"]["agents"] == []


def test_errors_of_starting_are_door_errors(state):
    starter = Starter(state, command=(sys.executable, "-c", "raise SystemExit(3)"))
    starter.begin()
    starter._process.wait(PATIENCE)
    failure = starter.failure()
    assert isinstance(failure, DoorError)
    assert "it said nothing" in failure.message
    assert os.stat(os.path.join(state, "start.err")).st_mode & 0o777 == 0o600
    assert paths.link_socket(state).endswith("link.sock")
