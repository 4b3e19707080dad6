"""MCP tasks: calls whose client has a handle instead of an answer, and comes back for the result.

A task belongs to the agent whose call it was, not to the connection: it goes on when its client reconnects, and no
other agent can see, answer or cancel it. It lives in memory. After a restart of the daemon there is no such task, and a
client that is told so goes on asking for it: Claude Code 2.1.325 never woke its model. So its id names the call, whose
ticket is in the store; `revive` makes a task of the same id again that waits for the reply, or says what happened.
"""

import asyncio
import re
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping
from enum import Enum
from typing import Any, NamedTuple

from bascule.foundation.deferred import Deferred
from bascule.foundation.errors import InvalidRequest, NotFound, Overloaded
from bascule.foundation.tasks import Tasks
from bascule.kernel.call import Principal, agent_principal
from bascule.kernel.consent.desk import Desk
from bascule.kernel.consent.records import Approval
from bascule.kernel.consent.states import ApprovalState
from gabp import codec


class TaskLimits(NamedTuple):
    # What a client that names none gets: a message has half an hour for its reply, and the result stays as long again.
    default_ttl_ms: int = 60 * 60 * 1000
    # A client that has not come back after a day has forgotten it.
    max_ttl_ms: int = 24 * 60 * 60 * 1000
    # Clients poll every second or so; below this the result of a call would be gone before they can.
    min_ttl_ms: int = 10_000
    # A model has a handful; more is a loop gone wild.
    per_agent: int = 64
    # Results that wait to be fetched, with screenshots; the oldest go first.
    result_bytes_per_agent: int = 16 * 1024 * 1024
    # After a connection is gone: programs reconnect within seconds and clients poll, so who has not asked by then has
    # left, and must not take messages any more. As long as a message is out under its lease.
    away_seconds: float = 60.0
    # Between two polls. A poll costs 0.2 ms; a person notices a second.
    poll_ms: int = 1_000


_ID = re.compile(r"task_(?P<life>[0-9a-f]{8})[0-9a-f]{32}_(?P<call>[\w.:-]{1,128})", re.ASCII)


class Status(Enum):
    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


_ENDS = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED})
# From where to where. What has ended stays as it is.
MOVES: Mapping[Status, frozenset[Status]] = {
    Status.WORKING: _ENDS | {Status.INPUT_REQUIRED},
    Status.INPUT_REQUIRED: _ENDS | {Status.WORKING},
    Status.COMPLETED: frozenset(),
    Status.FAILED: frozenset(),
    Status.CANCELLED: frozenset(),
}


class Outcome(NamedTuple):
    """How a call ended: a result as `tools/call` has it, or a JSON-RPC error."""

    result: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None
    # The client has the result: what was taken for it is acknowledged.
    delivered: Callable[[], None] | None = None
    # The client will never have it: what was taken for it is given back.
    lost: Callable[[], None] | None = None


class McpTask:
    def __init__(self, principal: Principal, task_id: str, call: str, ttl_ms: int, poll_ms: int) -> None:
        self.task_id = task_id
        self.principal = principal
        # The id of the call: made again after a broken connection, it is this task.
        self.call = call
        self.ttl_ms = ttl_ms
        self.poll_ms = poll_ms
        self.created_at = self.updated_at = time.time()
        self.status = Status.WORKING
        self.message: str | None = None
        self.outcome = Outcome()
        self.size = 0
        # Requests to the client that are open, by their key; a key is used once.
        self.requests: dict[str, Mapping[str, Any]] = {}
        self._answers: dict[str, Deferred[Mapping[str, Any]]] = {}
        self._keys = 0
        # Settled when it has ended; cancelling a copy of it changes nothing here.
        self.ended: Deferred[None] = Deferred()
        # Settled when it is known that it will take its time: it waits for the person, or for the client.
        self.held: Deferred[None] = Deferred()
        # Called after every change of the status.
        self.watchers: list[Callable[[McpTask], None]] = []
        self.work: Deferred[Outcome] | None = None
        # Made when the client gets the handle; until then it is a call like any other.
        self.expiry: asyncio.TimerHandle | None = None
        # Ends it, unless its client comes back and asks.
        self.leaving: asyncio.TimerHandle | None = None

    @property
    def has_ended(self) -> bool:
        return self.status in _ENDS

    def move(self, status: Status, message: str | None = None) -> None:
        if status is not self.status and status not in MOVES[self.status]:
            raise InvalidRequest(f"a task that is {self.status.value} cannot become {status.value}")
        self.status = status
        self.message = message
        self.updated_at = time.time()
        if status is not Status.WORKING or message is not None:
            _settle(self.held)
        if status in _ENDS:
            self.requests.clear()
            for answer in self._answers.values():
                answer.cancel()
            _settle(self.ended)
        for watcher in list(self.watchers):
            watcher(self)

    async def ask(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """The client's answer to a request of ours, which it finds with the task."""
        self._keys += 1
        key = f"ask-{self._keys}"
        self.requests[key] = request
        answer = self._answers[key] = Deferred()
        self.move(Status.INPUT_REQUIRED)
        return await answer

    def answered(self, answers: Mapping[str, Any]) -> None:
        """Answers of the client by key; those that nobody asked for are dropped, as the extension says."""
        for key, answer in answers.items():
            if key in self.requests and isinstance(answer, dict):
                del self.requests[key]
                self._answers.pop(key).set_result(answer)
        if self.status is Status.INPUT_REQUIRED and not self.requests:
            self.move(Status.WORKING)

    def delivered(self) -> None:
        """The client has read the result."""
        callback, self.outcome = self.outcome.delivered, self.outcome._replace(delivered=None, lost=None)
        if callback is not None:
            callback()

    def lost(self) -> None:
        """Nobody will read the result."""
        callback, self.outcome = self.outcome.lost, self.outcome._replace(delivered=None, lost=None)
        if callback is not None:
            callback()


class McpTasks:
    """All of them, for both doors."""

    def __init__(self, desk: Desk, owner: Tasks, limits: TaskLimits | None = None) -> None:
        self.limits = limits or TaskLimits()
        # Of this life of the daemon, in every id.
        self._life = secrets.token_hex(4)
        self._owner = owner
        # By agent, in the order in which they were made.
        self._of: dict[Principal, dict[str, McpTask]] = {}
        # Calls that have no handle yet.
        self._calls: dict[Principal, dict[str, McpTask]] = {}
        desk.on_news.append(self._on_news)

    def start(
        self,
        principal: Principal,
        call: str,
        work: Callable[[McpTask], Coroutine[Any, Any, Outcome]],
        *,
        ttl_ms: int | None = None,
    ) -> McpTask:
        """Begin the work of a call. Its client gets a handle with `publish`, or its answer before that."""
        again = next((each for each in self._all(principal) if each.call == call), None)
        if again is not None:
            return again
        if not self.has_room(principal):
            raise Overloaded(
                f"{self.limits.per_agent} tasks of yours are under way (per_agent)",
                hint="wait for some of them, or cancel some",
                retry_after=5.0,
            )
        # The extension demands that nobody can guess it.
        task_id = f"task_{self._life}{secrets.token_hex(16)}_{call}"
        return self._begin(principal, task_id, call, work, ttl_ms)

    def revive(
        self, principal: Principal, task_id: object, work: Callable[[McpTask, str], Coroutine[Any, Any, Outcome]]
    ) -> None:
        """Begin a task of an earlier life of the daemon again; `work` gets the id of its call."""
        known = _ID.fullmatch(task_id) if isinstance(task_id, str) else None
        if known is None or known["life"] == self._life or known[0] in self._of.get(principal, {}):
            return
        if self.has_room(principal):
            call = known["call"]
            self.publish(self._begin(principal, known[0], call, lambda task: work(task, call), None))

    def _begin(
        self,
        principal: Principal,
        task_id: str,
        call: str,
        work: Callable[[McpTask], Coroutine[Any, Any, Outcome]],
        ttl_ms: int | None,
    ) -> McpTask:
        limits = self.limits
        wanted = limits.default_ttl_ms if ttl_ms is None else ttl_ms
        ttl_ms = min(max(wanted, limits.min_ttl_ms), limits.max_ttl_ms)
        task = McpTask(principal, task_id, call, ttl_ms, poll_ms=limits.poll_ms)
        self._calls.setdefault(principal, {})[task.task_id] = task
        task.work = self._owner.answer(work(task), f"mcp {task.task_id}")
        task.work.add_done_callback(lambda later: self._finish(task, later))
        return task

    def publish(self, task: McpTask) -> None:
        """From now on its client asks for it by its id."""
        self._forget(task)
        self._of.setdefault(task.principal, {})[task.task_id] = task
        self._keep_within_bytes(task.principal)
        left = max(0.0, task.created_at + task.ttl_ms / 1000 - time.time())
        task.expiry = asyncio.get_running_loop().call_later(left, self.drop, task)

    def release(self, task: McpTask) -> None:
        """It has ended before its client needed a handle: the answer goes out as of any call."""
        self._forget(task)

    def find(self, principal: Principal, task_id: object) -> McpTask:
        """The same words for one that is another agent's and for one that never was."""
        found = self._of.get(principal, {}).get(task_id) if isinstance(task_id, str) else None
        if found is None:
            raise NotFound(
                f"there is no task {str(task_id)[:80]!r}; it ended more than its ttl ago, or the daemon was restarted",
                hint="make the call again",
            )
        _stays(found)
        return found

    def client_left(self, task: McpTask) -> None:
        """The connection that it came by is gone: end it unless it is asked for soon."""
        if not task.has_ended and task.leaving is None:
            loop = asyncio.get_running_loop()
            task.leaving = loop.call_later(self.limits.away_seconds, self.cancel, task, "its client left")

    def of(self, principal: Principal) -> list[McpTask]:
        """Newest first."""
        return list(reversed(self._of.get(principal, {}).values()))

    def cancel(self, task: McpTask, why: str = "cancelled by its client") -> None:
        """Stop its work; what has ended stays as it ended."""
        if not task.has_ended:
            task.move(Status.CANCELLED, why)
            _cancel(task)

    def drop(self, task: McpTask) -> None:
        """Forget it, and end what still runs."""
        self._forget(task)
        self.cancel(task)
        task.lost()

    def end_agent(self, agent_id: str) -> None:
        """A handle was revoked or taken over: its next holder inherits no task."""
        for task in self._all(agent_principal(agent_id)):
            self.drop(task)

    def close(self) -> None:
        for principal in [*self._of, *self._calls]:
            for task in self._all(principal):
                self.drop(task)

    def has_room(self, principal: Principal) -> bool:
        """Whether this agent may have one more; the oldest that has ended makes room for it."""
        mine = self._all(principal)
        if len(mine) < self.limits.per_agent:
            return True
        oldest = next((each for each in mine if each.has_ended), None)
        if oldest is not None:
            self.drop(oldest)
        return oldest is not None

    # -- inside --

    def _all(self, principal: Principal) -> list[McpTask]:
        return [*self._of.get(principal, {}).values(), *self._calls.get(principal, {}).values()]

    def _keep_within_bytes(self, principal: Principal) -> None:
        ended = [each for each in self._of.get(principal, {}).values() if each.has_ended]
        over = sum(each.size for each in ended) - self.limits.result_bytes_per_agent
        # Never the newest: somebody is about to ask for it.
        for task in ended[:-1]:
            if over <= 0:
                return
            over -= task.size
            self.drop(task)

    def _finish(self, task: McpTask, later: "Deferred[Outcome]") -> None:
        if later.cancelled() or later.exception() is not None:
            # Cancelled by us, or by the daemon's stop; a fault is made an outcome by who made the work.
            if not task.has_ended:
                task.move(Status.CANCELLED, "the daemon stopped")
            return
        task.outcome = outcome = later.result()
        if task.has_ended:
            # Cancelled in the moment in which it came.
            task.lost()
            return
        task.size = len(codec.encode(outcome.result)) if outcome.result is not None else 0
        if outcome.error is not None:
            task.move(Status.FAILED, str(outcome.error.get("message")))
        else:
            task.move(Status.COMPLETED)
        self._keep_within_bytes(task.principal)

    def _forget(self, task: McpTask) -> None:
        if task.expiry is not None:
            task.expiry.cancel()
        _stays(task)
        for kept in (self._of, self._calls):
            mine = kept.get(task.principal, {})
            if mine.pop(task.task_id, None) is not None and not mine:
                del kept[task.principal]

    def _on_news(self, approval: Approval) -> None:
        """A question of this agent's went to the person: its newest call that works will take its time."""
        if approval.state is not ApprovalState.PENDING or approval.question.principal not in self._calls:
            return
        working = [each for each in self._calls[approval.question.principal].values() if each.status is Status.WORKING]
        if working:
            working[-1].move(Status.WORKING, waits_for(approval.approval_id))


def waits_for(approval_id: str) -> str:
    return f"waits for the person: {approval_id}"


def _stays(task: McpTask) -> None:
    if task.leaving is not None:
        task.leaving.cancel()
        task.leaving = None


def _cancel(task: McpTask) -> None:
    """In the next turn of the loop, when its task has begun: a coroutine that never ran would complain."""
    if task.work is not None:
        asyncio.get_running_loop().call_soon(task.work.cancel)


def _settle(later: "Deferred[None]") -> None:
    if not later.done():
        later.set_result(None)
