"""A rule of the policy as one sentence that leaves no condition out: "Every agent may call messages.send." """

import json
from collections.abc import Iterable

from bascule.foundation.text import one_line
from bascule.kernel.call import LOCAL, PERSON, Principal, agent_of
from bascule.kernel.consent.questions import digest_line
from bascule.kernel.policy.decision import Decision
from bascule.kernel.policy.rules import Rule
from bascule.kernel.rows import Effect

_ANYTHING = "*"
_WILDCARDS = frozenset("*?[")
_PEOPLE = {
    _ANYTHING: "everybody",
    "agent:*": "every agent",
    LOCAL: "you at this machine (local)",
    PERSON: "you with your proof (person)",
}
_SUBJECTS = {
    Decision.ALLOW: "{who} may",
    Decision.ASK: "you are asked before {who} may",
    Decision.DENY: "{who} may not",
}


def in_words(rule: Rule) -> str:
    who = _one_of(_person(glob) for glob in rule.principals)
    parts = [_SUBJECTS[rule.decision].format(who=who), _calls(rule)]
    # A permission is for what is named and nothing else; a restriction for whatever has any of it in it.
    every = rule.decision is Decision.ALLOW
    if rule.params:
        parts.append("where " + " and ".join(f"{_name(path)} is {_name(glob)}" for path, glob in rule.params.items()))
    if rule.commands:
        parts.append(
            f"{'with only' if every else 'with'} commands that begin with {_one_of(map(_name, rule.commands))}"
        )
    if rule.traits:
        parts.append(f"{'that are at most' if every else 'that are'} {_one_of(map(_name, rule.traits))}")
    if rule.paths:
        parts.append(f"{'only on' if every else 'on'} {_one_of(map(_name, rule.paths))}")
    sentence = " ".join(parts)
    return f"{sentence[:1].upper()}{sentence[1:]}."


def timed_in_words(rule: Rule, *, run_id: str | None = None, exact: str | None = None) -> str:
    """As above, of a rule that a person's answer makes: it may be for one run, or for the same params again."""
    parts = [in_words(rule).removesuffix(".")]
    if exact is not None:
        parts.append(f"with exactly these params (digest {digest_line(exact)})")
    if run_id is not None:
        parts.append(f"in {run_id} only")
    return f"{', '.join(parts)}."


def _calls(rule: Rule) -> str:
    what = "call anything" if rule.methods == (_ANYTHING,) else f"call {_one_of(map(_name, rule.methods))}"
    if rule.effects == tuple(Effect):
        return what
    return f"{what} with the effect {_one_of(effect.value for effect in rule.effects)}"


def _person(glob: str) -> str:
    if glob in _PEOPLE:
        return _PEOPLE[glob]
    handle = agent_of(Principal(glob))
    if handle is None:
        return _name(glob)
    return f"agents named {_name(handle)}" if _WILDCARDS & set(handle) else f"the agent {_name(handle)}"


def _name(text: str) -> str:
    """In quotes where it would else run into our own words."""
    shown = one_line(text)
    return shown if shown and " " not in shown else json.dumps(shown, ensure_ascii=False)


def _one_of(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
