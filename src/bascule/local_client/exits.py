"""Exit codes, and the errors that lead to them.

A script branches on the number; a person or a model reads the sentence, which always says what to do next.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    from typing import Any

OK = 0
UNEXPECTED = 1
USAGE = 2
NOTHING_CAME = 3
REFUSED = 4
NOT_FOUND = 5
CONFLICT = 6
UNREACHABLE = 7
NO_SOCKETS = 8
OVERLOADED = 9
VERSION_MISMATCH = 10
APPROVAL = 11
STOPPED = 12
INTERRUPTED = 130

EXIT_CODES: dict[int, str] = {
    OK: "done",
    UNEXPECTED: "an unexpected error",
    USAGE: "wrong usage: arguments, ids, or a text that is too large",
    NOTHING_CAME: "nothing came in time: no reply, no message",
    REFUSED: "refused: no token, a wrong one, or not yours to do",
    NOT_FOUND: "not found, or expired: an agent, a ticket",
    CONFLICT: "conflict: the handle is taken, the ticket is cancelled, the id means something else",
    UNREACHABLE: "the daemon is not reachable",
    NO_SOCKETS: "this shell may not open sockets",
    OVERLOADED: "overloaded, or the disk is full",
    VERSION_MISMATCH: "this program and the daemon have different versions",
    APPROVAL: "not done yet: it waits for a person's approval (`bascule approvals`)",
    STOPPED: "refused: somebody stopped everything, until a person resumes (`bascule resume`)",
    INTERRUPTED: "interrupted with Ctrl-C",
}

BY_STATUS: dict[int, int] = {
    202: APPROVAL,
    400: USAGE,
    401: REFUSED,
    403: REFUSED,
    404: NOT_FOUND,
    409: CONFLICT,
    413: USAGE,
    421: REFUSED,
    423: STOPPED,
    426: VERSION_MISMATCH,
    429: OVERLOADED,
    503: UNREACHABLE,
    507: OVERLOADED,
}


def status_of(code: str) -> int:
    """Of an error that came over the link, which carries the code only."""
    from bascule.foundation.errors import ALL_ERRORS  # noqa: PLC0415 - `typing`, that only a refusal pays for

    return next((error.status for error in ALL_ERRORS if error.code == code), 500)


class DoorError(Exception):
    """Base of what can go wrong between a command and the daemon."""

    exit_code = UNEXPECTED

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class WrongUsage(DoorError):
    exit_code = USAGE


class NothingCame(DoorError):
    exit_code = NOTHING_CAME


class NoIdentity(DoorError):
    """The command must act as an agent and has no token of one."""

    exit_code = REFUSED


class Stranger(DoorError):
    """Somebody else's program listens where our daemon should."""

    exit_code = REFUSED


class NotRunning(DoorError):
    """Nobody listens behind the door."""

    exit_code = UNREACHABLE

    def __init__(self, where: str, *, foreign: bool = False) -> None:
        """`foreign`: it is a broker that BRIDGE_BROKER_URL names, not the daemon of the state directory."""
        if foreign:
            super().__init__(
                f"no broker answers at {where}, the address in BRIDGE_BROKER_URL",
                "start that broker; or unset BRIDGE_BROKER_URL, and `bascule up -d` starts your own daemon",
            )
        else:
            super().__init__(
                "Bascule is not running: start it with `bascule up -d`",
                f"nobody answers at {where}; the daemon's log is shown by `bridgectl tail logs`",
            )


class ConnectionLost(DoorError):
    """The daemon was there and went away before it answered: whether it acted is unknown."""

    exit_code = UNREACHABLE


def daemon_stopped(pid: int) -> ConnectionLost:
    return ConnectionLost(f"the daemon is stopped: process {pid}", f"let it go on: kill -CONT {pid}")


class BadAnswer(DoorError):
    """What answered does not speak like our daemon."""


class SocketsForbidden(DoorError):
    """A sandboxed shell: no retry helps, but another way in does."""

    exit_code = NO_SOCKETS


class Refusal(DoorError):
    """The daemon answered with an error."""

    def __init__(self, status: int, body: dict[str, Any], retry_after: float | None = None) -> None:
        super().__init__(str(body.get("message") or f"the daemon answered {status}"), body.get("hint"))
        self.status = status
        self.code = str(body.get("code") or "internal")
        details = body.get("details")
        self.details: dict[str, Any] = details if isinstance(details, dict) else {}
        self.retry_after = retry_after
        self.exit_code = BY_STATUS.get(status, UNEXPECTED)


def inside_codex_without_network() -> bool:
    """Codex says so in the environment of the commands it sandboxes."""
    return bool(os.environ.get("CODEX_SANDBOX_NETWORK_DISABLED"))


def sockets_forbidden(cause: str) -> SocketsForbidden:
    """The error whose text is the way out, for the client that shows itself in the environment."""
    codex = (
        "in Codex ask to run the command outside the sandbox, or start it with "
        "`codex -c sandbox_workspace_write.network_access=true` (its commands then have the whole network)"
    )
    claude = (
        'in Claude Code add "bridge-reply *" and its sisters to `sandbox.excludedCommands` in settings.json, '
        "or set `sandbox.network.allowAllUnixSockets`"
    )
    if inside_codex_without_network() or os.environ.get("CODEX_SANDBOX"):
        outside = codex
    elif os.environ.get("CLAUDECODE"):
        outside = claude
    else:
        outside = f"{codex}; {claude}"
    return SocketsForbidden(
        f"this shell may not open sockets ({cause}), so it cannot reach Bascule",
        "use the MCP tools of `agent-bridge` instead (post_reply answers, send_message asks, "
        f"wait_for_message receives); or {outside}",
    )
