"""Judges messages of the workspace protocol without a daemon: the documented name of `workspace.validation`."""

from bascule.workspace.validation import (
    BadOperation,
    Validation,
    parse_operation,
    parse_operations_message,
    validate_operation,
    validate_operations_message,
)

__all__ = [
    "BadOperation",
    "Validation",
    "parse_operation",
    "parse_operations_message",
    "validate_operation",
    "validate_operations_message",
]
