"""What was seen since the daemon was started: for "would have asked 9 times"."""

from collections import Counter

from bascule.kernel.policy.decision import Decision, Verdict
from bascule.native.protocol import Counted, ModeView, Report

# Rules of one policy, by client and verdict; a hostile one has no more.
MAX_COUNTED = 1_000


class Tally:
    def __init__(self, since: str) -> None:
        self._since = since
        self._calls: Counter[str] = Counter()
        self._undoable: Counter[str] = Counter()
        self._without_undo: Counter[str] = Counter()
        self._open: Counter[str] = Counter()
        self._gaps: Counter[str] = Counter()
        self._rules: Counter[tuple[str, Decision, str]] = Counter()
        self._examples: dict[tuple[str, Decision, str], str] = {}

    def call(self, client: str, verdict: Verdict | None, title: str, *, undoable: bool | None) -> None:
        """`undoable`: None of a call that changes nothing."""
        self._calls[client] += 1
        self._undoable[client] += undoable is True
        self._without_undo[client] += undoable is False
        if verdict is None or verdict.decision is Decision.ALLOW:
            return
        key = (client, verdict.decision, verdict.rule)
        if key in self._rules or len(self._rules) < MAX_COUNTED:
            self._rules[key] += 1
            self._examples[key] = title

    def open(self, client: str) -> None:
        self._open[client] += 1

    def gaps(self, client: str, count: int) -> None:
        self._gaps[client] += count

    def report(self, client: str | None, modes: list[ModeView]) -> Report:
        rules = [
            Counted(
                client=who, verdict=decision.value, rule=rule, count=count, example=self._examples[who, decision, rule]
            )
            for (who, decision, rule), count in self._rules.most_common()
            if client in (None, who)
        ]
        return Report(
            since=self._since,
            calls=_sum(self._calls, client),
            would_ask=sum(each.count for each in rules if each.verdict == Decision.ASK.value),
            would_deny=sum(each.count for each in rules if each.verdict == Decision.DENY.value),
            undoable=_sum(self._undoable, client),
            without_undo=_sum(self._without_undo, client),
            open=_sum(self._open, client),
            gaps=_sum(self._gaps, client),
            rules=rules,
            modes=modes,
        )


def _sum(counted: Counter[str], client: str | None) -> int:
    return counted.total() if client is None else counted[client]
