"""Whether an operation is one, beyond its types, and what is wrong with it if not.

    result = validate_operation({"type": "deleteFile", "path": "../x"})
    result.success, str(result.error)      # False, "path: the path contains `..`; ..."
    operation = parse_operation(text)      # raises BadOperation

Input is JSON text or what it decodes to. A message is judged as a whole (`validate_operations_message`, for those
who send one) or, by the runtime, in two steps: what is wrong with the message is the message's fault, what is
wrong with one operation is that operation's, and the others run.
"""

import binascii
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from bascule.workspace.paths import BadPath, WorkspacePath, parse_path
from bascule.workspace.protocol import (
    MAX_CONTENT_BYTES,
    MAX_ENV_BYTES,
    MAX_OPERATION_ID_CHARS,
    MAX_OPERATIONS,
    SPACES_PROTOCOL_VERSION,
    CreateFileOperation,
    DeleteFileOperation,
    EditFileOperation,
    MessageOperation,
    Operation,
    OperationsMessage,
    OperationType,
    ReadFileOperation,
    ShellOperation,
)
from gabp import codec
from gabp.text import escaped

T = TypeVar("T")

OPERATION_TYPES: tuple[OperationType, ...] = ("message", "createFile", "readFile", "editFile", "deleteFile", "shell")
# An answer names what was sent, but an unknown type may be as long as the message.
MAX_SHOWN_CHARS = 60

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FIELD_FIRST = re.compile(r"`(?P<field>[^`]+)`: (?P<reason>.*)", re.DOTALL)


class BadOperation(ValueError):
    """Not an operation, or not an operations message: which field, and why."""

    def __init__(self, field: str, reason: str) -> None:
        self.field = field
        self.reason = reason
        super().__init__(f"{field}: {reason}" if field else reason)

    def within(self, where: str) -> "BadOperation":
        """The same, seen from outside: `path` becomes `operations[2].path`."""
        joined = f"{where}{self.field}" if self.field.startswith("[") else f"{where}.{self.field}"
        return BadOperation(joined if self.field else where, self.reason)


class Validation(msgspec.Struct, Generic[T], frozen=True):
    """What the spec's validation returns: success, and the data or the error."""

    success: bool
    data: T | None = None
    error: BadOperation | None = None


def validate_operation(value: object) -> Validation[Operation]:
    try:
        return Validation(True, parse_operation(value))
    except BadOperation as error:
        return Validation(False, error=error)


def validate_operations_message(value: object) -> Validation[OperationsMessage]:
    try:
        return Validation(True, parse_operations_message(value))
    except BadOperation as error:
        return Validation(False, error=error)


def parse_operation(value: object) -> Operation:
    """The operation; `BadOperation` names field and reason."""
    plain = _plain(value)
    if not isinstance(plain, Mapping):
        raise BadOperation("", f"an operation is a JSON object, not {_kind(plain)}")
    if "type" not in plain:
        raise BadOperation("type", f"is missing; it is one of {', '.join(OPERATION_TYPES)}")
    if plain["type"] not in OPERATION_TYPES:
        raise BadOperation("type", f"{_shown(plain['type'])} is none of {', '.join(OPERATION_TYPES)}")
    operation: Operation = _converted(plain, Operation)
    _check(operation)
    return operation


def parse_operations_message(value: object) -> OperationsMessage:
    plain = _plain(value)
    if not isinstance(plain, Mapping):
        raise BadOperation("", f"an operations message is a JSON object, not {_kind(plain)}")
    if unknown := sorted(set(plain) - {"protocolVersion", "operations"}):
        raise BadOperation(_shown(unknown[0]), "is not a field of an operations message")
    items = check_message(plain.get("protocolVersion"), plain.get("operations"))
    operations = []
    for number, item in enumerate(items):
        try:
            operations.append(parse_operation(item))
        except BadOperation as error:
            raise error.within(f"operations[{number}]") from None
    return OperationsMessage(protocol_version="1.0", operations=operations)


def check_message(protocol_version: object, operations: object) -> Sequence[Any]:
    """What has to be right before any operation is looked at: version, a list, ids that tell operations apart."""
    if protocol_version is None:
        raise BadOperation("protocolVersion", f'is missing; send "{SPACES_PROTOCOL_VERSION}"')
    if protocol_version != SPACES_PROTOCOL_VERSION:
        raise BadOperation(
            "protocolVersion", f'{_shown(protocol_version)} is not spoken here; send "{SPACES_PROTOCOL_VERSION}"'
        )
    if operations is None:
        raise BadOperation("operations", "is missing; send a list, which may be empty")
    if not isinstance(operations, list | tuple):
        raise BadOperation("operations", f"is {_kind(operations)}; send a list of operations")
    if len(operations) > MAX_OPERATIONS:
        raise BadOperation("operations", f"has {len(operations)} items; at most {MAX_OPERATIONS} are allowed")
    seen: dict[str, int] = {}
    for number, item in enumerate(operations):
        id_ = given_id(item)
        if id_ is None:
            continue
        if id_ in seen:
            raise BadOperation(
                f"operations[{number}].id",
                f"{_shown(id_)} is the id of operations[{seen[id_]}] too; events could not be told apart",
            )
        seen[id_] = number
    return operations


def given_id(item: object) -> str | None:
    """The id that an operation, valid or not, goes by; None when it has none that could be used."""
    id_ = item.get("id") if isinstance(item, Mapping) else None
    return id_ if isinstance(id_, str) and 0 < len(id_) <= MAX_OPERATION_ID_CHARS else None


def operation_ids(items: Sequence[Any]) -> list[str]:
    """An id for each operation: its own, else `op-<n>`, counted from 1."""
    given = [given_id(item) for item in items]
    taken = {id_ for id_ in given if id_ is not None}
    ids: list[str] = []
    for number, id_ in enumerate(given, 1):
        if id_ is None:
            # Unless somebody called another operation just that.
            names = (f"op-{number}" + (f".{more}" if more else "") for more in itertools.count())
            ids.append(next(name for name in names if name not in taken))
            taken.add(ids[-1])
        else:
            ids.append(id_)
    return ids


def path_of(operation: Operation) -> WorkspacePath | None:
    """Where a file operation, or a command's `cwd`, points; `BadOperation` when nowhere in a workspace."""
    match operation:
        case CreateFileOperation() | ReadFileOperation() | EditFileOperation() | DeleteFileOperation():
            return _path("path", operation.path)
        case ShellOperation():
            return parse_directory(operation.cwd)
        case MessageOperation():
            return None


def content_of(operation: CreateFileOperation) -> bytes:
    """The bytes that a createFile writes."""
    if operation.encoding == "utf-8":
        return _bytes("content", operation.content)
    try:
        return binascii.a2b_base64(operation.content.encode("ascii"), strict_mode=True)
    except (ValueError, UnicodeEncodeError):
        raise BadOperation(
            "content", "is not base64 (RFC 4648, padded, without line breaks), which `encoding` says it is"
        ) from None


def check_command(command: str, cwd: str | None, env: Mapping[str, str]) -> WorkspacePath | None:
    """A command's own rules, wherever it comes from; the directory it runs in, None for the workspace itself."""
    _no_nul("command", command)
    if not command.strip():
        raise BadOperation("command", "is empty")
    _bytes("command", command)
    size = 0
    for name, value in env.items():
        if _ENV_NAME.fullmatch(name) is None:
            raise BadOperation("env", f"{_shown(name)} is not a variable name: letters, digits and _, no digit first")
        _no_nul(f"env.{name}", value)
        size += len(name) + len(_bytes(f"env.{name}", value))
    if size > MAX_ENV_BYTES:
        raise BadOperation("env", f"has {size} bytes; at most {MAX_ENV_BYTES} are allowed")
    return parse_directory(cwd)


def _check(operation: Operation) -> None:
    match operation:
        case MessageOperation():
            _bytes("content", operation.content)
        case CreateFileOperation():
            path_of(operation)
            _no_more_than("content", len(content_of(operation)))
        case ReadFileOperation() | DeleteFileOperation():
            path_of(operation)
        case EditFileOperation():
            path_of(operation)
            size = 0
            for number, edit in enumerate(operation.edits):
                for name, text in (("oldContent", edit.old_content), ("newContent", edit.new_content)):
                    size += len(_bytes(f"edits[{number}].{name}", text))
            # All old and all new text: neither can be longer than the file it stands in.
            _no_more_than("edits", size, 2 * MAX_CONTENT_BYTES)
        case ShellOperation():
            if not math.isfinite(operation.timeout):
                raise BadOperation("timeout", "is not a finite number of milliseconds")
            check_command(operation.command, operation.cwd, operation.env)


def _path(field: str, text: str) -> WorkspacePath:
    try:
        return parse_path(text)
    except BadPath as error:
        raise BadOperation(field, str(error)) from None


def parse_directory(text: str | None) -> WorkspacePath | None:
    """Where a command runs or what is listed; None for the workspace itself."""
    if text is None:
        return None
    # `.` and `./` name the workspace itself, where a command may well run.
    if text and not text.startswith("/") and all(step in ("", ".") for step in text.split("/")):
        return None
    return _path("cwd", text)


def _no_nul(field: str, text: str) -> None:
    if "\0" in text:
        raise BadOperation(field, "contains a null byte")


def _bytes(field: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise BadOperation(field, "is not valid Unicode: half of a surrogate pair") from None


def _no_more_than(field: str, size: int, limit: int = MAX_CONTENT_BYTES) -> None:
    if size > limit:
        raise BadOperation(field, f"has {size} bytes; at most {limit} are allowed: write it in parts with a command")


def _plain(value: object) -> object:
    if isinstance(value, str | bytes):
        try:
            return codec.decode(value.encode() if isinstance(value, str) else value)
        except codec.BadJson as error:
            raise BadOperation("", error.message) from None
        except UnicodeEncodeError:
            raise BadOperation("", "the text is not valid Unicode: half of a surrogate pair") from None
    return msgspec.to_builtins(value) if isinstance(value, msgspec.Struct) else value


def _converted(value: object, type_: Any) -> Any:
    try:
        return codec.convert(value, type_)
    except codec.BadJson as error:
        found = _FIELD_FIRST.match(error.message)
        if found is None:
            raise BadOperation("", error.message) from None
        raise BadOperation(found["field"], found["reason"]) from None


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str() | bytes():
            return "a string"
        case list() | tuple():
            return "a list"
        case Mapping():
            return "an object"
        case _:
            return f"a Python {type(value).__name__}"


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else _kind(value)
    return f"'{escaped(text[:MAX_SHOWN_CHARS])}...'" if len(text) > MAX_SHOWN_CHARS else f"'{escaped(text)}'"
