"""From what the host answers, or fails to answer, to the answer of the caller. The contract's object stays as it is."""

from typing import Any, Final

from bascule.desktop.errors import Code, DesktopError
from bascule.desktop.ports import HostGone
from bascule.foundation.errors import (
    ApprovalRequired,
    BasculeError,
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    PeerFailed,
    PolicyDenied,
    Unavailable,
)
from bascule.kernel.effects import RecordedEffect

# When to come back to a host that is not ready, in seconds.
NOT_READY_SECONDS: Final = 1.0

_BY_CODE: Final[dict[Code, type[BasculeError]]] = {
    Code.HOST_NOT_READY: Unavailable,
    Code.PERMISSION_MISSING: Conflict,
    Code.WORKSPACE_FORBIDDEN: Forbidden,
    Code.CONFIRM_REQUIRED: Conflict,
    Code.ELEMENT_NOT_FOUND: NotFound,
    Code.TIMEOUT: PeerFailed,
    Code.ABORTED: Conflict,
    Code.INTERNAL_ERROR: PeerFailed,
    Code.INVALID_REQUEST: InvalidRequest,
    Code.APP_FORBIDDEN: PolicyDenied,
    Code.HOST_STOPPED: Conflict,
}
_HINTS: Final[dict[Code, str]] = {
    Code.PERMISSION_MISSING: "`bascule doctor` says what is missing and what to do",
    Code.WORKSPACE_FORBIDDEN: "name a directory beneath desktop_root, or leave workspacePath out",
    Code.CONFIRM_REQUIRED: "call again",
    Code.ELEMENT_NOT_FOUND: "look again (desktop.observe, desktop.find): the window may have changed",
    Code.APP_FORBIDDEN: "do not try it another way; ask the user of this machine to do it",
    Code.HOST_STOPPED: "a person takes it up again with `bascule desktop resume`",
    Code.TIMEOUT: "look before you try again: part of it may have happened",
}
NOT_ENABLED: Final = "the desktop is not enabled"


def refusal(error: DesktopError) -> BasculeError:
    return _BY_CODE[error.code](
        error.message,
        hint=_HINTS.get(error.code),
        details={"desktop": error.body()},
        retry_after=NOT_READY_SECONDS if error.code is Code.HOST_NOT_READY else None,
    )


def not_enabled() -> BasculeError:
    error = DesktopError(Code.PERMISSION_MISSING, NOT_ENABLED)
    return Conflict(
        NOT_ENABLED,
        hint="the person runs `bascule desktop enable` in a terminal of the desktop's session",
        details={"desktop": error.body()},
    )


def stopped() -> BasculeError:
    return refusal(DesktopError(Code.HOST_STOPPED, "input was stopped: nothing reaches the screen"))


def lost_while_looking(error: HostGone) -> BasculeError:
    desktop_error = DesktopError(Code.HOST_NOT_READY, f"{error}")
    return Unavailable(
        f"{error}", hint="try again: it is started anew", details=_with(desktop_error), retry_after=NOT_READY_SECONDS
    )


def lost_while_acting(error: HostGone) -> BasculeError:
    message = f"{error}; whether the act happened is not known"
    desktop_error = DesktopError(Code.INTERNAL_ERROR, message)
    return PeerFailed(
        message,
        hint="look (desktop.observe) before you do it again",
        details={"executed": "unknown", **_with(desktop_error)},
    )


def failed(error: DesktopError, effect: RecordedEffect) -> BasculeError:
    """Into the record goes the code, and not the words: these may name what stands on the screen."""
    effect.details |= {"desktop": error.code.value, "reason": error.code.value}
    execution_id = error.details.get("executionId")
    if isinstance(execution_id, str):
        effect.details["executionId"] = execution_id
    if error.code is not Code.CONFIRM_REQUIRED:
        return refusal(error)
    # The host looked before it acted, and found something else than what was judged.
    effect.details["executed"] = "no"
    since = "it was judged" if effect.approval_id is None else f"{effect.approval_id} was approved"
    return Conflict(
        f"what this call would do has changed since {since}",
        hint="nothing was done; call again to ask about what it would do now",
        details={"executed": "no", **_with(error)},
    )


def add_confirm_required(error: BasculeError) -> None:
    """Trust 13: where a person must be asked, the contract's word for it, with the id of the question."""
    if not isinstance(error, ApprovalRequired) or error.details is None:
        return
    about = {"approvalId": error.details["approvalId"]}
    error.details |= _with(DesktopError(Code.CONFIRM_REQUIRED, error.message, **about))


def with_desktop_error(desktop_error: DesktopError) -> Any:
    """Puts the host's own word into a denial that was recorded as the policy's."""

    def put(error: BasculeError) -> None:
        error.details = {**(error.details or {}), **_with(desktop_error)}

    return put


def _with(error: DesktopError) -> dict[str, Any]:
    return {"desktop": error.body()}
