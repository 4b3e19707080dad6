"""GABP's error codes (registry.md section 2) with what each means, and the codes other peers use in their place."""

from enum import IntEnum
from typing import Any, Final, Literal

from msgspec import UNSET, UnsetType

from gabp.words import MAX_ERROR_CHARS, bounded_data, cut


class ErrorCode(IntEnum):
    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    INTERNAL_ERROR = -32603
    AUTHENTICATION_REQUIRED = -32100
    AUTHENTICATION_FAILED = -32101
    SESSION_EXPIRED = -32102
    ACCESS_DENIED = -32103
    VERSION_MISMATCH = -32200
    INVALID_TYPE = -32201
    MISSING_FIELD = -32202
    INVALID_VALUE = -32203
    RESOURCE_NOT_FOUND = -32300
    RESOURCE_DENIED = -32301
    RESOURCE_LOCKED = -32302
    RESOURCE_MODIFIED = -32303
    TOOL_NOT_FOUND = -32400
    TOOL_UNAVAILABLE = -32401
    TOOL_FAILED = -32402
    TOOL_TIMEOUT = -32403
    CHANNEL_NOT_FOUND = -32500
    SUBSCRIBE_FAILED = -32501
    DELIVERY_FAILED = -32502
    OVERFLOW = -32503


MEANINGS: Final[dict[ErrorCode, str]] = {
    ErrorCode.PARSE_ERROR: "the body of a frame is not JSON; the connection is closed",
    ErrorCode.INVALID_REQUEST: "JSON, but no message that may come now",
    ErrorCode.METHOD_NOT_FOUND: "the mod does not have this method",
    ErrorCode.INVALID_PARAMS: "the params or a tool's arguments are not what the schema says",
    ErrorCode.INTERNAL_ERROR: "the other side failed in a way it does not explain",
    ErrorCode.AUTHENTICATION_REQUIRED: "something was asked before session/hello",
    ErrorCode.AUTHENTICATION_FAILED: "the token of session/hello is not this launch's",
    ErrorCode.SESSION_EXPIRED: "the session was ended by the other side",
    ErrorCode.ACCESS_DENIED: "a rule or a person said no, or has yet to be asked",
    ErrorCode.VERSION_MISMATCH: "a message of another version than gabp/1",
    ErrorCode.INVALID_TYPE: "a type other than request, response and event",
    ErrorCode.MISSING_FIELD: "a field that every such message has is missing",
    ErrorCode.INVALID_VALUE: "a field has a value it cannot have",
    ErrorCode.RESOURCE_NOT_FOUND: "no resource with this uri",
    ErrorCode.RESOURCE_DENIED: "this resource is not for the caller",
    ErrorCode.RESOURCE_LOCKED: "the resource is in use; try again",
    ErrorCode.RESOURCE_MODIFIED: "the resource has changed meanwhile; read it again",
    ErrorCode.TOOL_NOT_FOUND: "no tool with this name",
    ErrorCode.TOOL_UNAVAILABLE: "the tool cannot run now; data.executed says that it did not",
    ErrorCode.TOOL_FAILED: "the tool ran and failed",
    ErrorCode.TOOL_TIMEOUT: "the tool did not answer in time",
    ErrorCode.CHANNEL_NOT_FOUND: "no event channel with this name",
    ErrorCode.SUBSCRIBE_FAILED: "the subscription could not be made",
    ErrorCode.DELIVERY_FAILED: "an event could not be delivered",
    ErrorCode.OVERFLOW: "events were dropped because the reader is too slow",
}

# Lib.GAB 1.x answers with codes of its own; what it means has a code in the registry.
LIB_GAB_CODES: Final[dict[int, ErrorCode]] = {
    -31000: ErrorCode.AUTHENTICATION_FAILED,
    -31001: ErrorCode.AUTHENTICATION_REQUIRED,
    -31002: ErrorCode.TOOL_NOT_FOUND,
    -31003: ErrorCode.CHANNEL_NOT_FOUND,
    -31004: ErrorCode.RESOURCE_NOT_FOUND,
    -31005: ErrorCode.METHOD_NOT_FOUND,
}

# Whether a call had an effect: the one thing a caller must know before calling again.
Executed = Literal["no", "yes", "unknown"]


class GameError(Exception):
    """A call that did not succeed, with the code, message and data that the peer gave or we give in its place."""

    def __init__(
        self,
        code: int,
        message: str,
        data: Any | UnsetType = UNSET,
        *,
        executed: Executed = "no",
        peer_code: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
        self.executed = executed
        # What the peer really wrote, when that is not the registry's code.
        self.peer_code = peer_code

    def __str__(self) -> str:
        return f"{self.message} (GABP {self.code})"


class RequestTooLarge(Exception):
    """The peer does not take a request of this size; nothing was sent."""


class TooManyRequests(Exception):
    """As many requests as may be open at once wait for the peer already; nothing was sent."""


class UnreadableAnswer(GameError):
    """The mod did answer, so it ran; what it answered cannot be used."""

    def __init__(self, code: int, message: str, data: Any | UnsetType = UNSET) -> None:
        super().__init__(code, message, data, executed="yes")


def from_peer(code: int, message: str, data: Any) -> GameError:
    """What a mod answered. Its `data` is kept; `data.executed: false` is a promise that nothing happened."""
    known = LIB_GAB_CODES.get(code, code)
    not_run = isinstance(data, dict) and data.get("executed") is False
    return GameError(
        int(known),
        cut(message, MAX_ERROR_CHARS) or "the mod gave no message",
        bounded_data(data),
        executed="no" if not_run or known in _NEVER_RAN else "yes",
        peer_code=code if known != code else None,
    )


# Answers that are given before anything is executed.
_NEVER_RAN: Final = frozenset(
    {
        ErrorCode.INVALID_REQUEST,
        ErrorCode.METHOD_NOT_FOUND,
        ErrorCode.INVALID_PARAMS,
        ErrorCode.AUTHENTICATION_REQUIRED,
        ErrorCode.AUTHENTICATION_FAILED,
        ErrorCode.ACCESS_DENIED,
        ErrorCode.TOOL_NOT_FOUND,
        ErrorCode.TOOL_UNAVAILABLE,
    }
)
