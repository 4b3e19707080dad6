"""Our reader beside the clients' own: real Node for Claude Code and Gemini CLI, Codex's rules for Codex, any bytes."""

import json
import os
import subprocess

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bascule.native.hooks import MAX_DEPTH, Hook, Unreadable, read
from bascule.native.protocol import CLIENTS, MAX_COMMAND_CHARS
from npm_tools import NODE

TIMES = 40 if os.environ.get("BASCULE_LONG") else 1
# What the client does with a text that a model wrote: it parses it, hands it to hooks, and to the shell. Each line is
# a JSON string; the answer has what the hook is given and the bytes of the command, or nothing if it is no JSON.
CLIENT = """
const lines = require('readline').createInterface({input: process.stdin});
lines.on('line', (line) => {
  let answer = null;
  try {
    const given = JSON.parse(JSON.parse(line));
    const event = {session_id: 's', cwd: '/p', hook_event_name: 'PreToolUse', tool_name: 'Bash', tool_input: given};
    const command = given !== null && typeof given === 'object' && !Array.isArray(given) ? given.command : undefined;
    const runs = typeof command === 'string' ? Buffer.from(command).toString('hex') : null;
    answer = {event: Buffer.from(JSON.stringify(event)).toString('hex'), runs};
  } catch (error) {}
  console.log(JSON.stringify(answer));
});
"""


class Node:
    def __init__(self):
        self._process = subprocess.Popen([NODE, "-e", CLIENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def given(self, text):
        """What a hook is given, and what the shell would run; None if it is no JSON."""
        self._process.stdin.write(json.dumps(text).encode() + b"\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if answer is None:
            return None
        return bytes.fromhex(answer["event"]), None if answer["runs"] is None else bytes.fromhex(answer["runs"])

    def close(self):
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


@pytest.fixture(scope="module")
def node():
    made = Node()
    yield made
    made.close()


_escapes = st.sampled_from(
    [r"\ud800", r"\udfff", r"\uD83D\uDE00", r"\ud83d", r"\ude00", r"\\", r"\"", r"\/", r"\n", r"\u0000", r"\u0041",
     r"\ufeff", r"\u2028", "\ufffd", "\U0001f600", "\u2028", "~", "rm -rf ~", " ", "u", "ud800", "\x7f", "é"]
)  # fmt: skip
_texts = st.lists(
    st.one_of(_escapes, st.characters(codec="utf-8", exclude_categories=["Cc"], exclude_characters='"\\'))
)
_strings = _texts.map(lambda parts: f'"{"".join(parts)}"')
_numbers = st.sampled_from(["0", "-0", "1e999", "-1e999", "1E5", "1.5", "9" * 400, "1e-999", "123456789012345678901"])
_broken = st.sampled_from(["NaN", "Infinity", "01", "+1", "'x'", "tru", '"\t"', "", "1.", ".5", r'"\x41"', r'"\ud80"'])
_values = st.recursive(
    st.one_of(_strings, _numbers, st.sampled_from(["true", "false", "null"]), _broken.filter(lambda each: each != "")),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda each: f"[{','.join(each)}]"),
        st.lists(st.tuples(_strings, inner), max_size=3).map(
            lambda each: "{" + ",".join(f"{name}:{value}" for name, value in each) + "}"
        ),
    ),
    max_leaves=6,
)
_names = st.sampled_from(['"command"', r'"comm\u0061nd"', '"description"', '"x"', '"__proto__"', '"Command"', '""'])
# A command most of the time, and sometimes twice.
_inputs = st.lists(st.tuples(_names, st.one_of(_strings, _strings, _values)), max_size=4).map(
    lambda fields: "{" + ", ".join(f"{name} : {value}" for name, value in fields) + "}"
)


def readable(runs):
    return runs is not None and b"\0" not in runs and len(runs.decode()) <= MAX_COMMAND_CHARS


@settings(max_examples=400 * TIMES, deadline=None)
@given(text=st.one_of(_inputs, _inputs, _values, _broken))
@pytest.mark.parametrize("client", ["claude", "gemini"])
def test_what_node_gives_to_a_hook_is_read_as_what_node_gives_to_the_shell(node, client, text):
    made = node.given(text)
    assume(made is not None)
    raw, runs = made
    found = read(client, raw)
    if readable(runs):
        assert isinstance(found, Hook), found
        assert found.command.encode() == runs
    else:
        assert isinstance(found, Unreadable), found


@settings(max_examples=400 * TIMES, deadline=None)
@given(text=st.one_of(_inputs, _inputs, _values, _broken))
def test_a_text_is_read_as_node_reads_it_or_not_at_all(node, text):
    """The hidden tool is given the arguments as text."""
    event = {"session_id": "s", "cwd": "/p", "hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": text}
    found = read("claude", json.dumps(event).encode())
    made = node.given(text)
    if isinstance(found, Hook):
        assert made is not None
        assert found.command.encode() == made[1]


def test_node_is_what_a_shell_is_run_by():
    """The control: what stands for the shell above is what a program started by Node is given."""
    script = "process.stdout.write(require('child_process').execFileSync('printf', ['%s', 'a\\ud800b\\udc00']))"
    done = subprocess.run([NODE, "-e", script], capture_output=True, check=True)
    raw = rb'{"cwd":"/p","hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"a\ud800b\udc00"}}'
    assert read("claude", raw).command.encode() == done.stdout


@pytest.mark.parametrize("depth", [60, 65, 128, MAX_DEPTH - 3, MAX_DEPTH + 1, 2_000])
def test_nested_arguments_are_read_or_refused_and_never_empty(node, depth):
    text = '{"command":"rm -rf ~","x":' + "[" * depth + "]" * depth + "}"
    raw, runs = node.given(text)
    found = read("claude", raw)
    assert isinstance(found, Hook) == (depth < MAX_DEPTH)
    if isinstance(found, Hook):
        assert found.command.encode() == runs


# -- Codex ----------------------------------------------------------------------------------------


def as_serde_writes(value):
    """serde_json: proper Unicode as it is; quotes, backslashes and control characters escaped."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


@settings(max_examples=200 * TIMES, deadline=None)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=200))
def test_a_command_of_codex_is_read_as_it_is(command):
    event = {"cwd": "/p", "hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": command}}
    assert read("codex", as_serde_writes(event)).command == command


_BLANK = st.sampled_from(["", "", "", " ", "\t", "\u00a0", "\u3000", "\x0b", "  \t"])
_PATHS = st.sampled_from(["a", "/etc/hosts", "b c", "../x", " lead", "*** Add File: y"])


def _header(name):
    return st.tuples(_BLANK, st.just(f"*** {name}: "), _PATHS, _BLANK).map("".join)


_add = st.tuples(_header("Add File"), st.lists(st.sampled_from(["+x", "+*** Add File: no", "+"]), max_size=2))
_delete = st.tuples(_header("Delete File"), st.just([]))
_chunk = st.sampled_from(["-x", "+y", " z", "", "@@", "@@ def", "*** End of File", "-*** Delete File: no"])
_update = st.tuples(
    _header("Update File"),
    st.tuples(st.lists(_header("Move to"), max_size=1), st.lists(_chunk, max_size=3)).map(
        lambda both: both[0] + both[1]
    ),
)
_hunks = st.one_of(_add, _delete, _update).map(lambda hunk: [hunk[0], *hunk[1]])
# One line out of place now and then.
_odd = st.sampled_from([[], [], [], [], ["*** End Patch"], ["x"], ["*** Move to: late"]])
_lines = st.lists(st.tuples(_hunks, _odd).map(lambda both: both[0] + both[1]), min_size=1, max_size=4).map(
    lambda hunks: [line for hunk in hunks for line in hunk]
)
WHITE = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))


def codex_writes(patch):
    """What Codex's `StreamingPatchParser` makes of it (apply-patch/src/streaming_parser.rs), or None: refused."""
    first, *lines = (each.rstrip("\r") for each in patch.split("\n"))
    if first.strip(WHITE) != "*** Begin Patch":
        return None
    mode, paths, may_move = "", [], False
    for line in lines:
        bare = line.strip(WHITE)
        if bare == "*** End Patch":
            return paths
        begun = next((each for each in ("Add", "Delete", "Update") if bare.startswith(f"*** {each} File: ")), None)
        if begun is not None:
            paths.append(bare.partition(" File: ")[2])
            mode, may_move = begun, begun == "Update"
        elif may_move and bare.startswith("*** Move to: "):
            paths.append(bare.partition(": ")[2])
            may_move = False
        elif is_body(mode, line, bare):
            may_move = may_move and bare == "*** End of File"
        else:
            return None
    return paths


def is_body(mode, line, bare):
    if mode == "Add":
        return line.startswith("+")
    return mode == "Update" and (bare == "*** End of File" or bare[:2] == "@@" or line[:1] in ("", " ", "+", "-"))


@settings(max_examples=500 * TIMES, deadline=None)
@given(_BLANK, _lines, st.sampled_from(["\n", "\r\n"]))
def test_each_file_that_codex_would_write_is_among_the_paths(before, lines, end):
    patch = end.join([f"{before}*** Begin Patch", *lines, "*** End Patch"])
    wanted = codex_writes(patch)
    assume(wanted)
    event = {"cwd": "/p", "hook_event_name": "PreToolUse", "tool_name": "apply_patch", "tool_input": {"command": patch}}
    found = read("codex", as_serde_writes(event))
    assert set(wanted) <= set(found.paths)
    # And nothing that is no header's.
    assert all(any(path in line for line in lines) for path in found.paths)


# -- any bytes ------------------------------------------------------------------------------------

SEEDS = [
    {"session_id": "s", "cwd": "/p", "hook_event_name": "PreToolUse", "tool_name": name, "tool_input": arguments}
    for name, arguments in [
        ("Bash", {"command": "rm -rf ~ # \ud800", "dangerouslyDisableSandbox": True}),
        ("Write", {"file_path": "/etc/hosts", "content": "x"}),
        ("MultiEdit", {"file_path": "a", "edits": [{"old_string": "a", "new_string": "b"}]}),
        ("Grep", {"pattern": "x", "glob": "{.env,*.p{em,12}}"}),
        ("read_many_files", {"paths": ["a", ".env"], "include": ["*"]}),
        ("apply_patch", {"command": "*** Begin Patch\n*** Add File: a\n+x\n*** End Patch"}),
        ("WebFetch", {"url": "https://example.org", "prompt": "x"}),
    ]
]
_mutations = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 8), st.one_of(st.binary(max_size=4), st.sampled_from(
        [b'"', b"\\", rb"\ud800", b"{", b"}", b"[", b"null", b"1e999", b"\xff", b"\xed\xa0\x80", b"\0"]
    ))),
    max_size=4,
)  # fmt: skip


def check(client, raw):
    found = read(client, raw)
    assert isinstance(found, Hook | Unreadable)
    known = found if isinstance(found, Hook) else found.hook
    assert known.session
    assert 0 < len(found.title) <= 200
    # UTF-8 can carry all of it: into the ledger, the store and every answer.
    for text in (found.title, known.command or "", *known.paths, known.url or "", known.cwd or ""):
        text.encode()
    if isinstance(found, Unreadable):
        assert known.command is None
        assert known.paths == ()
        assert found.reason
    elif found.moment == "before" and found.kind == "shell":
        assert found.command is not None
    elif found.moment == "before" and found.kind == "write":
        assert found.paths


@settings(max_examples=300 * TIMES, deadline=None)
@given(st.sampled_from(CLIENTS), st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(client, raw):
    check(client, raw)


@settings(max_examples=500 * TIMES, deadline=None)
@given(st.sampled_from(CLIENTS), st.sampled_from(SEEDS), _mutations)
def test_an_event_with_broken_places_is_read_or_refused(client, event, mutations):
    raw = json.dumps(event).encode()
    for where, length, piece in mutations:
        at = int(where * len(raw))
        raw = raw[:at] + piece + raw[at + length :]
    check(client, raw)
