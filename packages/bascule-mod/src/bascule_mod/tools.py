"""`@tool`: a function an agent may call."""

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar, overload

import msgspec
from msgspec import UNSET, structs

from bascule_mod.schemas import BadTool, Signature, read_signature
from gabp import messages
from gabp.codec import Decoder, decoder

F = TypeVar("F", bound=Callable[..., Any])

READ_ONLY: Final = "read-only"
DESTRUCTIVE: Final = "destructive"
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]*(?:/[a-z][a-z0-9_-]*)+")
_MARK: Final = "__bascule_tool__"


class ToolError(Exception):
    """Raised by a tool to say what went wrong; `data` is any JSON the agent may use."""

    def __init__(self, message: str, data: Any = UNSET) -> None:
        super().__init__(message)
        self.message = message
        self.data = data


class ToolOptions(msgspec.Struct, frozen=True, kw_only=True):
    # `namespace/name`; the mod's own name and the function's unless given.
    name: str | None = None
    title: str | None = None
    description: str | None = None
    tags: tuple[str, ...] = ()
    # Looks and changes nothing: may be called while the game wants attention.
    read_only: bool = False
    # Destroys what cannot be had again: a bridge asks a person first.
    destructive: bool = False
    deprecated: bool = False
    version: str | None = None


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    tags: tuple[str, ...] = (),
    read_only: bool = False,
    destructive: bool = False,
    deprecated: bool = False,
    version: str | None = None,
) -> Callable[[F], F]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Mark a function or a method; `Mod.add` finds it. `Mod.tool` marks and adds at once."""
    chosen = ToolOptions(**options)

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        setattr(function, _MARK, chosen)
        return function

    return mark if function is None else mark(function)


class ToolEntry:
    """A tool of a running mod: what is listed, and how it is called."""

    __slots__ = ("_function", "decode", "listed", "signature")

    def __init__(self, function: Callable[..., Any], options: ToolOptions, namespace: str) -> None:
        own = getattr(function, "__name__", "tool").lower()
        name = options.name or f"{namespace}/{own}"
        if not _NAME.fullmatch(name):
            raise BadTool(
                f"{name!r} is not a tool name: small letters, digits, - and _, at least one slash, like player/move"
            )
        self._function = function
        self.signature: Signature = read_signature(function, name)
        self.decode: Decoder[msgspec.Struct] = decoder(self.signature.arguments)
        title = options.title or name.rpartition("/")[2].replace("_", " ").replace("-", " ").capitalize()
        tags = list(dict.fromkeys((*options.tags, *_tags(options))))
        self.listed = messages.Tool(
            name=name,
            title=title,
            description=options.description or self.signature.description or title,
            input_schema=self.signature.input_schema,
            output_schema=self.signature.output_schema,
            tags=tags or UNSET,
            deprecated=True if options.deprecated else UNSET,
            version=UNSET if options.version is None else options.version,
        )

    @property
    def name(self) -> str:
        return self.listed.name

    def call(self, arguments: msgspec.Struct, context: Any) -> Any:
        given = structs.asdict(arguments)
        if self.signature.context is not None:
            given[self.signature.context] = context
        return self._function(**given)


def _tags(options: ToolOptions) -> Iterator[str]:
    if options.read_only:
        yield READ_ONLY
    if options.destructive:
        yield DESTRUCTIVE


def options_of(function: Callable[..., Any]) -> ToolOptions | None:
    found = getattr(function, _MARK, None)
    return found if isinstance(found, ToolOptions) else None


def marked(owner: object) -> Iterator[tuple[Callable[..., Any], ToolOptions]]:
    """The marked functions of a module, a class's instance or a namespace; or the function itself."""
    if callable(owner) and (options := options_of(owner)) is not None:
        yield owner, options
        return
    for name in dir(owner):
        if name.startswith("__"):
            continue
        member = getattr(owner, name)
        if callable(member) and (options := options_of(member)) is not None:
            yield member, options
