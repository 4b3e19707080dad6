"""A tool that agents see in MCP: what a model reads before it decides, and the function behind it.

A tool is not a method: the calls inside it are decided, counted and recorded, the tool itself is not. Every word here
is paid for in every session of every agent: schemas name what a caller needs and leave the finer checks to the rows.
"""

import types
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum
from typing import Annotated, Any, Literal, Protocol, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, UnsetType

# MCP's own defaults are left out of the list: not read-only, destructive, not idempotent, an open world.
_CLOSED_WORLD = {"openWorldHint": False}
READS = {"readOnlyHint": True, **_CLOSED_WORLD}
ADDS = {"destructiveHint": False, **_CLOSED_WORLD}
SETS = {"destructiveHint": False, "idempotentHint": True, **_CLOSED_WORLD}
ENDS = {"idempotentHint": True, **_CLOSED_WORLD}
# May do anything that the policy lets it.
ACTS = {"destructiveHint": True, **_CLOSED_WORLD}


class Retry(Enum):
    """What happens to a call whose connection broke before the answer came."""

    # It changes nothing, or what it took comes back: it is made again.
    READ = "read"
    # Its id keys what it does: made again, it is the same call.
    KEYED = "keyed"
    # It may have acted: the answer is `unknown`.
    NEVER = "never"


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Base of the arguments of a tool: what is not given is UNSET."""


class NoArguments(Arguments, frozen=True, kw_only=True):
    pass


def given(arguments: Arguments) -> dict[str, Any]:
    """The arguments that were given, by their names on the wire."""
    plain: dict[str, Any] = msgspec.to_builtins(arguments)
    return plain


class Result(dict[str, Any]):
    """The structured result of a tool, and what goes beside it."""

    # MCP's isError: the model should read it as a failure.
    failed = False
    # Pictures, as MCP content.
    images: Sequence[Mapping[str, Any]] = ()
    # Messages to acknowledge once the client has the result: agentId and ticketIds.
    acknowledge: Mapping[str, Any] | None = None
    # Goes on where this result left off, for a caller that can wait longer than one call may take.
    more: "Callable[[], Awaitable[Result]] | None" = None
    # The question to the person that has to be settled before `more`.
    awaits: str | None = None


class Session(Protocol):
    """What a tool knows of its caller, and its way to the gate."""

    # Made by the caller, the same when a call is repeated: a good ticket id.
    call_id: str
    # How long this call may wait.
    slice_ms: int
    # How texts of other agents are introduced.
    trust: str
    # The reply deadline of who names none; None: the daemon's own.
    default_timeout_ms: int | None
    # Where the client was started: the space of the workspace's tools. Nothing a model says changes it.
    directory: str | None

    # Puts a form of the client before its user; None where it has none, or where there is a better way to ask. Whoever
    # fills it in need not be the user: hooks and wrappers do.
    form: "AskForm | None"

    @property
    def handle(self) -> str:
        """The agent that calls."""

    async def call(self, method: str, params: Mapping[str, Any], *, wait_ms: int | None = None) -> Any:
        """One call of this agent: its answer as on the wire, or a BasculeError. `wait_ms` is sent as `waitMs`."""

    async def become(self, wanted: Mapping[str, Any]) -> Mapping[str, Any]:
        """Register under these params and act as that agent from now on."""


# What stands above the form, and its JSON schema; the answer is MCP's: action, and content where it is `accept`.
AskForm = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
Run = Callable[[Session, Any], Awaitable[Result]]


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    title: str
    description: str
    arguments: type[Arguments]
    # Arguments that callers know from elsewhere: they have no meaning here, and the result says so.
    ignored: tuple[str, ...] = ()
    # Properties of the structured result; open, so that a daemon of tomorrow may say more.
    result: dict[str, Any] = {}
    always: tuple[str, ...] = ()
    hints: dict[str, bool]
    # The methods it calls: an agent that may not call one of them does not see the tool.
    uses: tuple[str, ...]
    retry: Retry
    # Called by hooks of the client, whichever sets its session has. No model sees it; nothing is added to its result.
    for_hooks: bool = False
    # Waits for somebody or something: a client that takes tasks gets one unless the answer is there at once.
    waits: bool = False
    # Changes who the session is, so it cannot go on beside it.
    as_task: bool = True
    run: Run

    def listed(self) -> dict[str, Any]:
        """As `tools/list` shows it."""
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": {**_object_schema(self.arguments), "additionalProperties": False},
            "outputSchema": _object(self.result, self.always),
            "annotations": self.hints,
        }


class Toolset(msgspec.Struct, frozen=True, kw_only=True):
    """The tools of one bridge. An agent sees only the sets it was started with."""

    name: str
    # What an agent does with it, for --help and the settings page.
    sentence: str
    # Shown to an agent that was started without a choice. Every set costs tokens in every session.
    by_default: bool
    tools: tuple[Tool, ...]


def tool(
    name: str,
    title: str,
    description: str,
    *,
    uses: tuple[str, ...],
    hints: dict[str, bool],
    retry: Retry,
    arguments: type[Arguments] | None = None,
    **more: Any,
) -> Callable[[Run], Tool]:
    """Makes the function below it a tool; its arguments are the Struct that the function takes."""

    def made(run: Run) -> Tool:
        return Tool(
            name=name,
            title=title,
            description=description,
            arguments=arguments or list(get_type_hints(run).values())[1],
            hints=hints,
            uses=uses,
            retry=retry,
            run=run,
            **more,
        )

    return made


# What output schemas are made of.
STRING = {"type": "string"}
OBJECT = {"type": "object"}
INTEGER = {"type": "integer"}
BOOLEAN = {"type": "boolean"}
LIST = {"type": "array"}
ANY: dict[str, Any] = {}

# What arguments are made of.
Count = Annotated[int, Meta(ge=1)]
Names = list[str]


def _object(properties: dict[str, Any], required: Sequence[str]) -> dict[str, Any]:
    out = {"type": "object", "properties": properties}
    return {**out, "required": list(required)} if required else out


def _object_schema(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """Flat JSON schema of a Struct: no $ref, no null, no anyOf; fields in their order."""
    fields = msgspec.structs.fields(struct)
    properties = {}
    for field in fields:
        shape = _schema(field.type)
        properties[field.encode_name] = {**shape, "default": True} if field.default is True else shape
    return _object(properties, [field.encode_name for field in fields if field.required])


_PLAIN: dict[Any, dict[str, Any]] = {str: STRING, int: INTEGER, bool: BOOLEAN, list: LIST, dict: OBJECT, Any: ANY}


def _schema(kind: Any) -> dict[str, Any]:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        shape = _schema(arguments[0])
        for meta in arguments[1:]:
            shape |= {"minimum": meta.ge} if meta.ge is not None else {}
            shape |= {"description": meta.description} if meta.description else {}
        return shape
    if origin in (Union, types.UnionType):
        (wanted,) = [each for each in arguments if each is not UnsetType]
        return _schema(wanted)
    if origin is Literal:
        return {**STRING, "enum": list(arguments)}
    if origin is list and arguments[0] is not Any:
        return {**LIST, "items": _schema(arguments[0])}
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _object_schema(kind)
    return dict(_PLAIN[origin or kind])
