"""What a run leaves behind that other programs of the user obey: said in its result, at once."""

from collections.abc import Iterator, Mapping
from typing import Any

from bascule.kernel.policy.steering import READ, why_obeyed
from bascule.workspace.ports import Checkpoints
from gabp import codec
from gabp.text import escaped

# One run that sets up a project for every editor and agent there is leaves some fifty; of more the last sentence says
# how many there are.
MAX_SENTENCES = 64
PACKAGE = "package.json"
# A directory with these is a repository to git, whatever it is called.
_BARE = ("HEAD", "objects", "refs")
# What git obeys there.
_OBEYED = ("config", "hooks")
_REPOSITORY = "a repository that was not there before; git obeys its configuration and hooks"
_CHANGED = "a repository whose configuration or hooks changed; git obeys them"


def steering_left(checkpoints: Checkpoints, before: str, after: str, known: Mapping[str, int] | None) -> list[str]:
    """Blocking. `known`: every `.git` that was there before, with its inode; None when nobody looked."""
    found = [
        f"{escaped(place)}: {_REPOSITORY}"
        for place, inode in checkpoints.repositories.items()
        if known is not None and known.get(place) != inode
    ]
    # What is executed comes first, should there be too many.
    found += sorted(_files(checkpoints, before, after), key=lambda each: each.endswith(f": {READ}"))
    if len(found) > MAX_SENTENCES:
        more = len(found) - MAX_SENTENCES + 1
        found[MAX_SENTENCES - 1 :] = [f"and {more} more files of this kind; `bascule runs diff` lists them"]
    return found


def _files(checkpoints: Checkpoints, before: str, after: str) -> Iterator[str]:
    paths = checkpoints.touched(before, after)
    yield from _bare(checkpoints, before, after, paths)
    for path in paths:
        if path.rpartition("/")[2].casefold() == PACKAGE:
            # A link's content is where it leads.
            is_link = checkpoints.kind(after, path) == "link"
            if is_link or _scripts(checkpoints.content(after, path)) != _scripts(checkpoints.content(before, path)):
                yield f"{escaped(path)}: its scripts changed; npm runs some of them by itself"
        elif (why := why_obeyed(path)) is not None and checkpoints.content(after, path) is not None:
            yield f"{escaped(path)}: {why}"


def _bare(checkpoints: Checkpoints, before: str, after: str, paths: list[str]) -> Iterator[str]:
    """Repositories that are not called `.git`: new ones, and those in which something changed that git obeys."""
    folders: dict[str, bool] = {}
    for path in paths:
        steps = path.split("/")
        for at in {len(steps) - 2, len(steps) - 1} - {-1}:
            if steps[at] in _BARE or steps[at] in _OBEYED:
                folder = "/".join(steps[:at])
                folders[folder] = folders.get(folder, False) or steps[at] in _OBEYED
    for folder, obeyed in folders.items():
        if _is_repository(checkpoints, after, folder):
            if not _is_repository(checkpoints, before, folder):
                yield f"{escaped(folder) or '.'}: {_REPOSITORY}"
            elif obeyed:
                yield f"{escaped(folder) or '.'}: {_CHANGED}"


def _is_repository(checkpoints: Checkpoints, tree: str, folder: str) -> bool:
    return all(checkpoints.kind(tree, f"{folder}/{each}".lstrip("/")) is not None for each in _BARE)


def _scripts(data: bytes | None) -> Any:
    try:
        package = codec.decode(data or b"{}", Any)
    except codec.BadJson:
        return data
    return package.get("scripts") if isinstance(package, dict) else None
