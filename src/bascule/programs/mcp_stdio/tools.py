"""The tools that this program shows, read from the lists it is shipped with; what they do is in the daemon.

`toolsets.json` is small and read at the start. `tools.json` is read when a client lists or calls: `initialize` does not
wait for it.
"""

from __future__ import annotations

import os

from bascule.local_client.exits import WrongUsage
from bascule.local_client.values import decode

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

_read: dict[str, Any] = {}


def table() -> dict[str, Any]:
    """`tools` as listed, `retry` by name, `resources`."""
    return _shipped("tools.json")


def toolsets() -> dict[str, Any]:
    """In the order they are listed: `sentence`, `byDefault` and the names of its `tools`, by name."""
    return _shipped("toolsets.json")


def _shipped(name: str) -> dict[str, Any]:
    if name not in _read:
        with open(os.path.join(os.path.dirname(__file__), name), "rb") as file:
            _read[name] = decode(file.read())
    found: dict[str, Any] = _read[name]
    return found


def by_default() -> tuple[str, ...]:
    """The sets that an agent sees which was started without a choice."""
    return tuple(name for name, about in toolsets().items() if about["byDefault"])


def toolsets_in(text: str, known: Collection[str] | None = None) -> tuple[str, ...]:
    """`agents,workspace` as typed behind --toolset or set in BRIDGE_TOOLSETS; `known` unless shipped."""
    known = known if known is not None else toolsets()
    names = tuple(dict.fromkeys(part for word in text.split(",") if (part := word.strip())))
    for name in names:
        if name not in known:
            raise WrongUsage(f"there is no toolset {name!r}; there are {', '.join(known)}")
    if not names:
        raise WrongUsage(f"no toolset is named; there are {', '.join(known)}")
    return names


def described() -> str:
    """One line per set, for --help."""
    width = max(map(len, toolsets()))
    return "\n".join(
        f"  {name:<{width}}  {about['sentence']}{' (default)' if about['byDefault'] else ''}"
        for name, about in toolsets().items()
    )


def visible(chosen: Collection[str], hidden: Collection[str] = ()) -> list[dict[str, Any]]:
    """The tools of some sets, in the table's order, as `tools/list` shows them."""
    names = {name for toolset in chosen for name in toolsets()[toolset]["tools"]}.difference(hidden)
    return [tool for tool in table()["tools"] if tool["name"] in names]


def prompts(chosen: Collection[str]) -> list[dict[str, Any]]:
    """Those that have something to call in these sets."""
    needs = table()["promptsNeed"]
    return [each for each in table()["prompts"] if each["name"] not in needs or needs[each["name"]] in chosen]


def with_task_support(listed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For 2025-11-25, where each tool says whether it can be a task."""
    alone = table()["alone"]
    return [each if each["name"] in alone else {**each, "execution": {"taskSupport": "optional"}} for each in listed]


def name_of(name: object, chosen: Collection[str], hidden: Collection[str]) -> str | None:
    """The tool meant, if it is one of these."""
    plain = plain_name(name)
    if plain in table()["hooks"]:
        return plain
    known = any(plain in toolsets()[toolset]["tools"] for toolset in chosen)
    return plain if known and plain not in hidden else None


def plain_name(name: object) -> str:
    """GABS writes `games.list` for `games_list`."""
    text = name if isinstance(name, str) else ""
    return text.replace(".", "_") if text.startswith("games.") else text
