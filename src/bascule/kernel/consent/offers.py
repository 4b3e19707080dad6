"""What a person may allow for a while instead of once: the same call again, a command prefix, a file.

Every offer is as narrow as it can be said: nothing is offered for what could not be read, for what deletes, or for a
command that runs a file whose content the answer is bound to.
"""

import glob
from collections.abc import Mapping
from typing import Any

from bascule.kernel.plain_params import plain_params
from bascule.kernel.policy.decision import Decision
from bascule.kernel.policy.facts import COMMAND_METHODS, PATH_METHODS, Facts, facts_of
from bascule.kernel.policy.rules import MAX_RULE_NAME_CHARS, Rule
from bascule.kernel.policy.shell.reading import Command
from bascule.kernel.policy.shell.traits import NETWORK, SENDS
from bascule.wire.canonical import NotCanonical, digest

# More programs in one line than a person reads as one thing.
MAX_COMMANDS = 3
# What names a call, and not what it does.
_NAMES = frozenset({"id", "type"})
# What an answer may be bound to and still be given for another time: where, under which policy, as which operation.
_ANY_TIME = frozenset({"space", "path", "operationId", "policy"})


def exact(params: Any) -> str | None:
    """What the same call has the same of, whatever it is called."""
    plain = plain_params(params)
    if isinstance(plain, dict):
        plain = {name: value for name, value in plain.items() if name not in _NAMES}
    try:
        return digest(plain)
    except NotCanonical:
        return None


def may_repeat(bound: Mapping[str, Any] | None) -> bool:
    """Not when the answer rests on what a file holds now, or on anything else that may be different next time."""
    return all(name in _ANY_TIME or not value for name, value in (bound or {}).items())


def offers_for(principal: str, method: str, params: Any) -> tuple[Rule, ...]:
    if method in COMMAND_METHODS:
        prefixes = _prefixes(facts_of(method, params))
        return (_rule(principal, method, "such commands", commands=prefixes),) if prefixes else ()
    path = getattr(params, "path", None)
    if method in PATH_METHODS and isinstance(path, str) and path:
        # As a param: a rule's `paths` match at any depth, and this is about one file.
        return (_rule(principal, method, "the same with this file", params={"path": glob.escape(path)}),)
    return ()


def all_offers(
    principal: str, method: str, params: Any, bound: Mapping[str, Any] | None, more: tuple[Rule, ...] = ()
) -> tuple[str | None, tuple[Rule, ...]]:
    """The digest of the same call and the offers, which begin with it; a bridge's own come last."""
    if not may_repeat(bound):
        return None, more
    same = exact(params)
    first = (_rule(principal, method, "exactly this again"),) if same is not None else ()
    return same, (*first, *offers_for(principal, method, params), *more)


def _rule(principal: str, method: str, title: str, **conditions: Any) -> Rule:
    return Rule(
        name=f"timed.{method}"[:MAX_RULE_NAME_CHARS],
        decision=Decision.ALLOW,
        # Shown before the rule itself, which is printed with all its conditions.
        reason=title,
        principals=(glob.escape(principal),),
        methods=(glob.escape(method),),
        **conditions,
    )


# Traits that a prefix says by itself: `git push` sends.
_PLAIN = frozenset([NETWORK, SENDS])


def _prefixes(facts: Facts) -> tuple[str, ...]:
    if not _PLAIN.issuperset(facts.traits) or facts.redirected or not 1 <= len(facts.commands) <= MAX_COMMANDS:
        return ()
    found = tuple(dict.fromkeys(map(_prefix, facts.commands)))
    return found if all(found) else ()


def _prefix(command: Command) -> str:
    """`git push`, `make test`, `pytest`: the program, and the word that says what of it."""
    if command.program is None or command.via:
        return ""
    words = [command.program]
    if len(command.words) > 1:
        following = command.words[1]
        if following.text is not None and following.certain and following.text[:1].isalnum():
            words.append(following.text)
    # A rule's words are split at blanks.
    return " ".join(map(glob.escape, words)) if all(len(word.split()) == 1 for word in words) else ""
