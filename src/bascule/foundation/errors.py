"""What can go wrong, named for what happened, with what to do next.

Every error that may leave the daemon is one of these; everything else is an internal error whose
details stay in the log (invariant I4). The codes are few on purpose: a program branches on `code`,
a person or a model reads `message` and `hint`.
"""

from collections.abc import Mapping
from typing import Any, ClassVar


class BasculeError(Exception):
    """Base of all errors that are answered to a caller."""

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        details: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = dict(details) if details else None
        self.retry_after = retry_after

    def body(self) -> dict[str, Any]:
        """The one wire form: `{"code", "message", "details", "hint"}`."""
        out: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.details is not None:
            out["details"] = self.details
        if self.hint is not None:
            out["hint"] = self.hint
        return out


class InvalidRequest(BasculeError):
    """The request is not what the method takes."""

    code = "invalid_request"
    status = 400


class Unauthenticated(BasculeError):
    """No credential, or a wrong one. Never a downgrade to a lesser principal."""

    code = "unauthenticated"
    status = 401


class Forbidden(BasculeError):
    """The principal is known but this is not theirs."""

    code = "forbidden"
    status = 403


class PolicyDenied(BasculeError):
    """A rule of the policy in force denies it."""

    code = "policy_denied"
    status = 403


class ApprovalRequired(BasculeError):
    """A rule says ask, and nobody has answered yet: not refused, not done. `details.approvalId` names the question."""

    code = "approval_required"
    # Accepted for a decision that is not made; once it is, the same call again is executed.
    status = 202


class NotFound(BasculeError):
    """No such agent, ticket, conversation, record or route."""

    code = "not_found"
    status = 404


class MethodNotAllowed(BasculeError):
    """The path exists, the verb does not."""

    code = "method_not_allowed"
    status = 405


class Conflict(BasculeError):
    """The state does not allow it: handle taken, ticket cancelled, id used for something else."""

    code = "conflict"
    status = 409


class TooLarge(BasculeError):
    """Over a named size limit; nothing was truncated, nothing was done."""

    code = "too_large"
    status = 413


class UnsupportedMediaType(BasculeError):
    """A body that does not say it is JSON."""

    code = "unsupported_media_type"
    status = 415


class Misdirected(BasculeError):
    """The Host header does not name us: a rebound DNS name, or a proxy we do not know."""

    code = "misdirected"
    status = 421


class VersionMismatch(BasculeError):
    """Helper, stdio program or client and daemon speak different protocol versions."""

    code = "version_mismatch"
    status = 426


class Overloaded(BasculeError):
    """A quota or a bounded queue is full; `retry_after` says when to come back."""

    code = "overloaded"
    status = 429


class PeerFailed(BasculeError):
    """What is behind a bridge answered with an error of its own, or not at all; `details` has it word for word."""

    code = "peer_failed"
    status = 502


class Stopped(BasculeError):
    """Somebody stopped everything; it begins again when a person resumes. Trying again does not help."""

    code = "stopped"
    # Not 503: clients take that for a restart, and try again.
    status = 423


class Unavailable(BasculeError):
    """The daemon is stopping or not ready yet."""

    code = "unavailable"
    status = 503


class StorageFull(BasculeError):
    """The store could not be written. Nothing was acknowledged; reads go on."""

    code = "storage_full"
    status = 507


class Internal(BasculeError):
    """An unexpected fault; the id finds it in the log."""

    code = "internal"
    status = 500


ALL_ERRORS: tuple[type[BasculeError], ...] = (
    InvalidRequest,
    Unauthenticated,
    Forbidden,
    PolicyDenied,
    ApprovalRequired,
    NotFound,
    MethodNotAllowed,
    Conflict,
    TooLarge,
    UnsupportedMediaType,
    Misdirected,
    VersionMismatch,
    Stopped,
    Overloaded,
    PeerFailed,
    Unavailable,
    StorageFull,
    Internal,
)
BY_CODE: dict[str, type[BasculeError]] = {error.code: error for error in ALL_ERRORS}
