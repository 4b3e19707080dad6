"""The desk: questions come in, the person answers, callers and runs wait, grants are spent once.

One desk for all bridges. Everything changes through a transaction of the journal, so that an answer, the record of it
and what it allows are one commit; callers are answered when that is durable. Within one life both clocks must agree
that there is time left: the monotonic one does not see a suspended laptop, and the wall clock may be set back. So a
jump can end a grant early, and never makes it longer.
"""

import hmac
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from bascule.foundation.clock import Clock
from bascule.foundation.deferred import Deferred
from bascule.foundation.errors import Conflict, InvalidRequest, NotFound, Overloaded, TooLarge
from bascule.foundation.ids import new_id
from bascule.foundation.timers import Timers
from bascule.kernel.call import DAEMON, Principal, ShownBy, agent_principal
from bascule.kernel.consent.blocks import length_of
from bascule.kernel.consent.limits import ConsentLimits
from bascule.kernel.consent.pictures import QuestionPictures
from bascule.kernel.consent.ports import Pictures
from bascule.kernel.consent.records import Approval, Key, Question, Scope, TimedRule
from bascule.kernel.consent.rules import TimedRules
from bascule.kernel.consent.states import FINAL, ApprovalState
from bascule.kernel.faults import log_fault
from bascule.kernel.journal import Journal, Table, Transaction
from bascule.kernel.journal_ports import JournalStore, Log
from bascule.kernel.retention import GcItem
from bascule.kernel.rows import Effect

# After a write that failed, so that a full disk is not asked again at every turn of the loop.
_TRY_AGAIN_MS = 1_000.0
_OPEN = (ApprovalState.PENDING, ApprovalState.APPROVED)

Callback = Callable[[Approval], None]


class Desk:
    def __init__(
        self,
        *,
        store: JournalStore,
        journal: Journal,
        clock: Clock,
        timers: Timers,
        has_person: Callable[[], bool],
        log: Log,
        key: bytes,
        limits: ConsentLimits | None = None,
        pictures: Pictures | None = None,
    ) -> None:
        self._journal = journal
        self.pictures = QuestionPictures(pictures, log)
        self._clock = clock
        self._timers = timers
        self._log = log
        self._key = key
        self.limits = limits or ConsentLimits()
        self.has_person = has_person
        self.approvals: Table[Approval] = Table("approvals", Approval, self._changed)
        self.rules = TimedRules(store, journal, clock, timers, self.limits)
        # By what an identical call has the same of. One question at most waits for each; of grants there may be more,
        # when somebody asked again although one was there.
        self._questions: dict[Key, str] = {}
        self._grants: dict[Key, dict[str, None]] = {}
        self._pending: dict[Principal, set[str]] = {}
        self._pending_chars: dict[Principal, int] = {}
        # When each open state ends, in this life's clock. Kept per state: a grant that could not be stored is a
        # question again, with the time that one had.
        self._until: dict[tuple[str, ApprovalState], float] = {}
        self._deadlines: dict[str, Any] = {}
        self._ended_at: dict[str, float] = {}
        self._waiting: dict[str, dict[Deferred[Approval], None]] = {}
        self._waiting_of: dict[Principal, int] = {}
        self._watchers: dict[str, list[Callback]] = {}
        # Called with every question and every answer once it is durable.
        self.on_news: list[Callback] = []
        self._stopping = False
        for approval_id, approval in store.load("approvals", Approval):
            self._resume_time(approval)
            self.approvals.apply(approval_id, approval)
        self.pictures.keep_only(self.approvals.rows.values())

    # -- asking --

    def ask(self, tx: Transaction, question: Question, picture: bytes | None = None) -> Approval:
        """A new question, or the identical one that waits already; then `tx` is as it was."""
        waiting = self.pending_for(question)
        if waiting is not None:
            return waiting
        self._check_room(question)
        now = self._clock.wall_ms()
        approval_id = new_id("apr")
        if picture is not None:
            question = self.pictures.added(approval_id, question, picture)
        approval = Approval(
            approval_id=approval_id,
            state=ApprovalState.PENDING,
            question=question,
            asked_at=now,
            expires_at=now + round(self.limits.question_seconds * 1000),
        )
        tx.put(self.approvals, approval.approval_id, approval)
        tx.after.append(partial(self._notify, approval.approval_id))
        return approval

    def pending_for(self, question: Question) -> Approval | None:
        key = (question.principal, question.method, question.digest, question.run_id)
        found = self._questions.get(key)
        return self.approvals.rows[found] if found is not None else None

    def is_known(self, principal: Principal, method: str, digest: str) -> bool:
        """Asked already, or allowed already and not used yet; outside of runs."""
        key = (principal, method, digest, None)
        return key in self._questions or self.grant_for(principal, method, digest) is not None

    def _check_room(self, question: Question) -> None:
        limits = self.limits
        principal = question.principal
        shown = length_of(question.preview)
        if shown > limits.max_preview_chars:
            raise TooLarge(
                f"a person would have to read {shown} characters; at most "
                f"{limits.max_preview_chars} are asked about (max_preview_chars)",
                hint="do less in one call",
            )
        count = len(self._pending.get(principal, ()))
        total = len(self._questions)
        chars = self._pending_chars.get(principal, 0) + question.size
        if count >= limits.max_pending:
            over = ("max_pending", f"{principal} has {count} questions waiting")
        elif chars > limits.max_pending_chars:
            over = ("max_pending_chars", f"{principal} has {count} questions waiting, of {chars} characters")
        elif total >= limits.max_pending_total:
            over = ("max_pending_total", f"{total} questions wait for the person")
        else:
            return
        raise Overloaded(
            over[1],
            hint="a person answers them with `bascule approvals`; unanswered ones expire within 15 minutes",
            details={"limit": over[0], "pending": count},
            retry_after=60.0,
        )

    # -- answering --

    def decide(
        self,
        tx: Transaction,
        approval_id: str,
        *,
        approve: bool,
        scope: Scope = Scope.ONCE,
        offer: int | None = None,
        minutes: int = 10,
        reason: str | None = None,
        by: ShownBy | None = None,
    ) -> tuple[Approval, TimedRule | None]:
        """Record the person's decision. The caller has made sure that it is the person's."""
        approval = self.find(approval_id)
        self._must_wait(approval)
        now = self._clock.wall_ms()
        decision: dict[str, Any] = {"decided_at": now, "decided_reason": reason, "decided_by": by}
        rule: TimedRule | None = None
        if not approve:
            decided = approval.moved(ApprovalState.DENIED, **decision)
        else:
            rule = self._rule(tx, approval, scope, offer, minutes)
            decided = approval.moved(
                ApprovalState.APPROVED,
                **decision,
                scope=scope,
                expires_at=now + round(self.limits.grant_seconds * 1000),
                rule_id=rule.rule_id if rule is not None else None,
            )
        tx.put(self.approvals, approval_id, decided)
        tx.after.append(partial(self._notify, approval_id))
        return decided, rule

    def _must_wait(self, approval: Approval) -> None:
        if approval.state is ApprovalState.PENDING and self._in_time(approval):
            return
        state = ApprovalState.EXPIRED if approval.state is ApprovalState.PENDING else approval.state
        raise Conflict(
            f"{approval.approval_id} does not wait for an answer any more: it is {state.value}",
            hint="`bascule approvals` lists what waits",
            details={"approvalId": approval.approval_id, "state": state.value},
        )

    def _rule(
        self, tx: Transaction, approval: Approval, scope: Scope, offer: int | None, minutes: int
    ) -> TimedRule | None:
        match scope:
            case Scope.ONCE:
                return None
            case Scope.RUN:
                return self.rules.add_for_run(tx, approval)
            case Scope.RULE:
                offers = approval.question.offers
                if offer is None or not 1 <= offer <= len(offers):
                    raise InvalidRequest(
                        f"{approval.approval_id} has {len(offers)} offers; `offer` must name one of them",
                        hint=f"`bascule approvals show {approval.approval_id}` prints them",
                    )
                exact = approval.question.exact if offer == 1 else None
                return self.rules.add(tx, approval, offers[offer - 1], minutes, exact=exact)

    # -- grants --

    def grant_for(self, principal: Principal, method: str, digest: str, run_id: str | None = None) -> Approval | None:
        """Approved, not spent, in time, and for exactly this call."""
        for approval_id in self._grants.get((principal, method, digest, run_id), ()):
            approval = self.approvals.rows[approval_id]
            if self._in_time(approval):
                return approval
        return None

    def spend(self, tx: Transaction, approval_id: str) -> Approval:
        """Use the grant up, in the transaction of the record that the effect begins with. Of many callers, one can."""
        approval = self.find(approval_id)
        if approval.state is not ApprovalState.APPROVED or not self._in_time(approval):
            raise Conflict(
                f"{approval_id} can no longer be used: it is {approval.state.value}",
                hint="a grant is for one call, within 10 minutes; call again to ask again",
                details={"approvalId": approval_id, "state": approval.state.value},
            )
        spent = approval.moved(ApprovalState.SPENT)
        tx.put(self.approvals, approval_id, spent)
        return spent

    def approver(self, *, rule: str | None, timed_rule: str | None, approval_id: str | None) -> str:
        """To a call that may be made, for its record: `person: passkey`, `timed rule: NAME, ID` or `rule: NAME`."""
        if approval_id is not None:
            approval = self.approvals.rows.get(approval_id)
            by = approval.decided_by if approval is not None else None
            return f"person: {by}" if by is not None else "person"
        return f"timed rule: {timed_rule}, {rule}" if timed_rule is not None else f"rule: {rule}"

    def settle(self, tx: Transaction, approval_id: str, state: ApprovalState = ApprovalState.DONE) -> None:
        """What the grant was spent for is over (`done`), or a crash left nobody who knows (`unknown`)."""
        approval = self.approvals.rows.get(approval_id)
        if approval is not None and approval.state is ApprovalState.SPENT:
            tx.put(self.approvals, approval_id, approval.moved(state))

    def withdraw(self, tx: Transaction, approval_id: str) -> None:
        """The asker has withdrawn: remove the question and an unspent grant."""
        approval = self.approvals.rows.get(approval_id)
        if approval is None or approval.state not in _OPEN:
            return
        state = ApprovalState.WITHDRAWN if approval.state is ApprovalState.PENDING else ApprovalState.EXPIRED
        tx.put(self.approvals, approval_id, approval.moved(state))
        tx.after.append(partial(self._notify, approval_id))

    def withdraw_asked(self, tx: Transaction, principal: Principal, method: str, digest: str) -> None:
        """The same by what was asked, outside of runs: somebody else has answered it."""
        waiting = self._questions.get((principal, method, digest, None))
        granted = self.grant_for(principal, method, digest)
        if waiting is not None:
            self.withdraw(tx, waiting)
        if granted is not None:
            self.withdraw(tx, granted.approval_id)

    def timed(
        self,
        principal: Principal,
        method: str,
        effect: Effect,
        params: Any,
        run_id: str | None = None,
        *,
        over: str | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> TimedRule | None:
        """The timed rule of a person that replaces the `ask` of the rule `over` for this call, or None."""
        return self.rules.matching(principal, method, effect, params, run_id=run_id, over=over, facts=facts)

    def end_run(self, tx: Transaction, run_id: str) -> None:
        """End the timed rules of this run and withdraw its questions."""
        self.rules.end_run(tx, run_id)
        for approval in [*self.pending(), *self._granted()]:
            if approval.question.run_id == run_id:
                self.withdraw(tx, approval.approval_id)

    def end_methods(self, tx: Transaction, prefix: str) -> None:
        """A bridge was taken out of use: nothing of it is asked or allowed any longer."""
        self.rules.end_methods(tx, prefix)
        for approval in [*self.pending(), *self._granted()]:
            if approval.question.method.startswith(prefix):
                self.withdraw(tx, approval.approval_id)

    def end_agent(self, agent_id: str) -> None:
        """A handle was revoked or taken over: its next holder inherits no permission, and no question."""
        principal = agent_principal(agent_id)
        tx = Transaction()
        self.rules.end_principal(tx, principal)
        for approval in [*self.pending(), *self._granted()]:
            if approval.question.principal == principal:
                self.withdraw(tx, approval.approval_id)
        if tx.changes:
            tx.subject = principal
            tx.details = {"ended": len(tx.changes)}
            self._journal.commit(tx, DAEMON, "approvals.revoke")

    # -- waiting --

    def wait(self, approval_id: str, seconds: float) -> Deferred[Approval]:
        """The approval once it is answered, or as it is when that time is over."""
        approval = self.find(approval_id)
        later: Deferred[Approval] = Deferred()
        if approval.state is not ApprovalState.PENDING or seconds <= 0 or self._stopping:
            later.set_result(approval)
            return later
        principal = approval.question.principal
        if self._waiting_of.get(principal, 0) >= self.limits.max_waiting:
            raise Overloaded(
                f"{principal} has {self.limits.max_waiting} calls waiting for answers",
                hint="wait for some of them",
                details={"limit": "max_waiting", "approvalId": approval_id},
                retry_after=5.0,
            )
        self._waiting_of[principal] = self._waiting_of.get(principal, 0) + 1
        self._waiting.setdefault(approval_id, {})[later] = None
        deadline = self._timers.after_ms(seconds * 1000, lambda _: self._slice_over(later, approval_id))

        def over(_: Deferred[Approval]) -> None:
            self._timers.call_off(deadline)
            left = self._waiting_of[principal] - 1
            if left:
                self._waiting_of[principal] = left
            else:
                del self._waiting_of[principal]
            waiting = self._waiting.get(approval_id)
            if waiting is not None:
                waiting.pop(later, None)
                if not waiting:
                    del self._waiting[approval_id]

        later.add_done_callback(over)
        return later

    def _slice_over(self, later: Deferred[Approval], approval_id: str) -> None:
        if not later.done():
            later.set_result(self.approvals.rows[approval_id])

    def watch(self, approval_id: str, callback: Callback) -> None:
        """`callback` is called once, when it is answered, expired or withdrawn; now, if it is."""
        approval = self.find(approval_id)
        if approval.state is ApprovalState.PENDING:
            self._watchers.setdefault(approval_id, []).append(callback)
        else:
            callback(approval)

    def waiting(self, approval_id: str) -> int:
        return len(self._waiting.get(approval_id, ()))

    def end(self) -> None:
        """The daemon stops: answer every waiting caller with the state of its question. Questions stay."""
        self._stopping = True
        for approval_id, waiting in list(self._waiting.items()):
            for later in list(waiting):
                self._slice_over(later, approval_id)

    # -- looking --

    def find(self, approval_id: str) -> Approval:
        approval = self.approvals.rows.get(approval_id)
        if approval is None:
            raise NotFound(
                f"no approval {approval_id}", hint="`bascule approvals list --all` shows those that are still kept"
            )
        return approval

    def keyed(self, digest: str) -> str:
        """A digest as the ledger keeps it: without the key it reveals nothing about short params."""
        return hmac.new(self._key, digest.encode(), "sha256").hexdigest()

    def pending(self) -> list[Approval]:
        """Oldest first."""
        return [self.approvals.rows[found] for found in self._questions.values()]

    def _granted(self) -> list[Approval]:
        return [self.approvals.rows[found] for same in self._grants.values() for found in same]

    def all(self) -> Iterable[Approval]:
        return self.approvals.rows.values()

    def pending_of_run(self, run_id: str) -> list[Approval]:
        return [approval for approval in self.pending() if approval.question.run_id == run_id]

    # -- a new life --

    def begin_life(self, tx: Transaction) -> int:
        """After a restart: questions stay, unspent grants and timed rules die; how many did."""
        dead = self._granted()
        for approval in dead:
            tx.put(self.approvals, approval.approval_id, approval.moved(ApprovalState.EXPIRED))
        return len(dead) + self.rules.end_all(tx)

    # -- time --

    def gc(self, tx: Transaction, *, dry_run: bool) -> list[GcItem]:
        cut = self._clock.monotonic() - self.limits.keep_seconds
        # In the order in which they ended.
        over = len(self._ended_at) - self.limits.max_kept
        old = [
            approval_id
            for number, (approval_id, ended) in enumerate(self._ended_at.items())
            if ended <= cut or number < over
        ]
        if not dry_run:
            for approval_id in old:
                tx.put(self.approvals, approval_id, None)
        hours = round(self.limits.keep_seconds / 3_600)
        return [GcItem(what="answered approvals", count=len(old), why=f"kept for {hours} hours")]

    def _in_time(self, approval: Approval) -> bool:
        until = self._until.get((approval.approval_id, approval.state), 0.0)
        return self._clock.monotonic() < until and self._clock.wall_ms() < approval.expires_at

    def _resume_time(self, approval: Approval) -> None:
        """Loaded from the last life: a wall clock that was set back makes no question longer than it ever was."""
        left = min((approval.expires_at - self._clock.wall_ms()) / 1000, self.limits.question_seconds)
        if approval.state in _OPEN:
            self._until[approval.approval_id, approval.state] = self._clock.monotonic() + max(0.0, left)

    def _changed(self, approval_id: str, old: Approval | None, new: Approval | None) -> None:
        """Every index follows the table, also when a change is undone."""
        self.pictures.follow(old, new)
        if old is not None:
            self._leave(old)
        if new is not None and new.state in _OPEN:
            self._enter(new)
        if new is not None and new.state in FINAL:
            self._ended_at[approval_id] = self._clock.monotonic()
        else:
            self._ended_at.pop(approval_id, None)
        if new is None:
            for state in _OPEN:
                self._until.pop((approval_id, state), None)

    def _enter(self, new: Approval) -> None:
        approval_id = new.approval_id
        if new.state is ApprovalState.APPROVED:
            self._grants.setdefault(new.key, {})[approval_id] = None
        else:
            self._questions[new.key] = approval_id
            principal = new.question.principal
            self._pending.setdefault(principal, set()).add(approval_id)
            self._pending_chars[principal] = self._pending_chars.get(principal, 0) + new.question.size
        now = self._clock.monotonic()
        seconds = self.limits.question_seconds if new.state is ApprovalState.PENDING else self.limits.grant_seconds
        until = self._until.setdefault((approval_id, new.state), now + seconds)
        left_ms = (until - now) * 1000
        # Past its time already: it was undone, or is from the last life. Not at once: the loop may be undoing.
        self._deadlines[approval_id] = self._timers.after_ms(
            left_ms if left_ms > 0 else _TRY_AGAIN_MS, partial(self._expire, approval_id)
        )

    def _leave(self, old: Approval) -> None:
        approval_id = old.approval_id
        deadline = self._deadlines.pop(approval_id, None)
        if deadline is not None:
            self._timers.call_off(deadline)
        if old.state is ApprovalState.APPROVED:
            same = self._grants[old.key]
            del same[approval_id]
            if not same:
                del self._grants[old.key]
        elif old.state is ApprovalState.PENDING:
            del self._questions[old.key]
            principal = old.question.principal
            self._pending[principal].discard(approval_id)
            self._pending_chars[principal] -= old.question.size
            if not self._pending[principal]:
                del self._pending[principal], self._pending_chars[principal]

    def _expire(self, approval_id: str, _now: float) -> None:
        approval = self.approvals.rows.get(approval_id)
        if approval is None or approval.state not in _OPEN:
            return
        tx = Transaction()
        tx.subject = approval_id
        tx.details = {"was": approval.state.value, "method": approval.question.method}
        tx.put(self.approvals, approval_id, approval.moved(ApprovalState.EXPIRED))
        tx.after.append(partial(self._notify, approval_id))
        self._journal.commit(tx, DAEMON, "approvals.expire")

    def _notify(self, approval_id: str) -> None:
        """It is durable: answer the waiters and run the callbacks of the followers."""
        approval = self.approvals.rows.get(approval_id)
        if approval is None:
            return
        if approval.state is not ApprovalState.PENDING:
            for later in list(self._waiting.get(approval_id, ())):
                if not later.done():
                    later.set_result(approval)
            for callback in self._watchers.pop(approval_id, ()):
                self._safely(callback, approval)
        for follower in list(self.on_news):
            self._safely(follower, self.approvals.rows.get(approval_id, approval))

    def _safely(self, callback: Callback, approval: Approval) -> None:
        try:
            callback(approval)
        except Exception as error:  # noqa: BLE001 - one listener's fault must not stop the rest
            log_fault(self._log, error, approval=approval.approval_id)
