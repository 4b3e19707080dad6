"""One table of a TOML text: the rest stays byte for byte."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.cli.setup.toml_text import BadToml, remove_table, set_table, table

WHERE = ("mcp_servers", "agent-bridge")
VALUES = {"command": "/opt/bascule", "args": ["mcp"], "env_vars": ["A", "B"]}
OURS = '[mcp_servers.agent-bridge]\ncommand = "/opt/bascule"\nargs = ["mcp"]\nenv_vars = ["A", "B"]\n'

OTHERS = """\
# my settings
model = "gpt-6"   # fast

[mcp_servers.docs]
command = "npx"
args = [
  "-y",  # always
  "docs",
]

# about projects
[projects."/home/me"]
trust_level = "trusted"
"""


def test_a_missing_table_is_added_at_the_end():
    assert set_table(OTHERS, WHERE, VALUES) == OTHERS + "\n" + OURS
    assert set_table("", WHERE, VALUES) == OURS
    assert set_table('a = "no newline"', WHERE, VALUES) == 'a = "no newline"\n\n' + OURS


def test_what_was_added_and_removed_leaves_no_trace():
    for text in ("", OTHERS, OTHERS.replace("\n", "\r\n"), "# only a comment\n"):
        assert remove_table(set_table(text, WHERE, VALUES), WHERE) == text


def test_a_table_in_the_middle_is_changed_in_its_place():
    old = OURS.replace("/opt/bascule", "/old/bascule") + "\n" + OTHERS
    assert set_table(old, WHERE, VALUES) == OURS + "\n" + OTHERS


def test_other_keys_of_the_table_and_their_comments_stay():
    text = '[mcp_servers.agent-bridge] # ours\nstartup_timeout_sec = 20 # slow disk\nargs = [\n  "old",\n  "]",\n]\n'
    changed = set_table(text, WHERE, VALUES)
    assert changed.startswith("[mcp_servers.agent-bridge] # ours\n")
    assert "startup_timeout_sec = 20 # slow disk\n" in changed
    assert tomllib.loads(changed)["mcp_servers"]["agent-bridge"] == {**VALUES, "startup_timeout_sec": 20}


def test_the_next_table_keeps_the_comment_above_it():
    text = OURS + "\n# about docs\n[mcp_servers.docs]\ncommand = 'x'\n"
    assert remove_table(text, WHERE) == "\n# about docs\n[mcp_servers.docs]\ncommand = 'x'\n"


def test_tables_inside_it_go_with_it():
    text = OTHERS + "\n" + OURS + '\n[mcp_servers.agent-bridge.env]\nX = "1"\n\n[hooks.state."a"]\nenabled = true\n'
    assert remove_table(text, WHERE) == OTHERS + '\n[hooks.state."a"]\nenabled = true\n'


@pytest.mark.parametrize("header", ['[mcp_servers."agent-bridge"]', "[ mcp_servers . 'agent-bridge' ]  # x"])
def test_a_header_may_be_written_otherwise(header):
    text = f'{header}\ncommand = "/old"\n'
    assert tomllib.loads(set_table(text, WHERE, VALUES))["mcp_servers"]["agent-bridge"] == VALUES


@pytest.mark.parametrize(
    "text",
    [
        'mcp_servers = { agent-bridge = { command = "/x" } }\n',
        '[mcp_servers]\nagent-bridge.command = "/x"\n',
        'mcp_servers.agent-bridge.command = "/x"\n',
    ],
)
def test_a_table_in_another_form_is_left_to_its_owner(text):
    assert table(text, WHERE) == {"command": "/x"}
    with pytest.raises(BadToml):
        set_table(text, WHERE, VALUES)


def test_a_header_inside_a_text_is_not_taken_for_one():
    text = 'prompt = """\n[mcp_servers.agent-bridge]\ncommand = "x"\n"""\n'
    with pytest.raises(BadToml, match="without changing something else"):
        set_table(text, WHERE, VALUES)


@pytest.mark.parametrize("text", ["a = ", "[x", "a = 1\na = 2\n", "\x00"])
def test_what_is_broken_is_refused(text):
    with pytest.raises(BadToml):
        set_table(text, WHERE, VALUES)


@given(st.text(st.characters(exclude_categories=["Cs"])), st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_any_value_is_written_so_that_it_is_read_again(command, args):
    values = {"command": command, "args": args}
    assert table(set_table(OTHERS, WHERE, values), WHERE) == values
