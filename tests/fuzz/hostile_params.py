"""Params that nobody sends: for each field of each row, the values that cost a reader of ours most for their length.

Values are JSON texts, for a few megabytes of them are made in no time as bytes.
"""

import base64
import json
from collections.abc import Iterable, Iterator
from typing import Any

import hostile_commands
from msgspec import inspect

# 64 KiB with what stands around it.
SHORT = 63_000
_PIECES = (
    "a", "a ", "../", "/", ".", "\u200b", "\u00e9", "\u00e9/", "a. /", "\\", '"', "*", "[", "{a,", "\n", "ls a;", "$x ",
    "~/", "cd a;sh b;", "@", "9", "\x01", "(", "rm -rf x;", "\U0001f600", "**/", "apply_patch *** Add File: ",
)  # fmt: skip
# Of JSON as such: what has many values, deep ones, slow numbers, long names.
_SHAPES = (
    (b"[", b"0,", b"0]"), (b"[", b"[],", b"0]"), (b"[", b"{},", b"0]"), (b"[", b'{"a":1},', b"0]"),
    (b"[", b'"",', b"0]"), (b"[", b"1e300,", b"0]"), (b"[", b"4.9e-324,", b"0]"),
    (b"[", b"9" * 4_000 + b",", b"0]"),
    (b"", b"[", b""),
    (b"[", b"-1.7976931348623157e308,", b"0]"), (b'{"', b"k", b'":0}'), (b"", b'{"a":', b"1"), (b"", b"9", b""),
    (b'"', b"\\u0001", b'"'), (b'"', b'\\"', b'"'), (b'"', b",", b'"'), (b'"', b"a", b'"'), (b'"', b"\\ud800", b'"'),
)  # fmt: skip


def many(before: bytes, piece: bytes, behind: bytes, size: int) -> bytes:
    return before + piece * (size // len(piece)) + behind


def of_json(size: int) -> Iterator[bytes]:
    for before, piece, behind in _SHAPES:
        yield many(before, piece, behind, size)
    yield b"{" + b",".join(b'"k%d":0' % number for number in range(size // 12)) + b"}"


def text(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _unwrapped(kind: inspect.Type) -> inspect.Type:
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    return kind


def usual(kind: inspect.Type) -> Any:  # noqa: C901 - one case for each kind of type
    """A value that is valid, or nearly."""
    match _unwrapped(kind):
        case inspect.UnionType(types=types):
            return usual(next(each for each in types if not isinstance(each, inspect.NoneType)))
        case inspect.StrType(min_length=least):
            return "a" * max(1, least or 0)
        case inspect.IntType(ge=least):
            return least or 1
        case inspect.FloatType():
            return 1
        case inspect.BoolType():
            return False
        case inspect.ListType(item_type=item, min_length=least):
            return [usual(item)] * (least or 0)
        case inspect.DictType():
            return {}
        case inspect.LiteralType(values=values):
            return values[0]
        case inspect.EnumType(cls=cls):
            return next(iter(cls)).value
        case inspect.StructType(fields=fields):
            return {field.encode_name: usual(field.type) for field in fields if field.required}
        case _:
            return ""


def of_type(kind: inspect.Type, size: int, within: tuple[type, ...] = ()) -> Iterator[bytes]:  # noqa: C901, PLR0912 - as above
    """Hostile values of about this size that the type may take; one within itself is as usual."""
    match _unwrapped(kind):
        case inspect.UnionType(types=types):
            for each in types:
                yield from of_type(each, size, within)
        case inspect.StrType(max_length=most):
            for piece in _PIECES:
                yield text(hostile_commands.repeated(piece, min(size // len(piece.encode()), most or size)))
        case inspect.BytesType():
            yield from (b'"%b"' % base64.b64encode(raw) for raw in hooks(size * 3 // 4))
        case inspect.ListType(item_type=item, max_length=most):
            yield from of_json(size)
            for value in (text(usual(item)), *of_type(item, size // min(most or 100, 100), within)):
                count = min(size // (len(value) + 1) + 1, most or size)
                yield b"[" + b",".join([value] * count) + b"]"
            if isinstance(_unwrapped(item), inspect.StrType):
                for before in ("", "\u00e9", "/\u00e9", "a/b/c/"):
                    names = hostile_commands.names(min(size // 10, most or size))
                    yield text([before + name for name in names])
        case inspect.StructType(cls=cls) if cls in within:
            yield text(usual(kind))
        case inspect.StructType(cls=cls, fields=fields):
            for field in fields:
                for value in of_type(field.type, size, (*within, cls)):
                    yield with_fields(usual(kind), {field.encode_name: value})
        case inspect.DictType():
            yield from of_json(size)
            yield from (b'{"k":%b}' % value for value in of_json(size))
        case _:
            yield from of_json(size)


def with_fields(params: dict[str, Any], more: dict[str, bytes]) -> bytes:
    parts = {name: text(value) for name, value in params.items()} | more
    return b"{" + b",".join(text(name) + b":" + value for name, value in parts.items()) + b"}"


def of_row(params: type, size: int) -> Iterator[bytes]:
    fields = inspect.type_info(params).fields  # type: ignore[attr-defined] - params are Structs
    base = {field.encode_name: usual(field.type) for field in fields if field.required}
    for field in fields:
        for value in of_type(field.type, size):
            yield with_fields(base, {field.encode_name: value})
    yield with_fields(base, {"no such field": many(*_SHAPES[0], size)})
    yield from of_json(size)


# -- what methods look into -----------------------------------------------------------------------


def hooks(size: int) -> Iterator[bytes]:
    """What clients give their hooks."""
    for name, given in _calls(size):
        event = {"session_id": "s", "cwd": "/p", "hook_event_name": "PreToolUse", "tool_name": name}
        yield with_fields(event, {"tool_input": given})
    for value in of_json(size):
        yield value
        for field in ("session_id", "prompt", "tool_response"):
            yield with_fields({"hook_event_name": "PreToolUse", "tool_name": "x"}, {field: value})


def _calls(size: int) -> Iterator[tuple[str, bytes]]:
    for piece in (*hostile_commands.PIECES, *_PIECES):
        if "\ud800" not in piece:
            yield "Bash", text({"command": hostile_commands.repeated(piece, min(size, 64_000))})
    for piece in _PIECES:
        yield "Write", text({"file_path": hostile_commands.repeated(piece, 4_096), "content": "x"})
        yield "Edit", text({"file_path": "a", "old_string": piece * 999, "new_string": piece * (size // 4)})
        yield "Grep", text({"pattern": "x", "glob": hostile_commands.repeated(piece, 4_096)})
        yield "read_many_files", text({"paths": [piece * 9] * min(1_000, size // 300)})
    for before in ("", "\u00e9", "/\u00e9", "a. /"):
        names = [before + name for name in hostile_commands.names(min(1_000, size // 30))]
        yield "read_many_files", text({"paths": names})
        yield "apply_patch", text({"command": "".join(f"*** Add File: {name}\n+x\n" for name in names)})
        yield "Bash", text({"command": "apply_patch <<E\n" + "".join(f"*** Add File: {name}\n" for name in names)})
    for value in of_json(size):
        yield "MultiEdit", with_fields({"file_path": "a"}, {"edits": value})
        yield "Bash", with_fields({"command": "ls"}, {"x": value})
        yield "Bash", with_fields({}, {"command": value})


def runs(size: int) -> Iterator[bytes]:
    base = {"spaceId": "a", "protocolVersion": "1.0"}
    for piece in hostile_commands.PIECES:
        operation = text({"type": "shell", "command": hostile_commands.repeated(piece, 4_096)})
        yield with_fields(base, {"operations": many(b"[", operation + b",", operation + b"]", size)})
    for operation in (b'{"type":"shell","command":"ls"}', b'{"type":"readFile","path":"a"}', b"{}"):
        yield with_fields(base, {"operations": many(b"[", operation + b",", operation + b"]", size)})


def explained(rows: Iterable[tuple[str, type]], size: int) -> Iterator[bytes]:
    """Each row's params once more, as `policy.explain` is asked about them."""
    for name, params in rows:
        for given in of_row(params, size):
            if given[:1] == b"{":
                yield with_fields({"method": name}, {"params": given})
