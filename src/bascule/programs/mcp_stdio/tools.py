"""The list of tools that this program shows, read from `tools.json`; what they do is in the daemon.

Read only when a client lists or calls: `initialize` does not wait for it.
"""

from __future__ import annotations

import os

from bascule.local_client.exits import WrongUsage
from bascule.local_client.values import decode

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

# In the order they are listed. An agent sees only the sets it was started with.
TOOLSETS = ("agents", "workspace", "desktop", "games")
# Shown without a choice. Games cost 2,000 tokens in every session, and few agents play.
DEFAULT_TOOLSETS = ("agents", "workspace")

_FILE = os.path.join(os.path.dirname(__file__), "tools.json")
_table: dict[str, Any] = {}


def table() -> dict[str, Any]:
    """`tools` as listed, `toolsets` and their names, `retry` by name."""
    if not _table:
        with open(_FILE, "rb") as file:
            _table.update(decode(file.read()))
    return _table


def toolsets_in(text: str) -> tuple[str, ...]:
    """`agents,workspace` as typed behind --toolset or set in BRIDGE_TOOLSETS."""
    names = tuple(dict.fromkeys(part for word in text.split(",") if (part := word.strip())))
    for name in names:
        if name not in TOOLSETS:
            raise WrongUsage(f"there is no toolset {name!r}; there are {', '.join(TOOLSETS)}")
    if not names:
        raise WrongUsage(f"no toolset is named; there are {', '.join(TOOLSETS)}")
    return names


def visible(toolsets: Collection[str] = TOOLSETS, hidden: Collection[str] = ()) -> list[dict[str, Any]]:
    """The tools of some sets, in the table's order, as `tools/list` shows them."""
    names = {name for toolset in toolsets for name in table()["toolsets"][toolset]}.difference(hidden)
    return [tool for tool in table()["tools"] if tool["name"] in names]


def name_of(name: object, toolsets: Collection[str], hidden: Collection[str]) -> str | None:
    """The tool meant, if it is one of these."""
    plain = plain_name(name)
    known = any(plain in table()["toolsets"][toolset] for toolset in toolsets)
    return plain if known and plain not in hidden else None


def plain_name(name: object) -> str:
    """GABS writes `games.list` for `games_list`."""
    text = name if isinstance(name, str) else ""
    return text.replace(".", "_") if text.startswith("games.") else text
