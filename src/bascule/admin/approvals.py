"""Consent and policy as methods: what waits for a person, and what the rules say."""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta

from bascule.kernel.blob import Blob
from bascule.kernel.call import Grade
from bascule.kernel.limits import MAX_RULE_MINUTES
from bascule.kernel.rows import (
    LOCAL_USER,
    PERSON_ONLY,
    Changes,
    Effect,
    Http,
    Nothing,
    Params,
    Reads,
    Result,
    Streams,
    rows_of,
)

# As `kernel.consent.blocks.BlockKind` and `kernel.policy.decision.Decision`, which clients do not load.
BlockName: TypeAlias = Literal["facts", "text", "diff", "command", "keys"]
Mark: TypeAlias = Literal["+", "-", "@", " "]
DecisionWord: TypeAlias = Literal["allow", "ask", "deny"]

ApprovalRef = Annotated[str, Meta(min_length=1, max_length=64)]
# A person reads it; longer reasons belong into a message.
MAX_REASON_CHARS = 1_000
# As the policy engine reads at most; a longer text is refused there with a sentence of its own.
MAX_POLICY_TEXT = 1024 * 1024
# What happened in the last hours of a busy day; older records tell little about a rule of today.
MAX_REPLAYED = 1_000


class ApprovalsListParams(Params, frozen=True, kw_only=True):
    # pending, or every one that is still kept.
    all: bool = False
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100


class ApprovalParams(Params, frozen=True, kw_only=True):
    approval_id: ApprovalRef


class PreviewLine(Result, frozen=True, kw_only=True):
    text: str
    # Of a diff: + - @ or a space. A line without is about the diff, as the names of its files.
    mark: Mark | None = None


class PreviewBlock(Result, frozen=True, kw_only=True):
    """A part of the preview. What an agent chose stands in `text` alone, with hidden characters made visible."""

    kind: BlockName
    lines: list[PreviewLine]
    title: str | None = None


class AskedBefore(Result, frozen=True, kw_only=True):
    approval_id: str
    summary: str
    state: str
    # When it was asked.
    at: str


class AskerHistory(Result, frozen=True, kw_only=True):
    """What the same principal has asked before, as far as answers are kept (24 hours)."""

    # With this one.
    asked: int
    approved: int
    denied: int
    # Nobody answered in time, or the asker withdrew.
    expired: int
    # The newest before this one.
    recent: list[AskedBefore]


class ApprovalView(Result, frozen=True, kw_only=True):
    """One question to the person, made from the stored params."""

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
    # The same in parts, for pages; `approvals.show` alone has them.
    blocks: list[PreviewBlock] = []
    # A file with a picture of it, for programs that may read our state directory.
    picture: str | None = None
    # `approvals.picture` has its bytes.
    has_picture: bool = False
    # The run and operation that wait for it.
    run_id: str | None = None
    operation_id: str | None = None
    # Callers waiting now.
    waiting: int = 0
    decided_at: str | None = None
    decided_reason: str | None = None
    # What a yes holds for, where that is more than this one call.
    lasts: str | None = None
    # The timed rules that approving may make, printed in full.
    offers: list["RuleOffer"] = []
    history: AskerHistory | None = None


class RuleOffer(Result, frozen=True, kw_only=True):
    """What "and for the next minutes too" would mean, exactly."""

    number: int
    # A few words; `text` leaves no condition out.
    title: str
    text: str
    # The same as a sentence.
    words: str
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


class RuleView(Result, frozen=True, kw_only=True):
    name: str
    decision: DecisionWord
    # The rule as one sentence that leaves no condition out.
    text: str
    # What a caller is shown when it decides.
    reason: str
    # Until when, of a rule that a person made for a while.
    timed: str | None = None


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
    # All rules in force in words, those for a while last.
    rules: list[RuleView] = []


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


class ReplayParams(Params, frozen=True, kw_only=True):
    # A policy as TOML; unless given, the edited file, or what is in force when there is none.
    text: Annotated[str, Meta(max_length=MAX_POLICY_TEXT)] | None = None
    # How many of the newest ledger records.
    limit: Annotated[int, Meta(ge=1, le=MAX_REPLAYED)] = MAX_REPLAYED


class ChangedDecision(Result, frozen=True, kw_only=True):
    """A call that would have been decided otherwise."""

    seq: int
    at: str
    principal: str
    method: str
    subject: str | None = None
    was: DecisionWord
    now: DecisionWord
    # That decides it now.
    rule: str


class ReplayResult(Result, frozen=True, kw_only=True):
    # Records that were looked at; many are no decision of the policy, as the end of what has its beginning recorded.
    records: int
    # Decisions that could be made again.
    compared: int
    changed: list[ChangedDecision]
    # Decisions that depend on what the ledger does not keep: params, commands, paths, a bridge's own judgement.
    unreadable: int


class AcceptParams(Params, frozen=True, kw_only=True):
    # Of the text the person was shown: another text is not accepted by it.
    digest: str


def _proof_of_answer(params: DecideParams) -> Grade:
    """Signed in to deny without a reason, else fresh."""
    # A plain no harms nobody. A reason is read by an agent as the person's word.
    return Grade.SIGNED_IN if params.decision == "denied" and not params.reason else Grade.FRESH


APPROVALS_LIST = Reads[ApprovalsListParams, list[ApprovalView]](
    "approvals.list", "List what waits for the person.", Http("GET", "/v1/approvals"), who=LOCAL_USER
)
APPROVALS_SHOW = Reads[ApprovalParams, ApprovalView](
    "approvals.show",
    "Show one question with its full preview.",
    Http("GET", "/v1/approvals/{approvalId}"),
    who=LOCAL_USER,
)
APPROVALS_PICTURE = Reads[ApprovalParams, Blob](
    "approvals.picture",
    "Show the picture of what one question is about.",
    Http("GET", "/v1/approvals/{approvalId}/picture"),
    who=LOCAL_USER,
)
APPROVALS_DECIDE = Changes[DecideParams, DecideResult](
    "approvals.decide",
    "Approve or deny; only the person may.",
    Http("POST", "/v1/approvals/{approvalId}/decision"),
    effect=Effect.ADMIN,
    who=PERSON_ONLY,
    proof=_proof_of_answer,
    # A yes would be lost on a caller that is refused.
    stopped=lambda params: params.decision == "denied",
)
APPROVALS_STREAM = Streams[Nothing, ApprovalView](
    "approvals.stream",
    "Follow questions as they come and are answered.",
    Http("GET", "/v1/approvals/stream"),
    who=LOCAL_USER,
)
POLICY_SHOW = Reads[Nothing, PolicyView](
    "policy.show",
    "Show the policy in force, and what waits to be accepted.",
    Http("GET", "/v1/policy"),
    who=LOCAL_USER,
)
POLICY_EXPLAIN = Reads[ExplainParams, ExplainResult](
    "policy.explain",
    "Say what would happen to a call, by which rule, and why.",
    Http("POST", "/v1/policy/explain"),
)
POLICY_REPLAY = Reads[ReplayParams, ReplayResult](
    "policy.replay",
    "Say what a policy would have decided about the newest ledger records.",
    Http("POST", "/v1/policy/replay"),
    who=LOCAL_USER,
)
POLICY_ACCEPT = Changes[AcceptParams, PolicyView](
    "policy.accept",
    "Put the edited policy file in force; only the person may.",
    Http("POST", "/v1/policy/accept"),
    effect=Effect.ADMIN,
    who=PERSON_ONLY,
)

METHODS = rows_of(globals())
