"""JSON edited as text: what is not ours stays byte for byte."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.cli.setup.json_text import MAX_DEPTH, BadJson, JsonText

names = st.text(max_size=6) | st.sampled_from(["mcpServers", "agent-bridge", "hooks", "Stop"])
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3))
documents = st.dictionaries(names, values, max_size=5)


@st.composite
def texts(draw):
    """A document in somebody's style."""
    indent = draw(st.sampled_from([None, 1, 2, 4, "\t"]))
    separators = draw(st.sampled_from([None, (",", ":"), (", ", ": ")])) if indent is None else None
    text = json.dumps(draw(documents), indent=indent, separators=separators, ensure_ascii=draw(st.booleans()))
    text = draw(st.sampled_from(["", "\ufeff", "\n"])) + text + draw(st.sampled_from(["", "\n", "  \n\n"]))
    return text.replace("\n", "\r\n") if draw(st.booleans()) else text


def parsed(text):
    return json.loads(text.removeprefix("\ufeff"))


@given(texts(), values)
def test_what_was_set_is_there_and_nothing_else_changed(text, value):
    document = JsonText(text)
    old = parsed(text)
    if not isinstance(old.get("mcpServers", {}), dict):
        with pytest.raises(BadJson):
            document.set(value, "mcpServers", "agent-bridge")
        return
    document.set(value, "mcpServers", "agent-bridge")
    new = parsed(document.text)
    old["mcpServers"] = {**old.get("mcpServers", {}), "agent-bridge": value}
    assert new == old
    assert list(new) == list(old)


@given(texts(), values)
def test_what_was_added_and_removed_leaves_no_trace(text, value):
    document = JsonText(text)
    old = parsed(text)
    servers = old.get("mcpServers", {})
    hooks = old.get("hooks", {})
    lists = hooks.get("Stop", []) if isinstance(hooks, dict) else None
    if not isinstance(servers, dict) or "agent-bridge" in servers or not isinstance(lists, list):
        return
    document.set(value, "mcpServers", "agent-bridge")
    document.append(value, "hooks", "Stop")
    document.remove("hooks", "Stop", len(lists))
    document.remove("mcpServers", "agent-bridge")
    for path in reversed(document.made):
        document.prune(*path)
    assert document.text == text


@given(texts(), values, values)
def test_a_value_that_is_set_twice_is_the_last_one(text, first, second):
    document = JsonText(text)
    document.set(first, "ours")
    once = JsonText(text)
    once.set(second, "ours")
    document.set(second, "ours")
    assert parsed(document.text) == parsed(once.text)


@given(st.text())
def test_any_text_is_an_object_or_refused(text):
    try:
        document = JsonText(text)
    except BadJson:
        return
    document.set(1, "ours")
    assert parsed(document.text)["ours"] == 1


@given(documents)
def test_the_reader_of_settings_agrees_with_the_json_module(value):
    text = json.dumps(value)
    assert JsonText(text).get() == json.loads(text)


def test_members_get_the_indentation_of_their_neighbours():
    document = JsonText('{\n    "a": {\n        "b": 1\n    }\n}\n')
    document.set({"x": []}, "a", "c")
    assert document.text == '{\n    "a": {\n        "b": 1,\n        "c": {\n            "x": []\n        }\n    }\n}\n'


def test_a_document_in_one_line_stays_in_one_line():
    document = JsonText('{"a": 1, "b": [1,2]}')
    document.set({"x": 1}, "c")
    document.append(3, "b")
    assert document.text == '{"a": 1, "b": [1,2, 3], "c": {"x": 1}}'


COMMENTED = """\
{
  // the theme
  "theme": "dark", // really
  /* servers
     follow */
  "mcpServers": {
    "other": {"command": "x"} // mine
  } // end
}
"""


def test_comments_stay_where_they_are():
    document = JsonText(COMMENTED, comments=True)
    document.set({"command": "y"}, "mcpServers", "ours")
    assert document.text == COMMENTED.replace(
        '"other": {"command": "x"} // mine\n',
        '"other": {"command": "x"}, // mine\n    "ours": {\n      "command": "y"\n    }\n',
    )
    document.remove("mcpServers", "ours")
    assert document.text == COMMENTED


def test_a_file_with_nothing_in_it_is_an_empty_object():
    document = JsonText("")
    document.set(1, "a")
    assert document.text == '{\n  "a": 1\n}\n'


def test_the_first_of_several_is_removed_with_its_comma():
    document = JsonText('{\n  "a": 1,\n  "b": 2\n}\n')
    document.remove("a")
    assert document.text == '{\n  "b": 2\n}\n'


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "it ends too early"),
        ('{"a": 1', "it ends too early"),
        ('{"a": 1,}', "line 1: a member's name in quotes is missing"),
        ('{"a": 1}\n}', "line 2: something follows the end"),
        ('{\n"a" 1}', "line 2: ':' is missing"),
        ("[]", "it does not hold an object"),
        ('"x"', "it does not hold an object"),
        ('{"a": nan}', "line 1: unexpected 'n'"),
        ('{"a": 01}', "line 1: ',' is missing"),
        ('{"a": "\n"}', "line 1: invalid control character at"),
        ('{"a": 1, "a": 2}', "line 1: `a` stands there twice"),
        ('{"a": 1 // no\n}', "line 1: it has a comment, which its program does not read"),
        ('{"a": ' + "[" * (MAX_DEPTH + 2) + "]" * (MAX_DEPTH + 2) + "}", f"line 1: it is nested more than {MAX_DEPTH}"),
    ],
)
def test_what_is_broken_is_refused_with_its_place(text, what):
    with pytest.raises(BadJson, match=re.escape(what)):
        JsonText(text)


def test_a_name_on_the_way_that_is_no_object_is_refused():
    with pytest.raises(BadJson, match="`hooks` is not an object"):
        JsonText('{"hooks": 1}').set(1, "hooks", "Stop")
    with pytest.raises(BadJson, match=r"`hooks\.Stop` is not a list"):
        JsonText('{"hooks": {"Stop": {}}}').append(1, "hooks", "Stop")
