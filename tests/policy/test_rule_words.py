"""Rules as sentences: every condition is in them, and nothing in a rule can pass for our words."""

import msgspec
import pytest

from bascule.admin.rule_words import in_words, timed_in_words
from bascule.bridge_list import presets_of
from bascule.kernel.policy.decision import Decision
from bascule.kernel.policy.rules import Rule
from bascule.kernel.rows import Effect


def words(**fields):
    return in_words(Rule(**({"name": "x", "decision": Decision.DENY, "reason": "y"} | fields)))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({}, "Everybody may not call anything."),
        ({"decision": Decision.ALLOW, "principals": ("agent:Jerry",)}, "The agent Jerry may call anything."),
        (
            {"principals": ("agent:J*", "local")},
            "Agents named J* or you at this machine (local) may not call anything.",
        ),
        (
            {"decision": Decision.ASK, "methods": ("a.b", "c.*"), "effects": (Effect.READ, Effect.EXEC)},
            "You are asked before everybody may call a.b or c.* with the effect read or exec.",
        ),
        (
            {
                "methods": ("workspace.shell",),
                "commands": ("git push", "npm"),
                "traits": ("opaque",),
                "paths": (".env",),
            },
            (
                'Everybody may not call workspace.shell with commands that begin with "git push" or npm '
                "that are opaque on .env."
            ),
        ),
        (
            {"decision": Decision.ALLOW, "commands": ("ls",), "paths": ("a/**",)},
            "Everybody may call anything with only commands that begin with ls only on a/**.",
        ),
        ({"params": {"agentId": "Tom x"}}, 'Everybody may not call anything where agentId is "Tom x".'),
        ({"params": {"a": "b", "c": "d"}}, "Everybody may not call anything where a is b and c is d."),
        ({"params": {"a": "\u202e"}}, "Everybody may not call anything where a is ⟨U+202E⟩."),
    ],
)
def test_a_rule_in_words(fields, sentence):
    assert words(**fields) == sentence


def test_a_timed_rule_says_for_which_params_and_in_which_run():
    rule = Rule(name="x", decision=Decision.ALLOW, reason="y", principals=("agent:Jerry",), methods=("a.b",))
    assert timed_in_words(rule) == "The agent Jerry may call a.b."
    assert timed_in_words(rule, exact="0123456789abcdef" * 4, run_id="run_1") == (
        "The agent Jerry may call a.b, with exactly these params (digest 0123 4567 89ab cdef), in run_1 only."
    )


def test_every_condition_of_every_rule_that_comes_with_us_is_in_its_sentence():
    for rules in presets_of().values():
        for rule in rules:
            sentence = in_words(rule)
            plain = msgspec.to_builtins(rule)
            for name in ("commands", "traits", "paths"):
                assert all(value in sentence for value in plain[name]), (rule.name, name)
            for path, glob in rule.params.items():
                assert path in sentence
                assert glob in sentence
