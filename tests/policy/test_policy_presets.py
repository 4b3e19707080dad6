"""The whole table: every preset, every kind of principal, every method that exists."""

from itertools import product

import pytest

from bascule.call import LOCAL, PERSON, agent_principal
from bascule.policy.decision import Decision
from bascule.policy.engine import preset, standard
from bascule.policy.presets import DEFAULT_PRESET, PRESETS
from bascule.policy.rules import BadPolicy, check_rules
from bascule.protocols import broker_methods as broker
from bascule.protocols import house
from bascule.protocols.methods import Effect

ROWS = (*broker.METHODS, *house.METHODS)
EFFECTS = {row.name: row.effect for row in ROWS}
JERRY = agent_principal("Jerry")

# Whatever is not listed is allowed. A new method that some preset should refuse is added here first.
ADMIN = ("agents.revoke", "daemon.gc", "person.set", "person.unlock")
DENIED = {
    *((name, JERRY, method, "no-admin-by-agents") for name, method in product(PRESETS, ADMIN)),
    ("restrictive", LOCAL, "messages.send", "register-first"),
    ("restrictive", LOCAL, "messages.broadcast", "register-first"),
    ("restrictive", JERRY, "messages.broadcast", "no-broadcast-by-agents"),
}


@pytest.mark.parametrize(("name", "principal", "method"), list(product(PRESETS, [LOCAL, JERRY, PERSON], EFFECTS)))
def test_the_table_of_presets(name, principal, method):
    verdict = preset(name).decide(principal, method, EFFECTS[method], None)
    denied_by = {rule for *cell, rule in DENIED if cell == [name, principal, method]}
    if denied_by:
        assert verdict.decision is Decision.DENY
        assert {verdict.rule} == denied_by
        assert verdict.suggestion
    else:
        assert verdict.decision is Decision.ALLOW
    assert verdict.reason
    assert verdict.cacheable


@pytest.mark.parametrize("name", PRESETS)
def test_the_examples_of_every_preset_prove_its_rules(name):
    check_rules(PRESETS[name], EFFECTS, EFFECTS)


@pytest.mark.parametrize("name", PRESETS)
def test_every_rule_of_a_preset_has_examples_of_both_kinds(name):
    assert all(rule.match and rule.not_match for rule in PRESETS[name])


@pytest.mark.parametrize("name", PRESETS)
def test_no_preset_asks_while_nobody_can_be_asked(name):
    assert all(rule.decision is not Decision.ASK for rule in PRESETS[name])


@pytest.mark.parametrize("effect", [effect for effect in Effect if effect not in EFFECTS.values()])
@pytest.mark.parametrize("name", PRESETS)
def test_effects_without_a_bridge_are_denied_to_everyone(name, effect):
    for principal in (LOCAL, JERRY, PERSON):
        verdict = preset(name).decide(principal, f"later.{effect.value}", effect, None)
        assert verdict.decision is Decision.DENY
        assert verdict.reason == "no rule allows it"


def test_restrictive_is_never_looser_than_standard_nor_standard_than_permissive():
    for principal, method in product([LOCAL, JERRY, PERSON], EFFECTS):
        strict, middle, loose = (
            preset(name).decide(principal, method, EFFECTS[method], None).decision
            for name in ("restrictive", "standard", "permissive")
        )
        assert loose <= middle <= strict


def test_standard_is_the_default():
    assert DEFAULT_PRESET == "standard"
    assert standard().name == "standard"
    assert standard().digest == preset("standard").digest


def test_an_unknown_preset_is_answered_with_the_known_ones():
    with pytest.raises(BadPolicy, match="there are: restrictive, standard, permissive"):
        preset("paranoid")
