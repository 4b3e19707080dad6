"""The rule a person can be offered beside "once": these commands, for a while."""

import glob
from typing import Any

from bascule.policy.commands import MAX_PREFIX_WORDS
from bascule.policy.decision import Decision
from bascule.policy.facts import COMMAND_METHODS, facts_of
from bascule.policy.rules import Rule, facts_match
from bascule.policy.shell.reading import Command
from bascule.policy.shell.traits import DESTRUCTIVE

# Each is a line the person reads before saying yes to all of them.
MAX_OFFERED_COMMANDS = 8


def command_offer(principal: str, method: str, params: Any, name: str) -> Rule | None:
    """A rule that allows this principal the same commands, in the same directory; None where it could not be honest.

    Every program with all its words is named, so that approving `rm -rf build` approves neither another directory nor
    another program; more words may follow. What is opaque, steers other programs or writes files by redirection is
    not offered: a prefix would not say what was approved.
    """
    if method not in COMMAND_METHODS:
        return None
    facts = facts_of(method, params)
    if not facts.commands or facts.redirected or not set(facts.traits) <= {DESTRUCTIVE}:
        return None
    prefixes = dict.fromkeys(_prefix(command) for command in facts.commands)
    if None in prefixes or len(prefixes) > MAX_OFFERED_COMMANDS:
        return None
    cwd = params.get("cwd") if isinstance(params, dict) else getattr(params, "cwd", None)
    rule = Rule(
        name=name,
        decision=Decision.ALLOW,
        reason="the same commands were approved for a while",
        principals=(glob.escape(principal),),
        methods=(method,),
        params={"cwd": "null" if cwd is None else glob.escape(cwd)},
        commands=tuple(prefix for prefix in prefixes if prefix is not None),
    )
    # An offer that would not even cover this call is none: a program of the workspace's own, for one.
    return rule if facts_match(rule, facts) is not None else None


def _prefix(command: Command) -> str | None:
    words = [field.text for field in command.words if field.certain]
    if len(words) != len(command.words) or len(words) > MAX_PREFIX_WORDS:
        return None
    if any(word is None or word.split() != [word] for word in words):
        return None
    return " ".join(glob.escape(word.rpartition("/")[2] if at == 0 else word) for at, word in enumerate(words) if word)
