"""The generated blocks of docs/bridges/workspace.md: limits, and what the protocol asks for; and the JSON Schemas."""

import json
import sys
from collections.abc import Iterator
from typing import Any

from bascule.workspace import protocol as workspace
from bascule.workspace.limits import WorkspaceLimits
from bascule.workspace.schemas import events_schema, operations_schema
from bascule.workspace.settings import WorkspaceSettings
from doc_broker import shown, tests_named
from doc_text import HERE, code, comments_on_fields, comments_on_numbers, read, table

sys.path.insert(0, str(HERE / "tests" / "conformance"))

from workspace_requirements import REQUIREMENTS, SECTIONS, proofs


def blocks() -> dict[str, str]:
    return {
        "limits": limits(),
        "wire-limits": wire_limits(),
        "coverage": coverage(),
        "requirements": "\n\n".join(_sections()),
    }


def limits() -> str:
    comments = comments_on_fields(read("src/bascule/workspace/limits.py"), "WorkspaceLimits")
    rows = [
        (
            code(name),
            shown(name, getattr(WorkspaceLimits(), name)),
            comments[name],
            code(name) if name in WorkspaceSettings.__struct_fields__ else "",
        )
        for name in WorkspaceLimits.__struct_fields__
    ]
    return table(("limit", "default", "why", "setting"), rows)


def wire_limits() -> str:
    comments = comments_on_numbers(read("src/bascule/workspace/protocol.py"))
    rows = [
        (code(name), shown(name.lower(), value), comments[name])
        for name in comments
        if isinstance(value := getattr(workspace, name), int)
    ]
    return table(("limit", "value", "why"), rows)


def coverage() -> str:
    counted = {status: sum(row.status == status for row in REQUIREMENTS.values()) for status in ("done", "differs")}
    tests = {test for name, found in proofs().items() if name in REQUIREMENTS for test in found}
    return (
        f"{len(REQUIREMENTS)} requirements: {counted['done']} met as written, {counted['differs']} met in another way. "
        f"{len(tests)} tests name them."
    )


def _sections() -> Iterator[str]:
    proved = proofs()
    for decided, section in dict.fromkeys((name.startswith("DEC-"), row.section) for name, row in REQUIREMENTS.items()):
        rows = [
            (
                name,
                f"{row.sentence} *{row.note}*" if row.note else row.sentence,
                row.level,
                row.status,
                tests_named(proved.get(name, [])),
            )
            for name, row in REQUIREMENTS.items()
            if row.section == section and name.startswith("DEC-") is decided
        ]
        title = f"### Decided: {section.lower()}" if decided else f"### {SECTIONS[section]}"
        yield f"{title}\n\n" + table(("id", "what", "level", "status", "shown by"), rows)


def operations() -> str:
    return _text(operations_schema())


def events() -> str:
    return _text(events_schema())


def _text(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
