"""Bells: bridge-wait in the background of a session, until a message wakes its agent."""

import json
import os
import subprocess
import sys
import time

import pytest
from hook_client import BIN, COMMON, delivery, environment, ok, one_more_wait, payload_of, run, run_hook, send, start
from living import Living, short_dir

from bascule.local_client.exits import NotRunning
from bascule.programs.helpers.bell import OUTAGE_SECONDS, SLICE_MS, SessionOver, wait_as_bell
from patience import PATIENCE

# -- Claude Code: asyncRewake --


@pytest.fixture
def stop(daemon, agents, client):
    """The end of a turn of Jerry's session."""

    def run_stop(*words, event="Stop", **more):
        return run_hook(daemon, "claude", event, agents[0], *words, client=client, **more)

    return run_stop


@pytest.fixture
def bell(daemon, agents, client):
    """A bell that hangs in the daemon, as its own process."""

    def hang(event="Stop", daemon=daemon, agent=agents[0], client=client):
        with one_more_wait(daemon):
            return start(
                *(daemon, "--hook", "claude", "--event", event, "--explain"),
                client=client,
                stdin=payload_of("claude", event),
                BRIDGE_AGENT_ID=agent,
            )

    return hang


def test_a_message_wakes_an_idle_agent(daemon, agents, bell, record_property):
    jerry, spock = agents
    waiting = bell()
    ticket = send(daemon, jerry, as_=spock)
    begun = time.perf_counter()
    out, err = waiting.communicate(timeout=PATIENCE)
    record_property("milliseconds", round((time.perf_counter() - begun) * 1000))
    assert (waiting.returncode, out) == (2, "")
    assert f"1 unread message for {jerry} from {spock}: call wait_for_message" in err
    assert "secret text" not in err
    seen = delivery(daemon, ticket)
    assert (seen["state"], seen["by"]) == ("rung", ["claude asyncRewake"])


def test_what_wakes_is_one_line_and_nothing_else(daemon, agents, stop):
    send(daemon, agents[0])
    code, out, err = stop()
    assert (code, out) == (2, "")
    assert err.startswith(f"[bascule] 1 unread message for {agents[0]} from a program of this user: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("active", [True, False])
def test_an_agent_that_leaves_its_message_alone_is_not_woken_in_circles(daemon, agents, stop, active):
    send(daemon, agents[0])
    assert stop()[0] == 2
    assert stop("--wait", "100", stop_hook_active=active) == (0, "", "")


def test_a_notice_in_the_turn_does_not_keep_the_bell_at_its_end_silent(daemon, agents, stop):
    send(daemon, agents[0])
    run_hook(daemon, "claude", "PostToolUse", agents[0])
    assert stop()[0] == 2


def test_a_new_session_is_woken_for_what_the_last_one_left(daemon, agents, stop):
    send(daemon, agents[0])
    stop()
    assert stop(event="SessionStart")[0] == 2


def test_the_bell_of_the_next_turn_takes_over(daemon, agents, bell):
    older = bell("SessionStart")
    newer = start(
        *(daemon, "--hook", "claude", "--agent", agents[0]), client=older.args[0], stdin=payload_of("claude", "Stop")
    )
    _, err = older.communicate(timeout=PATIENCE)
    assert older.returncode == 0
    assert "a newer bell took over" in err
    send(daemon, agents[0])
    newer.communicate(timeout=PATIENCE)
    assert newer.returncode == 2


def test_a_session_that_answers_once_is_not_kept_waiting(daemon, agents, client):
    send(daemon, agents[0])
    job = {
        "command": f"'{BIN}/bridge-wait' --hook claude --state-dir '{daemon.state}'",
        "stdin": payload_of("claude", "Stop"),
    }
    done = subprocess.run(
        [client, "-p", "do this"],
        input=json.dumps(job) + "\n",
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=environment(BRIDGE_AGENT_ID=agents[0]),
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_bell_waits_through_a_restart_of_the_daemon(bell, client):
    with short_dir() as folder:
        with Living(f"{folder}/s") as before:
            ok(before, "bridge-register", "--agent", "Jerry")
            waiting = bell(daemon=before, agent="Jerry")
            before.stop()
        with Living(f"{folder}/s") as after:
            send(after, "Jerry")
            assert "[bascule] 1 unread" in waiting.communicate(timeout=PATIENCE)[1]
            assert waiting.returncode == 2


# -- Codex --


def test_codex_goes_on_at_the_end_of_its_turn(daemon, agents):
    jerry, spock = agents
    ticket = send(daemon, jerry, as_=spock)
    code, out, err = run_hook(daemon, "codex", "Stop", jerry)
    assert (code, err) == (0, "")
    answer = json.loads(out)
    assert answer.keys() == {"decision", "reason"}
    assert answer["decision"] == "block"
    assert f"1 unread message for {jerry} from {spock}" in answer["reason"]
    assert delivery(daemon, ticket)["by"] == ["codex Stop"]


def test_codex_is_not_held_twice_for_one_message(daemon, agents):
    send(daemon, agents[0])
    assert "block" in run_hook(daemon, "codex", "Stop", agents[0])[1]
    assert run_hook(daemon, "codex", "Stop", agents[0]) == (0, "{}\n", "")


def test_codex_is_not_held_while_a_hook_keeps_it_going(daemon, agents):
    send(daemon, agents[0])
    assert run_hook(daemon, "codex", "Stop", agents[0], stop_hook_active=True) == (0, "{}\n", "")


def test_codex_without_a_message_ends_its_turn(daemon, agents):
    assert run_hook(daemon, "codex", "Stop", agents[0]) == (0, "{}\n", "")


@pytest.fixture
def fake_codex(tmp_path):
    """A `codex` that writes down how it was called, and exits as it is told."""
    folder = tmp_path / "bin"
    folder.mkdir()
    path = folder / "codex"
    path.write_text(
        f"#!{sys.executable}\nimport json, os, sys\n"
        f"json.dump(sys.argv[1:], open({str(tmp_path / 'called')!r}, 'w'))\n"
        "sys.exit(int(os.environ['FAKE_CODEX_EXIT']))\n"
    )
    path.chmod(0o700)
    return tmp_path / "called", f"{folder}:{os.environ['PATH']}"


def queue(daemon, agent, client, path, exit_code=0, **more):
    words = ("--hook", "codex", "--event", "Stop", "--queue", "--explain", "--wait", "5000")
    variables = {"BRIDGE_AGENT_ID": agent, "PATH": path, "FAKE_CODEX_EXIT": str(exit_code)}
    return run(daemon, *words, client=client, stdin=payload_of("codex", "Stop", **more), **variables)


def test_a_bell_goes_into_the_queue_of_the_session(daemon, agents, client, fake_codex):
    called, path = fake_codex
    ticket = send(daemon, agents[0])
    code, out, _ = queue(daemon, agents[0], client, path)
    assert (code, out) == (0, "")
    words = json.loads(called.read_text())
    assert words[:4] == ["queue", "--thread", COMMON["session_id"], "--message"]
    assert words[4].startswith("[bascule] 1 unread message")
    assert "not from your user" in words[4]
    assert delivery(daemon, ticket)["by"] == ["codex queue"]


def test_a_bell_that_codex_did_not_take_was_not_rung(daemon, agents, client, fake_codex):
    ticket = send(daemon, agents[0])
    code, out, err = queue(daemon, agents[0], client, fake_codex[1], exit_code=1)
    assert (code, out) == (0, "")
    assert "codex queue exited with 1" in err
    assert delivery(daemon, ticket)["state"] == "queued"


def test_the_queue_is_not_used_for_what_was_rung_for(daemon, agents, client, fake_codex):
    called, path = fake_codex
    send(daemon, agents[0])
    run_hook(daemon, "codex", "Stop", agents[0])
    words = ("--hook", "codex", "--event", "Stop", "--queue", "--wait", "50")
    code, _, _ = run(
        daemon, *words, client=client, stdin=payload_of("codex", "Stop"), BRIDGE_AGENT_ID=agents[0], PATH=path
    )
    assert code == 0
    assert not called.exists()


@pytest.mark.parametrize("session", ["", "--help", "a;b", "x" * 129, None])
def test_a_session_without_a_proper_id_is_left_alone(daemon, agents, client, fake_codex, session):
    send(daemon, agents[0])
    assert queue(daemon, agents[0], client, fake_codex[1], session_id=session)[0] == 0
    assert not fake_codex[0].exists()


# -- how long a bell hangs --


class Story:
    """A clock that only sleeping moves, and a daemon that answers from a list."""

    def __init__(self, *answers):
        self.now = 0.0
        self.asked = []
        self._answers = list(answers)

    def look(self, slice_ms):
        self.asked.append(slice_ms)
        answer = self._answers.pop(0) if self._answers else None
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            self.now += slice_ms / 1000
        return answer

    def wait(self, wait_ms, is_over=lambda: False):
        return wait_as_bell(self.look, wait_ms, is_over, clock=lambda: self.now, sleep=self.sleep)

    def sleep(self, seconds):
        self.now += seconds


def test_a_bell_looks_after_its_client_now_and_then():
    story = Story()
    assert story.wait(50_000) is None
    assert story.asked[:2] == [SLICE_MS, SLICE_MS]
    assert story.now == 50


def test_a_bell_without_a_client_leaves():
    story = Story()
    with pytest.raises(SessionOver):
        story.wait(10**9, is_over=lambda: story.now >= 100)
    assert story.now == 100


def test_a_bell_survives_an_upgrade_of_the_daemon():
    away = [NotRunning("there")] * 100
    story = Story(None, *away, {"unread": 1})
    assert story.wait(10**9) == {"unread": 1}
    assert story.now > 60


def test_a_bell_does_not_wait_for_a_daemon_that_was_switched_off():
    story = Story(None, *[NotRunning("there")] * 10_000)
    with pytest.raises(NotRunning):
        story.wait(10**9)
    assert OUTAGE_SECONDS < story.now < OUTAGE_SECONDS * 1.3
