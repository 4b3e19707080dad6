"""Which agent a hook belongs to: the one whose shim has the same client process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from living import eventually, short_dir

from bascule.local_client import choice
from bascule.local_client.http import call
from bascule.programs.helpers import process_tree
from patience import PATIENCE

BIN = Path(sys.executable).parent


class Table(process_tree.Processes):
    """Processes of a story: pid -> (parent, name)."""

    def __init__(self, **rows):
        super().__init__()
        self._rows = {int(name[1:]): row for name, row in rows.items()}

    def _look(self, pid):
        return self._rows.get(pid, (0, ""))


def agent(name, pid=None, cwd="/p", kind="claude-code"):
    metadata = {"cwd": cwd} if pid is None else {"cwd": cwd, "pid": pid}
    return {"agentId": name, "type": kind, "metadata": metadata}


# tmux 10 holds two Claude Codes, 20 and 30; each has a shim (21, 31) and runs hooks through a shell (22, 32).
# The second also started a Codex (40) with a shim of its own (41) from its shell (39).
STORY = Table(
    p10=(1, "tmux: server"),
    p19=(10, "-bash"),
    p20=(19, "claude"),
    p21=(20, "bascule"),
    p22=(20, "sh"),
    p23=(22, "bridge-wait"),
    p30=(10, "node"),
    p31=(30, "bascule"),
    p32=(30, "sh"),
    p33=(32, "bridge-wait"),
    p39=(30, "bash"),
    p40=(39, "codex"),
    p41=(40, "bascule"),
    p42=(40, "zsh"),
    p43=(42, "bridge-wait"),
)
AGENTS = [agent("first", 21), agent("second", 31), agent("third", 41, kind="codex-mcp-client"), agent("script")]


@pytest.mark.parametrize(("hook", "client"), [(23, 20), (33, 30), (43, 40)])
def test_the_client_is_the_nearest_ancestor_that_is_no_shell(hook, client):
    assert process_tree.client_of(hook, STORY) == client


def test_a_shell_without_a_client_belongs_to_nobody():
    assert process_tree.client_of(5, Table(p5=(4, "bridge-wait"), p4=(3, "-zsh"), p3=(1, "bash"))) is None


@pytest.mark.parametrize(("client", "name"), [(20, "first"), (30, "second"), (40, "third")])
def test_the_agent_is_the_one_whose_shim_has_that_client(client, name):
    assert process_tree.agent_of_session(AGENTS, client, "/p", STORY)["agentId"] == name


def test_a_client_without_a_shim_has_no_agent_though_others_run_in_its_terminal():
    assert process_tree.agent_of_session([AGENTS[1]], 20, "/p", STORY) is None
    # And none that only looks alike: that shim is known to be another client's.
    assert process_tree.agent_of_place([AGENTS[1]], "claude", "/p", STORY) is None


def test_of_two_shims_of_one_client_the_directory_decides():
    shared = Table(p50=(1, "codex"), p51=(50, "bascule"), p52=(50, "bascule"))
    twins = [agent("here", 51, "/p"), agent("there", 52, "/q")]
    assert process_tree.agent_of_session(twins, 50, "/q", shared)["agentId"] == "there"
    assert process_tree.agent_of_session(twins, 50, "/elsewhere", shared) is None
    same = [agent("one", 51), agent("two", 52)]
    assert process_tree.agent_of_session(same, 50, "/p", shared) is None


def test_two_sessions_of_one_client_are_told_apart_by_the_clients_own_id():
    shared = Table(p50=(1, "codex"), p51=(50, "bascule"), p52=(50, "bascule"))
    one, two = agent("one", 51), agent("two", 52)
    one["metadata"]["clientSession"] = "s-1"
    found, left = process_tree.named_by([one, two], "s-1")
    assert (found, left) == (one, [one, two])
    # The other session has not called yet: what belongs to the first is not its.
    found, left = process_tree.named_by([one, two], "s-2")
    assert (found, left) == (None, [two])
    assert process_tree.agent_of_session(left, 50, "/p", shared)["agentId"] == "two"
    # The control: without an id both are as near.
    assert process_tree.named_by([one, two], None) == (None, [one, two])
    del one["metadata"]["clientSession"]
    assert process_tree.agent_of_session(process_tree.named_by([one, two], "s-2")[1], 50, "/p", shared) is None


def test_the_only_agent_of_a_kind_and_place_is_chosen_when_no_process_is_known():
    nothing = Table()
    assert process_tree.agent_of_place([agent("a"), agent("b", cwd="/q")], "claude", "/p", nothing)["agentId"] == "a"
    assert process_tree.agent_of_place([agent("a"), agent("b")], "claude", "/p", nothing) is None
    assert process_tree.agent_of_place([agent("a", kind="codex")], "claude", "/p", nothing) is None
    assert process_tree.agent_of_place([agent("a")], "claude", None, nothing) is None


@pytest.mark.parametrize("pid", [True, 1, 0, -5, "21", 2.5, None, [21]])
def test_metadata_that_is_no_process_id_is_not_taken_for_one(pid):
    bad = {"agentId": "x", "type": "t", "metadata": {"pid": pid}}
    assert (
        process_tree.agent_of_session([bad, {"agentId": "y"}, {"agentId": "z", "metadata": None}], 20, None, STORY)
        is None
    )


def test_a_circle_of_parents_ends():
    assert len(Table(p5=(6, "a"), p6=(5, "b")).ancestors(5)) == 2


def test_the_running_process_is_found_in_the_process_table():
    real = process_tree.Processes()
    assert real.ancestors(os.getpid())[0] == os.getppid()
    assert real.name(os.getpid())
    assert real.arguments(os.getpid())
    assert real.alive(os.getpid())


def test_a_process_that_is_gone_is_gone():
    real = process_tree.Processes()
    gone = subprocess.Popen(["/bin/true"])
    gone.wait()
    assert (real.ancestors(gone.pid), real.arguments(gone.pid), real.alive(gone.pid)) == ([], [], False)


@pytest.mark.skipif(not os.path.exists("/bin/ps") and os.environ.get("CI") != "true", reason="there is no ps here")
def test_ps_gives_the_same_process_tree_as_proc(tmp_path):
    real, listed = process_tree.Processes(), process_tree.Processes(proc=str(tmp_path))
    assert listed.ancestors(os.getpid()) == real.ancestors(os.getpid())
    assert listed.arguments(os.getpid())[0] == real.arguments(os.getpid())[0]


def test_what_ps_lists_is_read_with_its_spaces():
    text = "    1     0 /sbin/init\n   20    10 /opt/My App/claude code\nnonsense\n"
    assert process_tree._listing(text) == [(1, (0, "init")), (20, (10, "claude code"))]


# -- two real clients in one directory --

# Starts its MCP server as clients do, says what it was called, then runs hooks as it is told.
CLIENT = f"""#!{sys.executable}
import json, subprocess, sys
shim = subprocess.Popen(json.loads(sys.argv[1]), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
who = {{"name": "claude-code", "version": "2"}}
info = {{"protocolVersion": "2025-11-25", "capabilities": {{}}, "clientInfo": who}}
print(json.dumps({{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": info}}), file=shim.stdin, flush=True)
shim.stdout.readline()
print(json.dumps({{"jsonrpc": "2.0", "method": "notifications/initialized"}}), file=shim.stdin, flush=True)
print(json.dumps({{"jsonrpc": "2.0", "id": 2, "method": "tools/call",
    "params": {{"name": "list_agents", "arguments": {{}}}}}}), file=shim.stdin, flush=True)
shim.stdout.readline()
print(shim.pid, flush=True)
for line in sys.stdin:
    job = json.loads(line)
    done = subprocess.run(["/bin/sh", "-c", job["command"]], input=job["stdin"], text=True, capture_output=True)
    print(json.dumps([done.returncode, done.stdout, done.stderr]), flush=True)
shim.stdin.close()
shim.wait()
"""


class Client:
    def __init__(self, program, daemon, cwd):
        kept = {name: os.environ[name] for name in ("HOME", "LOGNAME", "PATH", "USER") if name in os.environ}
        words = [str(BIN / "bascule"), "mcp", "--state-dir", daemon.state, "--no-start"]
        self.process = subprocess.Popen(
            [program, json.dumps(words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=cwd,
            env=kept,
        )
        self.cwd = cwd
        self.shim = int(self.process.stdout.readline())

    def hook(self, daemon, event):
        command = f"'{BIN}/bridge-wait' --hook claude --state-dir '{daemon.state}'"
        payload = {"session_id": "s", "cwd": str(self.cwd), "hook_event_name": event}
        self.process.stdin.write(json.dumps({"command": command, "stdin": json.dumps(payload)}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=PATIENCE)
        self.process.stdout.close()


def test_each_of_two_clients_in_one_directory_hears_its_own_bell(daemon, tmp_path):
    with short_dir() as folder:
        program = Path(folder, "claude")
        program.write_text(CLIENT)
        program.chmod(0o700)
        clients = [Client(program, daemon, tmp_path) for _ in range(2)]
        door = choice.find_door(daemon.state)
        handles = [
            eventually(lambda shim=client.shim: _handle_of(door, shim), "the shim is registered") for client in clients
        ]
        assert len(set(handles)) == 2
        call(door, "POST", f"/agents/{handles[1]}/send", {"payload": "x"})
        assert clients[0].hook(daemon, "UserPromptSubmit") == [0, "", ""]
        code, out, _ = clients[1].hook(daemon, "UserPromptSubmit")
        assert code == 0
        assert f"1 unread message for {handles[1]} from" in out
        code, _, err = clients[1].hook(daemon, "Stop")
        assert code == 2
        assert handles[1] in err
        for client in clients:
            client.close()


def _handle_of(door, shim):
    agents = call(door, "GET", "/agents?status=online")
    return next((each["agentId"] for each in agents if each["metadata"].get("pid") == shim), None)


@pytest.mark.parametrize(
    ("client", "arguments", "once"),
    [
        ("claude", ["claude"], False),
        ("claude", ["claude", "--permission-mode", "plan", "--resume"], False),
        ("claude", ["claude", "-p", "do this"], True),
        ("claude", ["node", "/x/cli.js", "--print", "do this"], True),
        ("claude", ["claude", "--output-format", "stream-json"], True),
        ("claude", ["claude", "explain -p"], False),
        ("codex", ["codex"], False),
        ("codex", ["codex", "resume", "--last"], False),
        ("codex", ["codex", "-c", "x=1", "exec", "do this"], True),
        ("codex", ["codex", "please exec this"], False),
        ("codex", [], False),
    ],
)
def test_a_session_that_answers_once_is_known_by_its_arguments(client, arguments, once):
    class Rung(process_tree.Processes):
        def arguments(self, pid):
            return arguments

    assert process_tree.is_one_shot(client, 7, Rung()) is once
