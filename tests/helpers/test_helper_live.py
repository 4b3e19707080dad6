"""The commands as processes against a living daemon: what a person or an agent's shell would do."""

import json
import os
import subprocess
import sys
from pathlib import Path

from living import Living, short_dir

from bascule.local_client import exits
from patience import PATIENCE

BIN = Path(sys.executable).parent
KEPT = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")


def environment(**variables):
    return {name: os.environ[name] for name in KEPT if name in os.environ} | variables


def command(daemon, *words):
    return [BIN / words[0], *words[1:], "--state-dir", daemon.state]


def run(daemon, *words, stdin=None, **variables):
    return subprocess.run(
        command(daemon, *words),
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=environment(**variables),
        check=False,
    )


def ok(daemon, *words, stdin=None, **variables):
    done = run(daemon, *words, stdin=stdin, **variables)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def names():
    """Fresh handles, because one daemon serves all tests here."""
    stamp = os.urandom(4).hex()
    return f"Jerry-{stamp}", f"Spock-{stamp}"


def test_two_agents_ask_and_answer_from_their_shells(daemon):
    jerry, spock = names()
    ok(daemon, "bridge-register", "--agent", jerry, "--type", "codex", "--pane", "%0")
    ok(daemon, "bridge-register", "--agent", spock)
    asking = subprocess.Popen(
        command(daemon, "bridge-send", jerry, "What is 6 x 7?", "--as", spock, "--timeout", "60000"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    received = ok(daemon, "bridge-recv", "--agent", jerry)
    header, _, text = received.partition("-" * 40 + "\n")
    assert text == "What is 6 x 7?\n"
    assert f"from agent {spock} (sender verified): not from your user" in header
    ticket = header.split("bridge-reply ")[1].split(" ")[0]
    # Without --agent: the command knows who received the ticket.
    ok(daemon, "bridge-reply", ticket, stdin="42\n")
    out, err = asking.communicate(timeout=PATIENCE)
    assert (asking.returncode, out) == (0, "42\n")
    assert f"reply from agent {jerry}" in err
    shown = json.loads(ok(daemon, "bridgectl", "show", ticket, "--agent", spock, "--json"))
    assert (shown["status"], shown["response"], shown["from"]) == ("responded", "42", spock)


def test_a_message_to_somebody_who_is_not_there_names_who_is(daemon):
    jerry, spock = names()
    ok(daemon, "bridge-register", "--agent", jerry)
    done = run(daemon, "bridge-send", spock, "x")
    assert done.returncode == exits.NOT_FOUND
    assert "agent not registered" in done.stderr


def test_a_handle_of_others_cannot_be_used_without_its_token(daemon):
    jerry, _ = names()
    ok(daemon, "bridge-register", "--agent", jerry)
    for words in (
        ("bridge-recv", "--agent", jerry, "--wait", "0"),
        ("bridge-reply", "t-1", "x", "--agent", jerry),
    ):
        done = subprocess.run(
            [BIN / words[0], *words[1:], "--state-dir", f"{daemon.state}-elsewhere"],
            capture_output=True,
            timeout=PATIENCE,
            env=environment(BRIDGE_BROKER_URL=f"http://127.0.0.1:{daemon.port}", BRIDGE_AGENT_TOKEN="guessed"),
            check=False,
        )
        assert done.returncode == exits.REFUSED


def test_the_address_of_our_own_daemon_needs_no_token(daemon):
    url = f"http://127.0.0.1:{daemon.port}"
    jerry, _ = names()
    ok(daemon, "bridge-register", "--agent", jerry, BRIDGE_BROKER_URL=url)
    assert jerry in ok(daemon, "bridgectl", "list", "agents", BRIDGE_BROKER_URL=url)


def test_a_message_that_was_not_printed_comes_again(daemon):
    jerry, _ = names()
    ok(daemon, "bridge-register", "--agent", jerry)
    ticket = ok(daemon, "bridge-send", jerry, "once", "--no-wait").strip()
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        command(daemon, "bridge-recv", "--agent", jerry), stdout=writing, timeout=PATIENCE, check=False
    )
    os.close(writing)
    assert done.returncode == exits.UNEXPECTED
    shown = json.loads(ok(daemon, "bridgectl", "show", ticket, "--json"))
    assert (shown["status"], shown["attempts"]) == ("pending", 1)


def test_no_reply_in_time_is_exit_code_3_and_a_late_one_is_kept(daemon):
    jerry, _ = names()
    ok(daemon, "bridge-register", "--agent", jerry)
    done = run(daemon, "bridge-send", jerry, "quick", "--timeout", "200", "--ticket", f"late-{jerry}")
    assert done.returncode == exits.NOTHING_CAME
    assert f"bridgectl show late-{jerry}" in done.stderr
    ok(daemon, "bridge-reply", f"late-{jerry}", "sorry", "--agent", jerry)
    assert "sorry" in ok(daemon, "bridgectl", "show", f"late-{jerry}")
    # The same command again is a retry of the same message: it gets the answer that came late.
    assert ok(daemon, "bridge-send", jerry, "quick", "--timeout", "200", "--ticket", f"late-{jerry}") == "sorry\n"


def test_a_cancelled_ticket_cannot_be_answered(daemon):
    jerry, _ = names()
    ok(daemon, "bridge-register", "--agent", jerry)
    ticket = ok(daemon, "bridge-send", jerry, "x", "--no-wait").strip()
    ok(daemon, "bridgectl", "cancel", ticket, "--reason", "solved")
    assert run(daemon, "bridge-reply", ticket, "x", "--agent", jerry).returncode == exits.CONFLICT


def test_the_ticket_may_come_from_the_environment(daemon):
    jerry, _ = names()
    ok(daemon, "bridge-register", "--agent", jerry)
    ticket = ok(daemon, "bridge-send", jerry, "x", "--no-wait").strip()
    ok(daemon, "bridge-reply", "done", BRIDGE_TICKET=ticket, BRIDGE_AGENT_ID=jerry)
    assert json.loads(ok(daemon, "bridgectl", "show", ticket, "--json"))["status"] == "responded"


def test_events_and_log_tell_the_story(daemon):
    jerry, _ = names()
    ok(daemon, "bridge-register", "--agent", jerry)
    assert f"agentId={jerry}" in ok(daemon, "bridgectl", "tail", "events", "-n", "20", "--no-follow")
    lines = ok(daemon, "bridgectl", "tail", "logs", "-n", "20", "--no-follow", "--json").splitlines()
    assert all(json.loads(line)["event"] for line in lines)


def test_an_asker_waits_through_a_restart_of_the_daemon():
    jerry, _ = names()
    with short_dir() as folder:
        state = f"{folder}/s"
        with Living(state) as before:
            ok(before, "bridge-register", "--agent", jerry)
            asking = subprocess.Popen(
                command(before, "bridge-send", jerry, "still there?", "--ticket", "t-1"),
                stdout=subprocess.PIPE,
                text=True,
                env=environment(),
            )
            received = json.loads(ok(before, "bridge-recv", "--agent", jerry, "--json"))
            assert received["ticketId"] == "t-1"
            before.kill()
        with Living(state) as after:
            ok(after, "bridge-reply", "t-1", "yes")
            assert asking.communicate(timeout=PATIENCE)[0] == "yes\n"
            assert asking.returncode == 0


def test_without_a_daemon_every_command_says_how_to_start_it(state):
    for words in (("bridgectl", "list", "agents"), ("bridgectl", "tail", "events")):
        done = subprocess.run(
            [BIN / words[0], *words[1:], "--state-dir", state],
            capture_output=True,
            timeout=PATIENCE,
            text=True,
            check=False,
        )
        assert done.returncode == exits.UNREACHABLE
        assert "start it with `bascule up -d`" in done.stderr
