"""From a call that would ask to the question, its digest, and the answer its caller gets meanwhile."""

from collections.abc import Mapping
from typing import Any

import msgspec

from bascule.foundation.clock import rfc3339
from bascule.foundation.errors import ApprovalRequired, BasculeError, Conflict, PolicyDenied, TooLarge
from bascule.foundation.text import one_line
from bascule.kernel.consent.blocks import Preview, facts
from bascule.kernel.consent.records import Approval, TimedRule
from bascule.kernel.consent.states import ApprovalState
from bascule.kernel.plain_params import plain_params
from bascule.kernel.policy.decision import Decision
from bascule.kernel.policy.rules import Rule
from bascule.wire.canonical import SHORT_DIGEST_CHARS, NotCanonical, canonical, digest

# A line of a terminal and a bit; the rest is in the preview.
SUMMARY_CHARS = 120


def params_and_digest(params: Any, bound: Mapping[str, Any] | None = None) -> tuple[str, str]:
    """The params as canonical JSON, and the digest that a grant is for.

    `bound` is what the answer rests on besides the params: the digest of a script that a command names, the policy's.
    When any of it changes, it is another call.
    """
    plain = plain_params(params)
    try:
        text = canonical(plain).decode()
        return text, digest({"params": plain, "bound": dict(bound)} if bound else plain)
    except NotCanonical as error:
        raise TooLarge(f"a person cannot be asked about this call: {error}", hint="flatten its params") from error


def default_summary(method: str, params_json: str) -> str:
    return f"{method} {params_json}"


def default_preview(method: str, params: Any) -> Preview:
    """For methods that have no better picture of themselves: every param, one per line. The view makes it visible."""
    lines = [method]
    plain = plain_params(params)
    for name, value in plain.items() if isinstance(plain, dict) else [("params", plain)]:
        text = value if isinstance(value, str) else canonical(value).decode()
        first, *rest = text.split("\n")
        lines.append(f"  {name}: {first}")
        lines += [f"  {' ' * len(name)}| {line}" for line in rest]
    return (facts(*lines),)


def digest_line(digest: str) -> str:
    """The beginning of a digest in groups of four, which a person can compare by eye."""
    short = digest[:SHORT_DIGEST_CHARS]
    return " ".join(short[at : at + 4] for at in range(0, len(short), 4))


def rule_text(rule: Rule, *, run_id: str | None = None, exact: str | None = None) -> str:
    """A timed rule in one sentence that leaves no condition out."""
    whom = " or ".join(map(one_line, rule.principals))
    what = " or ".join(map(one_line, rule.methods))
    parts = [f"{rule.decision.value} {whom} to call {what}"]
    plain = msgspec.to_builtins(rule)
    for name, value in plain.items():
        # Whatever conditions rules have, now and later, are printed: a rule must not match by one that was not shown.
        if value and name not in _NO_CONDITIONS and value != _DEFAULTS.get(name):
            parts.append(f"{name} {one_line(msgspec.json.encode(value).decode())}")
    if exact is not None:
        parts.append(f"with exactly these params (digest {digest_line(exact)})")
    if run_id is not None:
        parts.append(f"in {run_id} only")
    return ", ".join(parts)


def timed_text(timed: TimedRule) -> str:
    return rule_text(timed.rule, run_id=timed.run_id, exact=timed.exact)


_NO_CONDITIONS = frozenset({"name", "decision", "reason", "suggestion", "principals", "methods", "match", "not_match"})
_DEFAULTS: dict[str, Any] = msgspec.to_builtins(Rule(name="x", decision=Decision.ALLOW, reason="x"))


def required(approval: Approval, *, has_person: bool) -> ApprovalRequired:
    """The answer to a caller whose time is over while nobody has decided."""
    asked = approval.question
    id_ = approval.approval_id
    if has_person:
        hint = (
            f"a person answers with `bascule approvals approve {id_}` in a terminal; "
            "then call again with the same arguments"
        )
    else:
        hint = (
            "no person is set on this machine, so nobody can approve: run `bascule person set` in a terminal, then "
            f"`bascule approvals approve {id_}`, then call again with the same arguments"
        )
    return ApprovalRequired(
        asked.reason,
        hint=hint,
        details={
            "approvalId": id_,
            "method": asked.method,
            "rule": asked.rule,
            "digest": asked.digest,
            "expiresAt": rfc3339(approval.expires_at),
        },
    )


def refusal_of(approval: Approval, *, has_person: bool) -> BasculeError:
    """The answer to a caller whose question was not approved."""
    details = {"approvalId": approval.approval_id, "rule": approval.question.rule, "method": approval.question.method}
    match approval.state:
        case ApprovalState.PENDING:
            return required(approval, has_person=has_person)
        case ApprovalState.DENIED:
            why = f": {approval.decided_reason}" if approval.decided_reason else ""
            return PolicyDenied(
                f"a person said no{why}",
                hint="do not try it another way; ask the user of this machine what they want instead",
                details=details,
            )
        case ApprovalState.EXPIRED | ApprovalState.WITHDRAWN:
            return Conflict(
                f"nobody answered {approval.approval_id} in time", hint="call again to ask again", details=details
            )
        case _:
            return lost(approval, approval.question.digest)


def lost(approval: Approval, digest: str) -> Conflict:
    """A yes came, and was not for this call any more."""
    details = {"approvalId": approval.approval_id}
    if digest != approval.question.digest:
        return Conflict(
            f"what this call would do has changed since {approval.approval_id} was approved",
            hint="call again to ask about what it would do now",
            details=details,
        )
    return Conflict(
        f"{approval.approval_id} allowed one call, and another identical one was it",
        hint="it has been done once; call again only if it must happen twice, and the person is asked again",
        details=details,
    )
