"""The commands a person types, as processes, against a daemon they started themselves."""

import json
import os
import signal
import subprocess

import pytest
from exit_codes import CONFLICT, REFUSED, UNREACHABLE, USAGE
from living import Ended, Living, eventually, forked, free_port, run_command, short_dir
from wires import Caller, LinkWire

from inside import BASCULE
from patience import PATIENCE
from terminal import on_a_terminal

PASSPHRASE = "correct horse battery"


class Up:
    """What `bascule up -d` left running."""

    def __init__(self, state: str, port: int) -> None:
        self.state = state
        self.port = port

    tcp = property(lambda self: ("127.0.0.1", self.port))
    host = property(lambda self: f"127.0.0.1:{self.port}")
    link_socket = property(lambda self: os.path.join(self.state, "link.sock"))

    @property
    def token(self) -> str:
        with open(os.path.join(self.state, "local.token")) as file:
            return file.read()

    def bascule(self, *arguments: str) -> Ended:
        done = forked(*arguments, "--state-dir", self.state)
        assert "Traceback" not in done.output, done.output
        return done


@pytest.fixture(scope="module")
def up():
    with short_dir() as folder:
        state, port = f"{folder}/s", free_port()
        done = run_command("up", "-d", "--port", str(port), "--state-dir", state)
        assert done.returncode == 0, done.stderr
        assert "is ready (pid " in done.stdout
        assert "bascule status" in done.stdout
        try:
            yield Up(state, port)
        finally:
            assert run_command("down", "--state-dir", state).stdout == "stopped\n"


# -- up, status, logs, down -----------------------------------------------------------------------


def test_status_shows_where_it_listens_and_what_it_holds(up):
    done = run_command("status", "--state-dir", up.state)
    assert done.returncode == 0, done.stderr
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert lines["tcp"] == f"http://127.0.0.1:{up.port}"
    assert lines["link"] == up.link_socket
    assert lines["state"].startswith(up.state)
    assert "durability fsync" in lines["state"]
    assert lines["policy"] == "standard, auth on"
    assert {"daemon", "http", "person", "agents", "tickets", "ledger"} <= set(lines)


def test_status_as_json_is_the_daemons_answer(up):
    status = json.loads(up.bascule("status", "--json").output)
    assert status["principal"] == "local"
    assert status["doors"]["tcp"] == f"http://127.0.0.1:{up.port}"


def test_up_where_one_runs_already_is_content(up):
    done = run_command("up", "-d", "--state-dir", up.state)
    assert done.returncode == 0
    assert "runs already" in done.stderr


def test_logs_shows_the_last_lines(up):
    Caller(up).get("/nope")
    eventually(lambda: "ready" in up.bascule("logs").output, "the log is written")
    done = up.bascule("logs", "-n", "1")
    assert done.code == 0
    assert len(done.output.splitlines()) == 1
    for line in up.bascule("logs", "--json").output.splitlines():
        assert json.loads(line)["event"]


def test_without_a_daemon_commands_say_how_to_start_one(state):
    for command in (["status"], ["agents", "list"], ["gc"], ["ledger", "tail"], ["person", "status"]):
        done = forked(*command, "--state-dir", state)
        assert done.code == UNREACHABLE
        assert "bascule up -d" in done.output
    done = forked("logs", "--state-dir", state)
    assert done.code != 0
    assert "there is no log" in done.output
    done = forked("down", "--state-dir", state)
    assert (done.code, done.output) == (0, "bascule: no daemon runs here\n")
    assert not os.path.exists(state)


def test_up_in_the_foreground_greets_and_ctrl_c_stops_it(state):
    command = [*BASCULE, "up", "--port", str(free_port()), "--state-dir", state]
    environment = {**os.environ, "BASCULE_CONFIG_DIR": "/nonexistent"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        greeting = b""
        while b"Ctrl-C here stops it" not in greeting:
            line = process.stdout.readline()
            assert line, process.stderr.read()
            greeting += line
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
        assert b"Traceback" not in process.stderr.read()
    assert b"is ready." in greeting
    assert b"claude mcp add" in greeting


# -- agents, gc, purge ----------------------------------------------------------------------------


def test_agents_list_shows_who_is_there_and_how_much_waits(up):
    local = Caller(up)
    local.register("Jerry", type="script")
    local.send("Jerry")
    done = up.bascule("agents", "list")
    (line,) = [line for line in done.output.splitlines() if line.startswith("Jerry ")]
    assert line.split() == ["Jerry", "online", "script", "1", "unread"]
    (agent,) = [
        each for each in json.loads(up.bascule("agents", "list", "--json").output) if each["agentId"] == "Jerry"
    ]
    assert agent["unread"] == 1


def test_gc_dry_run_says_what_would_go_and_changes_nothing(up):
    before = Caller(up).get("/status").json["ledgerRecords"]
    done = up.bascule("gc", "--dry-run")
    assert done.code == 0
    assert all(line.startswith("would remove") for line in done.output.splitlines())
    assert "messages nobody fetched" in done.output
    assert Caller(up).get("/status").json["ledgerRecords"] == before
    assert json.loads(up.bascule("gc", "--dry-run", "--json").output)["dryRun"] is True


def test_gc_is_recorded(up):
    assert up.bascule("gc").output.startswith("removed ")
    with LinkWire(up.link_socket) as link:
        assert link.hello().call("ledger.show", {"what": "daemon.gc"})[-1]["principal"] == "local"


def test_purge_refuses_while_the_daemon_runs(up):
    done = up.bascule("purge", "--yes")
    assert done.code == CONFLICT
    assert "bascule down" in done.output
    assert Caller(up).get("/healthz").status == 200


def test_purge_deletes_everything_only_when_asked_to(state):
    with Living(state) as daemon:
        daemon.stop()
    done = run_command("purge", "--state-dir", state)
    assert done.returncode == USAGE
    assert "nothing was deleted" in done.stderr
    assert os.path.exists(state)
    assert on_a_terminal("purge", "--state-dir", state, typed=[("Type yes: ", "no")]).code == USAGE
    assert os.path.exists(state)
    done = run_command("purge", "--yes", "--state-dir", state)
    assert (done.returncode, done.stdout) == (0, f"deleted {state}\n")
    assert not os.path.exists(state)
    assert forked("purge", "--yes", "--state-dir", state) == (0, f"{state} does not exist: nothing to delete\n")


def test_purge_touches_nothing_that_is_no_state_directory(state):
    os.mkdir(state)
    with open(os.path.join(state, "precious"), "w"):
        pass
    done = forked("purge", "--yes", "--state-dir", state)
    assert done.code == USAGE
    assert "does not look like a state directory" in done.output
    assert os.listdir(state) == ["precious"]


# -- the person -----------------------------------------------------------------------------------


def test_a_passphrase_is_never_taken_from_a_pipe(up):
    # In a session of its own, so that there is no terminal to fall back on.
    done = subprocess.run(
        [*BASCULE, "person", "set", "--state-dir", up.state],
        input=f"{PASSPHRASE}\n{PASSPHRASE}\n",
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        start_new_session=True,
    )
    assert done.returncode == USAGE
    assert "there is no terminal" in done.stderr
    assert json.loads(up.bascule("person", "status", "--json").output)["set"] is False


def test_a_person_sets_a_passphrase_takes_over_revokes_and_starts_over(state):
    here = ["--state-dir", state]
    new, again, ask = "characters): ", "again: ", "Passphrase: "
    with Living(state) as daemon:
        local = Caller(daemon)
        jerry = local.register("Jerry", type="script", metadata={"repo": "x"})
        assert forked("person", "status", *here).output == "not set: `bascule person set`\n"

        differ = on_a_terminal("person", "set", *here, typed=[(new, PASSPHRASE), (again, "another one")])
        assert (differ.code, "the two differ" in differ.shown) == (USAGE, True)
        done = on_a_terminal("person", "set", *here, typed=[(new, PASSPHRASE), (again, PASSPHRASE)])
        assert done.code == 0, done.shown
        # Never echoed.
        assert PASSPHRASE not in done.shown
        assert forked("person", "status", *here).output == "set\n"
        assert on_a_terminal("person", "set", *here, typed=[]).code == CONFLICT

        wrong = on_a_terminal("agents", "takeover", "Jerry", *here, typed=[(ask, "a wrong guess")])
        assert (wrong.code, "wrong passphrase" in wrong.shown) == (REFUSED, True)
        assert jerry.get("/status").json["principal"] == "agent:Jerry"

        done = on_a_terminal("agents", "takeover", "Jerry", *here, typed=[(ask, PASSPHRASE)])
        assert done.code == 0, done.shown
        assert jerry.get("/status").status == 401
        with open(os.path.join(state, "tokens", "+jerry.token")) as file:
            fresh = Caller(daemon, file.read())
        assert fresh.get("/status").json["principal"] == "agent:Jerry"
        (agent,) = local.get("/agents").json
        assert (agent["type"], agent["metadata"]) == ("script", {"repo": "x"})

        done = on_a_terminal("agents", "revoke", "Jerry", *here, typed=[(ask, PASSPHRASE)])
        assert done.code == 0, done.shown
        assert fresh.get("/status").status == 401
        assert not os.path.exists(os.path.join(state, "tokens", "+jerry.token"))

        tom = local.register("Tom")
        done = forked("person", "reset", *here)
        assert (done.code, "bascule down" in done.output) == (CONFLICT, True)
        assert daemon.stop() == 0

    assert on_a_terminal("person", "reset", *here, typed=[("Type RESET: ", "reset")]).code == USAGE
    done = on_a_terminal("person", "reset", *here, typed=[("Type RESET: ", "RESET")])
    assert (done.code, "1 agent tokens revoked" in done.shown) == (0, True), done.shown
    assert os.listdir(os.path.join(state, "tokens")) == []
    with Living(state) as daemon:
        assert Caller(daemon, tom.token).get("/status").status == 401
        with LinkWire(daemon.link_socket) as link:
            assert link.hello().call("person.status") == {"set": False}
            (reset,) = link.call("ledger.show", {"what": "person.reset"})
            assert reset["details"]["revoked"] == 1
            assert link.call("ledger.verify")["faults"] == []
            starts = link.call("ledger.show", {"what": "daemon.start"})
            assert [start["details"]["clean"] for start in starts] == [True, True]
