"""bridge-wait by hand, and as the clients' hooks: their documented JSON in, what they document out."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from living import Living, eventually, short_dir

from bascule.doors import exits
from bascule.helpers import hook, kin, wait

BIN = Path(sys.executable).parent
KEPT = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")

# What Claude Code and Codex say to a hook, as their references show it.
COMMON = {
    "session_id": "00893aaf-19fa-41d2-8238-13269b9b3ca0",
    "transcript_path": "/home/user/.claude/projects/p/00893aaf.jsonl",
    "cwd": "/home/user/my-project",
    "permission_mode": "default",
}
CLAUDE = {
    "SessionStart": {"source": "startup", "model": "claude-sonnet-4-6"},
    "UserPromptSubmit": {"prompt": "Write a function"},
    "PostToolUse": {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_response": {}, "tool_use_id": "t1"},
    "Stop": {"stop_hook_active": False, "last_assistant_message": "Done.", "background_tasks": [], "session_crons": []},
}
CODEX = {
    event: {"turn_id": "turn-1", "model": "gpt-6-codex", **fields}
    for event, fields in (
        ("SessionStart", {"source": "startup"}),
        ("UserPromptSubmit", {"prompt": "hi"}),
        ("PostToolUse", CLAUDE["PostToolUse"]),
        ("Stop", {"stop_hook_active": False, "last_assistant_message": None}),
    )
}


def said(kind, event, **more):
    fields = (CLAUDE if kind == "claude" else CODEX)[event]
    return json.dumps({**COMMON, "hook_event_name": event, **fields, **more})


def environment(**variables):
    return {name: os.environ[name] for name in KEPT if name in os.environ} | variables


# A client in a few lines: runs its hooks through a shell, each with its JSON, and lives as long as its stdin.
CLIENT = f"""#!{sys.executable}
import json, subprocess, sys
for line in sys.stdin:
    job = json.loads(line)
    done = subprocess.run(["/bin/sh", "-c", job["command"]], input=job["stdin"], text=True)
    sys.exit(done.returncode)
"""


@pytest.fixture(scope="module")
def client():
    with short_dir() as folder:
        path = Path(folder, "claude")
        path.write_text(CLIENT)
        path.chmod(0o700)
        yield path


def start(daemon, *words, client=None, stdin="", **variables):
    """A hook as a client starts it: through a shell, with its JSON on stdin."""
    command = " ".join([f"'{BIN}/bridge-wait'", *words, "--state-dir", f"'{daemon.state}'"])
    program = [client] if client else ["/bin/sh", "-c", command]
    process = subprocess.Popen(
        program,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**variables),
    )
    process.stdin.write(json.dumps({"command": command, "stdin": stdin}) + "\n" if client else stdin)
    process.stdin.close()
    process.stdin = None
    return process


def run(daemon, *words, **variables):
    process = start(daemon, *words, **variables)
    out, err = process.communicate(timeout=30)
    return process.returncode, out, err


def run_hook(daemon, kind, event, agent, *words, client=None, **more):
    words = ("--hook", kind, "--event", event, *words)
    return run(daemon, *words, client=client, stdin=said(kind, event, **more), BRIDGE_AGENT_ID=agent)


def ok(daemon, *words):
    done = subprocess.run(
        [BIN / words[0], *words[1:], "--state-dir", daemon.state],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def send(daemon, to, text="secret text", **options):
    words = [word for name, value in options.items() for word in (f"--{name.rstrip('_')}", value)]
    return ok(daemon, "bridge-send", to, text, "--no-wait", *words).strip()


def delivery(daemon, ticket):
    return json.loads(ok(daemon, "bridgectl", "show", ticket, "--json"))["delivery"]


def held(daemon):
    """Waits that the daemon holds open now."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(daemon.http_socket)
        sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        with sock.makefile("r") as lines:
            return next(int(float(line.split()[1])) for line in lines if line.startswith("bascule_waits "))


@contextlib.contextmanager
def one_more_wait(daemon):
    """Goes on when what was started inside has reached the daemon and waits there."""
    before = held(daemon)
    yield
    eventually(lambda: held(daemon) > before, "it waits", 20)


@pytest.fixture
def agents(daemon):
    """Two fresh handles, because one daemon serves all tests here."""
    stamp = os.urandom(4).hex()
    names = f"Jerry-{stamp}", f"Spock-{stamp}"
    for name in names:
        ok(daemon, "bridge-register", "--agent", name)
    return names


# -- by hand --


def test_it_says_who_wrote_and_takes_nothing(daemon, agents):
    jerry, spock = agents
    send(daemon, jerry, as_=spock)
    send(daemon, jerry)
    code, out, _ = run(daemon, "--agent", jerry)
    assert code == exits.OK
    assert f"2 unread messages for {jerry} from {spock} and a program of this user" in out
    assert "secret text" not in out
    assert "secret text" in ok(daemon, "bridge-recv", "--agent", jerry)


def test_it_waits_for_a_message(daemon, agents):
    jerry, _ = agents
    waiting = start(daemon, "--wait", "60000", "--json", BRIDGE_AGENT_ID=jerry)
    ticket = send(daemon, jerry)
    out, _ = waiting.communicate(timeout=30)
    assert waiting.returncode == exits.OK
    assert json.loads(out) == {"agentId": jerry, "unread": 1, "from": ["local"], "oldest": ticket}


def test_nothing_in_time_is_exit_code_3(daemon, agents):
    code, out, err = run(daemon, "--agent", agents[0], "--wait", "50")
    assert (code, out) == (exits.NOTHING_CAME, "")
    assert "run bridge-wait again" in err


def test_without_a_name_it_asks_for_one(daemon):
    code, _, err = run(daemon, "--wait", "0")
    assert code == exits.USAGE
    assert "which agent? Pass --agent NAME or set BRIDGE_AGENT_ID" in err


@pytest.mark.parametrize("words", [["--event", "Stop"], ["--queue"], ["--explain"], ["--hook", "emacs"]])
def test_what_belongs_to_hooks_is_refused_without_one(daemon, words):
    assert run(daemon, *words)[0] == exits.USAGE


def test_the_sender_sees_that_a_bell_was_rung(daemon, agents):
    ticket = send(daemon, agents[0])
    assert delivery(daemon, ticket)["state"] == "queued"
    run(daemon, "--agent", agents[0])
    seen = delivery(daemon, ticket)
    assert (seen["state"], seen["by"]) == ("rung", ["bridge-wait"])


# -- notices: one line of context, at once --


@pytest.mark.parametrize("kind", hook.CLIENTS)
@pytest.mark.parametrize("event", ["UserPromptSubmit", "PostToolUse"])
def test_a_notice_is_one_line_of_context(daemon, agents, kind, event):
    jerry, spock = agents
    ticket = send(daemon, jerry, as_=spock)
    code, out, err = run_hook(daemon, kind, event, jerry)
    assert (code, err) == (0, "")
    answer = json.loads(out)
    assert answer.keys() == {"hookSpecificOutput"}
    assert answer["hookSpecificOutput"].keys() == {"hookEventName", "additionalContext"}
    assert answer["hookSpecificOutput"]["hookEventName"] == event
    context = answer["hookSpecificOutput"]["additionalContext"]
    assert f"1 unread message for {jerry} from {spock}: call wait_for_message" in context
    assert "not from your user" in context
    assert "\n" not in context
    assert "secret text" not in context
    assert delivery(daemon, ticket)["by"] == [f"{kind} {event}"]


def test_a_new_session_of_codex_is_told_as_well(daemon, agents):
    send(daemon, agents[0])
    _, out, _ = run_hook(daemon, "codex", "SessionStart", agents[0])
    assert json.loads(out)["hookSpecificOutput"]["hookEventName"] == "SessionStart"


@pytest.mark.parametrize("kind", hook.CLIENTS)
@pytest.mark.parametrize("event", ["UserPromptSubmit", "PostToolUse"])
def test_without_a_message_a_notice_is_silent(daemon, agents, kind, event):
    assert run_hook(daemon, kind, event, agents[0]) == (0, "", "")


def test_every_prompt_reminds_and_a_tool_only_once(daemon, agents):
    send(daemon, agents[0])
    assert run_hook(daemon, "claude", "PostToolUse", agents[0])[1]
    assert not run_hook(daemon, "claude", "PostToolUse", agents[0])[1]
    for _ in range(2):
        assert run_hook(daemon, "claude", "UserPromptSubmit", agents[0])[1]
    send(daemon, agents[0])
    assert "2 unread" in run_hook(daemon, "claude", "PostToolUse", agents[0])[1]


def test_a_subagent_is_told_nothing(daemon, agents):
    send(daemon, agents[0])
    more = {"agent_id": "a1", "agent_type": "Explore"}
    assert run_hook(daemon, "claude", "PostToolUse", agents[0], **more) == (0, "", "")


def test_a_large_tool_result_is_read_to_its_end(daemon, agents):
    send(daemon, agents[0])
    code, out, _ = run_hook(daemon, "codex", "PostToolUse", agents[0], tool_response="x" * 3_000_000)
    assert code == 0
    assert "1 unread" in out


def test_a_pipe_that_stays_open_does_not_hold_a_hook(daemon, agents):
    send(daemon, agents[0])
    process = subprocess.Popen(
        [BIN / "bridge-wait", "--hook", "claude", "--state-dir", daemon.state],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(BRIDGE_AGENT_ID=agents[0]),
    )
    process.stdin.write(said("claude", "UserPromptSubmit"))
    process.stdin.flush()
    assert process.wait(timeout=30) == 0
    assert "1 unread" in process.stdout.read()
    process.stdin.close()
    process.stdout.close()


def test_a_notice_takes_a_moment(daemon, agents, record_property):
    send(daemon, agents[0])
    took = []
    for _ in range(5):
        begun = time.perf_counter()
        assert run_hook(daemon, "claude", "UserPromptSubmit", agents[0])[1]
        took.append(time.perf_counter() - begun)
    record_property("milliseconds", round(sorted(took)[2] * 1000))
    # The goal is 100 ms; the bound only tells a mistake from a busy machine.
    assert sorted(took)[2] < 1.0


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
                stdin=said("claude", event),
                BRIDGE_AGENT_ID=agent,
            )

    return hang


def test_a_message_wakes_an_idle_agent(daemon, agents, bell, record_property):
    jerry, spock = agents
    waiting = bell()
    ticket = send(daemon, jerry, as_=spock)
    begun = time.perf_counter()
    out, err = waiting.communicate(timeout=10)
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
        *(daemon, "--hook", "claude", "--agent", agents[0]), client=older.args[0], stdin=said("claude", "Stop")
    )
    _, err = older.communicate(timeout=20)
    assert older.returncode == 0
    assert "a newer bell took over" in err
    send(daemon, agents[0])
    newer.communicate(timeout=20)
    assert newer.returncode == 2


def test_a_session_that_answers_once_is_not_kept_waiting(daemon, agents, client):
    send(daemon, agents[0])
    job = {
        "command": f"'{BIN}/bridge-wait' --hook claude --state-dir '{daemon.state}'",
        "stdin": said("claude", "Stop"),
    }
    done = subprocess.run(
        [client, "-p", "do this"],
        input=json.dumps(job) + "\n",
        capture_output=True,
        text=True,
        timeout=30,
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
            assert "[bascule] 1 unread" in waiting.communicate(timeout=30)[1]
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
    return run(daemon, *words, client=client, stdin=said("codex", "Stop", **more), **variables)


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
    code, _, _ = run(daemon, *words, client=client, stdin=said("codex", "Stop"), BRIDGE_AGENT_ID=agents[0], PATH=path)
    assert code == 0
    assert not called.exists()


@pytest.mark.parametrize("session", ["", "--help", "a;b", "x" * 129, None])
def test_a_session_without_a_proper_id_is_left_alone(daemon, agents, client, fake_codex, session):
    send(daemon, agents[0])
    assert queue(daemon, agents[0], client, fake_codex[1], session_id=session)[0] == 0
    assert not fake_codex[0].exists()


# -- never in the way --


BROKEN = {
    "nothing": "",
    "not JSON": "{",
    "a list": "[1]",
    "not UTF-8": "\udcff",
    "another event": json.dumps({**COMMON, "hook_event_name": "PreToolUse"}),
    "no fields": "{}",
    "fields of other types": json.dumps({"hook_event_name": 7, "cwd": [], "session_id": {}, "agent_id": 0}),
}


@pytest.mark.parametrize("kind", hook.CLIENTS)
@pytest.mark.parametrize("what", BROKEN)
def test_whatever_comes_in_a_hook_exits_0_and_says_nothing(daemon, agents, kind, what):
    process = subprocess.run(
        [BIN / "bridge-wait", "--hook", kind, "--state-dir", daemon.state],
        input=BROKEN[what].encode("utf-8", "surrogateescape"),
        capture_output=True,
        timeout=30,
        env=environment(BRIDGE_AGENT_ID=agents[0]),
        check=False,
    )
    assert (process.returncode, process.stdout, process.stderr) == (0, b"", b"")


@pytest.mark.parametrize("event", hook.EVENTS)
def test_without_a_daemon_a_hook_is_silent(state, event, client):
    class Nobody:
        pass

    nobody = Nobody()
    nobody.state = state
    code, out, err = run_hook(nobody, "codex", event, "Jerry")
    assert (code, out.strip("{}\n"), err) == (0, "", "")


def test_without_an_agent_a_hook_is_silent(daemon):
    assert run(daemon, "--hook", "claude", stdin=said("claude", "UserPromptSubmit")) == (0, "", "")


def test_a_hook_explains_itself_when_it_is_asked_to(daemon):
    _, _, err = run(daemon, "--hook", "claude", "--explain", stdin=said("claude", "UserPromptSubmit"))
    assert "its agent is not known" in err


def test_the_parser_knows_the_clients_and_events_of_the_hooks():
    assert (wait.CLIENTS, wait.EVENTS) == (hook.CLIENTS, hook.EVENTS)
    assert hook.BELL_WAIT_MS < hook.BELL_TIMEOUT_SECONDS * 1000
    assert set(kin.ONE_SHOT) == set(hook.CLIENTS)


HEAVY = {
    *("asyncio", "msgspec", "http", "http.client", "pathlib", "subprocess", "logging", "uuid", "secrets", "ssl"),
    *("typing", "email", "urllib", "urllib.parse", "dataclasses", "inspect", "random", "hashlib", "tempfile", "shlex"),
    *("bascule.wire", "bascule.protocols", "bascule.errors", "bascule.ids", "bascule.call"),
}


def test_it_loads_nothing_heavy():
    code = (
        f"import sys, json; sys.path[:0] = {sys.path!r}; "
        "import bascule.helpers.program, bascule.helpers.wait, bascule.helpers.hook; "
        "print(json.dumps(list(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, check=True, timeout=30)
    assert HEAVY.isdisjoint(json.loads(done.stdout)), sorted(HEAVY & set(json.loads(done.stdout)))
