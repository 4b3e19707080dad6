"""From what a game answers, or fails to answer, to the answer of the caller. Code, message and data stay the game's."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from msgspec import UNSET

from bascule.foundation.deferred import Deferred, Leavable
from bascule.foundation.errors import BasculeError, Conflict, InvalidRequest, NotFound, PeerFailed
from bascule.kernel.effects import RecordedEffect
from gabp.errors import ErrorCode, GameError

T = TypeVar("T")
U = TypeVar("U")

_BY_CODE: Final[dict[int, type[BasculeError]]] = {
    ErrorCode.INVALID_PARAMS: InvalidRequest,
    ErrorCode.TOOL_NOT_FOUND: NotFound,
    ErrorCode.RESOURCE_NOT_FOUND: NotFound,
    ErrorCode.CHANNEL_NOT_FOUND: NotFound,
    ErrorCode.METHOD_NOT_FOUND: NotFound,
    ErrorCode.TOOL_UNAVAILABLE: Conflict,
}
_HINTS: Final[dict[int, str]] = {
    ErrorCode.TOOL_NOT_FOUND: "`bascule games tools` and games_tool_names list the tools",
    ErrorCode.METHOD_NOT_FOUND: "`bascule games show` says what the game's mod offers",
    ErrorCode.INVALID_PARAMS: "the error's data has the tool's inputSchema",
    ErrorCode.TOOL_UNAVAILABLE: "look into it, acknowledge the attention by its id, then call again",
}


def refusal(error: GameError) -> BasculeError:
    gabp_error: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None and error.data is not UNSET:
        gabp_error["data"] = error.data
    if error.peer_code is not None:
        gabp_error["peerCode"] = error.peer_code
    kind = _BY_CODE.get(error.code, PeerFailed)
    hint = "look at the game before calling it again" if error.executed == "unknown" else _HINTS.get(error.code)
    return kind(error.message, hint=hint, details={"executed": error.executed, "gabp": gabp_error})


def act(ask: Callable[[], Deferred[T]], to_answer: Callable[[T], U], effect: RecordedEffect) -> Deferred[U]:
    """A call that acts: whether it was executed is in its record, as is the game's code, and never its words.

    When its caller leaves it is withdrawn, and cancelled in a game whose mod announces that it can be.
    """

    def failed(error: BaseException) -> BaseException:
        if isinstance(error, GameError):
            effect.details |= {"executed": error.executed, "gabp": error.code, "reason": f"GABP {error.code}"}
        elif isinstance(error, BasculeError):
            effect.details.setdefault("executed", "no")
        return error

    try:
        asked = ask()
    except (GameError, BasculeError) as error:
        failed(error)
        raise (refusal(error) if isinstance(error, GameError) else error) from None

    def done(result: T) -> U:
        effect.details["executed"] = "yes"
        return to_answer(result)

    out: Leavable[U] = Leavable()
    # Before callbacks run: the record of its end says what is known.
    out.add_done_callback(lambda _: effect.details.update(executed="unknown") if out.cancelled() else None)
    return answer_with(asked, done, failed, out)


def answer_with(
    asked: Deferred[T],
    to_answer: Callable[[T], U],
    failed: Callable[[BaseException], object] = lambda _: None,
    into: Deferred[U] | None = None,
) -> Deferred[U]:
    """The caller's answer, made from the game's; cancelling it cancels the request."""
    out: Deferred[U] = Deferred() if into is None else into

    def settle(_: Deferred[T]) -> None:
        if out.done():
            return
        if asked.cancelled():
            out.cancel()
            return
        error = asked.exception()
        if error is not None:
            failed(error)
            out.set_exception(refusal(error) if isinstance(error, GameError) else error)
            return
        try:
            answer = to_answer(asked.result())
        except (GameError, BasculeError) as refused:
            failed(refused)
            out.set_exception(refusal(refused) if isinstance(refused, GameError) else refused)
            return
        out.set_result(answer)

    asked.add_done_callback(settle)
    out.add_done_callback(lambda _: asked.cancel() if out.cancelled() else None)
    return out


def or_refuse(act: Callable[[], T]) -> T:
    try:
        return act()
    except GameError as error:
        raise refusal(error) from None
