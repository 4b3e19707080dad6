"""Writes the generated documentation, or with --check says what is stale and exits 1.

What is in BUILT is written for whoever publishes the pages; it is not in the repository, so it cannot be stale there.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import doc_broker
import doc_desktop
import doc_game
import doc_manual
import doc_mesh
import doc_reference
import doc_store
import doc_workspace
from doc_text import HERE, fill, read

BROKER = "docs/bridges/broker.md"
WORKSPACE = "docs/bridges/workspace.md"
DESKTOP = "docs/bridges/desktop.md"
GAME = "docs/bridges/game.md"
MESH = "docs/bridges/mesh.md"
DATA = "docs/data-model.md"

PAGES: dict[str, Callable[[], str]] = {
    BROKER: lambda: fill(read(BROKER), doc_broker.blocks()),
    WORKSPACE: lambda: fill(read(WORKSPACE), doc_workspace.blocks()),
    DESKTOP: lambda: fill(read(DESKTOP), doc_desktop.blocks()),
    GAME: lambda: fill(read(GAME), doc_game.blocks()),
    MESH: lambda: fill(read(MESH), doc_mesh.blocks()),
    DATA: lambda: fill(read(DATA), doc_store.blocks()),
    "docs/reference/cli.md": doc_reference.commands,
    "docs/reference/config.md": doc_reference.settings,
    "docs/reference/errors.md": doc_reference.errors,
    "docs/reference/exit-codes.md": doc_reference.exit_codes,
    "docs/reference/http.md": doc_reference.http,
    "docs/reference/methods.md": doc_reference.methods,
    "docs/reference/schemas/spaces-events.json": doc_workspace.events,
    "docs/reference/schemas/spaces-operations.json": doc_workspace.operations,
    "share/man/man1/bascule.1": doc_manual.page,
}

# The daemon serves the same at GET /openapi.json.
BUILT: dict[str, Callable[[], str]] = {"docs/reference/openapi.json": doc_reference.openapi}


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print("usage: gen_docs.py [--check]", file=sys.stderr)
        return 2
    pages = dict(PAGES) if arguments else PAGES | BUILT
    if sys.version_info[:2] > doc_reference.LAST_PYTHON:
        del pages["docs/reference/cli.md"]
    stale = [name for name, make in pages.items() if _is_stale(HERE / name, make(), write=not arguments)]
    if arguments and stale:
        print(f"stale: {', '.join(stale)}; run: make docs", file=sys.stderr)
        return 1
    for name in stale:
        print(f"wrote {name}")
    return 0


def _is_stale(file: Path, text: str, *, write: bool) -> bool:
    if file.exists() and file.read_text("utf-8") == text:
        return False
    if write:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
