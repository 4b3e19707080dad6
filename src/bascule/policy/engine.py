"""The policy in force: which rules match a call, which of them wins, and why.

Ownership is not decided here: dispatch checks a row's `who` first.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from bascule.call import Principal
from bascule.policy.decision import Decision, Verdict
from bascule.policy.presets import DEFAULT_PRESET, PRESETS
from bascule.policy.programs import ProgramRules
from bascule.policy.rules import NO_RULE, BadPolicy, Rule, could_apply, params_match, parse_rules
from bascule.protocols.methods import Effect
from bascule.wire.canonical import NotCanonical, digest

# 100 agents times 40 methods. Over it the cache starts anew, which costs a few microseconds per pair:
# handles come and go, and what a stranger can fill must not grow.
MAX_CACHED_VERDICTS = 4_096

_UNREAD = object()
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
        return self.known(principal, method_name) or self._decide_anew(principal, method_name, effect, params_getter)

    def known(self, principal: Principal, method_name: str) -> Verdict | None:
        """The word on every call of this method by this principal, if it was asked for before and has one."""
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
        matching = [rule for rule in self._candidates_of(principal, method, effect) if _matches(rule, params)]
        overruled = [f"{rule.name} ({rule.decision.value})" for rule in matching if rule.name != verdict.rule]
        if overruled:
            lines.append(f"also matching, not stricter: {', '.join(overruled)}")
        if not verdict.cacheable:
            lines.append("decided for these params; other params may be decided otherwise")
        lines.append("whose call it may be (the method's `who`) is checked before any rule")
        return "\n".join(lines)

    def program_rules(self, principal: Principal) -> ProgramRules:  # noqa: ARG002 - rules on commands will ask who
        """What a sandbox enforces at execution; rules on commands add to it."""
        return ProgramRules()

    def _decide_anew(
        self,
        principal: str,
        method: str,
        effect: Effect,
        params_getter: Callable[[], Any] | None,
    ) -> Verdict:
        candidates = self._candidates_of(principal, method, effect)
        cacheable = not any(rule.params for rule in candidates)
        params = _UNREAD
        if not cacheable and params_getter is not None:
            params = params_getter()
        winner: Rule | None = None
        for rule in candidates:
            if (winner is None or rule.decision > winner.decision) and _matches(rule, params):
                winner = rule
        if winner is None:
            verdict = Verdict(
                Decision.DENY,
                NO_RULE,
                "no rule allows it",
                f"Ask the user of this machine for a rule in the policy ({self.name}) that allows {method}",
                cacheable,
            )
        else:
            verdict = Verdict(winner.decision, winner.name, winner.reason, winner.suggestion, cacheable)
        if cacheable:
            _put(self._verdicts, (principal, method), verdict, self._max_cached)
        return verdict

    def _candidates_of(self, principal: str, method: str, effect: Effect) -> tuple[Rule, ...]:
        candidates = self._candidates.get((principal, method))
        if candidates is None:
            candidates = tuple(rule for rule in self.rules if could_apply(rule, principal, method, effect))
            if any(rule.params for rule in candidates):
                _put(self._candidates, (principal, method), candidates, self._max_cached)
        return candidates


def preset(name: str) -> Policy:
    """One of the policies that come with the house."""
    rules = PRESETS.get(name)
    if rules is None:
        raise BadPolicy(f"there is no policy named {name!r}; there are: {', '.join(PRESETS)}")
    return Policy(rules, name, rules_digest(rules))


def standard() -> Policy:
    return preset(DEFAULT_PRESET)


def load(text: str, known_methods: Iterable[str], effects: Mapping[str, Effect], *, name: str = "custom") -> Policy:
    """A policy from the text a person wrote."""
    rules = parse_rules(text, known_methods, effects)
    return Policy(rules, name, rules_digest(rules))


def matches(rule: Rule, principal: str, method: str, effect: Effect, params: Any) -> bool:
    """Whether one rule, with all its conditions, speaks of this call."""
    return could_apply(rule, principal, method, effect) and _matches(rule, params)


def rules_digest(rules: Iterable[Rule]) -> str:
    """Over the rules with all defaults written out: layout and comments of the text do not count."""
    try:
        return digest(msgspec.to_builtins(list(rules)))
    except NotCanonical as error:
        raise BadPolicy(f"an example's params are not JSON: {error}") from error


def _matches(rule: Rule, params: Any) -> bool:
    if not rule.params:
        return True
    if params is _UNREAD:
        return rule.decision is not Decision.ALLOW
    return params_match(rule, params)


def _put(cache: dict[tuple[str, str], _Kept], key: tuple[str, str], value: _Kept, limit: int) -> None:
    if len(cache) >= limit:
        cache.clear()
    cache[key] = value
