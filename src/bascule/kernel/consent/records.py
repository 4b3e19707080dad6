"""What the desk keeps: questions with their answers (table `approvals`), and timed rules (table `rules`)."""

from enum import StrEnum
from typing import Any

import msgspec

from bascule.kernel.call import Principal, ShownBy
from bascule.kernel.consent.blocks import Block, Preview, blocks_of, length_of, text_of
from bascule.kernel.consent.states import FINAL, ApprovalState, check_move
from bascule.kernel.policy.rules import Rule


class Scope(StrEnum):
    """How far an approval reaches."""

    # The exact call that asked, one time.
    ONCE = "once"
    # Everything that the same run asks.
    RUN = "run"
    # A rule of the offers, for some minutes.
    RULE = "rule"


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What the person decides about."""

    principal: Principal
    method: str
    # Of the params, and of whatever else the answer is bound to (see `questions.Bound`).
    digest: str
    # The params as canonical JSON.
    params_json: str
    rule: str
    # Why it asks, and what would not ask.
    reason: str
    suggestion: str | None = None
    # One line for lists.
    summary: str
    # Everything, with hidden characters made visible. A plain text is from before there were blocks.
    preview: Preview
    run_id: str | None = None
    operation_id: str | None = None
    # Timed rules that an approval may make instead of a single grant. With `exact`, the first of them is the same
    # call again: this digest is of its params.
    offers: tuple[Rule, ...] = ()
    exact: str | None = None
    # What a yes holds for; None: for this one call.
    lasts: str | None = None
    # A file with a picture of what it is about.
    picture: str | None = None

    @property
    def size(self) -> int:
        return len(self.params_json) + length_of(self.preview)

    @property
    def blocks(self) -> tuple[Block, ...]:
        return blocks_of(self.preview)

    @property
    def text(self) -> str:
        """The blocks as a terminal prints them."""
        return text_of(self.preview)

    def emptied(self) -> "Question":
        """Without its content, which is kept only while it is asked or executed."""
        return msgspec.structs.replace(self, params_json="", preview="", offers=(), picture=None)


class Approval(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A question and what became of it."""

    approval_id: str
    state: ApprovalState
    question: Question
    asked_at: int
    # Wall time in milliseconds: of the question while it waits, of the grant once it is one.
    expires_at: int
    scope: Scope = Scope.ONCE
    decided_at: int | None = None
    decided_reason: str | None = None
    # What the person showed for the answer.
    decided_by: ShownBy | None = None
    # The timed rule that the answer made.
    rule_id: str | None = None

    @property
    def key(self) -> "Key":
        asked = self.question
        return (asked.principal, asked.method, asked.digest, asked.run_id)

    def moved(self, state: ApprovalState, **changes: Any) -> "Approval":
        check_move(self.state, state)
        if state in FINAL:
            changes["question"] = self.question.emptied()
        return msgspec.structs.replace(self, state=state, **changes)


# Whose call, which one, with which params, in which run: what an identical call has the same of.
Key = tuple[str, str, str, str | None]


class TimedRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rule that a person laid over an `ask` for a while; never over a `deny`."""

    rule_id: str
    principal: Principal
    rule: Rule
    approval_id: str
    made_at: int
    expires_at: int
    # The rule of the policy that asked: what another one asks about was not answered. None: whatever asks.
    over: str | None = None
    # Only for calls with these params.
    exact: str | None = None
    # Only for what this run asks.
    run_id: str | None = None
