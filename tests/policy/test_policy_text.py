"""A policy as text: presets that can be printed, edited and read back; files that extend them."""

import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.bridge_list import presets_of, rows_of
from bascule.kernel.policy.decision import Decision
from bascule.kernel.policy.rules import BadPolicy, Example, Rule
from bascule.kernel.policy.text import load_policy, parse_policy, render, text_digest
from bascule.kernel.rows import Effect

PRESETS = presets_of()

EFFECTS = {row.name: row.effect for row in rows_of()}
OWN = """
[[rule]]
name = "jerry-does-not-broadcast"
decision = "deny"
reason = "Jerry talks to one agent at a time"
principals = ["agent:Jerry*"]
methods = ["messages.broadcast"]
match = [{ principal = "agent:Jerry-2", method = "messages.broadcast" }]
not_match = [{ principal = "agent:Tom", method = "messages.broadcast" }]
"""


def parse(text):
    return parse_policy(text, EFFECTS, EFFECTS, PRESETS)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_written_out_is_read_back_as_itself(name):
    text = render(PRESETS[name], f"the preset {name}")
    assert text.startswith(f"# the preset {name}\nversion = 1\n")
    assert parse(text) == PRESETS[name]


any_text = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)
rules = st.builds(
    Rule,
    name=st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True).filter(lambda name: name != "no-rule"),
    decision=st.sampled_from(Decision),
    reason=any_text,
    suggestion=st.none() | st.text(st.characters(codec="utf-8"), max_size=30),
    params=st.dictionaries(any_text.filter(lambda path: all(path.split("."))), any_text, max_size=3),
)


@given(st.lists(rules, max_size=5, unique_by=lambda rule: rule.name))
def test_any_rules_written_out_are_read_back_as_themselves(some):
    assert parse(render(some)) == tuple(some)


def test_examples_and_their_params_are_written_out_too():
    rule = Rule(
        name="x",
        decision=Decision.ASK,
        reason='a "quoted" \\ reason\nof two lines\x7f',
        effects=(Effect.MESSAGE,),
        match=(Example(principal="local", method="messages.send", params={"a b": [1, True, 2.5, {"c": "d"}]}),),
    )
    assert parse(render([rule])) == (rule,)


# -- extends --


def test_a_file_that_extends_a_preset_adds_its_rules_behind():
    found = parse('version = 1\nextends = "standard"\n' + OWN)
    assert found[:-1] == PRESETS["standard"]
    assert found[-1].name == "jerry-does-not-broadcast"


def test_rules_of_a_preset_are_left_out_by_name():
    first = PRESETS["standard"][0].name
    found = parse(f'version = 1\nextends = "standard"\nwithout = ["{first}"]\n')
    assert found == PRESETS["standard"][1:]


def test_a_file_that_extends_nothing_is_all_there_is():
    assert [rule.name for rule in parse("version = 1\n" + OWN)] == ["jerry-does-not-broadcast"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('version = 1\nextends = "lax"', "extends = 'lax' is not a preset; there are: restrictive, standard"),
        ("version = 1\nextends = 1", "is not a preset"),
        ('version = 1\nwithout = ["read"]', "no preset is extended"),
        ('version = 1\nextends = "standard"\nwithout = ["nothing"]', "which standard does not have"),
        ('version = 1\nextends = "standard"\nwithout = "read"', "must be a list of rule names"),
        ('extends = "standard"', "the first line must be `version = 1`"),
        ('version = 1\nincludes = "standard"', "unknown key 'includes'"),
        ('version = 1\nextends = "standard"\n[[rule]]\nname = "read"\ndecision = "deny"\nreason = "r"', "two rules"),
        ("version = 1\n" + OWN.replace("agent:Tom", "agent:Jerry"), "matches an example that it must not match"),
        ("version = 1\n" + OWN.replace("agent:Jerry-2", "agent:Tim"), "does not match its own example"),
        ("version = ", "is not TOML"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(text, expected):
    with pytest.raises(BadPolicy) as refused:
        parse(text)
    assert expected in refused.value.message


def test_a_comment_is_part_of_the_text_and_not_of_the_rules():
    text = "version = 1\n" + OWN
    assert (
        load_policy(text, EFFECTS, EFFECTS, PRESETS).digest
        == load_policy(text + "# x", EFFECTS, EFFECTS, PRESETS).digest
    )
    assert text_digest(text) != text_digest(text + "# x")
    assert tomllib.loads(text)["version"] == 1


def test_the_policy_in_the_documentation_holds():
    page = (Path(__file__).parents[2] / "docs" / "consent.md").read_text("utf-8")
    whole, more = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert [rule.name for rule in parse(whole + more)[-2:]] == ["no-broadcasts", "not-my-bank"]
