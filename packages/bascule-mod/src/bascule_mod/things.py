"""Resources to read and state to get and set: named functions of the game, run on its own thread."""

import base64
import inspect
import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from bascule_mod.schemas import BadTool
from gabp import messages
from gabp.codec import Decoder, decoder

F = TypeVar("F", bound=Callable[..., Any])

_URI: Final = re.compile(r"gabp://(system|game|mod|bridge)/\S+")


class ResourceEntry:
    def __init__(self, uri: str, function: Callable[..., Any], name: str, description: str, mime_type: str) -> None:
        if not _URI.fullmatch(uri):
            raise BadTool(f"{uri!r} is not a resource URI: gabp://game/... , or system, mod or bridge in place of game")
        self.uri = uri
        self._function = function
        self._mime_type = mime_type
        self.listed = messages.Resource(
            uri=uri, name=name, description=description or UNSET, mime_type=mime_type or "application/json"
        )

    def read(self) -> messages.ResourcesReadResult:
        found = self._function()
        if isinstance(found, (bytes, bytearray, memoryview)):
            mime_type = self._mime_type or "application/octet-stream"
            return messages.ResourcesReadResult(
                content=base64.b64encode(found).decode(), mime_type=mime_type, encoding="base64"
            )
        encoding: str | UnsetType = "utf-8" if isinstance(found, str) else UNSET
        mime_type = self._mime_type or ("text/plain" if isinstance(found, str) else "application/json")
        return messages.ResourcesReadResult(content=found, mime_type=mime_type, encoding=encoding)


class Component:
    """One named part of the game's state. `@component.setter` makes it settable."""

    def __init__(self, name: str, get: Callable[..., Any]) -> None:
        self.name = name
        self._get = get
        self._set: Callable[..., Any] | None = None
        self._decode: Decoder[Any] | None = None
        self._get_takes_player = _takes_player(get)
        self._set_takes_player = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._get(*args, **kwargs)

    def setter(self, function: F) -> F:
        """A function of one value (and `player_id`, if it names one). Raise ValueError to refuse it."""
        names = [name for name in inspect.signature(function).parameters if name != "player_id"]
        if len(names) != 1:
            raise BadTool(f"the setter of {self.name!r} takes one value, not {len(names)}")
        try:
            hint = inspect.get_annotations(function, eval_str=True).get(names[0], Any)
            self._decode = decoder(hint)
        except (NameError, TypeError) as error:
            raise BadTool(f"the setter of {self.name!r}: its type cannot be read: {error}") from None
        self._set = function
        self._set_takes_player = _takes_player(function)
        return function

    @property
    def settable(self) -> bool:
        return self._set is not None

    def get(self, player_id: str | None) -> Any:
        return self._get(player_id=player_id) if self._get_takes_player else self._get()

    def decode(self, text: msgspec.Raw) -> Any:
        """BadJson says what is wrong with it."""
        assert self._decode is not None
        return self._decode.decode(text)

    def set(self, value: Any, player_id: str | None) -> None:
        assert self._set is not None
        if self._set_takes_player:
            self._set(value, player_id=player_id)
        else:
            self._set(value)


def _takes_player(function: Callable[..., Any]) -> bool:
    return "player_id" in inspect.signature(function).parameters
