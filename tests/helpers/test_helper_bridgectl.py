"""bridgectl against a scripted daemon: what it asks for and what a person sees."""

import json
import signal
import threading

import pytest
from fake_http import FakeHttp, answer, refusal

from bascule.cli import bridgectl
from bascule.foundation import paths
from bascule.local_client import exits
from bascule.programs.helpers import program


@pytest.fixture
def serve(state):
    def start(*script):
        return FakeHttp(paths.http_socket(state), list(script))

    return start


@pytest.fixture
def run(state, capsys):
    def run_command(*words):
        code = program.run("bridgectl", bridgectl._main, [*words, "--state-dir", state])
        out, err = capsys.readouterr()
        return code, out, err

    return run_command


AGENT = {
    "agentId": "Jerry",
    "type": "codex",
    "status": "online",
    "lastHeartbeat": "2025-10-20T07:59:12.345Z",
    "metadata": {"paneId": "%0", "cwd": "/home/u/a"},
    "unread": 3,
}
TICKET = {
    "ticketId": "t-1",
    "targetAgent": "Jerry",
    "from": "Spock",
    "status": "responded",
    "createdAt": "2025-10-20T07:59:12.345Z",
    "updatedAt": "2025-10-20T07:59:13.345Z",
    "replyBy": "2025-10-20T08:29:12.345Z",
    "expectReply": True,
    "late": True,
    "payloadBytes": 12,
}


def test_agents_are_listed_as_a_table(serve, run):
    with serve(answer(200, [AGENT])) as daemon:
        code, out, _ = run("list", "agents", "--type", "a&b", "--status", "online")
    assert code == 0
    assert daemon.got[0].path == "/agents?type=a%26b&status=online"
    assert out.splitlines()[1].split() == [
        *("Jerry", "codex", "online", "2025-10-20", "07:59:12", "3", "%0", "/home/u/a"),
    ]


def test_tickets_are_listed_as_a_table_or_as_json(serve, run):
    with serve(answer(200, [TICKET]), answer(200, [TICKET])) as daemon:
        _, table, _ = run("list", "tickets", "--agent", "Jerry", "--status", "responded", "--limit", "7")
        _, as_json, _ = run("list", "tickets", "--json")
    assert daemon.got[0].path == "/tickets?status=responded&agentId=Jerry&limit=7"
    assert daemon.got[1].path == "/tickets?limit=50"
    assert "responded (late)" in table
    assert json.loads(as_json) == [TICKET]


def test_an_empty_list_says_what_fills_it(serve, run):
    with serve(answer(200, []), answer(200, [])):
        assert "bridge-register" in run("list", "agents")[2]
        assert "bridge-send" in run("list", "tickets")[2]


def test_a_ticket_is_shown_with_its_text_to_its_sides(serve, run, keep_token):
    keep_token("Jerry", "of-jerry")
    reply = {"payload": "ok\x1b", "metadata": {}, "from": "Jerry", "at": "2025-10-20T08:00:00.000Z"}
    view = {**TICKET, "payload": "please", "replies": [reply], "metadata": {"a": 1}}
    with serve(answer(200, view)) as daemon:
        code, out, _ = run("show", "t-1", "--agent", "Jerry")
    assert code == 0
    assert daemon.got[0].bearer == "of-jerry"
    assert "status: responded" in out
    assert "--- payload\nplease\n--- reply from Jerry at 2025-10-20T08:00:00.000Z\nok⟨ESC⟩\n" in out


def test_a_ticket_of_others_is_shown_without_its_text(serve, run):
    with serve(answer(200, TICKET)):
        code, out, err = run("show", "t-1")
    assert code == 0
    assert "from: Spock" in out
    assert "--agent Jerry" in err


def test_cancel_says_why_and_as_whom(serve, run, keep_token):
    keep_token("Spock", "of-spock")
    with serve(answer(200, {**TICKET, "status": "cancelled"})) as daemon:
        code, out, _ = run("cancel", "t-1", "--reason", "solved", "--agent", "Spock")
    assert (code, out) == (0, "cancelled t-1\n")
    got = daemon.got[0]
    assert (got.path, got.json, got.bearer) == ("/tickets/t-1/cancel", {"reason": "solved"}, "of-spock")


def test_cancelling_the_ticket_of_others_says_how_it_is_done(serve, run):
    with serve(refusal(403, "forbidden", "not yours")):
        code, _, err = run("cancel", "t-1")
    assert code == exits.REFUSED
    assert "--agent NAME" in err


@pytest.mark.parametrize("words", [["show", "../x"], ["cancel", "a b"], ["list", "tickets", "--agent", "local"]])
def test_bad_ids_are_refused_before_anything_is_sent(run, words):
    assert run(*words)[0] == exits.USAGE


def test_the_state_directory_may_stand_before_the_command(state, serve, capsys):
    with serve(answer(200, [])):
        assert program.run("bridgectl", bridgectl._main, ["--state-dir", state, "list", "agents"]) == 0


EVENTS = [
    {"id": number, "event": "ticket.sent", "at": "2025-10-20T08:00:00.000Z", "ticketId": f"t-{number}"}
    for number in range(1, 6)
]


def streamed(events):
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    return head + b"".join(
        f"id: {event['id']}\nevent: {event['event']}\ndata: {json.dumps(event)}\n\n".encode() for event in events
    )


def test_events_begin_with_the_last_few(serve, run):
    with serve(answer(200, EVENTS[-2:])) as daemon:
        code, out, _ = run("tail", "events", "-n", "2", "--no-follow")
    assert code == 0
    assert out.splitlines() == [f"2025-10-20 08:00:00 ticket.sent ticketId=t-{number}" for number in (4, 5)]
    assert daemon.got[0].path == "/events/recent?limit=2"


def test_events_go_on_after_a_restart_where_they_stopped(serve, run):
    def stop(_got):
        # The only way out of a command that follows for ever: a real signal, which ends the system call it waits in.
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    with serve(answer(200, EVENTS[:1]), streamed(EVENTS[1:2]), None, streamed(EVENTS[2:]), stop) as daemon:
        code, out, _ = run("tail", "events", "-n", "9", "--json")
    assert code == exits.INTERRUPTED
    assert [json.loads(line)["id"] for line in out.splitlines()] == [1, 2, 3, 4, 5]
    streams = [f"/events?after={last}" for last in (1, 2, 2, 5)]
    assert [got.path for got in daemon.got] == ["/events/recent?limit=9", *streams]


def test_the_log_is_shown_for_people_and_for_programs(state, run, tmp_path):
    (tmp_path / "s" / "log").mkdir()
    lines = [
        '{"at":"2025-10-20T08:00:00.000Z","level":"info","event":"up","pid":1}',
        '{"at":"2025-10-20T08:00:01.000Z","level":"warning","event":"slow","what":"a\\u001b[2J"}',
        "not json \x1b",
    ]
    (tmp_path / "s" / "log" / "daemon.log").write_text("\n".join(lines) + "\n")
    assert run("tail", "logs", "-n", "3", "--no-follow")[1].splitlines() == [
        "2025-10-20 08:00:00 info    up      pid=1",
        "2025-10-20 08:00:01 warning slow    what=a⟨ESC⟩[2J",
        "not json ⟨ESC⟩",
    ]
    assert run("tail", "logs", "-n", "1", "--no-follow", "--json")[1] == "not json ⟨ESC⟩\n"
