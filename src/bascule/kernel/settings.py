"""What a bridge, or the daemon, lets its user set.

Each declares one Struct; `daemon.config` reads the keys of all of them from one file and the environment, and a key
belongs to one Struct. A part that needs a setting asks for its Struct by class.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, TypeVar

import msgspec
from msgspec import Meta

from bascule.foundation.errors import InvalidRequest

# A settings file is a page, not a database.
MAX_FILE_BYTES = 256 * 1024

Ms = Annotated[int, Meta(ge=1)]
Count = Annotated[int, Meta(ge=1)]


class BadConfig(InvalidRequest):
    """A setting is wrong; the message names file, key and remedy."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A field is a key. It needs a default, and the comment above it is its documentation."""

    # Key -> the name that a specification gives its variable; `BASCULE_<KEY>` works for every key.
    spec_variables: ClassVar[Mapping[str, str]] = {}

    def check(self, ours: Sequence[str], /) -> None:
        """Raise BadConfig for what this machine cannot do; `ours` are the daemon's directories.

        Called at the start of a daemon, before anything is touched.
        """


S = TypeVar("S", bound=Settings)
L = TypeVar("L", bound=msgspec.Struct)


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that is set."""

    parts: tuple[Settings, ...]

    def of(self, kind: type[S]) -> S:
        for part in self.parts:
            if isinstance(part, kind):
                return part
        raise LookupError(f"no bridge of the list declares {kind.__name__}")


def limits_in(settings: Settings, kind: type[L], **more: object) -> L:
    """The limits that are settings, under the names that they have there."""
    shared = set(kind.__struct_fields__).intersection(settings.__struct_fields__)
    return kind(**{name: getattr(settings, name) for name in shared}, **more)


def read_file(path: str) -> bytes:
    """A file that the user's settings are in, or that they name."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise BadConfig(f"{path} cannot be read: {error.strerror}", hint="check the path and its mode") from error
    if len(data) > MAX_FILE_BYTES:
        raise BadConfig(f"{path} is larger than {MAX_FILE_BYTES} bytes", hint="this is not a settings file")
    return data
