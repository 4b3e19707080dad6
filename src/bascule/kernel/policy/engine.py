"""The policy in force: which rules match a call, which of them wins, and why.

Ownership is not decided here: the gate checks a row's `who` first.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from bascule.kernel.call import Principal
from bascule.kernel.policy.decision import Decision, Verdict
from bascule.kernel.policy.facts import NOTHING, Facts, facts_of, family_of
from bascule.kernel.policy.programs import ProgramRule, ProgramRules
from bascule.kernel.policy.rules import (
    NO_RULE,
    BadPolicy,
    Cause,
    Rule,
    could_apply,
    facts_match,
    params_match,
    parse_rules,
)
from bascule.kernel.rows import Effect
from bascule.wire.canonical import NotCanonical, digest
from gabp.text import escaped

# 100 agents times 40 methods. Over it the cache starts anew, which costs a few microseconds per pair:
# handles come and go, and what a stranger can fill must not grow.
MAX_CACHED_VERDICTS = 4_096

_UNREAD = object()
_ANY = Cause()
_PLACEHOLDER = re.compile(r"\{(?:command|path)\}")
# The method whose commands a sandbox runs; the gate tells background commands from others, not what they execute.
_SHELL = "workspace.shell"
_Kept = TypeVar("_Kept")


class Policy:
    """A fixed list of rules. A changed policy is a new object, so nothing stale is ever cached."""

    def __init__(
        self,
        rules: Iterable[Rule],
        name: str,
        digest: str,
        *,
        max_cached: int = MAX_CACHED_VERDICTS,
    ) -> None:
        self.rules = tuple(rules)
        self.name = name
        # Of the rules, whatever the policy is called: what a person accepts is compared by this.
        self.digest = digest
        self._max_cached = max_cached
        # A method has one effect, so principal and method are the whole key.
        self._verdicts: dict[tuple[str, str], Verdict] = {}
        # For pairs that a rule on params may concern: the rules left to ask.
        self._candidates: dict[tuple[str, str], tuple[Rule, ...]] = {}
        self._program_rules: dict[tuple[str, str], ProgramRules] = {}

    def decide(
        self,
        principal: Principal,
        method_name: str,
        effect: Effect,
        params_getter: Callable[[], Any] | None = None,
    ) -> Verdict:
        """The strictest matching rule's word; of equally strict ones the first's.

        `params_getter` gives the decoded Struct or plain JSON values, and is called only when a rule that
        could apply reads params. Without it such a rule counts as matching if it restricts and as not
        matching if it allows: what is not known is never a permission.
        """
        return self.cached_verdict(principal, method_name) or self._decide_anew(
            principal, method_name, effect, params_getter
        )

    def cached_verdict(self, principal: Principal, method_name: str) -> Verdict | None:
        """Cached verdict for (principal, method), or None: it depends on nothing else."""
        return self._verdicts.get((principal, method_name))

    def explain(self, principal: Principal, method: str, effect: Effect, params: Any) -> str:
        """What would happen, by which rule, and why: the same path as a real call, in sentences."""
        verdict = self.decide(principal, method, effect, lambda: params)
        lines = [
            f"{verdict.decision.value}: {principal} calling {method} (effect {effect.value})",
            f"policy: {self.name}, rule: {verdict.rule}",
            f"reason: {verdict.reason}",
        ]
        if verdict.suggestion is not None:
            lines.append(f"suggestion: {verdict.suggestion}")
        matter = _Matter(method, lambda: params)
        matching = [rule for rule in self._candidates_of(principal, method, effect) if matter.cause(rule) is not None]
        overruled = [f"{rule.name} ({rule.decision.value})" for rule in matching if rule.name != verdict.rule]
        lines.extend(f"note: {note}" for note in facts_of(method, params).notes)
        if overruled:
            lines.append(f"also matching, not stricter: {', '.join(overruled)}")
        if not verdict.cacheable:
            lines.append("decided for these params; other params may be decided otherwise")
        lines.append("whose call it may be (the method's `who`) is checked before any rule")
        return "\n".join(lines)

    def program_rules(self, principal: Principal) -> ProgramRules:
        """What this principal's commands may not execute, however they come to it.

        Rules that look at params are left out: the program that is about to run no longer knows them.
        """
        key = (principal, _SHELL)
        found = self._program_rules.get(key)
        if found is None:
            found = ProgramRules(
                tuple(
                    _program_rule(rule, text)
                    for rule in self.rules
                    if rule.decision is Decision.DENY
                    and not rule.params
                    and rule.commands
                    and could_apply(rule, principal, _SHELL, Effect.EXEC)
                    for text in rule.commands
                )
            )
            _put(self._program_rules, key, found, self._max_cached)
        return found

    def _decide_anew(
        self,
        principal: str,
        method: str,
        effect: Effect,
        params_getter: Callable[[], Any] | None,
    ) -> Verdict:
        candidates = self._candidates_of(principal, method, effect)
        cacheable = not any(rule.reads_params for rule in candidates)
        matter = _Matter(method, params_getter)
        winner: Rule | None = None
        winning = _ANY
        for rule in candidates:
            if (winner is None or rule.decision > winner.decision) and (cause := matter.cause(rule)) is not None:
                winner, winning = rule, cause
        if winner is None:
            verdict = Verdict(
                Decision.DENY,
                NO_RULE,
                "no rule allows it",
                f"Ask the user of this machine for a rule in the policy ({self.name}) that allows {method}",
                _named(method, Decision.DENY, None),
                cacheable,
            )
        else:
            verdict = Verdict(
                winner.decision,
                winner.name,
                _filled(winner.reason, winning),
                _filled(winner.suggestion, winning) if winner.suggestion is not None else None,
                _named(method, winner.decision, winner),
                cacheable,
            )
        if cacheable:
            _put(self._verdicts, (principal, method), verdict, self._max_cached)
        return verdict

    def _candidates_of(self, principal: str, method: str, effect: Effect) -> tuple[Rule, ...]:
        candidates = self._candidates.get((principal, method))
        if candidates is None:
            candidates = tuple(rule for rule in self.rules if could_apply(rule, principal, method, effect))
            if any(rule.reads_params for rule in candidates):
                _put(self._candidates, (principal, method), candidates, self._max_cached)
        return candidates


def preset_in(presets: Mapping[str, tuple[Rule, ...]], name: str) -> Policy:
    """One of the policies that come with us."""
    rules = presets.get(name)
    if rules is None:
        raise BadPolicy(f"there is no policy named {name!r}; there are: {', '.join(presets)}")
    return Policy(rules, name, rules_digest(rules))


def load(text: str, known_methods: Iterable[str], effects: Mapping[str, Effect], *, name: str = "custom") -> Policy:
    """A policy from the text a person wrote."""
    rules = parse_rules(text, known_methods, effects)
    return Policy(rules, name, rules_digest(rules))


def rules_digest(rules: Iterable[Rule]) -> str:
    """Over the rules with all defaults written out: layout and comments of the text do not count."""
    try:
        return digest(msgspec.to_builtins(list(rules)))
    except NotCanonical as error:
        raise BadPolicy(f"an example's params are not JSON: {error}") from error


def matches(rule: Rule, principal: Principal, method: str, effect: Effect, params: Any) -> bool:
    """Whether one rule matches this call with all its conditions."""
    return could_apply(rule, principal, method, effect) and _Matter(method, lambda: params).cause(rule) is not None


class _Matter:
    """What one call is about; params are asked for once, and commands in them read once, when a rule wants them."""

    __slots__ = ("_facts", "_getter", "_method", "_params")

    def __init__(self, method: str, getter: Callable[[], Any] | None) -> None:
        self._method = method
        self._getter = getter
        self._params: Any = _UNREAD
        self._facts: Facts | None = None

    def cause(self, rule: Rule) -> Cause | None:
        """Why the rule matches; None when it does not."""
        if not rule.reads_params:
            return _ANY
        if self._getter is None:
            return None if rule.decision is Decision.ALLOW else _ANY
        if self._params is _UNREAD:
            self._params = self._getter()
        if rule.params and not params_match(rule, self._params):
            return None
        if not rule.reads_facts:
            return _ANY
        if self._facts is None:
            self._facts = facts_of(self._method, self._params)
        return None if self._facts is NOTHING else facts_match(rule, self._facts)


def _filled(text: str, cause: Cause) -> str:
    # In one pass: what a command is called must not be taken for a placeholder.
    values = {"{command}": escaped(cause.command or "this command"), "{path}": escaped(cause.path or "this path")}
    return _PLACEHOLDER.sub(lambda found: values[found.group()], text) if "{" in text else text


def _named(method: str, decision: Decision, rule: Rule | None) -> str | None:
    """`shell.approvalRequired`, `filesystem.blockedPaths`: which part of the policy spoke."""
    family = family_of(method)
    if family is None or decision is Decision.ALLOW:
        return None
    if decision is Decision.ASK:
        return f"{family}.approvalRequired"
    if rule is None or not rule.reads_facts:
        return f"{family}.denied"
    return f"{family}.blockedPatterns" if family == "shell" else f"{family}.blockedPaths"


def _program_rule(rule: Rule, text: str) -> ProgramRule:
    program, *words = text.split()
    return ProgramRule(rule.name, program, tuple(words), _filled(rule.reason, Cause(text)))


def _put(cache: dict[tuple[str, str], _Kept], key: tuple[str, str], value: _Kept, limit: int) -> None:
    if len(cache) >= limit:
        cache.clear()
    cache[key] = value
