"""What nobody can read is refused, in both ways in which a hook comes: never an empty call."""

import json
import os
import subprocess

import pytest
from hook_ways import HiddenTool, Program, Verdict, run_hook

from native_scene import BRIDGE_NATIVE
from patience import PATIENCE

HALF = r'{"command":"rm -rf ~ # \ud800"}'
DEEP = '{"command":"rm -rf ~","x":' + "[" * 70 + "]" * 70 + "}"
FAR = "/x/.." * 900 + "/etc/hosts"


def tool(**given):
    return json.dumps(given)


@pytest.mark.parametrize(
    ("name", "given", "rule"),
    [
        # What the shell is given is judged: half a surrogate pair is U+FFFD there.
        ("Bash", HALF, "native-ground"),
        ("Bash", r'{"command":"rm -rf ~ # \udc00\ud800"}', "native-ground"),
        ("Bash", r'{"command":"rm -rf ~ # \\\ud800"}', "native-ground"),
        ("Write", r'{"file_path":"/etc/\ud800","content":"x"}', "native-ground"),
        ("Bash", DEEP, "native-ground"),
        ("Bash", '{"command":"rm -rf ~","n":1e999}', "native-ground"),
        ("Bash", '{"command":"ls","command":"rm -rf ~"}', "native-ground"),
        ("Bash", r'{"comm\u0061nd":"rm -rf ~"}', "native-ground"),
        # What cannot be read.
        ("Bash", '{"command":"ls","x":' + "[" * 50_000 + "]" * 50_000 + "}", "unreadable"),
        ("Bash", '{"command":"ls","n":NaN}', "unreadable"),
        ("Bash", '{"command":"ls","n":Infinity}', "unreadable"),
        ("Bash", '\ufeff{"command":"ls"}', "unreadable"),
        ("Bash", '{"command":7}', "unreadable"),
        ("Bash", '{"command":null}', "unreadable"),
        ("Bash", r'{"command":"ls \u0000 x"}', "unreadable"),
        ("Bash", "{}", "unreadable"),
        ("Bash", "null", "unreadable"),
        ("Bash", "[]", "unreadable"),
        ("Bash", "7", "unreadable"),
        ("Bash", '"ls"', "unreadable"),
        ("Bash", '{"command":"ls"', "unreadable"),
        ("Bash", tool(command="ls #" + "x" * 70_000), "unreadable"),
        ("Bash", tool(command="rm -rf ~", x="y" * 9_000_000), "unreadable"),
        ("Write", tool(file_path="a", content="x" * 17_000_000), "unreadable"),
        ("Write", tool(file_path=FAR, content="x"), "unreadable"),
        ("MultiEdit", tool(file_path="a", edits=[{}] * 100_000), "unreadable"),
        ("Write", tool(file_path="/p/a\0b", content="x"), "unreadable"),
        ("Write", tool(content="x"), "unreadable"),
        ("Write", tool(file_path=["/etc/hosts"], content="x"), "unreadable"),
        ("Edit", tool(file_path=FAR, old_string="a", new_string="b"), "unreadable"),
        ("NotebookEdit", tool(notebook_path=FAR, new_source="x"), "unreadable"),
        ("MultiEdit", tool(file_path=FAR, edits=[]), "unreadable"),
        ("MultiEdit", tool(file_path="a", edits=[7]), "unreadable"),
        ("Read", tool(file_path=FAR), "unreadable"),
        ("WebFetch", tool(url="https://x/" + "y" * 5000, prompt=""), "unreadable"),
    ],
)
def test_enforce_refuses_what_it_cannot_read_and_judges_what_it_can(enforcing, way, name, given, rule):
    verdict = way.call(name, given)
    assert verdict.decision == "deny", verdict
    assert rule in verdict.reason


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("Bash", '{"command":"npm test"}'),
        ("Bash", r'{"command":"echo \ud83d\ude00 \\ud800 half"}'),
        ("Bash", r'{"command":"echo half \ud800"}'),
        ("Bash", '{"command":"npm test","n":1.5e308,"x":[[[]]]}'),
        ("Write", tool(file_path="src/a.py", content="x")),
        ("Read", tool(file_path="src/m1.py")),
    ],
)
def test_enforce_lets_ordinary_calls_go_on(enforcing, way, name, given):
    """The control."""
    assert way.call(name, given).decision is None


@pytest.mark.parametrize("given", ["{}", '{"command":7}', "[]"])
def test_observing_lets_it_pass_and_lists_it_with_its_reason(observing, way, given):
    def counted():
        # An empty list is left out: this may be the first call that the daemon judges.
        rules = observing.wire.call("native.report", {}).get("rules", [])
        return next(((each["count"], each["example"]) for each in rules if each["rule"] == "unreadable"), (0, ""))

    before = counted()[0]
    assert way.call("Bash", given).decision is None
    count, example = counted()
    assert count == before + 1
    assert "Bash (not readable: " in example
    assert "Bash (not readable: " in str(observing.wire.call("runs.list", {}))


# -- by the program -------------------------------------------------------------------------------

EVENT = {"session_id": "s", "cwd": "/", "hook_event_name": "PreToolUse", "tool_name": "Bash"}
LS = json.dumps(EVENT | {"tool_input": {"command": "ls"}}).encode()
BROKEN = {
    "empty": b"",
    "blanks": b"  \n",
    "cut": LS[:-4],
    "not UTF-8": LS.replace(b'"ls"', b'"ls \xff"'),
    "surrogates in UTF-8": LS.replace(b'"ls"', b'"ls \xed\xa0\x80"'),
    "a byte order mark": b"\xef\xbb\xbf" + LS,
    "UTF-16": LS.decode().encode("utf-16"),
    "an array": b"[" + LS + b"]",
    "two objects": LS + LS,
    "no tool": json.dumps({**EVENT, "tool_name": None}).encode(),
    "a cwd that no kernel opens": json.dumps(EVENT | {"cwd": "/x" * 5000, "tool_input": {"command": "ls"}}).encode(),
    "nested for ever": LS[:-1] + b',"x":' + b"[" * 200_000,
    "17 MB": json.dumps(
        EVENT | {"tool_name": "Write", "tool_input": {"file_path": "a", "content": "x" * 17_000_000}}
    ).encode(),
}


@pytest.mark.parametrize("raw", [pytest.param(raw, id=name) for name, raw in BROKEN.items()])
def test_broken_input_of_the_program_is_refused_in_enforce_and_when_closed(enforcing, raw):
    program = Program(enforcing.daemon, enforcing.root)
    assert program.raw(raw).decision == "deny"
    enforcing.wire.call("native.mode", {"client": "claude", "mode": "observe"})
    # A closed hook is not closed by the mode.
    assert program.raw(raw, "--closed").decision == "deny"
    assert program.raw(raw).decision is None
    # The control.
    assert program.raw(LS, "--closed").decision is None


def test_a_mode_of_one_directory_holds_for_input_that_does_not_say_where_it_is(observing):
    """By the directory in which the hook runs; where that is gone, the strictest choice there is."""
    here = observing.root.parent / "another"
    here.mkdir()
    place = {"client": "claude", "directory": str(here)}
    observing.wire.call("native.mode", {"mode": "enforce", **place})
    try:
        assert Program(observing.daemon, here).raw(b"{").decision == "deny"
        assert Program(observing.daemon, "/").raw(b"{").decision is None
        gone = observing.root / "gone"
        gone.mkdir()
        held = os.open(gone, os.O_RDONLY | os.O_DIRECTORY)
        gone.rmdir()
        done = subprocess.run(
            [BRIDGE_NATIVE, "--client", "claude", "--state-dir", observing.daemon.state_dir],
            input=b"{", capture_output=True, timeout=PATIENCE, check=False, preexec_fn=lambda: os.fchdir(held),
        )  # fmt: skip
        os.close(held)
        assert done.returncode == 2, done
    finally:
        observing.wire.call("native.mode", {"mode": "observe", **place})


REFUSABLE = ["PreToolUse", "BeforeTool", "PermissionRequest"]


@pytest.mark.parametrize("raw", [pytest.param(raw, id=name) for name, raw in BROKEN.items()])
def test_without_a_daemon_closed_refuses_whatever_it_cannot_read(tmp_path, raw):
    assert run_hook(raw, "--closed", state=tmp_path / "nowhere").returncode == 2
    # The control: without it the client goes on.
    assert run_hook(raw, state=tmp_path / "nowhere").returncode == 0


@pytest.mark.parametrize("name", [*REFUSABLE, "PostToolUse", "UserPromptSubmit", "Stop", "SessionStart"])
@pytest.mark.parametrize("size", [10, 17_000_000])
def test_without_a_daemon_closed_refuses_calls_and_nothing_that_would_lock_the_user_out(tmp_path, name, size):
    event = EVENT | {"hook_event_name": name, "tool_input": {"command": "ls"}, "tool_response": "x" * size}
    done = run_hook(json.dumps(event).encode(), "--closed", state=tmp_path / "nowhere")
    assert done.returncode == (2 if name in REFUSABLE else 0), done


def test_a_name_that_an_agent_wrote_does_not_pass_for_the_event(tmp_path):
    given = {"file_path": "a", "hook_event_name": "Stop", "content": "x" * 17_000_000}
    raw = json.dumps(EVENT | {"tool_name": "Write", "tool_input": given}).encode()
    assert run_hook(raw, "--closed", state=tmp_path / "nowhere").returncode == 2


def test_a_client_that_leaves_the_pipe_open_is_answered(enforcing):
    event = EVENT | {"cwd": str(enforcing.root), "tool_input": {"command": "rm -rf ~"}}
    process = subprocess.Popen(
        [BRIDGE_NATIVE, "--client", "claude", "--state-dir", enforcing.daemon.state_dir],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    process.stdin.write(json.dumps(event).encode())
    process.stdin.flush()
    # Our end stays open until it has answered.
    assert process.wait(PATIENCE) == 0
    assert Verdict.of(json.loads(process.stdout.read())).decision == "deny"
    process.stdin.close()
    process.stdout.close()


def test_a_call_at_an_event_without_a_name_is_judged(enforcing):
    program = Program(enforcing.daemon, enforcing.root)
    raw = LS.replace(b'"PreToolUse"', b"7")
    assert program.raw(raw).decision is None
    verdict = program.raw(raw.replace(b'"ls"', b'"rm -rf ~"'))
    assert verdict.decision == "deny"
    assert "is the home" in verdict.reason


# -- by the hidden tool ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(hooked):
    made = HiddenTool(hooked.daemon, hooked.root)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ('{"command":"rm -rf ~","x":' + "[" * 110 + "]" * 110 + "}", "native-ground"),
        (HALF, "native-ground"),
        ('"' + "x" * 9_000_000 + '"', "unreadable"),
        ("7", "unreadable"),
        ("null", "unreadable"),
        ('{"command":"rm -rf ~"}', "native-ground"),
    ],
)
def test_what_codex_fills_in_as_an_object_reaches_the_reader(enforcing, server, given, rule):
    verdict = server.call("Bash", given, client="codex")
    assert verdict.decision == "deny", verdict
    assert rule in verdict.reason


@pytest.mark.parametrize("field", ["session", "cwd", "id", "agent", "prompt"])
def test_no_other_field_of_the_hidden_tool_lets_a_call_go_on_unseen(enforcing, server, field):
    for value in (r'"\ud800"', "7", "[]", "null", '"' + "/x" * 5000 + '"'):
        verdict = server.call("Bash", '{"command":"rm -rf ~"}', field=(field, value))
        assert verdict.decision == "deny", (value, verdict)


# -- dialogs --------------------------------------------------------------------------------------


def test_a_dialog_about_what_cannot_be_read_is_answered_with_no(enforcing, way):
    assert way.call("Bash", '{"command":7}', event="PermissionRequest").decision == "deny"


def test_a_dialog_while_hooks_observe_stays_the_persons(observing, way):
    assert way.call("Bash", '{"command":7}', event="PermissionRequest").decision is None
