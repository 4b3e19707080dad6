"""The generated blocks of docs/bridges/game.md: states, methods, limits, and every requirement with its tests."""

import importlib
import sys
from collections.abc import Iterator

from bascule.game.rows import METHODS
from bascule.game.states import NEXT
from doc_text import HERE, code, comments_on_numbers, read, table, tests_named

sys.path.insert(0, str(HERE / "tests" / "conformance"))

from game_requirements import GAME_REQUIREMENTS, game_proofs

# Where the limits stand, of the protocol and of the bridge.
_MODULES = (
    "bascule.game.protocol",
    "gabp.messages",
    "gabp.kept",
    "gabp.words",
    "bascule.game.games",
    "bascule.game.life",
    "bascule.game.events",
    "bascule.game.following",
    "bascule.game.subscriptions",
    "bascule.game.pins",
    "bascule.game.ports",
    "bascule.game.settings",
    "bascule.game.attaching",
    "bascule.game.machine.connector",
    "bascule.game.machine.processes",
)
_TITLES = {
    "ENV": "Envelope",
    "MET": "Methods",
    "TOOL": "Tools",
    "EVT": "Events",
    "ATT": "Attention",
    "ERR": "Error codes",
    "SEC": "Security",
    "LIFE": "For agents: lives of games",
    "CALL": "For agents: calls",
    "EVENT": "For agents: events",
    "READ": "For agents: resources, state, attention",
    "DOOR": "For agents: doors",
    "TRUST": "For agents: who is trusted with what",
    "SDK": "The mod SDK",
    "decisions": "Where the specification is silent",
}


def blocks() -> dict[str, str]:
    return {
        "states": states(),
        "methods": methods(),
        "limits": limits(),
        "coverage": coverage(),
        "requirements": "\n\n".join(_sections()),
    }


def states() -> str:
    rows = [
        (code(state), ", ".join(f"{turn} -> {code(following)}" for turn, following in turns.items()))
        for state, turns in NEXT.items()
    ]
    return table(("state", "what can happen"), rows)


def methods() -> str:
    paths = {route.method: f"{route.verb} {route.path}" for row in METHODS for route in row.routes}
    rows = [
        (code(row.name), code(paths[row.name]), row.effect.value, row.shape.value, row.who.kind.value, row.summary)
        for row in METHODS
    ]
    return table(("method", "path", "effect", "shape", "who", "does"), rows)


def limits() -> str:
    rows = []
    for name in _MODULES:
        module = importlib.import_module(name)
        root = "packages/gabp/src" if name.startswith("gabp.") else "src"
        comments = comments_on_numbers(read(f"{root}/{name.replace('.', '/')}.py"))
        rows += [
            (code(limit), str(value), why)
            for limit, why in comments.items()
            if not limit.startswith("_") and isinstance(value := getattr(module, limit), int | float)
        ]
    return table(("limit", "value", "why"), rows)


def coverage() -> str:
    counted = {
        status: sum(row.status == status for row in GAME_REQUIREMENTS.values())
        for status in ("done", "differs", "later")
    }
    tests = {test for found in game_proofs().values() for test in found}
    return (
        f"{len(GAME_REQUIREMENTS)} requirements: {counted['done']} met as written, {counted['differs']} met in another "
        f"way, {counted['later']} not built. {len(tests)} tests name them."
    )


def _sections() -> Iterator[str]:
    proved = game_proofs()
    for section in dict.fromkeys(row.section for row in GAME_REQUIREMENTS.values()):
        rows = [
            (
                name,
                f"{row.sentence} *{row.note}*" if row.note else row.sentence,
                row.status,
                tests_named(proved.get(name, [])),
            )
            for name, row in GAME_REQUIREMENTS.items()
            if row.section == section
        ]
        title = _TITLES.get(section, f"Transport, section {section}")
        yield f"### {title}\n\n" + table(("id", "what", "status", "shown by"), rows)
