import contextlib

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bascule.admin import protocol as admin
from bascule.broker import rows as broker
from bascule.kernel.policy.decision import Decision
from bascule.kernel.policy.rules import (
    MAX_POLICY_CHARS,
    MAX_RULE_NAME_CHARS,
    MAX_RULES,
    NO_RULE,
    BadPolicy,
    Rule,
    could_apply,
    params_match,
    parse_rules,
)
from bascule.kernel.rows import Effect

EFFECTS = {row.name: row.effect for row in (*broker.METHODS, *admin.METHODS)}

WHOLE = """
version = 1

[[rule]]
name = "jerry-does-not-broadcast"
decision = "deny"
reason = "Jerry talks to one agent at a time"
suggestion = "Use messages.send"
principals = ["agent:Jerry*"]
methods = ["messages.broadcast"]
effects = ["message"]
params = { type = "codex" }
match = [{ principal = "agent:Jerry-2", method = "messages.broadcast", params = { type = "codex" } }]
not_match = [
  { principal = "agent:Tom", method = "messages.broadcast", params = { type = "codex" } },
  { principal = "agent:Jerry", method = "messages.broadcast" },
]

[[rule]]
name = "rest"
decision = "allow"
reason = "open house"
"""


def read(text):
    return parse_rules(text, EFFECTS, EFFECTS)


def rule_text(extra="", *, name='"r"', decision='"deny"', reason='"because"'):
    return f"version = 1\n[[rule]]\nname = {name}\ndecision = {decision}\nreason = {reason}\n{extra}\n"


def refusal(text):
    with pytest.raises(BadPolicy) as caught:
        read(text)
    return caught.value


# -- what is read ---------------------------------------------------------------------------------


def test_a_whole_rule_is_read_as_written():
    rule, _ = read(WHOLE)
    assert rule.name == "jerry-does-not-broadcast"
    assert rule.decision is Decision.DENY
    assert rule.suggestion == "Use messages.send"
    assert rule.principals == ("agent:Jerry*",)
    assert rule.methods == ("messages.broadcast",)
    assert rule.effects == (Effect.MESSAGE,)
    assert rule.params == {"type": "codex"}
    assert len(rule.match) == 1
    assert len(rule.not_match) == 2


def test_what_a_rule_does_not_narrow_it_leaves_open():
    _, rest = read(WHOLE)
    assert rest.principals == ("*",)
    assert rest.methods == ("*",)
    assert set(rest.effects) == set(Effect)
    assert not rest.params
    assert rest.suggestion is None


def test_a_policy_without_rules_is_a_policy_that_denies_everything():
    assert read("version = 1") == ()


def test_ask_is_part_of_the_language():
    (rule,) = read(rule_text(decision='"ask"'))
    assert rule.decision is Decision.ASK


def test_without_known_methods_patterns_are_not_compared_with_them():
    (rule,) = parse_rules(rule_text('methods = ["space.*"]'), (), {})
    assert rule.methods == ("space.*",)


# -- what is refused ------------------------------------------------------------------------------

REFUSED = {
    "not TOML": ("version = ", "not TOML"),
    "no version": ("", "version = 1"),
    "a later version": ("version = 2", "version = 1"),
    "a version that is true": ("version = true", "version = 1"),
    "an unknown top level key": ("version = 1\n[rules]\n", "unknown key 'rules'"),
    "rule as one table": ("version = 1\n[rule]\nname = 'r'\n", "[[rule]]"),
    "rule as a list of words": ("version = 1\nrule = ['r']\n", "[[rule]]"),
    "no name": ("version = 1\n[[rule]]\ndecision = 'deny'\nreason = 'x'", "rule 1 needs a name"),
    "an empty name": (rule_text(name='""'), "rule 1 needs a name"),
    "a name that is a number": (rule_text(name="5"), "rule 1 needs a name"),
    "a name with a space": (rule_text(name='"a b"'), "rule 1 needs a name"),
    "a name with an escape": (rule_text(name='"a\\u001b[2J"'), "rule 1 needs a name"),
    "a name that is too long": (rule_text(name='"' + "a" * (MAX_RULE_NAME_CHARS + 1) + '"'), "needs a name"),
    "the name for no rule": (rule_text(name=f'"{NO_RULE}"'), "may not be named"),
    "an unknown key": (rule_text("principal = ['local']"), "unknown key 'principal'; known are: name,"),
    "a bad decision": (rule_text(decision='"maybe"'), "allow, ask, deny; found 'maybe'"),
    "no decision": ("version = 1\n[[rule]]\nname = 'r'\nreason = 'x'", "allow, ask, deny; found None"),
    "a decision that is a list": (rule_text(decision='["deny"]'), "allow, ask, deny"),
    "no reason": (
        "version = 1\n[[rule]]\nname = 'r'\ndecision = 'deny'",
        "'r': Object missing required field",
    ),
    "an empty reason": (rule_text(reason='""'), "length >= 1"),
    "principals as a word": (rule_text("principals = 'local'"), "rule 'r': Expected `array`"),
    "no principals": (rule_text("principals = []"), "length >= 1"),
    "no methods": (rule_text("methods = []"), "length >= 1"),
    "no effects": (rule_text("effects = []"), "length >= 1"),
    "an unknown effect": (rule_text("effects = ['fly']"), "'fly'"),
    "a param that is not a glob": (rule_text("params = { waitMs = 5 }"), "rule 'r': Expected `str`"),
    "a path with an empty step": (
        rule_text("params = { 'metadata..x' = '*' }"),
        "'metadata..x' is not a path",
    ),
    "an empty path": (rule_text("params = { '' = '*' }"), "'' is not a path"),
    "an unknown key in an example": (
        rule_text("match = [{ principal = 'local', method = 'agents.list', who = 'me' }]"),
        "unknown field `who`",
    ),
    "an example without method": (
        rule_text("match = [{ principal = 'local' }]"),
        "missing required field `method`",
    ),
    "an example of no known method": (
        rule_text("not_match = [{ principal = 'local', method = 'agents.fire' }]"),
        "local calling agents.fire names a method that does not exist",
    ),
    "a method nobody has": (rule_text("methods = ['mesages.*']"), "no method matches 'mesages.*'"),
    "a method in other case": (rule_text("methods = ['Messages.send']"), "no method matches"),
    "effects its methods lack": (
        rule_text("methods = ['messages.*']\neffects = ['read']"),
        "can never apply",
    ),
    "an effect no method has": (rule_text("effects = ['game']"), "can never apply"),
}


@pytest.mark.parametrize(("text", "expected"), REFUSED.values(), ids=REFUSED.keys())
def test_a_policy_is_refused_with_a_sentence_that_names_the_fault(text, expected):
    assert expected in refusal(text).message


def test_a_misspelt_method_is_answered_with_the_family_it_may_have_meant():
    error = refusal(rule_text("methods = ['messages.sent']"))
    assert error.hint == "methods are: messages.broadcast, messages.send"


def test_two_rules_of_one_name_are_refused():
    second = rule_text().replace("version = 1\n", "")
    assert "two rules are named 'r'" in refusal(rule_text() + second).message


@pytest.mark.parametrize("glob", ["local", "person", "agent:Jerry", "agent:*", "*", "a*", "*:Jerry", "?ocal", "[lp]*"])
def test_a_pattern_that_can_match_a_principal_is_taken(glob):
    (rule,) = read(rule_text(f"principals = ['{glob}']"))
    assert rule.principals == (glob,)


@pytest.mark.parametrize("glob", ["Jerry", "agent", "agent:", "agent:a b", "agent:local", "Local", "b*", "agents:*"])
def test_a_pattern_that_no_principal_can_match_is_refused(glob):
    assert "no principal can match" in refusal(rule_text(f"principals = ['{glob}']")).message


def test_a_text_over_the_limit_is_refused_unread():
    assert "characters" in refusal("#" * (MAX_POLICY_CHARS + 1)).message


def test_more_rules_than_the_limit_are_refused():
    rules = "".join(f"[[rule]]\nname='r{n}'\ndecision='deny'\nreason='x'\n" for n in range(MAX_RULES + 1))
    assert f"at most {MAX_RULES}" in refusal("version = 1\n" + rules).message


def test_a_text_nested_beyond_reason_is_refused():
    assert "not TOML" in refusal("a = " + "[" * 50_000).message


@given(st.text())
def test_any_text_is_a_policy_or_is_refused_as_one(text):
    with contextlib.suppress(BadPolicy):
        assert isinstance(read(text), tuple)


_toml_words = st.sampled_from(
    ["name", "decision", "reason", "principals", "methods", "effects", "params", "match", "x"]
)
_toml_values = st.sampled_from(
    [
        "'deny'",
        "'allow'",
        "'r'",
        "''",
        "5",
        "inf",
        "true",
        "[]",
        "['*']",
        "['local']",
        "{}",
        "{ a = '*' }",
        "[{}]",
    ]
)


@given(st.dictionaries(_toml_words, _toml_values))
def test_any_table_is_a_rule_or_is_refused_as_one(table):
    body = "".join(f"{key} = {value}\n" for key, value in table.items())
    with contextlib.suppress(BadPolicy):
        assert len(read("version = 1\n[[rule]]\n" + body)) == 1


# -- examples -------------------------------------------------------------------------------------

CALL = "{ principal = 'agent:Jerry', method = 'messages.send', params = { agentId = 'Tom' } }"
DISAGREEING = {
    "principal": ("principals = ['local', 'person']", "its principals are local, person"),
    "method": ("methods = ['replies.*']", "its methods are replies.*"),
    "effect": (
        "effects = ['read', 'admin']",
        "messages.send has the effect message, the rule's are read, admin",
    ),
    "params": ("params = { agentId = 'Boss' }", "its params are agentId = 'Boss'"),
}


@pytest.mark.parametrize(("narrowed", "why"), DISAGREEING.values(), ids=DISAGREEING.keys())
def test_a_rule_that_does_not_match_its_example_is_refused_with_the_reason(narrowed, why):
    message = refusal(rule_text(f"{narrowed}\nmatch = [{CALL}]")).message
    assert message == (
        f'rule \'r\' does not match its own example (agent:Jerry calling messages.send with {{"agentId":"Tom"}}): {why}'
    )


@pytest.mark.parametrize("narrowed", [text for text, _ in DISAGREEING.values()])
def test_an_example_that_must_not_match_and_does_not_is_agreement(narrowed):
    assert len(read(rule_text(f"{narrowed}\nnot_match = [{CALL}]"))) == 1


def test_a_rule_that_matches_what_it_must_not_is_refused():
    message = refusal(rule_text(f"not_match = [{CALL}]")).message
    assert "rule 'r' matches an example that it must not match (agent:Jerry calling messages.send" in message


def test_an_example_whose_effect_nobody_knows_proves_nothing():
    text = rule_text("match = [{ principal = 'local', method = 'space.run' }]")
    with pytest.raises(BadPolicy, match=r"the effect of space\.run is not known"):
        parse_rules(text, (), {})


# -- matching -------------------------------------------------------------------------------------


def rule(decision=Decision.DENY, **fields):
    return Rule(name="r", decision=decision, reason="because", **fields)


@pytest.mark.parametrize(
    ("principal", "method", "effect", "expected"),
    [
        ("agent:Jerry", "messages.send", Effect.MESSAGE, True),
        ("agent:Jerry-2", "messages.broadcast", Effect.MESSAGE, True),
        ("agent:jerry", "messages.send", Effect.MESSAGE, False),
        ("local", "messages.send", Effect.MESSAGE, False),
        ("agent:Jerry", "replies.post", Effect.MESSAGE, False),
        ("agent:Jerry", "messages.send", Effect.READ, False),
    ],
)
def test_a_rule_could_apply_when_principal_method_and_effect_all_match(principal, method, effect, expected):
    narrowed = rule(principals=("agent:Jerry*",), methods=("messages.*",), effects=(Effect.MESSAGE,))
    assert could_apply(narrowed, principal, method, effect) is expected


# (value at `a.b`, glob, matches a rule that allows, matches a rule that denies)
LEAVES = [
    ({"a": {"b": "Jerry"}}, "J*", True, True),
    ({"a": {"b": "Tom"}}, "J*", False, False),
    ({"a": {"b": "jerry"}}, "J*", False, False),
    ({"a": {"b": True}}, "true", True, True),
    ({"a": {"b": None}}, "null", True, True),
    ({"a": {"b": 5}}, "5", True, True),
    ({"a": {"b": 2.5}}, "2.*", True, True),
    ({"a": {"b": "two\nlines"}}, "two*lines", True, True),
    ({"a": {"b": {"c": 1}}}, "*", True, True),
    ({"a": {"b": {"c": 1}}}, "{*", False, False),
    # Lists: one forbidden name is enough to deny, all must be fine to allow.
    ({"a": {"b": ["Jerry", "Jim"]}}, "J*", True, True),
    ({"a": {"b": ["Jerry", "Boss"]}}, "J*", False, True),
    ({"a": {"b": []}}, "*", False, False),
    ({"a": [{"b": "Jerry"}, {"b": "Boss"}]}, "J*", False, True),
    ({"a": [{"b": "Jerry"}, {}]}, "*", False, True),
    # Not there.
    ({"a": {}}, "*", False, False),
    ({}, "*", False, False),
    ({"a": "text"}, "*", False, False),
    (None, "*", False, False),
    ("text", "*", False, False),
]


@pytest.mark.parametrize(("params", "glob", "allows", "denies"), LEAVES)
def test_a_param_is_compared_as_json_writes_it(params, glob, allows, denies):
    assert params_match(rule(Decision.ALLOW, params={"a.b": glob}), params) is allows
    assert params_match(rule(Decision.DENY, params={"a.b": glob}), params) is denies
    assert params_match(rule(Decision.ASK, params={"a.b": glob}), params) is denies


def test_every_path_of_a_rule_must_match():
    both = rule(params={"agentId": "Boss", "expectReply": "true"})
    assert params_match(both, {"agentId": "Boss", "expectReply": True})
    assert not params_match(both, {"agentId": "Boss", "expectReply": False})


def test_a_decoded_struct_is_read_by_its_names_on_the_wire_with_its_defaults():
    params = msgspec.json.decode(
        b'{"agentId":"Boss","payload":{"x":[1]},"metadata":{"project":"p"}}', type=broker.SendParams
    )
    for path, glob in {
        "agentId": "Boss",
        "expectReply": "true",
        "timeoutMs": "null",
        "payload.x": "1",
        "metadata.project": "p",
    }.items():
        assert params_match(rule(params={path: glob}), params), path
        assert params_match(rule(params={path: glob}), msgspec.to_builtins(params)), path
    assert not params_match(rule(params={"agent_id": "*"}), params)
    assert not params_match(rule(params={"__class__": "*"}), params)


def test_a_field_that_was_never_set_is_not_there():
    class Partly(msgspec.Struct):
        field: str | msgspec.UnsetType = msgspec.UNSET

    assert not params_match(rule(params={"field": "*"}), Partly())
    assert params_match(rule(params={"field": "*"}), Partly(field="x"))


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("ab"), inner),
)


@settings(max_examples=40)  # drawing nested JSON is the slow part
@given(_json, st.sampled_from(["a", "b", "a.b", "a.a.b"]), st.sampled_from(["*", "x*", "[", "true", "?"]))
def test_a_rule_that_allows_never_matches_more_than_the_same_rule_that_denies(params, path, glob):
    allows = params_match(rule(Decision.ALLOW, params={path: glob}), params)
    denies = params_match(rule(Decision.DENY, params={path: glob}), params)
    assert denies or not allows
