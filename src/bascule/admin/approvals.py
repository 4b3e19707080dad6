"""Consent and policy as methods: what waits for a person, and what the rules say."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from bascule.kernel.limits import MAX_RULE_MINUTES
from bascule.kernel.rows import (
    LOCAL_USER,
    PERSON_ONLY,
    Changes,
    Effect,
    Nothing,
    Params,
    Reads,
    Result,
    Streams,
    rows_of,
)

ApprovalRef = Annotated[str, Meta(min_length=1, max_length=64)]
# A person reads it; longer reasons belong into a message.
MAX_REASON_CHARS = 1_000


class ApprovalsListParams(Params, frozen=True, kw_only=True):
    # pending, or every one that is still kept.
    all: bool = False
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100


class ApprovalParams(Params, frozen=True, kw_only=True):
    approval_id: ApprovalRef


class ApprovalView(Result, frozen=True, kw_only=True):
    """One question to the person, drawn from the stored params."""

    approval_id: str
    state: str
    principal: str
    method: str
    # What the digest is of; a person compares the first 16 characters.
    digest: str
    rule: str
    reason: str
    suggestion: str | None = None
    # One line for lists.
    summary: str
    asked_at: str
    expires_at: str
    # Complete, with control and bidi characters made visible: a diff, a parsed command, an exact text.
    preview: str | None = None
    # A file with a picture of it, for programs that may read our state directory.
    picture: str | None = None
    # The run and operation that wait for it.
    run_id: str | None = None
    operation_id: str | None = None
    # Callers waiting now.
    waiting: int = 0
    decided_at: str | None = None
    decided_reason: str | None = None
    # The timed rules that approving may make, printed in full.
    offers: list["RuleOffer"] = []


class RuleOffer(Result, frozen=True, kw_only=True):
    """What "and for the next minutes too" would mean, exactly."""

    number: int
    # A few words; `text` leaves no condition out.
    title: str
    text: str
    # The rule as it would stand: principal, method, and command prefix, app or tool.
    rule: dict[str, Any]


class DecideParams(Params, frozen=True, kw_only=True):
    approval_id: ApprovalRef
    decision: Literal["approved", "denied"]
    reason: Annotated[str, Meta(max_length=MAX_REASON_CHARS)] | None = None
    # once (this call), run (all that this run asks), rule (see offers).
    scope: Literal["once", "run", "rule"] = "once"
    # Which offer, with scope = rule.
    offer: int | None = None
    minutes: Annotated[int, Meta(ge=1, le=MAX_RULE_MINUTES)] = 10


class TimedRuleView(Result, frozen=True, kw_only=True):
    rule_id: str
    text: str
    expires_at: str
    approval_id: str


class DecideResult(Result, frozen=True, kw_only=True):
    approval_id: str
    state: str
    # The timed rule that was made.
    rule: TimedRuleView | None = None


class PolicyView(Result, frozen=True, kw_only=True):
    name: str
    digest: str
    # The text in force: what a person accepted, or the preset written out as TOML.
    text: str
    # A file that differs from what is in force, waiting for `bascule policy accept`.
    file: str | None = None
    file_text: str | None = None
    file_digest: str | None = None
    pending: bool = False
    problem: str | None = None
    timed: list[TimedRuleView] = []


class ExplainParams(Params, frozen=True, kw_only=True):
    method: Annotated[str, Meta(min_length=1, max_length=200)]
    params: dict[str, Any] = {}
    # As whom; unless given, as the caller.
    principal: Annotated[str, Meta(min_length=1, max_length=200)] | None = None


class ExplainResult(Result, frozen=True, kw_only=True):
    decision: str
    rule: str
    reason: str
    suggestion: str | None = None
    text: str


class AcceptParams(Params, frozen=True, kw_only=True):
    # Of the text the person was shown: another text is not accepted by it.
    digest: str


APPROVALS_LIST = Reads[ApprovalsListParams, list[ApprovalView]](
    "approvals.list", "List what waits for the person.", who=LOCAL_USER
)
APPROVALS_SHOW = Reads[ApprovalParams, ApprovalView](
    "approvals.show", "Show one question with its full preview.", who=LOCAL_USER
)
APPROVALS_DECIDE = Changes[DecideParams, DecideResult](
    "approvals.decide",
    "Approve or deny; only the person may.",
    effect=Effect.ADMIN,
    who=PERSON_ONLY,
    # A yes would be lost on a caller that is refused.
    stopped=lambda params: params.decision == "denied",
)
APPROVALS_STREAM = Streams[Nothing, ApprovalView](
    "approvals.stream", "Follow questions as they come and are answered.", who=LOCAL_USER
)
POLICY_SHOW = Reads[Nothing, PolicyView](
    "policy.show", "Show the policy in force, and what waits to be accepted.", who=LOCAL_USER
)
POLICY_EXPLAIN = Reads[ExplainParams, ExplainResult](
    "policy.explain", "Say what would happen to a call, by which rule, and why."
)
POLICY_ACCEPT = Changes[AcceptParams, PolicyView](
    "policy.accept", "Put the edited policy file in force; only the person may.", effect=Effect.ADMIN, who=PERSON_ONLY
)

METHODS = rows_of(globals())
