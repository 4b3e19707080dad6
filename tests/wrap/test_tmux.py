"""tmux: panes as they are driven, launched, rung in and fallen back to."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from lacking import missing_here
from living import eventually

from bascule.client import SyncClient
from bascule.programs.mcp_stdio import tmux_fallback
from bascule.terminals.text import typeable
from bascule.terminals.tmux import Tmux, TmuxFailed
from patience import PATIENCE

BIN = os.path.dirname(sys.executable)
# Payloads pasted one by one through our own code, and in batches of the same commands.
BATCH = 250
PASTES = 10_000 if os.environ.get("BASCULE_LONG") else 2_000
CURSES = "import curses;curses.wrapper(lambda s:(s.border(*map(ord,'||--++++')),s.addstr(1,2,'full'),s.getch()))"


def bascule(daemon, server, *words, seconds=PATIENCE):
    return subprocess.run(
        [f"{BIN}/bascule", "tmux", *words],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        env={**os.environ, "BASCULE_STATE_DIR": daemon.state},
        cwd="/",
    )


# -- what is pasted is text --

PIECES = [
    *["touch CANARY", "$(touch CANARY)", "`touch CANARY`", "; touch CANARY;", "\ntouch CANARY\n", "\rtouch CANARY\r"],
    *["\x1b[201~", "\x1b[200~", "\x1b[201~\r", "\x1b[201~\n", "\x9b201~", "\xc2\x9b201~", "\x1b\x1b[201~[201~"],
    *["\r", "\n", "\r\n", "\x0f", "\x03", "\x04", "\x15", "\x16", "\x18\x05", "\x1b\r", "\x1b", "\x7f", "\x08", "\x00"],
    *[
        "\x85",
        "\x90",
        "\x9d",
        "\u2028",
        "\u2029",
        "\t",
        "!!",
        "!touch",
        "#",
        "'",
        '"',
        "\\",
        "${IFS}",
        "~",
        "é",
        "日本",
        "\U0001f600",
    ],
    *[
        "echo ok",
        " ",
        "&&",
        "|",
        "<(touch CANARY)",
        "{touch,CANARY}",
        "\x1b]0;touch CANARY\x07",
        "\x1bP+q\x1b\\",
        "\x1b[6n",
    ],
]


def payload(draw):
    return "".join(draw.choice(PIECES) for _ in range(draw.randint(1, 9)))


def run_batches(server, pane, texts, *, newlines, clear):
    """Paste them all without an Enter, each as `Tmux.paste` does, by the thousand per second."""
    folder = Path(server.folder)
    for start in range(0, len(texts), BATCH):
        lines = []
        for number, text in enumerate(texts[start : start + BATCH]):
            path = folder / f"p{number}"
            cleaned = typeable(text)
            if not cleaned:
                continue
            path.write_bytes((cleaned if newlines else cleaned.replace("\n", " ").replace("\t", " ")).encode())
            lines += [
                f"load-buffer -b b {path}",
                f"paste-buffer -p -r -d -b b -t {pane}",
                f"send-keys -t {pane} {clear}",
            ]
        script = folder / "script"
        script.write_text("\n".join(lines) + "\n")
        server.tmux.run("source-file", str(script))
        catch_up(server, pane, f"sync{start}", clear)


def catch_up(server, pane, marker, clear):
    """Until the shell has taken what was pasted. tmux may still paste while we type: then the line is typed again."""
    deadline = time.monotonic() + PATIENCE
    while True:
        server.keys(pane, *clear.split(), f"echo {marker}.", "Enter")
        try:
            server.sees(pane, lambda rows: f"{marker}." in rows, seconds=5.0)
        except AssertionError:
            if time.monotonic() > deadline:
                raise
        else:
            return


def shell(server, tmp_path, *command):
    pane = server.open(*command, cwd=tmp_path)
    server.sees(pane, "$")
    return pane


def test_fuzzed_payloads_pasted_into_bash_run_nothing(server, tmp_path):
    pane = shell(server, tmp_path, "bash", "--norc", "--noprofile")
    draw = random.Random(8)
    for _ in range(100):
        server.tmux.paste(pane, payload(draw))
        # Not Ctrl-C: the terminal would throw away what bash has not read yet.
        server.keys(pane, "C-e", "C-u")
    run_batches(server, pane, [payload(draw) for _ in range(PASTES - 100)], newlines=True, clear="C-e C-u")
    assert os.listdir(tmp_path) == []
    # The control: bash is alive and would have obeyed, and uncleaned text does run.
    raw = Path(server.folder, "raw")
    raw.write_bytes(b"x\x1b[201~\x15touch CANARY\rmore")
    server.tmux.run("load-buffer", "-b", "raw", str(raw))
    server.tmux.run("paste-buffer", "-p", "-r", "-d", "-b", "raw", "-t", pane)
    eventually(lambda: os.listdir(tmp_path) == ["CANARY"], "the naive paste")


def test_fuzzed_payloads_pasted_into_dash_run_nothing(server, tmp_path):
    pane = shell(server, tmp_path, "dash")
    draw = random.Random(9)
    for _ in range(100):
        server.tmux.type_line(pane, payload(draw), enter=False)
        server.keys(pane, "C-u")
    run_batches(server, pane, [payload(draw) for _ in range(PASTES - 100)], newlines=False, clear="C-u")
    assert os.listdir(tmp_path) == []
    # The control: dash takes no pastes, so a second line is a command.
    server.tmux.paste(pane, "x\ntouch CANARY\n")
    eventually(lambda: os.listdir(tmp_path) == ["CANARY"], "the naive paste")


def test_a_line_is_typed_and_its_enter_follows(server, tmp_path):
    pane = shell(server, tmp_path, "dash")
    server.tmux.type_line(pane, "echo one\r\ntwo\x1b[31m #hash")
    server.sees(pane, lambda rows: "one two[31m" in rows)
    assert server.shows(pane)[0] == "$ echo one two[31m #hash"


def test_words_that_are_keys_to_tmux_are_words(server, tmp_path):
    pane = shell(server, tmp_path, "bash", "--norc")
    server.tmux.paste(pane, "Enter C-c Escape")
    server.sees(pane, lambda rows: rows[-1] == "$ Enter C-c Escape")


def test_no_program_can_write_rows_for_other_panes(server, tmp_path):
    """Its directory is its own to name, line breaks included; that of another pane is not."""
    victim = server.open("cat", session="victim")
    forged = "\t".join(("x", f"\n{victim}", "victim", "1", "bash", "0", "0", "", "0", "1", "0", ""))
    folder = tmp_path / forged
    folder.mkdir()
    pane = server.open("cat", session="forger", cwd=folder)
    server.sees(pane, lambda _: "\n" in server.tmux.run("display-message", "-p", "-t", pane, "#{pane_current_path}"))
    seen = {each.id: each for each in server.tmux.panes()}
    assert seen[victim].command != "bash"
    assert seen[pane].cwd == str(folder)
    assert len(server.tmux.panes()) == 3


def test_a_text_that_could_not_be_pasted_stays_nowhere(server):
    with pytest.raises(TmuxFailed):
        server.tmux.paste("%999", "a message")
    assert server.tmux.run("list-buffers") == ""


def test_a_missing_pane_or_server_is_said_to_be(server):
    with pytest.raises(TmuxFailed, match="can't find pane"):
        server.tmux.paste("%99", "x")
    assert Tmux(f"{server.folder}/nobody").panes() == []


# -- real programs in the wrapper, under tmux --


@pytest.mark.parametrize(
    ("command", "typed", "screen"),
    [
        (["bash", "--norc"], "echo $((6*7))", ["$ echo $((6*7))", "42", "$"]),
        (["dash"], "echo $((6*7))", ["$ echo $((6*7))", "42", "$"]),
        ([sys.executable, "-q"], "6*7", [">>> 6*7", "42", ">>>"]),
        (
            [sys.executable, "-c", CURSES],
            None,
            ["+" + "-" * 18 + "+", "| full             |", *["|                  |"] * 2, "+" + "-" * 18 + "+"],
        ),
    ],
)
def test_programs_look_the_same_in_the_wrapper_under_tmux(server, daemon, command, typed, screen):
    agents = [f"A-{os.urandom(4).hex()}"]
    words = [f"{BIN}/bridge-wrap", "--state-dir", daemon.state, "--no-start", "--agent", agents[0], "--", *command]
    for session, run in (("bare", command), ("wrapped", words)):
        small = {} if typed else {"rows": 5, "columns": 20}
        pane = server.open(*run, session=session, environment=["PS1=$ "], **small)
        server.sees(pane, screen[-1])
        if typed:
            server.keys(pane, typed, "Enter")
        server.sees(pane, lambda rows: rows == screen, f"{session}: {screen}")


def test_launch_opens_a_pane_with_the_wrapper_and_its_environment(server, daemon, agents):
    done = bascule(
        daemon, server, "launch", "--socket", server.socket, "--session", "fleet", "--agent", agents[0], "--", "dash"
    )
    assert done.returncode == 0, done.stderr
    pane = done.stdout.partition("pane ")[2].partition(";")[0]
    assert "tmux attach -t fleet" in done.stdout
    server.sees(pane, "$")
    server.keys(pane, "echo $BRIDGE_AGENT_ID $PWD", "Enter")
    server.sees(pane, f"{agents[0]} /")
    with SyncClient.connect(daemon.state) as client:
        agent = next(each for each in client.agents() if each.agent_id == agents[0])
        assert (agent.metadata["paneId"], agent.metadata["session"], agent.type) == (pane, "fleet", "shell")
        client.send(agents[0], "hello")
        server.sees(pane, "# [bascule] 1 unread message")
    listed = bascule(daemon, server, "panes", "--socket", server.socket, "--json")
    assert [(each["agent"], each["id"]) for each in json.loads(listed.stdout)] == [(agents[0], pane)]
    # A second one goes beside it, into the same session.
    done = bascule(
        daemon, server, "launch", "--socket", server.socket, "--session", "fleet", "--agent", agents[1], "--", "dash"
    )
    assert done.returncode == 0, done.stderr
    assert len([each for each in server.tmux.panes() if each.session == "fleet"]) == 2


def test_launch_without_a_program_or_a_pane_says_what_to_write(server, daemon):
    done = bascule(daemon, server, "launch", "--agent", "Jerry")
    assert (done.returncode, "which program?" in done.stderr) == (2, True)
    done = bascule(daemon, server, "launch", "--agent", "Jerry", "--split", "--", "dash")
    assert "--split needs a pane to split" in done.stderr


# -- panes nobody wrapped --


def test_a_registered_pane_is_rung_in_and_its_agent_lives_as_long_as_it(server, daemon, agents, tmp_path):
    pane = shell(server, tmp_path, "dash")
    subprocess.run(
        [f"{BIN}/bridge-register", "--state-dir", daemon.state, "--agent", agents[0], "--type", "dash", "--pane", pane],
        check=True,
        timeout=PATIENCE,
        capture_output=True,
    )
    ring = subprocess.Popen(
        [f"{BIN}/bascule", "tmux", "ring", "--socket", server.socket, "--state-dir", daemon.state],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        with SyncClient.connect(daemon.state) as client:
            ticket = client.send(agents[0], "hello\ntouch CANARY").ticket_id
            server.sees(pane, "# [bascule] 1 unread message")
            eventually(lambda: client.ticket(ticket).delivery.by == ["bridge-wrap"], "it is recorded")
            assert os.listdir(tmp_path) == []

            def status():
                return next(each.status for each in client.agents() if each.agent_id == agents[0])

            assert status() == "online"
            server.tmux.run("kill-pane", "-t", pane)
            eventually(lambda: status() == "offline", "the pane's end is the agent's")
    finally:
        ring.terminate()
        ring.communicate(timeout=PATIENCE)


def test_a_pane_with_an_unknown_program_is_not_typed_into(server, daemon, agents, tmp_path):
    pane = server.open("sleep", "1000", cwd=tmp_path)
    subprocess.run(
        [f"{BIN}/bridge-register", "--state-dir", daemon.state, "--agent", agents[0], "--type", "vms", "--pane", pane],
        check=True,
        timeout=PATIENCE,
        capture_output=True,
    )
    ring = subprocess.Popen(
        [f"{BIN}/bascule", "tmux", "ring", "--socket", server.socket, "--state-dir", daemon.state],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        with SyncClient.connect(daemon.state) as client:
            client.send(agents[0], "hello")
        output = ""
        while "shown in the status line" not in output:
            line = ring.stderr.readline()
            assert line, output
            output += line
        # What was typed would be echoed by the terminal.
        assert server.shows(pane) == []
    finally:
        ring.terminate()
        ring.communicate(timeout=PATIENCE)


# -- without a daemon --


def test_the_fallback_types_into_a_launched_pane_and_says_that_it_is_reduced(server, tmp_path):
    pane = shell(server, tmp_path, "dash")
    server.tmux.run("set-option", "-p", "-t", pane, "@bascule_agent", "Jerry")
    seen = tmux_fallback.answer("co_workers", {}, "Spock", server.tmux)
    assert [(each["agentId"], each["paneId"]) for each in seen["agents"]] == [("Jerry", pane)]
    assert seen["reduced"].startswith("reduced functionality: Bascule is not running")
    sent = tmux_fallback.answer(
        "send_message", {"agentId": "Jerry", "payload": "a\rtouch CANARY\n\x1b[201~b"}, "Spock", server.tmux
    )
    assert (sent["status"], sent["ticketId"]) == ("pending", "none")
    assert "no reply will come" in sent["reduced"]
    server.sees(pane, "[bascule] from agent Spock, not from your user, no reply path: a touch CANARY [201~b")
    assert os.listdir(tmp_path) == []
    # What needs the daemon is not pretended.
    assert tmux_fallback.answer("await_reply", {"ticketId": "t"}, "Spock", server.tmux) is None
    for arguments, output in (
        ({"agentId": "Nobody", "payload": "x"}, "no tmux pane was launched for Nobody"),
        ({"agentId": "Jerry", "payload": "x" * 1000}, "1000 characters are too many to type"),
    ):
        with pytest.raises(tmux_fallback.CannotFallBack, match=output):
            tmux_fallback.answer("send_message", arguments, "Spock", server.tmux)


@pytest.mark.long
def test_the_shim_falls_back_only_when_it_was_told_to(server, tmp_path):
    pane = shell(server, tmp_path, "dash")
    server.tmux.run("set-option", "-p", "-t", pane, "@bascule_agent", "Jerry")
    call = {"name": "send_message", "arguments": {"agentId": "Jerry", "payload": "are you there"}}
    opening = {"protocolVersion": "2025-06-18", "capabilities": {}}
    requests = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": opening},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
    ]
    words = [f"{BIN}/bascule", "mcp", "--no-start", "--agent", "Spock", "--state-dir", str(tmp_path / "none")]
    shims = {
        setting: subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "TMUX": f"{server.socket},1,0", "BRIDGE_TMUX_FALLBACK": setting},
            text=True,
        )
        for setting in ("1", "0")
    }
    results = {}
    for shim in shims.values():
        shim.stdin.write("".join(json.dumps(each) + "\n" for each in requests))
        shim.stdin.flush()
    for setting, shim in shims.items():
        with shim:
            while setting not in results:
                message = json.loads(shim.stdout.readline())
                if message.get("id") == 2:
                    results[setting] = message["result"]
            shim.stdin.close()
    assert "reduced functionality" in results["1"]["structuredContent"]["reduced"]
    server.sees(pane, "are you there")
    assert results["0"]["isError"]
    assert "Bascule is not running" in results["0"]["content"][0]["text"]


def test_tmux_is_here_or_ci_says_so(monkeypatch):
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception):
        missing_here("tmux is not installed")
