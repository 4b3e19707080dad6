"""One tool call: its generator asks, dispatch answers as the agent whose token the request had."""

from collections.abc import Awaitable, Callable, Generator
from time import monotonic
from typing import Any, TypeVar

from bascule.call import Call, Principal, agent_of
from bascule.doors.exits import DoorError, Refusal, WrongUsage
from bascule.errors import BasculeError, InvalidRequest
from bascule.kernel.gate import Gate
from bascule.later import Later, within
from bascule.mcp.delivery import Delivery, Handover
from bascule.shim.calls import Ask, Become, resolved
from bascule.wire import codec

T = TypeVar("T")

DOOR = "mcp"
# Clients show the newest line; more often would only cost.
PROGRESS_SECONDS = 5.0

_plain = codec.decoder(Any, max_depth=codec.MAX_ANSWER_DEPTH)

Progress = Callable[[float], Awaitable[None]]


class ClientGone(Exception):
    """There is nobody left to answer."""


class Errand:
    def __init__(
        self,
        dispatch: Gate,
        principal: Principal,
        delivery: Delivery,
        progress: Progress | None,
        progress_seconds: float,
    ) -> None:
        self._dispatch = dispatch
        self._principal = principal
        self._delivery = delivery
        self._progress = progress
        self._progress_seconds = progress_seconds
        self._started = monotonic()
        # What waits have given us, to be given back when the client cannot have it.
        self._taken: list[tuple[Call, Any]] = []

    async def run(self, work: "Generator[Ask | Become, Any, T]") -> T:
        answer: Any = None
        refused: DoorError | None = None
        try:
            while True:
                try:
                    asked = work.throw(refused) if refused is not None else work.send(answer)
                except StopIteration as stop:
                    result: T = stop.value
                    break
                answer, refused = None, None
                try:
                    answer = await (self._ask(asked) if isinstance(asked, Ask) else self._become(asked))
                except BasculeError as error:
                    refused = refusal(error)
                except DoorError as error:
                    refused = error
        except BaseException:
            work.close()
            self._give_back()
            raise
        afterwards = getattr(result, "afterwards", None)
        if isinstance(afterwards, Ask):
            mark = str(afterwards.params["ticketIds"][0]).encode()
            self._delivery.hand_over(Handover(mark, lambda: self._tell(afterwards), self._give_back))
        return result

    async def _ask(self, ask: Ask) -> Any:
        params = resolved(ask.params)
        if ask.wait_ms is not None:
            params["waitMs"] = ask.wait_ms
        call = self._call(ask.method, params)
        answer = self._dispatch.call(call)
        if isinstance(answer, Later):
            answer = await self._wait(call, answer)
        if self._dispatch.methods[call.method].abandon is not None:
            self._taken.append((call, answer))
        return _plain.decode(codec.encode(answer))

    async def _become(self, wish: Become) -> None:
        handle = agent_of(self._principal)
        if wish.name != handle:
            raise WrongUsage(
                f"over HTTP you are {handle}, by the token of this connection, and cannot become {wish.name}",
                f"to act as {wish.name} too: `bridge-register --agent {wish.name}`, and its agentToken as the bearer "
                "of another MCP entry",
            )
        known = next(agent for agent in await self._ask(Ask("agents.list", {})) if agent["agentId"] == handle)
        params: dict[str, Any] = {
            "agentId": handle,
            "type": wish.kind or known["type"],
            "metadata": known.get("metadata", {}) | wish.metadata,
        }
        if wish.heartbeat_ms:
            params["heartbeatIntervalMs"] = wish.heartbeat_ms
        if wish.groups is not None:
            params["groups"] = wish.groups
        await self._ask(Ask("agents.register", params))

    async def _wait(self, call: Call, later: Later[Any]) -> Any:
        self._delivery.hold(later)
        try:
            while not await within(self._progress_seconds if self._progress else None, later):
                if self._progress is not None:
                    await self._progress(round(monotonic() - self._started, 3))
        except BaseException:
            # Cancelled. If the answer came in the same moment, it is for the next one who asks.
            if not later.cancel() and not later.cancelled() and later.exception() is None:
                self._dispatch.abandoned(call, later.result())
            raise
        finally:
            self._delivery.let_go()
        if later.cancelled():
            raise ClientGone
        return later.result()

    def _tell(self, ask: Ask) -> None:
        """What needs no answer: if it fails, the daemon makes it good and the message comes again."""
        try:
            self._dispatch.call(self._call(ask.method, resolved(ask.params)))
        except BasculeError:
            return

    def _give_back(self) -> None:
        taken, self._taken = self._taken, []
        for call, answer in taken:
            self._dispatch.abandoned(call, answer)

    def _call(self, method: str, params: dict[str, Any]) -> Call:
        try:
            decoded = codec.convert(params, self._dispatch.methods[method].row.params)
        except codec.BadJson as error:
            raise InvalidRequest(error.message, details={"method": method}) from error
        return Call(self._principal, method, decoded, door=DOOR)


def refusal(error: BasculeError) -> Refusal:
    return Refusal(error.status, error.body(), error.retry_after)
