"""The manifest of a bridge, first part: what it is before any daemon runs, as data.

Client, CLI, docs and the daemon read it from the one list in `bascule.bridge_list`. `Declared.made_by` leads to the
second part, `kernel.bridge.Bridge`, so a bridge is one entry of one list.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from bascule.kernel.rows import Row, Shape

if TYPE_CHECKING:
    import msgspec

    from bascule.kernel.bridge import Bridge, KernelServices, Ports
    from bascule.kernel.policy.rules import Rule
    from bascule.kernel.route import Route
    from bascule.kernel.settings import Settings
    from bascule.kernel.tool import Tool, Toolset

Make: TypeAlias = "Callable[[KernelServices, Ports], Bridge]"


class Commands(NamedTuple):
    """Commands of `bascule`, and the module whose `add_parser` adds them: imported when one of them is typed."""

    module: str
    names: tuple[str, ...]


class Kept(NamedTuple):
    """What has one format, numbered: of another number nothing is read, and all of it is moved aside."""

    name: str
    format: int
    tables: tuple[str, ...]
    # In the state directory.
    directories: tuple[str, ...]


class Declared:
    """What a bridge is before any daemon runs.

    Rows are at hand, because every client reads them. The rest is a method that imports what it returns: a client
    pays for no policy and no tables.
    """

    # Its one name: `Composition` keeps the bridges by it.
    name: str
    # Methods, and the operations of its runs.
    rows: tuple[Row, ...]
    # "module:function" that makes the `Bridge`.
    made_by: str
    # "module:tuple" with the lines that it adds to `bascule doctor`. They belong to the command, which knows what a
    # check looks at, so a name leads to them.
    checked_by: str | None = None
    # What its users type.
    commands: tuple[Commands, ...] = ()

    @property
    def methods(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.shape is not Shape.OPERATION)

    @property
    def routes(self) -> "tuple[Route, ...]":
        return tuple(route for row in self.rows for route in row.routes)

    def toolset(self) -> "Toolset | None":
        """What agents see of it in MCP."""
        return None

    def hooks(self) -> "tuple[Tool, ...]":
        """What hooks of a client call through its session; no model sees it."""
        return ()

    def rules(self) -> "Mapping[str, tuple[Rule, ...]]":
        """By preset: what the policies that come with us say about its methods."""
        return {}

    def tables(self) -> "Mapping[str, type[msgspec.Struct]]":
        """What it keeps in the store, by name."""
        return {}

    def kept(self) -> Kept | None:
        """Which of it has a format of its own."""
        return None

    def settings(self) -> "type[Settings] | None":
        """What its user may set."""
        return None

    def make(self, kernel: "KernelServices", ports: "Ports") -> "Bridge":
        return cast("Make", named(self.made_by))(kernel, ports)


def named(where: str) -> Any:
    """What "module:name" means; imported now."""
    module, _, name = where.partition(":")
    return getattr(import_module(module), name)
