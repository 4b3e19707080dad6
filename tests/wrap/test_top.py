"""`bascule top` and `bascule watch` as a person sees them."""

import argparse
import json
import subprocess
import sys

import pytest
from living import Living, eventually, run_command, short_dir
from person import Person

from bascule.broker.cli import watch
from bascule.cli.top import Painter, Snapshot, render
from bascule.client import SyncClient
from patience import PATIENCE, cpu_seconds

STATUS = {"version": "1", "agentsOnline": 1, "agents": 2, "ticketsOpen": 1}
AGENTS = [
    {"agentId": "Spock", "type": "claude", "status": "offline", "metadata": {}},
    {"agentId": "Jerry", "type": "codex", "status": "online", "metadata": {"cwd": "/a"}, "unread": 2},
    {"agentId": "reviewers", "type": "group", "status": "online", "metadata": {"members": ["Jerry", "Spock"]}},
]
TICKET = {
    "ticketId": "t-1",
    "from": "local",
    "targetAgent": "Jerry",
    "status": "pending",
    "group": "reviewers",
    "createdAt": "2025-10-20T08:00:00.000Z",
    "replyBy": "2025-10-20T08:30:00.000Z",
    "delivery": {"state": "rung"},
}
EVENT = {"at": "2025-10-20T08:00:01.000Z", "event": "ticket.rung", "agentId": "Jerry", "ticketId": "t-1"}
APPROVAL = {"approvalId": "apr_1", "principal": "agent:Jerry", "summary": "rm -rf build\x1b[2J", "state": "pending"}


def snapshot(**more):
    facts = {"status": STATUS, "agents": AGENTS, "tickets": [TICKET], "approvals": [APPROVAL], "events": [EVENT]}
    return Snapshot(**{**facts, **more})


def test_the_screen_says_who_what_and_what_waits():
    assert [row.rstrip() for row in render(snapshot(), 110, None)] == [
        "bascule 1   agents 1/2 online   messages 1 open   approvals 1 waiting   q quits",
        "",
        "WAITING FOR YOU",
        "apr_1  agent:Jerry: rm -rf build⟨ESC⟩[2J   (bascule approvals approve apr_1)",
        "",
        "AGENT                         TYPE            STATUS          UNREAD      WHERE",
        "Jerry                         codex           online          2           /a",
        "reviewers                     group           online                      Jerry, Spock",
        "Spock                         claude          offline",
        "",
        "MESSAGE                       FROM            TO              IS          SINCE",
        "t-1                           local           Jerry (reviewers)  rung        08:00:00, reply by 08:30:00",
        "",
        "EVENTS",
        "08:00:01  ticket.rung            Jerry t-1",
    ]


@pytest.mark.parametrize("height", range(1, 40))
def test_top_fits_into_any_window(height):
    many = [{**AGENTS[1], "agentId": f"A{number}"} for number in range(50)]
    rows = render(snapshot(agents=many, events=[EVENT] * 100), 40, height)
    assert all(len(row) <= 40 for row in rows)
    # A title and an empty row per part are the least that is worth looking at.
    assert len(rows) <= max(height, 9)


def test_only_rows_that_changed_are_written_again():
    painter = Painter()
    first = painter.changes(["a", "b", "c"], 10)
    assert first.count("\x1b[K") == 3
    assert painter.changes(["a", "b", "c"], 10) == ""
    assert painter.changes(["a", "x"], 10).count("\x1b[K") == 2


@pytest.fixture
def top(daemon):
    person = Person([sys.executable, "-P", "-m", "bascule.cli.start", "top", "--state-dir", daemon.state], columns=120)
    yield person
    person.leave()


def test_top_is_live_quiet_and_leaves_the_terminal_as_it_was(top, daemon, agents, sender):
    top.sees("q quits")
    with SyncClient.connect(daemon.state, agents[0], register=True, type="codex") as jerry:
        top.sees(f"^{agents[0]} +codex +online")
        ticket = sender.send(agents[0], "secret words").ticket_id
        top.sees(f"{ticket[-28:]} .*queued")
        assert "secret" not in "\n".join(top.lines)
        jerry.reply(ticket, "done")
        top.sees("ticket.responded")
        top.until(lambda: not any(ticket[-28:] in row and "queued" in row for row in top.lines), "it is not in flight")
        top.resize(12, 60)
        top.sees("q quits|…")
        top.still(1.0)
        before, shown = cpu_seconds(top.pid), len(top.shown)
        top.look(2.0)
        # Nothing happens: nothing is written, next to nothing is computed.
        assert len(top.shown) == shown
        assert cpu_seconds(top.pid) - before < 0.5
    top.type("q")
    assert top.ends() == 0
    assert top.shown.endswith(b"\x1b[?25h\x1b[?1049l")


def test_top_waits_for_a_daemon_that_comes_back():
    with short_dir() as folder:
        first = Living(f"{folder}/s", port=0)
        person = Person([sys.executable, "-P", "-m", "bascule.cli.start", "top", "--state-dir", f"{folder}/s"])
        try:
            person.sees("q quits")
            first.kill()
            with Living(f"{folder}/s", port=0), SyncClient.connect(f"{folder}/s", "Back", register=True):
                person.sees("^Back +agent +online", 30)
                person.type("q")
                assert person.ends() == 0
        finally:
            person.leave()
            first.kill()


def test_top_without_a_terminal_prints_once(daemon, agents):
    with SyncClient.connect(daemon.state, agents[0], register=True):
        done = run_command("top", "--state-dir", daemon.state)
        assert done.returncode == 0
        assert f"{agents[0]} " in done.stdout
        assert "\x1b" not in done.stdout
        snapshot = json.loads(run_command("top", "--json", "--state-dir", daemon.state).stdout)
        assert agents[0] in [agent["agentId"] for agent in snapshot["agents"]]


# -- watch --


def test_a_message_is_watched_from_where_it_is_to_its_end(daemon, agents, sender):
    with SyncClient.connect(daemon.state, agents[0], register=True) as jerry:
        ticket = sender.send(agents[0], "hello").ticket_id
        watching = subprocess.Popen(
            [sys.executable, "-P", "-m", "bascule.cli.start", "watch", ticket, "--state-dir", daemon.state],
            stdout=subprocess.PIPE,
            text=True,
        )
        with watching:
            assert watching.stdout.readline().endswith(f"local -> {agents[0]}: pending, queued\n")
            for message in jerry.messages():
                message.ack()
                break
            assert f"delivered  {agents[0]}" in watching.stdout.readline()
            jerry.reply(ticket, "the answer\x1b[2J")
            assert f"responded  {agents[0]}" in watching.stdout.readline()
            # Whoever sent it may read the answer here too; control characters are shown, not obeyed.
            assert watching.stdout.readline() == "the answer⟨ESC⟩[2J\n"
            assert watching.wait(PATIENCE) == 0


def test_what_happens_while_the_ticket_is_read_is_shown_too(daemon, agents, sender, monkeypatch, capsys):
    with SyncClient.connect(daemon.state, agents[0], register=True) as jerry:
        ticket = sender.send(agents[0], "hello").ticket_id
        read = SyncClient.ticket

        def read_late(client, wanted):
            view = read(client, wanted)
            if view.status == "pending":
                next(iter(jerry.messages())).ack()
                jerry.reply(ticket, "the answer")
            return view

        monkeypatch.setattr(SyncClient, "ticket", read_late)
        args = argparse.Namespace(ticket=ticket, state_dir=daemon.state, json=False)
        assert watch.run(args) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in shown[1:3]] == ["delivered", "responded"]
    assert shown[3:] == ["the answer"]


def test_the_exit_code_of_watch_is_how_the_ticket_ended(daemon, agents, sender):
    with SyncClient.connect(daemon.state, agents[0], register=True):
        cancelled = sender.send(agents[0], "never mind").ticket_id
        sender.cancel(cancelled)
        late = sender.send(agents[0], "quick", timeout=0.05).ticket_id
        eventually(lambda: sender.ticket(late).status == "timeout", "its time is over")
        for ticket, code in ((cancelled, 6), (late, 3), ("no-such", 5), ("bad/id", 2)):
            assert run_command("watch", ticket, "--state-dir", daemon.state).returncode == code, ticket
