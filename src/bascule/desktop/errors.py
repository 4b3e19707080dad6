"""The desktop contract's error codes (section 6) and the one error that carries them. Pure data."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final


class Code(StrEnum):
    """Strings in `error.code`, as the contract has them; JSON-RPC's integers are not used."""

    HOST_NOT_READY = "DESKTOP_HOST_NOT_READY"
    PERMISSION_MISSING = "DESKTOP_PERMISSION_MISSING"
    WORKSPACE_FORBIDDEN = "DESKTOP_WORKSPACE_FORBIDDEN"
    CONFIRM_REQUIRED = "DESKTOP_CONFIRM_REQUIRED"
    ELEMENT_NOT_FOUND = "DESKTOP_ELEMENT_NOT_FOUND"
    TIMEOUT = "DESKTOP_TIMEOUT"
    ABORTED = "DESKTOP_ABORTED"
    INTERNAL_ERROR = "DESKTOP_INTERNAL_ERROR"
    INVALID_REQUEST = "DESKTOP_INVALID_REQUEST"
    # Beyond the contract, whose list is "the necessary subset": an app nobody may act in, and a pulled kill switch.
    APP_FORBIDDEN = "DESKTOP_APP_FORBIDDEN"
    HOST_STOPPED = "DESKTOP_HOST_STOPPED"


# "The same call may succeed later": nothing about it needs to change first.
RETRYABLE: Final = frozenset({Code.HOST_NOT_READY, Code.TIMEOUT})


class DesktopError(Exception):
    """Answered to the peer as the contract's error object; `message` says what to do next."""

    def __init__(self, code: Code, message: str, /, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details: Mapping[str, Any] = details

    @property
    def retryable(self) -> bool:
        return self.code in RETRYABLE

    def body(self) -> dict[str, Any]:
        return {
            "code": self.code.value,
            "message": self.message,
            "retryable": self.retryable,
            "details": dict(self.details),
        }


def invalid(message: str, /, **details: Any) -> DesktopError:
    return DesktopError(Code.INVALID_REQUEST, message, **details)


def not_found(message: str, /, **details: Any) -> DesktopError:
    return DesktopError(Code.ELEMENT_NOT_FOUND, message, **details)
