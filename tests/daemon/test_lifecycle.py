"""Starting, stopping, dying and coming back, as the processes around a daemon see it."""

import fcntl
import json
import os
import signal
import socket
import stat
import threading

import pytest
from living import Living, eventually, run_command
from wires import Caller, LinkWire, Wire, request

from patience import PATIENCE


def records(daemon: Living, method: str) -> list[dict]:
    with LinkWire(daemon.link_socket) as link:
        return link.hello().call("ledger.show", {"what": method})


# -- a stop that was asked for --------------------------------------------------------------------


def test_everybody_who_waits_gets_an_answer_when_the_daemon_stops(state):
    # No wait ends by itself.
    constants = {f"bascule.broker.{module}.MAX_WAIT_MS": 3_600_000 for module in ("bells", "waits")}
    with Living(state, constants=constants) as daemon:
        local = Caller(daemon)
        jerry = local.register("Jerry")
        ticket = local.send("Jerry")
        tom = local.register("Tom")
        with (
            Wire(daemon.tcp) as reply_poll,
            Wire(daemon.http_socket) as inbox_poll,
            LinkWire(daemon.link_socket) as link,
            local.open(f"/replies/{ticket}/stream") as reply_stream,
            jerry.open("/agents/Jerry/inbox/stream") as inbox_stream,
            local.open("/events") as event_stream,
            Wire(daemon.tcp) as idle,
        ):
            idle.ask("GET", "/healthz", local.headers)
            reply_poll.send(request("GET", f"/replies/{ticket}?waitMs=3600000", local.headers))
            inbox_poll.send(request("GET", "/agents/Tom/inbox?waitMs=3600000", tom.headers))
            wait = link.hello().request("replies.wait", {"ticketId": ticket, "waitMs": 3_600_000})
            followed = link.request("events.stream")
            eventually(lambda: local.gauge("bascule_waits") >= 5, "all wait")
            assert link.answer(followed)["result"] == {}
            daemon.process.send_signal(signal.SIGTERM)
            assert reply_poll.answer().status == 204
            assert inbox_poll.answer().status == 204
            assert link.answer(wait)["result"] is None
            assert reply_stream.event() is None
            assert inbox_stream.event()["data"]["ticketId"] == ticket
            assert inbox_stream.event() is None
            while event_stream.event() is not None:
                continue
            assert daemon.process.wait(PATIENCE) == 0
            messages = []
            while (message := link.read()) is not None:
                messages.append(message["method"])
            assert messages[-1] == "events.end"
        assert not os.path.exists(daemon.link_socket)
        assert not os.path.exists(daemon.http_socket)


def test_after_a_restart_only_an_agent_that_was_there_is_unknown(state):
    """A connection that the daemon closes as it stops says nothing about its agent."""
    with Living(state) as daemon:
        local = Caller(daemon)
        stays, leaves = local.register("Stays"), local.register("Leaves")
        with LinkWire(daemon.link_socket) as live, LinkWire(daemon.link_socket) as lost:
            live.hello(token=stays.token)
            lost.hello(token=leaves.token)
            lost.close()
            eventually(lambda: statuses(local) == {"Stays": "online", "Leaves": "offline"}, "the connection is lost")
            assert daemon.stop() == 0
    with Living(state) as daemon:
        assert statuses(Caller(daemon)) == {"Stays": "unknown", "Leaves": "offline"}


def statuses(local):
    return {each["agentId"]: each["status"] for each in local.get("/agents").json}


def test_a_closed_terminal_stops_it_as_gently(state):
    with Living(state) as daemon:
        daemon.process.send_signal(signal.SIGHUP)
        assert daemon.process.wait(PATIENCE) == 0
        assert "Traceback" not in daemon.terminal()


def test_what_was_there_is_there_after_a_stop_and_the_ledger_says_it_was_clean(state):
    with Living(state) as daemon:
        local = Caller(daemon)
        jerry = local.register("Jerry", type="script", metadata={"repo": "x"})
        ticket = local.send("Jerry", {"deep": [1, 2.5, None, "ü"]}, conversationId="c-1")
        answered = local.send("Jerry", "second")
        jerry.post("/replies", {"ticketId": answered, "payload": "done"})
        token = daemon.token
        assert daemon.stop() == 0
    # Closed: everything is in the one file, nothing is left in a log beside it.
    assert not os.path.exists(os.path.join(state, "bascule.db-wal"))
    with Living(state) as daemon:
        (agent,) = Caller(daemon).get("/agents").json
        assert (agent["agentId"], agent["type"], agent["metadata"]) == ("Jerry", "script", {"repo": "x"})
        jerry = Caller(daemon, jerry.token)
        (message,) = jerry.get("/agents/Jerry/inbox?waitMs=0&max=9").json["messages"]
        assert message["payload"] == {"deep": [1, 2.5, None, "ü"]}
        assert message["ticketId"] == ticket
        assert Caller(daemon).get(f"/replies/{answered}?waitMs=0").json["payload"] == "done"
        first, second = records(daemon, "daemon.start")
        assert (first["details"]["clean"], second["details"]["clean"]) == (True, True)
        (stop,) = records(daemon, "daemon.stop")
        assert second["details"]["head"] == stop["hash"]
        assert second["details"]["records"] == stop["seq"]
        assert daemon.token == token


def test_a_request_that_comes_while_it_stops_is_answered_or_refused_never_left_hanging(state):
    with Living(state) as daemon:
        local = Caller(daemon)
        local.register("Jerry")
        outcomes: list[object] = []
        acknowledged: list[str] = []

        def hammer() -> None:
            while True:
                try:
                    answer = local.post("/agents/Jerry/send", {"payload": "x"})
                except (OSError, AssertionError) as error:
                    outcomes.append(type(error))
                    if isinstance(error, ConnectionRefusedError) or not os.path.exists(daemon.http_socket):
                        return
                    continue
                outcomes.append(answer.status)
                if answer.status == 200:
                    acknowledged.append(answer.json["ticketId"])

        threads = [threading.Thread(target=hammer) for _ in range(4)]
        for thread in threads:
            thread.start()
        eventually(lambda: len(acknowledged) > 50, "messages are sent")
        assert daemon.stop() == 0
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
        assert TimeoutError not in outcomes
        assert 500 not in outcomes
    with Living(state) as daemon:
        kept = {ticket["ticketId"] for ticket in Caller(daemon).get("/tickets?limit=1000").json}
        assert set(acknowledged) - kept == set()


# -- a death --------------------------------------------------------------------------------------


def test_nothing_that_was_acknowledged_is_lost_when_it_is_killed(state):
    acknowledged: dict[str, int] = {}
    with Living(state) as daemon:
        local = Caller(daemon)
        jerry = local.register("Jerry")

        def send() -> None:
            with LinkWire(daemon.link_socket) as link:
                link.hello()
                for number in range(10_000):
                    try:
                        sent = link.call("messages.send", {"agentId": "Jerry", "payload": number})
                    except (OSError, AssertionError):
                        return
                    acknowledged[sent["ticketId"]] = number

        threads = [threading.Thread(target=send) for _ in range(2)]
        for thread in threads:
            thread.start()
        eventually(lambda: len(acknowledged) > 200, "messages are sent")
        daemon.kill()
        for thread in threads:
            thread.join()
    with Living(state) as daemon:
        jerry = Caller(daemon, jerry.token)
        got: dict[str, int] = {}
        while (answer := jerry.get("/agents/Jerry/inbox?waitMs=0&max=32")).status == 200:
            got |= {each["ticketId"]: each["payload"] for each in answer.json["messages"]}
        assert {ticket: number for ticket, number in acknowledged.items() if got.get(ticket) != number} == {}
        first, second = records(daemon, "daemon.start")
        assert (first["details"]["clean"], second["details"]["clean"]) == (True, False)
        with LinkWire(daemon.link_socket) as link:
            assert link.hello().call("ledger.verify")["faults"] == []


def test_after_a_death_a_waiter_resumes_and_a_pending_message_is_delivered(state):
    with Living(state) as daemon:
        local = Caller(daemon)
        jerry = local.register("Jerry")
        ticket = local.send("Jerry", "are you there?")
        # Handed over and not acknowledged: the lease dies with the daemon.
        assert jerry.get("/agents/Jerry/inbox?waitMs=0").status == 200
        with Wire(daemon.tcp) as wire:
            wire.send(request("GET", f"/replies/{ticket}?waitMs=3600000", local.headers))
            daemon.kill()
            assert wire.closed()
    with Living(state) as daemon:
        local, jerry = Caller(daemon), Caller(daemon, jerry.token)
        with Wire(daemon.tcp) as wire:
            wire.send(request("GET", f"/replies/{ticket}?waitMs=5000", local.headers))
            (message,) = jerry.get("/agents/Jerry/inbox?waitMs=0").json["messages"]
            assert message["ticketId"] == ticket
            assert jerry.post("/replies", {"ticketId": ticket, "payload": "yes"}).status == 204
            assert wire.answer().json["payload"] == "yes"


def test_a_reply_deadline_goes_on_counting_while_no_daemon_runs(state):
    with Living(state) as daemon:
        local = Caller(daemon)
        local.register("Jerry")
        ticket = local.send("Jerry", timeoutMs=200)
        daemon.kill()
    with Living(state) as daemon:
        assert Caller(daemon).get(f"/replies/{ticket}?waitMs=5000").json["status"] == "timeout"


def test_a_daemon_killed_while_it_starts_leaves_a_ledger_that_verifies(state):
    # The start is anchored outside the database; the anchor must not be there before its record is.
    with Living(state) as daemon:
        daemon.stop()
    for _ in range(3):
        daemon = Living(state)
        daemon.kill()
    done = run_command("ledger", "verify", "--json", "--state-dir", state)
    assert json.loads(done.stdout)["faults"] == []


# -- one at a time --------------------------------------------------------------------------------


def test_a_second_daemon_in_the_same_place_is_refused_and_the_first_one_unharmed(state):
    with Living(state) as daemon:
        done = run_command("up", "--port", "0", "--state-dir", state)
        assert done.returncode == 6
        assert f"a Bascule daemon runs in {state} already" in done.stderr
        assert "bascule down" in done.stderr
        assert "Traceback" not in done.stderr
        assert Caller(daemon).get("/healthz").status == 200
        with open(os.path.join(state, "daemon.lock")) as file:
            assert json.loads(file.read() or "{}").get("pid") == daemon.process.pid
        # The way to stop it that the refusal names must work.
        done = run_command("down", "--state-dir", state)
        assert (done.returncode, done.stdout) == (0, "stopped\n")
        assert daemon.process.wait(PATIENCE) == 0


def test_a_lock_file_and_sockets_left_by_the_dead_do_not_matter(state):
    with Living(state) as daemon:
        daemon.kill()
    assert os.path.exists(os.path.join(state, "link.sock"))
    with (
        Living(state) as daemon,
        open(os.path.join(state, "daemon.lock")) as file,
        LinkWire(daemon.link_socket) as link,
    ):
        assert json.loads(file.read())["pid"] == daemon.process.pid
        assert link.hello().call("daemon.status")["pid"] == daemon.process.pid
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)


# -- the port -------------------------------------------------------------------------------------


@pytest.fixture
def taken_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        yield sock.getsockname()[1]


def test_a_taken_port_is_said_with_what_to_do_and_leaves_no_trace(state, taken_port):
    done = run_command("up", "--port", str(taken_port), "--state-dir", state)
    assert done.returncode == 6
    assert f"port {taken_port} is in use" in done.stderr
    assert "--port" in done.stderr
    assert "Traceback" not in done.stderr
    assert not os.path.exists(os.path.join(state, "bascule.db"))


def test_with_tcp_optional_a_taken_port_is_done_without(state, taken_port):
    done = run_command("up", "-d", "--tcp-optional", "--port", str(taken_port), "--state-dir", state)
    try:
        assert done.returncode == 0, done.stderr
        with LinkWire(os.path.join(state, "link.sock")) as link:
            assert set(link.hello().call("daemon.status")["doors"]) == {"link", "http"}
    finally:
        run_command("down", "--state-dir", state)


def test_port_zero_opens_no_tcp(state):
    with Living(state, port=0) as daemon, LinkWire(daemon.link_socket) as link:
        assert set(link.hello().call("daemon.status")["doors"]) == {"link", "http"}


# -- what others may read -------------------------------------------------------------------------


def test_everything_it_writes_is_its_users_alone_whatever_the_umask_and_only_loopback_is_listened_on(state):
    before = os.umask(0)
    try:
        with Living(state) as daemon:
            local = Caller(daemon)
            local.register("Jerry")
            local.send("Jerry")
            modes = {}
            for place, folders, files in os.walk(state):
                for name in [*folders, *files]:
                    path = os.path.join(place, name)
                    modes[os.path.relpath(path, state)] = stat.S_IMODE(os.lstat(path).st_mode)
            with open("/proc/net/tcp") as file:
                listening = [line.split()[1] for line in file if line.split()[3] == "0A"]
            assert daemon.stop() == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(state).st_mode) == 0o700
    assert {name for name, mode in modes.items() if mode & 0o077} == set()
    assert {"link.sock", "http.sock", "bascule.db", "local.token", "tokens", "log", "anchors.jsonl"} <= set(modes)
    assert modes["local.token"] == modes["bascule.db"] == modes["link.sock"] == modes["log/daemon.log"] == 0o600
    port = f":{daemon.port:04X}"
    assert [each for each in listening if each.endswith(port)] == [f"0100007F{port}"]
